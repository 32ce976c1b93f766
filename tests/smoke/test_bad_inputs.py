"""Bad input to the real commands: a sentence and a status, no traceback, and nothing half written."""

import json
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest

from specdec_trees.results.store import experiments

LINES = {
    "broken": '{"id": "1", "turns": ["a"',
    "list": "[1, 2]",
    "numbers": '{"id": "1", "turns": [1, 2]}',
    "text": '{"id": "1", "turns": "a"}',
    "no_turns": '{"id": "1", "text": "a"}',
    "no_id": '{"turns": ["a"]}',
    "empty_id": '{"id": "", "turns": ["a"]}',
    "no_turn": '{"id": "1", "turns": []}',
    "blank": '{"id": "1", "turns": ["  "]}',
    "deep": '{"id": "1", "turns": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep_object": '{"id": "1", "turns": ["a"], "category": ' + '{"a":' * 100_000 + "1" + "}" * 100_001,
    "key_twice": '{"id": "1", "turns": ["a"], "turns": ["b"]}',
    "id_twice": '{"id": "1", "turns": ["a"]}\n{"id": "1", "turns": ["b"]}',
    "nan": '{"id": "1", "turns": [NaN]}',
    "half_character": '{"id": "1", "turns": ["\\ud800"]}',
    "category": '{"id": "1", "turns": ["a"], "category": 3}',
    "empty": "",
    "number": "17",
}
"""Files of conversations that are none, by name."""
TORN = b"PAR1" + b"\0" * 100


def lay_out(folder: Path) -> None:
    """Files that commands are given, most of them bad."""
    texts = {f"{name}.jsonl": text for name, text in LINES.items()}
    texts |= {"good.jsonl": '{"id": "1", "turns": ["a b c"]}', "file": "x", "data/mt_bench.jsonl": LINES["broken"]}
    texts |= {"half/smoke/plan.json": '{"overrides": [', "no_json/config.json": "{", "lacking/config.json": "{}"}
    binary = {"latin.jsonl": 'caf\xe9"}'.encode("latin-1"), "zeros.jsonl": bytes(4096)}
    binary |= {"torn/smoke/runs/run_id=0123456789ab.parquet": TORN, "torn_pack/rows/runs.parquet": TORN}
    for name in ("folder.jsonl", "nothing"):
        (folder / name).mkdir()
    for name, content in (binary | {name: text.encode() for name, text in texts.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


LINES_OF_A_REFUSAL = 3
"""A sentence for what is wrong, and for what is passed over; Hydra's and a log's lines count."""

NAMES = ["a b", "../x", "a/b", "mt_bench", "-x", ".x", "x" * 300, "null", "true", "1e3", "nan", "a=b", "a,b", "a.yaml"]
DATASETS = [
    *([f"{name}.jsonl"] for name in (*LINES, "latin", "zeros", "folder", "missing")),
    *(["good.jsonl", f"--name={name}"] for name in NAMES),
    *(["good.jsonl", f"--max-new-tokens={count}"] for count in ("0", "-1", "x", "1.5", "", "99999999999999999999")),
]
MODELS = [
    *(
        [f"--target={model}", "--draft=a/b"]
        for model in ("no_json", "lacking", "nothing", "file", "a b", "", "..", "/")
    ),
    *(["--target=a/b", f"--draft={model}"] for model in ("no_json", "lacking", "nothing", "file", "a b", "", "..")),
    *(["--target=a/b", "--draft=c/d", f"--name={name}"] for name in ("tiny", "a/b", "../x", "null", "a b")),
    *(["--target=a/b", "--draft=c/d", option] for option in ("--kind=x", "--template=x", "--x", "x")),
    [],
    ["--target=a/b"],
]
NO_RESULTS = ["missing", "file", "nothing"]
RESULTS = {
    "report": [
        *([f"--results={folder}"] for folder in NO_RESULTS[:2]),
        *(["smoke", f"--results={folder}"] for folder in [*NO_RESULTS, "torn", "torn_pack"]),
        *([*given, "--results=torn"] for given in (["nosuch"], ["../x"], ["--only=x"], ["--pair=x"], ["a", "b"])),
    ],
    "status": [*([f"--results={folder}"] for folder in NO_RESULTS[:2]), ["--x"], ["x"]],
    "check": [*([folder] for folder in [*NO_RESULTS, "torn", "torn_pack", "half"]), []],
    "pack": [*([folder] for folder in [*NO_RESULTS, "torn_pack"]), []],
    "merge": [
        *([folder, "--into=x"] for folder in [*NO_RESULTS, "torn", "torn_pack", "half"]),
        *(["nothing", f"--into={folder}"] for folder in ("file", "nothing")),
        ["nothing"],
        [],
    ],
    "compare": [
        *([folder, folder] for folder in [*NO_RESULTS, "torn", "torn_pack", "half", "0123"]),
        ["a", "b", "--metric=x"],
        ["a"],
        [],
    ],
    "predict": [*([folder] for folder in [*NO_RESULTS, "torn", "torn_pack"]), ["nothing", "--on", "toaster"]],
    "judge": [[], ["missing"], ["nothing"], ["nothing", "--limit=x"]],
    "engines": [
        *([folder, "--as=vllm"] for folder in [*NO_RESULTS, "torn", "torn_pack", "half"]),
        *(["nothing", option] for option in ("--as=x", "--beside=missing", "--beside=file")),
        ["nothing", "--as=vllm", "--beside=file"],
        ["nothing"],
        [],
    ],
    "export": [[], ["nosuch", "--out=x"], ["mini", "--out=x"], ["", "--out=x"], ["mini"]],
    "new": [[], ["x"], *(["paper", title] for title in ("", "!!!", ":"))],
}
CHOICES = ["pair", "dataset", "drafter", "verifier", "experiment", "decoding", "runtime", "hydra/launcher"]
_VALUES = """
limit=0 limit=-1 limit=x limit=1.5 limit=true limit=[1] limit=99999999999999999999 seed=x seed=1.5
seed=99999999999999999999 decoding.temperature=-1 decoding.temperature=x decoding.temperature=nan
decoding.temperature=1e400 decoding.max_new_tokens=0 decoding.max_new_tokens=-3 decoding.max_new_tokens=x
dataset.max_new_tokens=0 dataset.prompt_tokens=x dataset.files=x drafter.n=0 drafter.n=-1 drafter.n=x drafter.n=1e6
drafter.n=[1] drafter.draft_temperature=0 drafter.draft_temperature=-1 drafter.nn=3 drafter._target_=x
verifier.allow_lossy=maybe pair.template=nosuch pair.draft_temperature=x pair.target=x pair.target.id=nothing
pair.target.id=no_json pair.target.id=lacking pair.target.id=file pair.name=..
name=../x name=/x name=.x name='' name=a//b
data_dir=missing data_dir=file results_dir=file results_dir= results_dir=/dev/null runtime.device=tpu
runtime.device=cuda:9 runtime.dtype=float17 runtime.graphs=sometimes runtime.num_threads=-1
runtime.num_threads=100000 runtime.warmup_conversations=-1 runtime.device_map=nosuch runtime.foo=1 shard=1/0 shard=2/2
shard=-1/2 shard=a/b shard=1 measure=nosuch retry=sometimes force=maybe foo=1 limt=1 a=b=c ++foo=1 ~foo +pair=tiny
pair=[tiny] pair=tiny,tiny_self --nosuch nosuch =3 --config-name=x name=a(b limit={
"""
VALUES = _VALUES.split()
TOGETHER = [
    *(["dataset=mt_bench", f"data_dir={folder}"] for folder in ("data", "nothing", "missing")),
    *([f"+dataset.file={name}.jsonl"] for name in ("broken", "missing")),
    ["verifier=greedy", "decoding.temperature=1"],
    ["drafter=sequoia", "drafter.acceptance=[]"],
    ["drafter=eagle25", "pair.draft=null"],
    ["measure=attention", "attention.heads=0"],
]
SWEEPS = [
    ["pair=tiny,nosuch"],
    ["drafter=opt_tree,nosuch"],
    ["experiment=opt_tree/table1,opt_tree/table2"],
    ["experiment=smoke", "shard=3/2"],
    ["hydra/launcher=slurm_gpu"],
    ["hydra/launcher=nosuch"],
]
ARTIFACTS = [
    *([name] for name in ("nosuch", "opt_tree/table99", "../x", "limit=0")),
    *(
        ["smoke", option]
        for option in ("shard=5/2", "shard=x", "drafer=x", "pair=nosuch", "hydra/launcher=x", "limit=(")
    ),
]
BAD = [
    *(["new", "dataset", *given] for given in DATASETS),
    *(["new", "pair", *given] for given in MODELS),
    *([task, *given] for task, each in RESULTS.items() for given in each),
    *(["run", f"{choice}=nosuch"] for choice in CHOICES),
    *(["run", value] for value in VALUES),
    *(["run", *given] for given in TOGETHER),
    *(["run", "-m", *given] for given in SWEEPS),
    *(["plan", option] for option in ("experiment=nosuch", "pair=nosuch", "limit=x", "foo=1", "nosuch")),
    *(["reproduce", *given] for given in ARTIFACTS),
]


@pytest.fixture(scope="module")
def run() -> Iterator[forked.Run]:
    with forked.server() as ask:
        yield ask


def files(folder: Path) -> dict[str, bytes]:
    """All but locks and Hydra's own, by their place."""
    every = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in every.items() if not (name.startswith("outputs/") or ".lock-" in name)
    }


def sentence(said: str) -> list[str]:
    """The lines that say what is wrong: argparse prints its usage above them."""
    usage, error, rest = said.partition(": error: ")
    return (rest if error and usage.startswith("usage: ") else said).strip().split("\n")  # a bar is one line


def test_there_are_two_hundred():
    assert len({json.dumps(each) for each in BAD}) == len(BAD) >= 200


@pytest.mark.few(50)
@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_it_is_refused_in_words_and_leaves_nothing_half_written(arguments, run, tmp_path):
    lay_out(tmp_path)
    before = files(tmp_path)
    status, said = run(arguments, tmp_path)
    assert status > 0, said
    assert said.strip()
    assert "Traceback" not in said
    assert len(sentence(said)) <= LINES_OF_A_REFUSAL or arguments[0] == "check", "check answers, and lists its rules"
    after = files(tmp_path)
    assert all(after.pop(name, None) == content for name, content in before.items())
    cells = [store.read("runs") for store in experiments(tmp_path / "results", "runs")]
    assert {row for runs in cells for row in runs["status"]} <= {"failed"}, "a cell that ends so is a whole row"
    assert bool(cells) == bool(after)
    assert not [name for name in after if ".partial-" in name]
