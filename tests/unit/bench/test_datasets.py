import json
import os
from collections import Counter
from pathlib import Path

import pytest

from bench.datasets import Conversation, DatasetError, DatasetSpec, HubSource, fingerprint, load, source_id
from bench.names import nearest, unknown

GOOD = {"id": "a", "turns": ["First?", "Second?"], "reference": None, "category": "math"}


def spec(**changes) -> DatasetSpec:
    config = {
        "name": "quiz",
        "source": "hub",
        "hub": {"path": "some/quiz", "name": "main", "split": "test", "revision": None, "streaming": True},
        "adapter": "gsm8k",
        "mode": "chat",
        "prompt_tokens": None,
        "max_prompt_tokens": None,
        "max_new_tokens": 64,
        "max_total_tokens": None,
        "min_chars": 0,
        "limit": None,
        "files": [],
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
        ({"id": "b", "prompt": "x"}, '"turns" is .missing'),
        ({"id": "b", "turns": "x"}, '"turns" is'),
        ({"id": "b", "turns": ["x", None]}, '"turns" is'),
        ({"id": "b", "turns": []}, "no turns"),
        ({"id": "b", "turns": ["x", " \n"]}, "turn 2 is empty"),
        ({"id": 7, "turns": ["x"]}, '"id" is 7'),
        ({"id": "b", "turns": ["x"], "reference": ["y"]}, '"reference" is'),
        (GOOD, '"a" occurs twice'),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    with pytest.raises(DatasetError, match=rf"quiz\.jsonl, line 2.*{complaint}") as error:
        load(spec(), data_dir=folder(tmp_path, GOOD, line))
    assert "\n" not in str(error.value)


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
    with pytest.raises(DatasetError, match="raw with prompt_tokens"):
        spec(mode="raw")
    with pytest.raises(DatasetError, match="hub with both"):
        spec(hub=None)
    assert spec().frame is None
    assert spec(frame="Q: {text}").frame == "Q: {text}"
    for wrong in ({"frame": "Q: {question}"}, {"frame": "{text}", "mode": "raw", "prompt_tokens": 3}):
        with pytest.raises(DatasetError, match=r"dataset quiz: a frame needs \{text\} .* and mode chat"):
            spec(**wrong)
    with pytest.raises(DatasetError, match="lacks limit"):
        DatasetSpec.from_config({key: None for key in DatasetSpec.__slots__ if key != "limit"})


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
    mini = spec(name="mini", source="bundled", hub=None, adapter=None, files=["prompts"])
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
