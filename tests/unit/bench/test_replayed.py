"""Cells that are replayed on the target's recorded answers: the rows of decoding, but for times."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from cells import config, execute

from specdec_core.drafters import StaticTree
from specdec_core.errors import PairError
from specdec_core.models import CausalLM, load_pair
from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.check.__main__ import UNKNOWN, verdicts
from specdec_trees.check.folder import check
from specdec_trees.configs.cells import cell_of
from specdec_trees.measure import record, runner
from specdec_trees.measure.recordings import Recordings
from specdec_trees.papers.dyspec import figures as dyspec
from specdec_trees.papers.gsd import operations
from specdec_trees.papers.opt_tree import figures as opt_tree
from specdec_trees.prompts import datasets
from specdec_trees.prompts.embedded import TINY
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.kept_rows import FOLDER, RecordingRow
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Store, load
from specdec_trees.statistics import metrics

FEW = ("limit=3", "dataset.part=evaluation", "decoding.max_new_tokens=24")
REPLAYED = (*FEW, "runtime.replay=true")
OF_THE_MACHINE = ("repeats", "other_load", "contaminated", "identical", "first_divergence", "divergence_gap")


def rows(results: Path, table: str) -> pd.DataFrame:
    """Those of the method in an experiment, without what a replay has not."""
    found = Store(results, "default").read(table)
    found = found[found["arm"] != AUTOREGRESSIVE] if table == "prompts" else found
    untimed = [name for name in found if not name.endswith("_s") and name not in OF_THE_MACHINE]
    return found[untimed].round(4).reset_index(drop=True)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "cell",
    [
        ("drafter=opt_tree", "drafter.n=10"),
        ("drafter=gsd",),
        ("drafter=spec_infer_5x8", "verifier=by_draws"),
        ("drafter=prompt_lookup_tree",),
        ("drafter=autoregressive",),
        ("drafter=eagle2", "pair=tiny_eagle"),
        ("drafter=eagle25", "pair=tiny_medusa"),
        ("drafter=ssd", "pair=tiny_self"),
        ("drafter=opt_tree", "drafter.n=10", "decoding.ignore_eos=true"),
    ],
    ids=lambda cell: " ".join(cell),
)
def test_rows_are_those_of_decoding_in_all_but_times(cell: tuple[str, ...], tmp_path: Path) -> None:
    """Over both turns of a conversation, of which the second sees the answer to the first."""
    assert execute(tmp_path / "live", *FEW, "runtime.baseline=false", *cell) == runner.OK
    assert execute(tmp_path / "replayed", *REPLAYED, *cell) == runner.OK
    for table in ("prompts", "steps"):
        pd.testing.assert_frame_equal(rows(tmp_path / "replayed", table), rows(tmp_path / "live", table))
    assert rows(tmp_path / "live", "prompts")["turn"].max() == 1
    live, replayed = (Store(tmp_path / name, "default").read("runs").iloc[0] for name in ("live", "replayed"))
    assert pd.isna(live["recording"])
    assert replayed[["recording", "mal"]].notna().all()
    assert replayed[["tokens_per_s", "speedup", "identical", "limit_tokens_per_s"]].isna().all()
    assert replayed[["run_id", "mal"]].equals(live[["run_id", "mal"]]), "the very same cell"


@pytest.mark.parametrize("drafter", ["binary", "spec_infer_5x8", "eagle25"])
def test_fixed_shapes_are_looked_up(drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of decoding but for E(A), without a tree of the draft."""
    assert execute(tmp_path / "live", *FEW, "runtime.baseline=false", f"drafter={drafter}") == runner.OK
    monkeypatch.setattr(StaticTree, "grow", lambda *_: pytest.fail("a tree is grown"))
    assert execute(tmp_path / "ranked", *FEW, "runtime.replay=ranks", f"drafter={drafter}") == runner.OK
    live, ranked = (rows(tmp_path / name, "steps") for name in ("live", "ranked"))
    assert ranked["expected_acceptance"].isna().all()
    assert live["expected_acceptance"].notna().all()
    known = live.columns.drop("expected_acceptance")
    pd.testing.assert_frame_equal(ranked[known], live[known])
    pd.testing.assert_frame_equal(rows(tmp_path / "ranked", "prompts"), rows(tmp_path / "live", "prompts"))


def test_a_replay_neither_loads_nor_asks_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the second cell that is replayed record anew."""
    assert execute(tmp_path, *REPLAYED, "drafter=chain4") == runner.OK
    loaded = []

    def without(*specs: object, **options: object) -> object:
        loaded.append(options["target_weights"])
        return load_pair(*specs, **options)

    runner.pairs.release()
    monkeypatch.setattr(runner.pairs, "load_pair", without)
    monkeypatch.setattr(record, "record_together", lambda *_, **__: pytest.fail("it is recorded"))
    assert execute(tmp_path, *REPLAYED, "drafter=opt_tree") == runner.OK
    assert loaded == [False]
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu", target_weights=False)
    assert pair.target.model.device == torch.device("meta")
    assert pair.draft.device == pair.target.device == torch.device("cpu")
    spec = cell_of(config("pair=tiny_eagle")).pair.draft
    head = load_pair(str(TINY / "target"), spec, device="cpu", target_weights=False)
    assert isinstance(head.target, CausalLM)
    assert head.target.model.device == torch.device("cpu"), "a head reads the target's matrices"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (("decoding=t1", "drafter=dyspec", "drafter.n=6", "verifier=by_draws"), "trees of fixed shape"),
        (("decoding=t1", "pair=tiny_eagle", "drafter=mcsd", "verifier=by_draws"), "draft model of its own"),
        (("drafter=ti_mcsd", "verifier=by_root"), "start from the target's distribution"),
        (("record_nodes=true",), "record_nodes"),
        (("case_study=true",), "case_study"),
        (("verifier=gsd_nondeterministic", "drafter=tsd", "verifier.allow_lossy=true"), "does not keep"),
    ],
    ids=["adaptive", "head", "virtual root", "instrument", "case study", "lossy"],
)
def test_what_a_recording_cannot_tell_is_refused_or_decoded(cell: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    with pytest.raises(runner.NotReplayedError, match=reason) as refusal:
        execute(tmp_path, *REPLAYED, "limit=1", *cell, job=None)
    assert "\n" not in str(refusal.value)
    assert Store(tmp_path, "default").read("runs").empty, "the cell is sound"
    assert not Store(tmp_path, FOLDER).read("recordings").size, "what is refused records nothing"
    assert execute(tmp_path, *FEW, "limit=1", "runtime.replay=if_possible", *cell) == runner.OK
    run = Store(tmp_path, "default").read("runs").iloc[0]
    assert pd.isna(run["recording"])
    assert not pd.isna(run["speedup"])


def test_a_replay_is_finished_for_a_replay_alone(tmp_path: Path) -> None:
    """And what was decoded is finished for both."""
    assert execute(tmp_path, *REPLAYED) == runner.OK
    assert execute(tmp_path, *REPLAYED) == runner.SKIPPED
    for baseline in ("runtime.baseline=false", "runtime.baseline=true"):
        assert execute(tmp_path, *FEW, baseline) == runner.OK
        assert execute(tmp_path, *REPLAYED, baseline) == runner.SKIPPED
        assert Store(tmp_path, "default").read("runs")["recording"].isna().all()


def test_a_replay_never_takes_the_place_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not under force, not where another cell lends a baseline, nor where a decoding was begun and can go on."""
    assert execute(tmp_path, *FEW) == runner.OK
    before = Store(tmp_path, "default").read("prompts")
    with pytest.raises(runner.NotReplayedError, match="times would be lost"):
        execute(tmp_path, *REPLAYED, "force=true")
    pd.testing.assert_frame_equal(Store(tmp_path, "default").read("prompts"), before)
    assert execute(tmp_path, *REPLAYED, "drafter=chain4", "runtime.baseline=shared") == runner.OK
    run_id = Store(tmp_path, "default").read("runs").set_index("drafter").loc["chain4", "run_id"]
    assert set(Store(tmp_path, "default").read("prompts", [run_id])["arm"]) == {"method"}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    begun = tmp_path / "begun"
    with monkeypatch.context() as patch:
        patch.setattr(runner.Measurement, "excerpt", stop)
        with pytest.raises(KeyboardInterrupt):
            execute(begun, *FEW)
    with pytest.raises(runner.NotReplayedError, match="finish it"):
        execute(begun, *REPLAYED)
    assert execute(begun, *FEW) == runner.OK
    assert (Store(begun, "default").read("prompts")["start"] == 1).all(), "it goes on where it was"


def test_a_recording_that_was_stopped_goes_on_behind_its_last_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are those of one that ran through."""
    whole, stopped, asked, genuine = tmp_path / "whole", tmp_path / "stopped", [], record.record_together

    def few(target: object, prompts: list[list[int]], **options: object) -> object:
        asked.extend(prompts)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return genuine(target, prompts, **options)

    monkeypatch.setattr(record, "TOGETHER", 2)
    execute(whole, *REPLAYED, "pair=tiny_eagle")
    monkeypatch.setattr(record, "record_together", few)
    monkeypatch.setattr(record, "TOGETHER", 1)
    with pytest.raises(KeyboardInterrupt):
        execute(stopped, *REPLAYED, "pair=tiny_eagle")
    assert Store(stopped, FOLDER).read("recordings").empty
    assert execute(stopped, *REPLAYED, "pair=tiny_eagle") == runner.OK
    tables = [Store(root, FOLDER).read("recordings") for root in (whole, stopped)]
    pd.testing.assert_frame_equal(*tables)
    assert len(asked) == len(tables[0]) + 1
    for table in ("steps", "prompts"):
        pd.testing.assert_frame_equal(rows(whole, table), rows(stopped, table))


DRAWN = ("decoding.temperature=0.7", "verifier=target_sample")


def test_drawn_answers_are_those_of_plain_decoding_and_of_all_methods(tmp_path: Path) -> None:
    """Of the same seed. All methods then commit the same tokens, and rows of another temperature are others."""
    live, replayed = tmp_path / "live", tmp_path / "replayed"
    assert execute(live, *FEW, *DRAWN, "drafter=chain4") == runner.OK
    for drafter in ("chain4", "opt_tree", "eagle2", "prompt_lookup"):
        assert execute(replayed, *REPLAYED, *DRAWN, f"drafter={drafter}") == runner.OK
    plain = Store(live, "default").read("prompts").query("arm == 'autoregressive' and turn == 0")
    answers = dict(zip(plain["prompt_id"], map(list, plain["output_ids"]), strict=True))
    found = Store(replayed, "default").read("prompts")
    first = found[found["turn"] == 0]
    assert [list(ids) for ids in first["output_ids"]] == [answers[name] for name in first["prompt_id"]]
    assert (found.groupby(["prompt_id", "turn"])["output_sha256"].nunique() == 1).all()
    recordings = Store(replayed, FOLDER).read("recordings")
    assert recordings["run_id"].nunique() == 1
    assert all(len(gaps) == 0 for gaps in recordings["gaps"]), "of a drawn token the best two logits say nothing"
    for other in ("decoding.temperature=0.9", "seed=1", "decoding.top_p=0.5", "decoding.temperature=0"):
        assert execute(replayed, *REPLAYED, *DRAWN, "drafter=chain4", other) == runner.OK
    assert Store(replayed, FOLDER).read("recordings")["run_id"].nunique() == 5
    assert check(replayed).lossy == []


SAMPLED = ("decoding=t1_top_p08", "verifier=by_draws")


@pytest.mark.parametrize("drafter", ["mcsd", "spec_infer_5x8"])
def test_rules_that_compare_p_with_q_are_replayed_on_what_was_drawn_from(
    drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tree is grown; the tokens are those of plain decoding, and serve a rule that needs no distributions."""
    assert execute(tmp_path, *FEW, *SAMPLED, "drafter=chain4") == runner.OK
    first = Store(tmp_path, "default").read("prompts").query("turn == 0").set_index("arm")
    with monkeypatch.context() as patch:
        patch.setattr(StaticTree, "grow", lambda *_: pytest.fail("a tree is grown"))
        assert execute(tmp_path, *REPLAYED, *SAMPLED, f"drafter={drafter}") == runner.OK
    runs = Store(tmp_path, "default").read("runs").set_index("drafter")
    replayed = Store(tmp_path, "default").read("prompts", [runs.loc[drafter, "run_id"]]).query("turn == 0")
    assert list(replayed["output_sha256"]) == list(first.loc[AUTOREGRESSIVE, "output_sha256"])
    assert replayed["expected_length"].sum() / replayed["expected_steps"].sum() == pytest.approx(
        runs.loc[drafter, "mal"], rel=0.3
    )
    key = runs.loc[drafter, "recording"]
    assert all(row.distributions for row in Recordings.read(tmp_path, key).rows.values())
    monkeypatch.setattr(record, "record", lambda *_, **__: pytest.fail("it is recorded anew"))
    assert execute(tmp_path, *REPLAYED, *SAMPLED, "drafter=binary") == runner.OK
    runs = Store(tmp_path, "default").read("runs").set_index("drafter")
    assert runs.loc["binary", "recording"] == key
    certain = Store(tmp_path, "default").read("prompts", [runs.loc["binary", "run_id"]])
    assert certain["expected_steps"].tolist() == certain["num_steps"].tolist(), "best tokens leave nothing to chance"


def test_answers_that_others_are_replayed_on_are_read_again_for_their_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not decoded anew, be they of another machine: all methods have the same answers."""
    assert execute(tmp_path, *REPLAYED, *SAMPLED, "drafter=binary") == runner.OK
    plain = Store(tmp_path, FOLDER)
    (key,) = set(plain.read("recordings")["run_id"])
    rows = [replace(row, device_name="elsewhere") for row in Recordings.read(tmp_path, key).rows.values()]
    plain.write("recordings", key, rows)
    monkeypatch.setattr(record, "record", lambda *_, **__: pytest.fail("it is decoded anew"))
    assert execute(tmp_path, *REPLAYED, *SAMPLED, "drafter=mcsd") == runner.OK
    prompts = Store(tmp_path, "default").read("prompts")
    assert (prompts.groupby(["prompt_id", "turn"])["output_sha256"].nunique() == 1).all()
    assert prompts["expected_steps"].gt(0).all()
    assert "the same for all" in notes.replayed(frame.load(load(tmp_path, "default")))
    other = prompts.assign(output_sha256=prompts["output_sha256"].where(prompts["run_id"] == prompts["run_id"][0], "x"))
    results = replace(load(tmp_path, "default"), prompts=other)
    assert "not the same for all" in notes.replayed(frame.load(results))


def test_lost_distributions_are_recorded_anew(tmp_path: Path) -> None:
    for drafter in ("mcsd", "spec_infer_5x8"):
        assert execute(tmp_path, *REPLAYED, *SAMPLED, "limit=1", f"drafter={drafter}") == runner.OK
        files = [*(tmp_path / FOLDER / "features").rglob("*.safetensors")]
        assert files
        for path in files:
            path.unlink()


def test_a_drawn_answer_that_was_stopped_goes_on_by_its_own_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped, genuine, left = tmp_path / "whole", tmp_path / "stopped", record.record, iter(range(10))

    def few(*given: object, **options: object) -> object:
        if next(left) == 3:
            raise KeyboardInterrupt
        return genuine(*given, **options)

    execute(whole, *REPLAYED, *DRAWN)
    monkeypatch.setattr(record, "record", few)
    with pytest.raises(KeyboardInterrupt):
        execute(stopped, *REPLAYED, *DRAWN)
    assert execute(stopped, *REPLAYED, *DRAWN) == runner.OK
    pd.testing.assert_frame_equal(*(Store(root, FOLDER).read("recordings") for root in (whole, stopped)))


def test_a_drawn_cell_that_was_replayed_is_decoded_where_times_are_asked_for(tmp_path: Path) -> None:
    assert execute(tmp_path, *REPLAYED, *DRAWN) == runner.OK
    assert execute(tmp_path, *REPLAYED, *DRAWN) == runner.SKIPPED
    assert execute(tmp_path, *FEW, *DRAWN) == runner.OK
    assert Store(tmp_path, "default").read("runs")["recording"].isna().all()


def test_what_an_engine_decoded_is_taken_for_no_drawn_answers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="greedy"):
        execute(tmp_path, *FEW, *DRAWN, "measure=recording", f"runtime.answers={tmp_path / 'answers.jsonl'}")


def test_answers_are_lent_to_a_recording_of_other_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more prompts those known, and those whose answers are long enough; shorter ones are recorded anew."""
    asked, genuine = [], record.record_together

    def noted(target: object, prompts: list[list[int]], **options: object) -> object:
        asked.extend(map(tuple, prompts))
        return genuine(target, prompts, **options)

    monkeypatch.setattr(record, "record_together", noted)

    def recorded(limit: int, new: int) -> list[tuple[int, ...]]:
        asked.clear()
        size = (f"limit={limit}", f"decoding.max_new_tokens={new}")
        assert execute(tmp_path, *REPLAYED, "pair=tiny_eagle", *size) == runner.OK
        return asked.copy()

    first, fewer, more, longer, shorter = (
        recorded(2, 16),
        recorded(1, 16),
        recorded(3, 16),
        recorded(1, 24),
        recorded(1, 8),
    )
    assert len(first) == len({*first}) > 1
    assert not fewer
    assert more
    assert not {*first} & {*more}
    assert longer[0] in first
    assert longer[0] not in shorter


@pytest.mark.few(1)
@pytest.mark.parametrize("pair", ["tiny", "tiny_eagle"])
def test_conversations_that_begin_alike_have_drawn_answers_of_their_own(
    pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And features of their own, and second prompts behind their own answers."""
    genuine = datasets.load

    def twins(*given: object, **more: object) -> list[datasets.Conversation]:
        first = next(one for one in genuine(*given, **more) if len(one.turns) > 1)
        return [first, replace(first, id="twin", turns=(first.turns[0], "And in one word?")), replace(first, id="same")]

    monkeypatch.setattr(datasets, "load", twins)
    chosen = (*DRAWN, f"pair={pair}", "drafter=opt_tree", "decoding.temperature=1.5")
    assert execute(tmp_path, *REPLAYED, *chosen) == runner.OK
    found, kept = Store(tmp_path, "default").read("prompts"), recordings_of(tmp_path)
    answers = {(row.prompt_id, row.turn): row.answer_ids for row in kept}
    assert len(found) == len(answers) == 6
    for row in found.itertuples():
        assert answers[row.prompt_id, row.turn][: len(row.output_ids)] == [*row.output_ids]
    first = found[found["turn"] == 0]
    assert (first["prompt_ids_sha256"].nunique(), first["output_sha256"].nunique()) == (1, 3)
    assert check(tmp_path).lossy == []
    counted = [*(tmp_path / FOLDER / "features").rglob("*.safetensors")]
    assert len(counted) == (6 if pair == "tiny_eagle" else 0)


def test_drawn_answers_are_lent_on_the_same_machine_and_to_the_same_turn_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those that end early would be lent, and the others drawn anew."""
    asked, genuine = [], record.record

    def noted(target: object, prompt: list[int], **options: object) -> object:
        asked.append(tuple(prompt))
        return genuine(target, prompt, **options)

    monkeypatch.setattr(record, "record", noted)

    def recorded(name: str, limit: int = 1) -> int:
        asked.clear()
        chosen = (*REPLAYED, *DRAWN, "drafter=chain4", f"limit={limit}")
        assert execute(tmp_path / name, *chosen) == runner.OK
        return len(asked)

    assert recorded("first", 2) > 1
    rows = [*recordings_of(tmp_path / "first")]
    changes = {
        "same": {},
        "device": {"device_name": "Other GPU"},
        "torch": {"torch_version": "0.0"},
        "conversation": {"prompt_id": "twin"},
    }
    for name, change in changes.items():
        Store(tmp_path / name, FOLDER).write(
            "recordings", "more", [replace(row, run_id="more", **change) for row in rows]
        )
        assert bool(recorded(name)) == bool(change)


def recordings_of(results: Path) -> Iterable[RecordingRow]:
    """The answers of a folder's only recording."""
    (key,) = {*Store(results, FOLDER).read("recordings")["run_id"]}
    return Recordings.read(results, key).rows.values()


def test_lost_features_are_recorded_anew(tmp_path: Path) -> None:
    execute(tmp_path, *REPLAYED, "pair=tiny_eagle")
    before = rows(tmp_path, "steps")
    for path in tmp_path.glob("calibration/features/*/*.safetensors"):
        path.unlink()
    assert execute(tmp_path, *REPLAYED, "pair=tiny_eagle", "force=true") == runner.OK
    pd.testing.assert_frame_equal(rows(tmp_path, "steps"), before)


def test_an_answer_is_found_by_its_prompt(tmp_path: Path) -> None:
    execute(tmp_path, *REPLAYED)
    turns = Store(tmp_path, "default").read("prompts")
    run = Store(tmp_path, "default").read("runs").iloc[0]
    recordings = Recordings.read(tmp_path, run["recording"])
    for turn, row in zip(turns.itertuples(), recordings.rows.values(), strict=True):
        assert row.prompt_ids_sha256 == turn.prompt_ids_sha256 == output_sha256(row.prompt_ids)
        output = [*turn.output_ids]
        assert row.answer_ids[: len(output)] == output
        assert len(row.gaps) == len(row.answer_ids)
        assert row.ended or len(row.answer_ids) == 24 + record.BEYOND
        assert row.git_revision == run["git_revision"]
    with pytest.raises(PairError):
        recordings.of(row.prompt_id, row.turn, [1, 2, 3])


def test_recordings_are_told_apart_by_what_the_answers_depend_on(tmp_path: Path) -> None:
    """The drafter, the rule and the order of nodes are nothing to the target's own answers."""

    def keys(*changes: str) -> set[str]:
        execute(tmp_path, *REPLAYED, "limit=1", *changes)
        return {*Store(tmp_path, FOLDER).read("recordings")["run_id"]}

    first = keys()
    assert len(first) == 1
    assert keys("drafter=chain4", "verifier=greedy") == first
    assert keys("runtime.node_order=dfs") == first
    assert keys("pair.draft_temperature=0.7") == first
    several = [keys(), keys("decoding.max_new_tokens=8"), keys("runtime.dtype=bfloat16"), keys("pair=tiny_eagle")]
    assert [len(found) for found in several] == [1, 2, 3, 4]


def test_replays_have_no_times_in_any_table(tmp_path: Path) -> None:
    """And MAL is there; what draws times alone says that there are none."""
    for drafter in ("opt_tree", "gsd", "dyspec"):
        execute(tmp_path, *REPLAYED, f"drafter={drafter}", "limit=2")
    results = load(tmp_path, "default")
    runs = frame.load(results)
    for run in runs.itertuples():
        assert metrics.phase_times(run.steps).isna().all()
        assert not metrics.phase_times(run.steps).empty
        assert metrics.untimed(run.prompts).all()
        assert pd.isna(metrics.draft_forward_s(run.steps))
    long = frame.measure(runs, [opt_tree.MAL, *opt_tree.TIMES, *operations.PRINTED])
    known = {metric.key for metric, value in zip(long["metric"], long["interval"], strict=True) if known_value(value)}
    assert known == {"mal"}
    with pytest.raises(NoResultsError):
        opt_tree.fig7("fig7", results)
    with pytest.raises(NoResultsError):
        dyspec.fig4("fig4", results)


def known_value(value: object) -> bool:
    return value is not None and not pd.isna(getattr(value, "value", value))


def test_a_check_holds_replayed_outputs_against_the_recording(tmp_path: Path) -> None:
    execute(tmp_path, *REPLAYED)
    store = Store(tmp_path, FOLDER)
    found = check(tmp_path)
    assert (found.replayed, found.lossy, found.unaudited, found.altered) == (len(store.read("recordings")), [], [], [])
    assert found.greedy == 0, "a replay follows its recording whatever the rule would choose"
    assert {question: state for question, state, *_ in verdicts(found, [])}["lossless"] == UNKNOWN
    (key,) = set(store.read("recordings")["run_id"])
    answers = list(Recordings.read(tmp_path, key).rows.values())
    other = replace(answers[0], answer_ids=[answers[0].answer_ids[0] + 1, *answers[0].answer_ids[1:]])
    store.write("recordings", key, [other, *answers[1:-1]])
    assert len(check(tmp_path).lossy) == 2, "one answer is another, and one is missing"
    shutil.rmtree(store.folder)
    found = check(tmp_path)
    assert (found.replayed, found.lossy, len(found.unaudited)) == (0, [], 1), "nothing to compare with"
