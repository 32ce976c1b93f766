"""Every dataset that names one of the hub, from a hub that lays it out as its publisher does."""

from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf
from published_datasets import DATASETS, PAGES, ROWS, dataset, parquet
from served import ROOT, Hub, Repository, client, served

YAMLS = ROOT / "conf/dataset"
PATHS = {path.relative_to(YAMLS).with_suffix("").as_posix(): path for path in sorted(YAMLS.rglob("*.yaml"))}
RAW = ("c4", "cnn_dm", "openwebtext", "wikitext")
FRAMED = ("gsd/alpaca", "gsd/gsm8k", "humaneval", "mbpp", "math_500", "aime_2024", "livecodebench")
PARTS = ("improving_mcsd/alpaca", "improving_mcsd/triviaqa")
"""Of which the first half is for calibration."""
SUMMARIZE = "\n\nSummarize the above article in 1 sentence.\n"
MBPP = "Write a function that adds 1. Your code should pass these tests:\n\nassert add(0) == 1\nassert add(1) == 2"
LIVE = "Count to 1.\n\nBegin with this code:\n```python\nclass Solution:\n    def count(self):\n```"
SECOND = {  # of the second row: id, turns, reference, category
    "aime_2024": ("aime_2024_61", ["Find 1."], "001", None),
    "humaneval": ("humaneval_HumanEval/1", ["def add_1(x):\n    # 1 more\n"], "    return x + 1\n", None),
    "livecodebench": ("livecodebench_q1", [LIVE], None, "hard"),
    "math_500": ("math_500_test/algebra/1.json", ["Compute $\\sqrt{1}^2$."], "1", "Geometry"),
    "mbpp": ("mbpp_12", [MBPP], "def add(x): return x + 1", None),
    "alpaca": ("alpaca_1", ["Sort list 1."], "a c 1", None),
    "c4": ("c4_2", [PAGES[1]], None, None),  # behind a page that is too short
    "cnn_dm": ("cnn_dm_f001", [PAGES[1]], "News 1.", None),
    "gsm8k": ("gsm8k_1", ["What is 1 plus 1?"], "Twice 1. #### 2", None),
    "mt_bench": ("mt_bench_82", ["First 1.", "Then 1."], '["Answer 1.", "The other."]', "math"),
    "openwebtext": ("openwebtext_2", [PAGES[1]], None, None),
    "triviaqa": ("triviaqa_tc_1", ["Which town has 1 gates?"], "Town 1 | Alias 1", None),
    "wikitext": ("wikitext_1", [f"= Town 1 = \n {PAGES[1].strip()}"], None, None),
    "wmt14": (
        "wmt14_1",
        ["Translate the input English sentence into German.\nInput: Sentence 1.\nOutput: "],
        "Satz 1.",
        None,
    ),
    "wmt14_de_en": ("wmt14_de_en_1", ["Translate German to English: Satz 1."], "Sentence 1.", None),
    "xsum": ("xsum_1", [f"###\nArticle: {PAGES[1]}{SUMMARIZE}"], "Rivers 1.", None),
}


OF_HUB = [name for name in PATHS if name.rpartition("/")[2] in SECOND]
"""The others are bundled, or one's own."""


def test_datasets_of_yamls_are_on_the_hub_of_the_tests():
    hubs = {name: OmegaConf.load(path).get("hub") for name, path in PATHS.items()}
    assert {hub.path for hub in hubs.values() if hub} == DATASETS.keys()
    assert {name for name, hub in hubs.items() if hub} == SECOND.keys()


def test_datasets_are_in_the_words_of_their_yamls_and_later_there_without_the_hub(tmp_path):
    with served(Hub({f"datasets/{name}": dataset(name) for name in DATASETS})) as hub:
        read = client(hub, tmp_path, "read", *(f"dataset={name}" for name in OF_HUB))
        assert {name: said for name, said in read.items() if isinstance(said, str)} == {}
        for name in OF_HUB:
            check_conversations(name, read[f"dataset={name}"])
            check_prompts(name, read[f"dataset={name}"])

        hub.asked.clear()
        hub.questions.clear()
        assert client(hub, tmp_path, "read", *read, HF_HUB_OFFLINE="1") == read
        assert not hub.asked + hub.questions


def check_conversations(name: str, said: list[dict[str, Any]]) -> None:
    """They are the rows of the split, as the adapter words them."""
    part = name in PARTS
    assert len(said) == (ROWS - ROWS // 2 if part else ROWS), name
    assert len({one["id"] for one in said}) == len(said), name
    second = SECOND[name.rpartition("/")[2]]
    assert part or second in [(one["id"], one["turns"], one["reference"], one["category"]) for one in said], name


def check_prompts(name: str, said: list[dict[str, Any]]) -> None:
    """They are as long as the yaml says, and in its frame."""
    frame = OmegaConf.load(PATHS[name]).get("frame") or "{text}"
    assert (frame != "{text}") == (name in FRAMED), name
    for one in said:
        turn, text = one["turns"][0], one["text"]
        if name in RAW:
            assert one["tokens"] == 128, name
            assert turn.startswith(text), name
        elif name.endswith("xsum"):
            assert one["tokens"] == 512, name
            assert text.endswith(SUMMARIZE), name
            assert turn.startswith(text.removesuffix(SUMMARIZE)), name
        else:
            assert text == frame.replace("{text}", turn), name


def test_a_branch_that_moves_a_pinned_commit_a_busy_hub_and_refusals(tmp_path):
    """In one process, as each takes seconds to start."""
    file, stream = "main/test-00000-of-00001.parquet", "de-en/test-00000-of-00001.parquet"
    moved, busy = dataset("openai/gsm8k"), replace(dataset("wmt/wmt14"), faults={stream: [429, 503, 0]})
    first = moved.commit
    moved.move({file: parquet([{"question": "Moved?", "answer": "#### 1"}])})
    files = moved.files
    shut = {"acme/shut": Repository(files, gated=True), "acme/hidden": Repository(files, private=True)}
    failing = {"acme/broken": Repository(files, faults={file: [0, 429, 503]}), "wmt/wmt14": busy}
    asked = {
        "new": "dataset=gsm8k",
        "old": f"dataset=gsm8k +dataset.hub.revision={first}",
        "busy": "dataset=wmt14",
        **{name: f"dataset=gsm8k dataset.hub.path=acme/{name}" for name in ("broken", "shut", "hidden", "nothing")},
        "shut stream": "dataset=gsm8k dataset.hub.path=acme/shut +dataset.hub.streaming=true",
    }
    datasets = {"openai/gsm8k": moved} | shut | failing
    with served(Hub({f"datasets/{name}": one for name, one in datasets.items()})) as hub:
        answers = client(hub, tmp_path, "read", *asked.values())
    said = {name: answers[override] for name, override in asked.items()}
    turns = {name: [one["turns"][0] for one in said[name]] for name in ("new", "old", "busy", "broken")}
    assert turns["new"] == turns["broken"] == ["Moved?"]
    assert turns["old"] == [f"What is {n} plus {n}?" for n in range(ROWS)]
    assert len(turns["busy"]) == ROWS
    assert not any(one.faults[path] for one, path in ((busy, stream), (failing["acme/broken"], file)))
    for name in ("shut", "shut stream"):
        assert "gated" in said[name]
    for name in ("hidden", "nothing"):
        assert "not on" in said[name]
