"""A cell that was decoded, and replayed on more prompts: one run, whose times are of the first."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from cells import execute
from filled import row

from specdec_trees.artifacts import findings, frame, noise, notes
from specdec_trees.artifacts.metrics import MAL, SPEEDUP
from specdec_trees.results.rows import AUTOREGRESSIVE, PromptRow, RunRow, StepRow
from specdec_trees.results.store import CELL, Store, load

CHAIN = ("drafter=chain4", "decoding.max_new_tokens=16", "runtime.warmup_conversations=0")
REPLAYED = (*CHAIN, "runtime.replay=true", "limit=6")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations decoded, then six replayed, which have both of them."""
    results = tmp_path_factory.mktemp("joined")
    execute(results, *CHAIN, "limit=2")
    execute(results, *REPLAYED)
    return results


def test_acceptance_is_of_all_conversations_and_times_of_those_decoded(measured: Path) -> None:
    stored, results = Store(measured, "default"), load(measured, "default")
    runs = stored.read("runs").set_index(stored.read("runs")["recording"].notna())
    (run,) = results.runs.to_dict("records")
    assert run["run_id"] == runs.loc[False, "run_id"]
    assert run["prompts_sha256"] == runs.loc[False, "prompts_sha256"], "it stands where it stood"
    assert run["recording"] == runs.loc[True, "recording"]
    assert run["num_conversations"] == 6
    steps = stored.read("steps", [runs.loc[True, "run_id"]])
    both = frame.load(results)
    mal, speedup = frame.measure(both, [MAL, SPEEDUP])["interval"]
    assert (mal.n, speedup.n) == (6, 2)
    assert mal.value == pytest.approx(steps["acceptance_length"].mean()), "as of the replay alone"
    lengths = results.steps.groupby("prompt_id")["acceptance_length"].agg(list)
    assert lengths.equals(steps.groupby("prompt_id")["acceptance_length"].agg(list))
    assert (results.prompts["arm"] == AUTOREGRESSIVE).sum() == 4
    assert len(noise.baselines(both)) == 1


def test_what_is_said_of_text_is_of_the_same_text_in_both_arms(measured: Path) -> None:
    """Of the two conversations that have both; and that others were replayed is said."""
    runs = frame.load(load(measured, "default"))
    shares = re.findall(r"\d+%", notes.facts(runs)["repetition"].iloc[0])
    assert len(shares) == 2
    assert shares[0] == shares[1]
    assert any("4 of 6" in sentence for sentence in findings.findings(runs))


def files(draft: str) -> str:
    """The config of a pair whose draft is in a folder of such files."""
    return json.dumps({"pair": {"target": {"files_sha256": "t"}, "draft": {"files_sha256": draft}}})


def conversations(store: Store, name: str, ids: str, tokens: str = "same", **changes: object) -> None:
    """A run with one turn of each of these conversations, which takes a step."""
    replayed = bool(changes.get("recording"))
    known = {"run_id": name, "status": "ok", "prompts_sha256": ids, "num_conversations": len(ids), "num_failed": 0}
    known |= {"target_revision": "files:a", "draft_revision": None, "dtype": "float32", "config": files("a")}
    store.write("runs", name, [row(RunRow, **known | {"recording": None, "created_utc": name} | changes)])
    turn = {"run_id": name, "arm": "method", "status": "ok", "decode_s": float("nan") if replayed else 1.0}
    digests = (tokens, f"behind the answer of {name}")  # a tie that is broken otherwise is seen by the second turn
    prompts = [
        row(PromptRow, prompt_id=one, turn=number, prompt_ids_sha256=digest, **turn)
        for one in ids
        for number, digest in enumerate(digests)
    ]
    store.write("prompts", name, prompts)
    store.write("steps", name, [row(StepRow, run_id=name, prompt_id=one, turn=0, acceptance_length=3) for one in ids])


def found(tmp_path: Path) -> dict[str, set[str]]:
    """Conversations by run, as reports have them."""
    steps = load(tmp_path, "e").steps
    return {name: set(rows["prompt_id"]) for name, rows in steps.groupby("run_id")}


def test_the_larger_replay_counts_and_the_decoded_run_whenever_it_was_run(tmp_path: Path) -> None:
    store = Store(tmp_path, "e")
    conversations(store, "1", "abcd", recording="r")
    conversations(store, "2", "ab")
    conversations(store, "3", "abc", recording="r")
    assert found(tmp_path) == {"2": {*"abcd"}}
    conversations(store, "4", "abcdef", recording="r", target_revision="files:other")
    assert found(tmp_path) == {"2": {*"abcd"}}, "of other weights"


def test_methods_that_are_compared_have_the_same_conversations(tmp_path: Path) -> None:
    """A sweep of replays that was stopped adds nothing; plain decoding, whose MAL is 1, may do without."""
    store = Store(tmp_path, "e")
    for name, drafter in (("1", "chain"), ("2", "tree")):
        conversations(store, name, "ab", drafter=drafter)
    conversations(store, "3", "ab", drafter="autoregressive", method=AUTOREGRESSIVE)
    conversations(store, "4", "abcd", drafter="chain", recording="r")
    assert found(tmp_path) == {"1": {*"ab"}, "2": {*"ab"}, "3": {*"ab"}}
    conversations(store, "5", "abc", drafter="tree", recording="r")
    assert found(tmp_path)["1"] == {*"ab"}, "of other prompts"
    conversations(store, "6", "abc", drafter="chain", recording="r")
    assert found(tmp_path) == {"1": {*"abc"}, "2": {*"abc"}, "3": {*"ab"}}
    conversations(store, "7", "ab", drafter="other", max_new_tokens=9)
    assert found(tmp_path) == {"1": {*"abc"}, "2": {*"abc"}, "3": {*"ab"}, "7": {*"ab"}}, "of another setting"


@pytest.mark.parametrize(
    "changes",
    [
        {"target_revision": "files:other"},
        {"config": files("other")},
        {"dtype": "bfloat16"},
        {"drafter": "other"},
        {"max_new_tokens": 99},
    ],
    ids=str,
)
def test_a_replay_of_another_cell_or_weights_adds_nothing(changes: dict[str, object], tmp_path: Path) -> None:
    store = Store(tmp_path, "e")
    conversations(store, "1", "ab")
    conversations(store, "2", "abc", recording="r", **changes)
    alone = {"2": {*"abc"}} if {*changes} & {*CELL} else {}
    assert found(tmp_path) == {"1": {*"ab"}, **alone}


def test_nor_does_one_of_other_tokens(tmp_path: Path) -> None:
    """The same names may be those of other prompts, or another template's."""
    store = Store(tmp_path, "e")
    conversations(store, "1", "ab")
    conversations(store, "2", "abc", tokens="other", recording="r")
    assert found(tmp_path) == {"1": {*"ab"}}


def test_what_failed_counts_with_a_replay_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, "e")
    conversations(store, "1", "ab", status="failed")
    conversations(store, "2", "abc", recording="r")
    runs = load(tmp_path, "e").runs
    assert runs["run_id"].tolist() == ["2"]
    assert not pd.isna(runs["recording"].iloc[0])
