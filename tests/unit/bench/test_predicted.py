"""Speeds by forward times: steps priced by hand, what is not known, and cards that nobody has timed."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cells import execute

from specdec_trees.artifacts import frame, metrics
from specdec_trees.artifacts.table import table
from specdec_trees.calibrate.prices import Prices
from specdec_trees.results.store import load
from specdec_trees.speed import predicted
from specdec_trees.speed.predicted import speeds

CELL = ("pair=tiny", "dataset=mini", "runtime.warmup_conversations=0", "limit=2", "decoding.max_new_tokens=12")


def prices(**given: object) -> Prices:
    """A target of one second a token and a draft of a tenth."""
    return Prices(
        **{"machine": "here in float32", "target": lambda sizes: sizes, "draft": lambda sizes: sizes / 10, **given}
    )


def steps(**columns: object) -> pd.DataFrame:
    """Two steps of a run over trees of three nodes, drafted in two forwards."""
    plain = {"run_id": "a", "num_drafted": 3, "draft_forwards": 2, "draft_tokens": 4, "kept": 2}
    return pd.DataFrame({**plain, **columns}, index=range(2))


def runs(**columns: object) -> pd.DataFrame:
    """A replay of a chain; another of its runs, whose loop takes half a second a step, and plain decoding a quarter."""
    plain = {"run_id": ["a", "a2", "b"], "method": ["chain", "chain", "autoregressive"], "mean_size": [3.0, 3.0, 0.0]}
    machine = {"device_name": "here", "dtype": "float32", "step_s": [math.nan, 0.5, 0.25]}
    return pd.DataFrame({**plain, **machine, **columns})


def test_a_step_is_a_target_forward_its_draft_forwards_and_the_loop() -> None:
    found = speeds(prices(), runs(), steps()).loc["a"]
    assert found["tokens_per_s"] == pytest.approx(4 / (2 * (4 + 2 * 0.2 + 0.5)))
    assert found["speedup"] == pytest.approx(1.25 * found["tokens_per_s"])
    alone = speeds(prices(), runs(), steps(num_drafted=0, draft_forwards=0, draft_tokens=0, kept=1))
    assert alone.loc["a", "tokens_per_s"] == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(("forwards", "known"), [([1, 1], False), ([0, 1], False), ([0, 0], True)])
def test_forwards_of_a_draft_that_was_not_timed_are_not_free(forwards: list[int], known: bool) -> None:
    untimed = prices(draft=lambda sizes: np.full_like(sizes, np.nan))
    assert speeds(untimed, runs(), steps(draft_forwards=forwards)).notna().all(axis=None) == known


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 1.0), (1, 2.0), (2, 3.0), (6, 7.0), (7, math.nan)])
def test_times_lie_between_those_measured_and_end_behind_the_largest(nodes: int, seconds: float) -> None:
    rows = pd.DataFrame({"device_name": "x", "dtype": "y", "role": "target", "num_tokens": [1, 1, 1, 3, 7]})
    (kept,) = Prices.kept(rows.assign(forward_s=[1.0, 9.0, 1.0, 3.0, 7.0]))
    assert kept.machine == "x in y"
    assert kept.target(np.array([nodes + 1.0])) == pytest.approx([seconds], nan_ok=True)
    found = speeds(kept, runs(), steps(num_drafted=nodes, draft_forwards=0, kept=1))
    assert 1 / found.loc["a", "tokens_per_s"] == pytest.approx(seconds + 0.5, nan_ok=True)


def test_machines_and_dtypes_are_priced_apart() -> None:
    rows = pd.DataFrame({"device_name": ["x", "x", "z"], "dtype": ["y", "w", "y"], "role": "target"})
    found = Prices.kept(rows.assign(num_tokens=1, forward_s=[1.0, 2.0, 3.0]))
    assert {one.machine: float(one.target(np.ones(1))[0]) for one in found} == {"x in y": 1, "x in w": 2, "z in y": 3}


def test_the_loops_time_is_that_of_the_nearest_other_runs_of_the_method() -> None:
    """Not the run's own: else the prediction would know what it is held against. A replay has none to give."""
    timed = pd.DataFrame({"run_id": list("abcdefr"), "method": [*"mmmmm", "other", "m"]})
    timed = timed.assign(mean_size=[1, 2, 3, 60, 64, 8, 2], step_s=[1.0, 2.0, 4.0, 30.0, 40.0, 9.0, math.nan])
    found = {run.run_id: predicted._host(timed, run) for run in timed.itertuples()}
    assert found["a"] == np.median([2, 4, 30])
    assert found["b"] == np.median([4, 1, 30])
    assert found["e"] == np.median([30, 4, 2])
    assert found["r"] == np.median([2, 4, 1])
    assert found["f"] == np.median([4, 2, 1]), "no other run of the method: those of all"


@pytest.mark.parametrize(("device", "seconds"), [("here", 4 + 0.4 + 0.5), ("elsewhere", 4 + 0.4 + 7.0)])
def test_the_loops_time_is_of_the_machine_where_it_was_timed_there(device: str, seconds: float) -> None:
    more = runs(run_id=["a", "c", "d"], step_s=[math.nan, 7.0, 7.0], device_name="elsewhere")
    found = speeds(prices(machine=f"{device} in float32"), pd.concat([runs(), more[1:]]), steps())
    assert found.loc["a", "tokens_per_s"] == pytest.approx(2 / seconds)
    new = speeds(prices(machine="new in float32"), runs(), steps())
    assert new.loc["a", "tokens_per_s"] == pytest.approx(2 / 4.9), "nothing was timed there"


def test_no_speedup_is_told_where_nothing_says_what_plain_decoding_costs_the_loop() -> None:
    found = speeds(prices(), runs(step_s=[math.nan, 0.5, math.nan]), steps()).loc["a"]
    assert math.isnan(found["speedup"])
    assert found["tokens_per_s"] == pytest.approx(2 / 4.9)


def test_errors_are_of_drafting_runs_on_the_machine() -> None:
    told = pd.Series({"a": 3.0, "a2": 1.5, "b": 1.0})
    rows = runs(speedup=[2.0, 3.0, 1.0], device_name=["here", "elsewhere", "here"])
    found = predicted.errors(rows, told, prices())
    assert found["off"].to_dict() == {"a": 0.5}


def test_a_replay_and_what_was_decoded_are_priced_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for drafter in ("chain4", "opt_tree"):
        assert execute(tmp_path / "live", *CELL, f"drafter={drafter}") == "ok"
        assert execute(tmp_path / "replayed", *CELL, f"drafter={drafter}", "runtime.replay=true") == "ok"
    grid = ("calibration.latency.num_tokens=[1,8,64]", "calibration.latency.repeats=2", "calibration.latency.warmup=1")
    assert execute(tmp_path / "live", *CELL, "drafter=chain4", *grid, "measure=latency") == "ok"
    tables = [predicted.read(tmp_path / name, "tiny") for name in ("live", "replayed")]
    one = prices()
    shown = [speeds(one, runs.assign(step_s=0.0), steps) for runs, steps in tables]
    pd.testing.assert_frame_equal(*(found.sort_index() for found in shown))
    assert predicted.main([str(tmp_path / "live"), "--on", "h100 80gb"]) == 0
    machine = load(tmp_path / "live", "default").runs["device_name"].iloc[0]
    out = capsys.readouterr().out
    assert f"{machine} in float32: no speedup is known" in out
    assert execute(tmp_path / "live", *CELL, "drafter=autoregressive") == "ok"
    assert predicted.main([str(tmp_path / "live")]) == 0
    assert f"{machine} in float32: 2 speedups" in capsys.readouterr().out
    assert predicted.main([str(tmp_path / "replayed")]) == 0
    assert "no forward times of tiny" in capsys.readouterr().out
    kept = tables_keep_what_was_predicted(tmp_path / "live")
    assert execute(tmp_path / "live", *CELL, "drafter=chain4", "force=true") == "ok"
    left = load(tmp_path / "live", "default").predictions
    chain = load(tmp_path / "live", "default").runs.set_index("drafter").loc["chain4", "run_id"]
    assert set(kept["run_id"]) - set(left["run_id"]) == {chain}, "measured again"


def tables_keep_what_was_predicted(root: Path) -> pd.DataFrame:
    """A row per run and machine, of the numbers that are printed; a table has a column for each machine."""
    for _ in range(2):
        assert predicted.main([str(root), "--on", "h100 80gb", "--keep"]) == 0
    results = load(root, "default")
    kept = results.predictions
    assert len(kept) == 2 * len(results.runs)
    plain = kept["run_id"].isin(results.runs.loc[results.runs["method"] == "autoregressive", "run_id"])
    assert kept.loc[plain, "speedup"].isna().all(), "of itself plain decoding has none"
    assert kept.loc[~plain, "speedup"].gt(0).all()
    runs = frame.load(results)
    shown = table("t", "t", frame.measure(runs, [metrics.MAL]), ["drafter"], [metrics.MAL])
    for run in runs.itertuples():
        for machine, speedup in run.predictions.items():
            line = shown.frame.iloc[shown.runs.index(run.run_id)]
            assert float(line[f"speedup predicted on {machine}"]) == pytest.approx(speedup, abs=0.005)
    return kept


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tiny", ["--pair", "tyni"]),
        ("tiny", ["--on", "h1000"]),
        ("mine", ["--pair", "mine", "--on", "h100 80gb"]),
        ("", ["--pair", "tiny"]),
    ],
    ids=["unknown pair", "unknown card", "pair without a yaml", "no runs"],
)
def test_what_cannot_be_priced_is_a_sentence(name: str, given: list[str], tmp_path: Path, capsys) -> None:
    assert not name or execute(tmp_path, *CELL, "drafter=chain4", f"pair.name={name}") == "ok"
    capsys.readouterr()
    assert predicted.main([str(tmp_path), *given]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
