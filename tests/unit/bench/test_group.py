"""Cells of a sweep that differ in drafter and rule alone take turns, and share what the target decodes alone."""

import signal
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from cells import command, config
from resumed import Counted, Killed, timeless

from bench.configs.cells import cell_of, runtime_of
from bench.measure import runner
from bench.measure.cell_run import CellRun
from bench.measure.decoding import Decoding
from bench.measure.group import grouped
from bench.results import partial
from bench.results.store import Store, load

DRAFTERS = ("chain4", "opt_tree", "prompt_lookup")
SWEEP = (
    *("-m", "pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=8", "results_dir=results"),
    *("runtime.device=cpu", "runtime.progress=false", "runtime.num_threads=1", "runtime.warmup_conversations=0"),
    "drafter=" + ",".join(DRAFTERS),
)
ARM = ["prompt_id", "turn", "arm"]


def runs(root: Path, **given: object) -> list[CellRun]:
    """The cells of the sweep, as they are when all are known."""
    options = [f"{name}={value}" for name, value in given.items()]
    cfgs = [config(*SWEEP[1:-1], f"drafter={drafter}", *options) for drafter in DRAFTERS]
    return [CellRun(cell_of(cfg), runtime_of(cfg), Store(root / "results", "default")) for cfg in cfgs]


def in_order(root: Path) -> dict[str, pd.DataFrame]:
    """Rows without times, of a turn the method's behind the target's own, whichever was decoded first."""
    tables = timeless(root / "results")
    keys = ["run_id", "prompt_id", "turn"]
    return tables | {"prompts": tables["prompts"].sort_values([*keys, "arm"], ignore_index=True)}


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_rows_are_those_of_cells_decoded_one_after_the_other(
    temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, tables = Counted(monkeypatch), []
    for name, together in (("apart", "false"), ("together", "true")):
        (tmp_path / name).mkdir()
        counted.decoded.clear()
        options = (f"decoding.temperature={temperature}", "verifier=target_sample", f"runtime.grouped={together}")
        assert command(tmp_path / name, *SWEEP, *options) is None
        tables.append(in_order(tmp_path / name))
        alone = {(turn, arm): number for (_, turn, arm), number in counted.decoded.items()}
        assert alone[0, "autoregressive"] == (len(DRAFTERS) if together == "false" else 1)
        assert alone[0, "method"] == alone[1, "method"] == len(DRAFTERS)
        if temperature == 0:  # answers are the same, and so are the prompts behind them
            assert alone[1, "autoregressive"] == alone[0, "autoregressive"]
    for table, rows in tables[0].items():
        pd.testing.assert_frame_equal(rows, tables[1][table], check_exact=True)


def test_the_arm_that_is_shared_is_one_of_all_and_says_whose(tmp_path: Path) -> None:
    assert command(tmp_path, *SWEEP) is None
    rows = load(tmp_path / "results", "default")
    (leader,) = rows.runs.loc[rows.runs["baseline_of"].isna(), "run_id"]
    assert set(rows.runs["baseline_of"].dropna()) == {leader}
    alone = rows.prompts[rows.prompts["arm"] == "autoregressive"]
    assert (alone.groupby(ARM)[["decode_s", "prefill_s", "output_sha256"]].nunique() == 1).all(axis=None)
    decoders = alone[alone["start"].notna()].groupby("prompt_id")["run_id"].unique()
    assert [len(ids) for ids in decoders] == [1, 1]
    assert decoders.iloc[0][0] != decoders.iloc[1][0], "each conversation begins with another cell"


def test_a_cell_that_fails_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Decoding.decode

    def failing(own: Decoding, turn, arm: str, *given, **more):
        if own.cell.drafter == "opt_tree" and turn.number:
            raise torch.OutOfMemoryError("no memory")
        return decode(own, turn, arm, *given, **more)

    monkeypatch.setattr(Decoding, "decode", failing)
    assert command(tmp_path, *SWEEP) is None
    found = load(tmp_path / "results", "default").runs.set_index("drafter")
    assert found["status"].to_dict() == {"chain4": "ok", "opt_tree": "oom", "prompt_lookup": "ok"}
    monkeypatch.undo()
    assert command(tmp_path, *SWEEP) is None
    found = load(tmp_path / "results", "default").runs.set_index("drafter")
    assert found["status"].unique().tolist() == ["ok"]
    assert found["num_starts"].to_dict() == {"chain4": 1, "opt_tree": 2, "prompt_lookup": 1}
    assert found.loc["opt_tree", "baseline_of"] == found.loc["chain4", "run_id"], "its first turn is of that run's arm"


@pytest.mark.parametrize("left", [3, 11])
def test_a_group_that_was_killed_goes_on_behind_each_cells_last_turn(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    assert command(tmp_path / "whole", *SWEEP) is None
    counted = Counted(monkeypatch)
    counted.left = left
    with pytest.raises(Killed):
        command(tmp_path / "killed", *SWEEP)
    begun = len(partial.cells(tmp_path / "killed" / "results"))
    assert begun == len(DRAFTERS)
    counted.left = None
    methods = sum(number for (_, _, arm), number in counted.decoded.items() if arm == "method")
    counted.decoded.clear()
    assert command(tmp_path / "killed", *SWEEP) is None
    again = sum(number for (_, _, arm), number in counted.decoded.items() if arm == "method")
    assert methods + again - 4 * len(DRAFTERS) in (0, 1), "at most the turn at hand was decoded twice"
    first, other = in_order(tmp_path / "whole"), in_order(tmp_path / "killed")
    for table, rows in first.items():
        pd.testing.assert_frame_equal(rows, other[table], check_exact=True)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_all_cells_hear_of_a_signal(sign: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, count = Decoding.decode, iter(range(100))

    def stopped(own: Decoding, *given, **more):
        if next(count) == 3:
            signal.raise_signal(sign)
        return decode(own, *given, **more)

    monkeypatch.setattr(Decoding, "decode", stopped)
    assert command(tmp_path, *SWEEP) == 128 + sign
    found = load(tmp_path / "results", "default").runs
    assert found["status"].tolist() == ["interrupted"] * len(DRAFTERS)
    monkeypatch.undo()
    assert command(tmp_path, *SWEEP) is None
    assert load(tmp_path / "results", "default").runs["status"].tolist() == ["ok"] * len(DRAFTERS)


def test_what_another_process_runs_is_left_to_it(tmp_path: Path) -> None:
    sweep = runs(tmp_path)
    with sweep[1].store.lock(sweep[1].run_id):
        ended = runner.run_cells(sweep)
    assert list(ended.values()) == ["ok", "busy", "ok"]
    assert list(runner.run_cells(sweep).values()) == ["skipped", "ok", "skipped"]


def test_groups_are_of_one_setting_and_begin_with_what_was_begun(tmp_path: Path) -> None:
    sweep = runs(tmp_path)
    others = runs(tmp_path, **{"decoding.temperature": 0.5})
    noted = [replace(run, runtime=replace(run.runtime, record_nodes=True)) for run in sweep[:1]]
    sweep[2].store.folder.mkdir(parents=True)
    sweep[2].partial.path.touch()
    found = list(grouped([sweep[0], others[0], *sweep[1:], *others[1:], sweep[0], *noted]))
    assert [[run.run_id for run in group] for group in found] == [
        [sweep[place].run_id for place in (2, 0, 1)],
        [run.run_id for run in others],
        [sweep[0].run_id],
    ]


def test_the_first_cell_alone_may_choose_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a group decode on as many, which their rows tell."""
    counted = Counted(monkeypatch)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    sweep = [replace(run, runtime=replace(run.runtime, num_threads=None)) for run in runs(tmp_path)]
    threads = torch.get_num_threads()
    try:
        for number, run in enumerate(sweep[:2], start=1):
            torch.set_num_threads(number)
            counted.left = 3
            with pytest.raises(Killed):
                runner.run_cells([run])
        counted.left = None
        torch.set_num_threads(2)
        assert set(runner.run_cells(sweep).values()) == {"ok"}
    finally:
        torch.set_num_threads(threads)
    found = load(tmp_path / "results", "default").runs.set_index("drafter").loc[list(DRAFTERS)]
    assert found["num_threads"].tolist() == [1, 1, 1]
    assert found["num_starts"].tolist() == [2, 1, 1]
