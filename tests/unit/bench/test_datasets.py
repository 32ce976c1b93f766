import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from specdec_trees.locations import CONF
from specdec_trees.names import nearest, unknown
from specdec_trees.prompts import datasets, export
from specdec_trees.prompts.datasets import (
    UNRESOLVED,
    Conversation,
    DatasetError,
    DatasetSpec,
    HubSource,
    fingerprint,
    load,
    source_id,
)

GOOD = {"id": "a", "turns": ["First?", "Second?"], "reference": None, "category": "math"}


def spec(**changes) -> DatasetSpec:
    config = {
        "name": "quiz",
        "hub": {"path": "some/quiz", "name": "main", "split": "test", "streaming": True},
        "adapter": "gsm8k",
        "max_new_tokens": 64,
    }
    return DatasetSpec.from_config(config | changes)


def folder(tmp_path: Path, *lines: object, name: str = "quiz") -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_folder_takes_the_place_of_the_hub(tmp_path):
    second = {"id": "b", "turns": ["Eins, zwei – drei?\u2028"]}
    data_dir = folder(tmp_path, GOOD, "", second)
    assert load(spec(), data_dir=data_dir) == [
        Conversation("a", ("First?", "Second?"), None, "math"),
        Conversation("b", ("Eins, zwei – drei?\u2028",), None, None),
    ]
    assert source_id(spec(), data_dir) == "file:quiz.jsonl"


def test_the_limit_of_the_call_goes_before_that_of_the_dataset(tmp_path):
    data_dir = folder(tmp_path, *({"id": str(i), "turns": ["x"]} for i in range(5)))
    assert len(load(spec(limit=3), data_dir=data_dir)) == 3
    assert len(load(spec(limit=3), data_dir=data_dir, limit=4)) == 4
    assert len(load(spec(), data_dir=data_dir, limit=99)) == 5
    with pytest.raises(DatasetError, match="at least one conversation"):
        load(spec(), data_dir=data_dir, limit=0)


def test_other_file_names_and_short_texts(tmp_path):
    data_dir = folder(tmp_path, GOOD, {"id": "long", "turns": ["y" * 50, "and more"]}, name="quiz_en")
    raw = spec(files=["quiz_de", "quiz_en"], mode="raw", prompt_tokens=8, min_chars=40)
    assert load(raw, data_dir=data_dir) == [Conversation("long", ("y" * 50,))]
    with pytest.raises(DatasetError, match="at least 400 characters"):
        load(spec(files=["quiz_en"], min_chars=400), data_dir=data_dir)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "b", "turns": ["x"]', "is not JSON"),
        ('["b"]', "is a list"),
        ({"id": "b", "text": "x"}, '"turns" is .missing'),
        ({"turns": ["x"]}, '"id" is .missing'),
        ({"id": "b", "turns": ["x", "cut \ud83d"]}, "half of a character"),
        ({"id": "\udc00", "turns": ["x"]}, "half of a character"),
        ({"id": "b", "turns": ["x"], "reference": "\ud83d"}, "half of a character"),
        ({"id": "b", "turns": "x"}, '"turns" is'),
        ({"id": "b", "turns": ["x", None]}, '"turns" is'),
        ({"id": "b", "turns": []}, "no turns"),
        ({"id": "b", "turns": ["x", " \n"]}, "turn 2 is empty"),
        ({"id": 7.5, "turns": ["x"]}, '"id" is 7.5'),
        ({"id": True, "turns": ["x"]}, '"id" is True'),
        ({"question_id": None, "turns": ["x"]}, '"id" is None'),
        ({"id": "b", "turns": ["x"], "reference": 3}, '"reference" is'),
        (GOOD, '"a" occurs twice'),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    with pytest.raises(DatasetError, match=rf"quiz\.jsonl, line 2.*{complaint}") as error:
        load(spec(), data_dir=folder(tmp_path, GOOD, line))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        {"question_id": 81, "category": "math", "turns": ["First?", "Second?"], "reference": ["1", "2"]},
        {"prompt_id": 81, "category": "math", "prompt": ["First?", "Second?"], "reference": ["1", "2"]},
        {"id": "81", "turns": ["First?", "Second?"], "reference": '["1", "2"]', "category": "math", "prompt": "no"},
        {"task_id": "81", "turns": ["First?", "Second?"], "reference": '["1", "2"]', "category": "math", "model": "x"},
    ],
    ids=["mt_bench", "hub", "ours", "task"],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte_order_mark"])
def test_the_names_that_files_of_the_trade_have_and_a_byte_order_mark(tmp_path, line, mark):
    data_dir = folder(tmp_path, mark + json.dumps(line), {"task_id": "HumanEval/0", "prompt": "def f():"})
    assert load(spec(), data_dir=data_dir) == [
        Conversation("81", ("First?", "Second?"), '["1", "2"]', "math"),
        Conversation("HumanEval/0", ("def f():",)),
    ]


OWN = {
    "humaneval": (
        {"task_id": "HumanEval/3", "prompt": "def f():\n", "canonical_solution": "    pass\n", "entry_point": "f"},
        Conversation("HumanEval/3", ("def f():\n",), "    pass\n"),
    ),
    "mbpp": (
        {"task_id": 12, "text": "Add one.", "code": "c", "test_list": ["assert f(0) == 1"], "test_setup_code": ""},
        Conversation("12", ("Add one. Your code should pass these tests:\n\nassert f(0) == 1",), "c"),
    ),
    "math_500": (
        {"problem": "Add $1$.", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "test/a/1.json"},
        Conversation("test/a/1.json", ("Add $1$.",), "2", "Algebra"),
    ),
    "aime_2024": (
        {"id": 60, "problem": "Add 1.", "answer": "033", "year": "2024"},
        Conversation("60", ("Add 1.",), "033"),
    ),
    "livecodebench": (
        {"question_id": "abc_a", "question_content": "Add.", "starter_code": "x = 1\n", "difficulty": "easy"},
        Conversation("abc_a", ("Add.\n\nBegin with this code:\n```python\nx = 1\n```",), None, "easy"),
    ),
    "gsm8k": (
        {"question": "One and one?", "answer": "#### 2"},
        Conversation("1", ("One and one?",), "#### 2"),
    ),
    "speed_bench": (
        {"question_id": "9f", "category": "coding", "sub_category": "x", "turns": ["A?", "B?"], "source": "y"},
        Conversation("9f", ("A?", "B?"), None, "coding"),
    ),
    "mt_bench": (
        {"question_id": 81, "category": "writing", "turns": ["A?", "B?"]},
        Conversation("81", ("A?", "B?"), None, "writing"),
    ),
}
"""A line of each publisher's own file, with an invented text."""


@pytest.mark.parametrize("name", OWN)
def test_a_publishers_own_file_is_read_as_it_is(name, tmp_path):
    line, expected = OWN[name]
    own = DatasetSpec.from_config(export.config_of(name))
    assert load(own, data_dir=folder(tmp_path, line, name=name)) == [expected]
    with pytest.raises(DatasetError, match=rf'{name}\.jsonl, line 1: "turns" is'):
        load(own, data_dir=folder(tmp_path, {"id": "a", "words": "x"}, name=name))


def test_a_record_whose_prompt_is_a_part_of_it_is_read_as_its_publisher_means_it(tmp_path):
    """MBPP's sanitized file has its text as `prompt`, beside tests; a line in our own form stays as it is."""
    own = DatasetSpec.from_config(export.config_of("mbpp"))
    published = {"task_id": 2, "prompt": "Add one.", "code": "c", "test_list": ["assert f(0) == 1", "assert f(1) == 2"]}
    ours = {"id": "3", "prompt": "Add two.", "reference": "d"}
    tests = "Add one. Your code should pass these tests:\n\nassert f(0) == 1\nassert f(1) == 2"
    expected = [Conversation("2", (tests,), "c"), Conversation("3", ("Add two.",), "d")]
    assert load(own, data_dir=folder(tmp_path, published, ours, name="mbpp")) == expected


MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
OTHERS = ("translation", "summarization", "qa", "math_reasoning", "rag")


def test_spec_bench_has_six_groups_of_which_a_limit_takes_each_in_turn(tmp_path):
    """In its folder `data`: ten questions of each of MT-Bench's categories, eighty of each other."""
    names = [name for name in MT_BENCH for _ in range(10)] + [name for name in OTHERS for _ in range(80)]
    lines = [{"question_id": 81 + n, "category": name, "turns": [f"{name}?"]} for n, name in enumerate(names)]
    (tmp_path / "spec_bench").mkdir()
    folder(tmp_path / "spec_bench", *lines, name="question")
    own = DatasetSpec.from_config(export.config_of("spec_bench"))
    counts = Counter(found.category for found in load(own, data_dir=tmp_path))
    assert counts == dict.fromkeys(("mt_bench", *OTHERS), 80)
    few = load(own, data_dir=tmp_path, limit=12)
    assert Counter(found.category for found in few) == dict.fromkeys(("mt_bench", *OTHERS), 2)
    several = load(own, data_dir=tmp_path, limit=6 * len(MT_BENCH))
    asked = {found.turns[0] for found in several if found.category == "mt_bench"}
    assert asked == {f"{name}?" for name in MT_BENCH}, "a group's categories in turn"
    assert source_id(own, tmp_path) == "file:question.jsonl"
    with pytest.raises(DatasetError, match=r"no mt_bench\.jsonl"):  # the other's question.jsonl is not taken for it
        load(DatasetSpec.from_config(export.config_of("mt_bench")), data_dir=tmp_path)


def test_what_stands_for_a_prompt_is_none(tmp_path):
    words = f"{UNRESOLVED} USING ITS SCRIPT"
    where = folder(tmp_path, {"question_id": "a", "category": "qa", "turns": [words]}, name="speed_bench")
    with pytest.raises(DatasetError, match="has no prompt yet"):
        load(DatasetSpec.from_config(export.config_of("speed_bench")), data_dir=where)


def test_groups_make_another_cell_and_no_groups_leave_it_as_it_was():
    grouped = spec(groups={"a": ["b", "c"]})
    assert grouped.to_config() == spec().to_config() | {"groups": {"a": ["b", "c"]}}
    assert "groups" not in spec().to_config()


def test_missing_and_unreadable_files(tmp_path):
    folder(tmp_path, GOOD, name="other")
    with pytest.raises(DatasetError, match=r"no quiz\.jsonl in .* \(there: other\.jsonl\); .*DATA_DIR"):
        load(spec(), data_dir=tmp_path)
    with pytest.raises(DatasetError, match="is not a folder"):
        load(spec(), data_dir=tmp_path / "nowhere")
    (tmp_path / "quiz.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="UTF-8"):
        load(spec(), data_dir=tmp_path)


def test_a_spec_checks_itself():
    assert spec().hub == HubSource(path="some/quiz", name="main", split="test", revision=None, streaming=True)
    with pytest.raises(DatasetError, match='did you mean "min_chars"'):
        spec(min_char=3)
    with pytest.raises(DatasetError, match=r'unknown dataset.mode "row"; did you mean "raw"'):
        spec(mode="row")
    with pytest.raises(DatasetError, match="prompt_tokens is for mode raw"):
        spec(prompt_tokens=3)
    with pytest.raises(DatasetError, match="dataset quiz has both hub and file"):
        spec(file="quiz.jsonl")
    assert spec().frame is None
    assert spec(frame="Q: {text}").frame == "Q: {text}"
    for wrong in ({"frame": "Q: {question}"}, {"frame": "{text}", "mode": "raw", "prompt_tokens": 3}):
        with pytest.raises(DatasetError, match=r"dataset quiz: a frame needs \{text\} .* and mode chat"):
            spec(**wrong)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"file": "a.jsonl"}, "dataset lacks name; see conf/dataset/gsm8k.yaml"),
        ({"name": "quiz", "adapter": "text"}, "dataset quiz lacks hub.path, hub.split; see conf/dataset/gsm8k.yaml"),
        (
            {"mode": "raw", "hub": {"path": "some/quiz"}},
            "dataset lacks name, hub.split, adapter, prompt_tokens; see conf/dataset/c4.yaml",
        ),
    ],
)
def test_all_that_is_missing_is_named_at_once_with_an_example(config, sentence):
    with pytest.raises(DatasetError) as error:
        DatasetSpec.from_config(config)
    assert str(error.value) == sentence
    assert (CONF.parent / sentence.rpartition(" ")[2]).is_file()


def test_a_file_is_a_dataset_with_a_name_and_its_path(tmp_path, monkeypatch):
    """By an absolute path, or one relative to DATA_DIR or to where the command runs; <name>.jsonl in DATA_DIR first."""
    here, data_dir = tmp_path / "here", tmp_path / "data"
    for place in (here, data_dir):
        place.mkdir()
    monkeypatch.chdir(folder(here, {"id": "here", "turns": ["x"]}, name="own"))
    for path in ("own.jsonl", str(here / "own.jsonl")):
        quiz = DatasetSpec.from_config({"name": "quiz", "file": path})
        assert [found.id for found in load(quiz)] == [found.id for found in load(quiz, data_dir=data_dir)] == ["here"]
        assert (quiz.source, source_id(quiz)) == ("file", "file:own.jsonl")
    assert (quiz.mode, quiz.max_new_tokens, quiz.limit) == ("chat", datasets.MAX_NEW_TOKENS, None)
    relative = DatasetSpec.from_config({"name": "quiz", "file": "own.jsonl"})
    folder(data_dir, {"id": "there", "turns": ["x"]}, name="own")
    assert [load(one, data_dir=data_dir)[0].id for one in (relative, quiz)] == ["there", "here"]
    folder(data_dir, {"id": "named", "turns": ["x"]})
    assert [load(one, data_dir=data_dir)[0].id for one in (relative, quiz)] == ["named", "named"]


def test_a_file_that_is_not_there_is_named_with_the_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    cases = {
        (("file", "own.jsonl"), None): f"there is no file own.jsonl in {tmp_path}; correct dataset.file",
        (("file", "own.jsonl"), tmp_path / "data"): f"own.jsonl in {tmp_path / 'data'} or {tmp_path}; correct",
        (("file", "/no/own.jsonl"), None): "there is no file /no/own.jsonl; correct dataset.file",
        (("limit", 3), None): "names neither file, a JSONL file, nor hub and adapter; see conf/dataset/gsm8k.yaml",
    }
    for ((key, value), data_dir), words in cases.items():
        with pytest.raises(DatasetError, match="dataset quiz.*" + re.escape(words)):
            load(DatasetSpec.from_config({"name": "quiz", key: value}), data_dir=data_dir)


def test_fingerprint_sees_ids_texts_and_order():
    one, two = Conversation("a", ("x", "y")), Conversation("b", ("x",))
    assert fingerprint([one, two]) == fingerprint([Conversation("a", ("x", "y"), "ref", "cat"), two])
    others = [
        [two, one],
        [one],
        [one, Conversation("b", ("X",))],
        [Conversation("a", ("x",)), Conversation("b", ("y", "x"))],
    ]
    assert len({fingerprint(found) for found in [[one, two], *others]}) == 5


def test_the_bundled_prompts(tmp_path):
    mini = DatasetSpec(name="mini", files=("prompts",))
    found = load(mini, data_dir=tmp_path)
    assert len(found) == 40
    assert source_id(mini) == "bundled:prompts.jsonl"
    assert set(Counter(conversation.category for conversation in found).values()) == {5}
    assert len({conversation.category for conversation in found[:8]}) == 8
    assert len({turn for conversation in found for turn in conversation.turns}) == sum(len(c.turns) for c in found)


def test_names_near_and_far():
    assert nearest("opttree", ["opt_tree", "opt_tree_n50", "binary"]) == ["opt_tree", "opt_tree_n50"]
    assert unknown("pair", "tinny", ["tiny", "llama"]) == 'unknown pair "tinny"; did you mean "tiny"?'
    assert unknown("pair", "zzz", ["tiny", "llama"]) == 'unknown pair "zzz"; there are: llama, tiny'


@pytest.mark.skipif("DATA_DIR" not in os.environ, reason="needs DATA_DIR, a folder of real prompts")
def test_every_real_file_loads():
    paths = sorted(Path(os.environ["DATA_DIR"]).glob("*.jsonl"))
    assert paths
    for path in paths:
        assert load(spec(name=path.stem), data_dir=path.parent), path


def test_calibration_and_evaluation_share_nothing(tmp_path):
    for total, cut in ((10, 5), (399, 199), (450, 200)):
        data_dir = folder(tmp_path, *({"id": str(n), "turns": [f"{n}?"]} for n in range(total)))
        everything = [found.id for found in load(spec(), data_dir=data_dir)]
        first, rest = (
            [c.id for c in load(spec(part=part), data_dir=data_dir)] for part in ("calibration", "evaluation")
        )
        assert first == everything[:cut]
        assert sorted(rest) == sorted(everything[cut:])
        assert rest != sorted(rest)
        assert [c.id for c in load(spec(part="evaluation"), data_dir=data_dir, limit=3)] == rest[:3]
    with pytest.raises(DatasetError, match="evaluation"):
        spec(part="evaluate")


CATEGORIES = ("writing", "math", "coding")


def by_category(tmp_path: Path, *, each: int = 10) -> Path:
    """A file that has its categories one after another, as MT-Bench does."""
    lines = ({"id": f"{kind}{n}", "turns": ["x"], "category": kind} for kind in CATEGORIES for n in range(each))
    return folder(tmp_path, *lines)


@pytest.mark.parametrize("part", ["all", "calibration", "evaluation"])
def test_a_limit_takes_the_categories_in_turn(part, tmp_path):
    data_dir = by_category(tmp_path, each=40 if part == "calibration" else 10)
    everything = load(spec(part=part), data_dir=data_dir)
    present = {found.category for found in everything}
    for limit in (1, 2, 3, 4, 7, len(everything)):
        chosen = load(spec(part=part), data_dir=data_dir, limit=limit)
        assert len(chosen) == limit
        assert chosen == [found for found in everything if found in chosen]  # in the order of the file
        counts = Counter(found.category for found in chosen)
        rest = Counter(found.category for found in everything if found not in chosen)
        assert all(counts[kind] + 1 >= max(counts.values()) or not rest[kind] for kind in present)
        for kind in present:  # of each category the first ones
            own = [found for found in everything if found.category == kind]
            assert [found for found in chosen if found.category == kind] == own[: counts[kind]]
    if part == "all":
        assert [found.id for found in load(spec(), data_dir=data_dir, limit=4)] == [
            "writing0",
            "writing1",
            "math0",
            "coding0",
        ]


@pytest.mark.parametrize("category", [None, "questions"])
def test_without_categories_a_limit_takes_a_seeded_sample(category, tmp_path):
    data_dir = folder(tmp_path, *({"id": str(n), "turns": ["x"], "category": category} for n in range(300)))
    everything = load(spec(), data_dir=data_dir)
    chosen = {limit: load(spec(), data_dir=data_dir, limit=limit) for limit in (1, 8, 40, 299)}
    ids = [int(found.id) for found in chosen[40]]
    assert ids == sorted(ids)
    assert 100 < sum(ids) / 40 < 200  # of the whole file: the mean of 300 is 149.5
    for smaller, larger in zip(chosen.values(), [*list(chosen.values())[1:], everything], strict=True):
        assert set(smaller) < set(larger)
    assert chosen[8] == load(spec(limit=8), data_dir=data_dir)
    rest = load(spec(part="evaluation"), data_dir=data_dir)
    assert load(spec(part="evaluation"), data_dir=data_dir, limit=8) == rest[:8]  # in a seeded order already


def test_a_limit_that_covers_everything_changes_nothing(tmp_path):
    data_dir = by_category(tmp_path)
    for part in ("all", "calibration", "evaluation"):
        everything = load(spec(part=part), data_dir=data_dir)
        for limit in (len(everything), 99, 2001):
            assert fingerprint(load(spec(part=part), data_dir=data_dir, limit=limit)) == fingerprint(everything)


def test_a_sample_reads_no_more_than_the_candidates(monkeypatch):
    read = []

    def endless(*_):
        for number in range(10**6):
            read.append(number)
            yield Conversation(str(number), ("short" if number % 2 else "x" * 99,))

    monkeypatch.setattr(datasets, "hub_conversations", endless)
    few = load(spec(limit=200, min_chars=50))
    assert len(few) == 200
    assert read[-1] == 2 * (datasets.CANDIDATES - 1)  # every other one is usable
    assert int(few[-1].id) > 3000
    assert len(load(spec(min_chars=50), limit=5000)) == 5000
    assert set(few) < set(load(spec(min_chars=50), limit=2000)) < set(load(spec(min_chars=50), limit=2001))


def test_whether_a_limit_selects(tmp_path):
    data_dir = by_category(tmp_path)
    limits = (None, 1, 2, 28, 29, 30, 99)  # of 30, of which coding9 is taken last
    assert [limit for limit in limits if datasets.selects(spec(), data_dir, limit)] == [2, 28]
    assert datasets.selects(spec(limit=8), data_dir, None)
    mini = DatasetSpec(name="mini", files=("prompts",))
    assert not any(datasets.selects(mini, None, limit) for limit in range(1, 41))  # its categories stand in turn
    hub = {  # the largest limit that may select
        ("gsm8k", "all"): 1999,
        ("gsm8k", "calibration"): 199,
        ("gsm8k", "evaluation"): 0,
        ("mt_bench", "all"): 79,
        ("mt_bench", "evaluation"): 39,
    }
    for (adapter, part), most in hub.items():
        for limit in (8, 39, 40, 79, 80, 199, 200, 1999, 2000):
            assert datasets.selects(spec(adapter=adapter, part=part), None, limit) == (limit <= most)
