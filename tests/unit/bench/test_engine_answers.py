"""Recordings of answers that another engine decoded: its lines of token ids in, the same replays out."""

import json
from pathlib import Path

import pandas as pd
import pytest
from cells import execute

from specdec_core.errors import PairError
from specdec_trees.measure import engine_answers, record, runner
from specdec_trees.measure.decoding import Turn
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.store import Store

CELL = ("limit=2", "dataset.part=evaluation", "decoding.max_new_tokens=12", "drafter=chain4", "runtime.replay=true")
FORMS = {
    "vllm": lambda prompt, ids: {
        "prompt_token_ids": prompt,
        "outputs": [{"token_ids": ids, "finish_reason": "length"}],
    },
    "server": lambda prompt, ids: {"choices": [{"prompt_token_ids": prompt, "token_ids": ids}]},
    "plain": lambda prompt, ids: {"prompt_token_ids": prompt, "token_ids": ids},
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this harness records and replays itself."""
    results = tmp_path_factory.mktemp("own")
    assert execute(results, *CELL) == runner.OK
    return results


def recorded(results: Path) -> pd.DataFrame:
    return Store(results, FOLDER).read("recordings")


@pytest.mark.parametrize("form", FORMS)
def test_an_engine_is_asked_turn_by_turn_and_its_answers_are_replayed(
    form: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is missing first; second turns, which stand behind first answers, are asked for when these are there."""
    known = {tuple(row.prompt_ids): [*map(int, row.answer_ids)] for row in recorded(own).itertuples()}
    path = tmp_path / "answers.jsonl"
    engine = (*CELL, f"runtime.answers={path}")
    monkeypatch.setattr(record, "record_together", lambda *_, **__: pytest.fail("the target decodes"))
    runner.pairs.release()
    for _ in range(2):
        with pytest.raises(PairError, match=r"answers\.jsonl\.missing\.jsonl"):
            execute(tmp_path, *engine, "measure=recording")
        asked = [
            json.loads(line) for line in path.with_name(path.name + engine_answers.MISSING).read_text().splitlines()
        ]
        assert all(one["max_tokens"] == 12 + record.BEYOND for one in asked)
        with path.open("a") as file:
            for one in asked:
                answer = known[tuple(one["prompt_token_ids"])]
                file.write(json.dumps(FORMS[form](one["prompt_token_ids"], answer)) + "\n")
    assert execute(tmp_path, *engine, "measure=recording") == runner.OK
    assert execute(tmp_path, *CELL) == runner.OK
    columns = ["prompt_ids_sha256", "answer_ids", "ended"]
    ours, theirs = (recorded(root)[columns].map(str).reset_index(drop=True) for root in (own, tmp_path))
    pd.testing.assert_frame_equal(ours, theirs)
    assert set(recorded(tmp_path)["device_name"]) == {path.name}
    with pytest.raises(pytest.fail.Exception, match="the target decodes"):  # it takes no answer of another engine
        execute(tmp_path, *CELL, "limit=1", "measure=recording")
    steps = [Store(root, "default").read("steps")["acceptance_length"].tolist() for root in (own, tmp_path)]
    assert steps[0] == steps[1]


def test_the_target_does_not_go_on_behind_an_engines_answers(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that was begun with them is begun anew without them."""
    first = recorded(own).query("turn == 0")
    path, asked = tmp_path / "answers.jsonl", []
    lines = [FORMS["plain"]([*map(int, row.prompt_ids)], [*map(int, row.answer_ids)]) for row in first.itertuples()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def stop(_: object, prompts: list[list[int]], **__: object) -> None:
        asked.extend(prompts)
        raise KeyboardInterrupt

    monkeypatch.setattr(record, "record_together", stop)
    with pytest.raises(PairError, match="append"):
        execute(tmp_path, *CELL, f"runtime.answers={path}", "measure=recording")
    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path, *CELL, "measure=recording")
    assert {*map(tuple, asked)} == {tuple(map(int, ids)) for ids in first["prompt_ids"]}


def test_what_is_no_answer_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    for bad in ("{", "[]", '{"prompt_token_ids": [1]}', '{"outputs": [{"token_ids": [1]}]}'):
        path.write_text(json.dumps(FORMS["plain"]([1], [2])) + "\n" + bad)
        with pytest.raises(PairError, match="line 2"):
            engine_answers.read(path)


def test_answers_end_where_the_target_ends_or_are_long_enough() -> None:
    sizes = {"eos": [7], "vocab_size": 9, "max_positions": None}
    turn = Turn(None, 0, [1, 2], 3)  # type: ignore[arg-type]

    def of(answer: list[int]):
        return engine_answers.recording(turn, {output_sha256([1, 2]): answer}, 4, sizes)

    assert of([3, 4, 5]) is None, "too short"
    assert of([]) is None
    assert (of([3, 4, 5, 6, 8]).answer, of([3, 4, 5, 6, 8]).ended) == ((3, 4, 5, 6), False)
    assert (of([3, 7, 5, 6]).answer, of([3, 7, 5, 6]).ended) == ((3, 7), True)
