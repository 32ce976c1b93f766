"""Cells of a sweep that differ in drafter and rule alone take turns, and lend each other what the target decodes."""

import math
import signal
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from cells import command, config
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig
from resumed import Counted, Killed, timeless

from specdec_trees import run
from specdec_trees.artifacts import frame, noise
from specdec_trees.configs.cells import cell_of, runtime_of
from specdec_trees.measure import pairs, runner
from specdec_trees.measure.cell import Cell
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.measure.decoding import Decoding
from specdec_trees.measure.group import BASELINES, Group, grouped, in_turn
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.stalls import Stalls, Timed
from specdec_trees.plan.composing import Composer
from specdec_trees.results import partial
from specdec_trees.results.store import Store, load
from specdec_trees.statistics import samples

DRAFTERS = ("chain4", "opt_tree", "prompt_lookup")
SWEEP = (
    *("-m", "pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=8", "results_dir=results"),
    *("runtime.device=cpu", "runtime.progress=false", "runtime.num_threads=1", "runtime.warmup_conversations=0"),
    "drafter=" + ",".join(DRAFTERS),
)


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


@pytest.mark.few(1)
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
        assert alone[0, "autoregressive"] == (len(DRAFTERS) if together == "false" else BASELINES)
        assert alone[0, "method"] == alone[1, "method"] == len(DRAFTERS)
        if temperature == 0:  # answers are the same, and so are the prompts behind them
            assert alone[1, "autoregressive"] == alone[0, "autoregressive"]
    for table, rows in tables[0].items():
        pd.testing.assert_frame_equal(rows, tables[1][table], check_exact=True)


def test_a_log_says_where_a_sweep_stands_and_how_each_cell_ended(tmp_path: Path, capsys) -> None:
    assert command(tmp_path, *SWEEP, "decoding.temperature=0,0.5", "verifier=target_sample") is None
    lines = [line.partition(" - ")[2] for line in capsys.readouterr().out.splitlines() if "measure.runner" in line]
    first, second = (line for line in lines if " of 6" in line)
    assert ("1 to 3" in first, "left" in first) == (True, False), first
    assert ("4 to 6" in second, "left" in second) == (True, True), second
    ended = [line.partition(":")[0].rpartition("/")[2] for line in lines if ": ok, 2 conversations" in line]
    assert sorted(ended) == sorted([*DRAFTERS, *DRAFTERS])


@pytest.mark.parametrize(
    ("done", "count", "total", "pace", "said"),
    [
        (0, 1, 1, None, "cell 1 of 1"),
        (3, 2, 9, 60.0, "cells 4 to 5 of 9, about 6 min left"),
        (3, 1, 9, 3600.0, "cell 4 of 9, about 6.0 h left"),
    ],
)
def test_the_time_left_is_that_of_the_cells_that_were_not_skipped(done, count, total, pace, said) -> None:
    assert run._place(done, count, total, pace) == said


def test_two_cells_decode_the_arm_and_the_others_say_whose_they_have(tmp_path: Path) -> None:
    assert command(tmp_path, *SWEEP) is None
    found = load(tmp_path / "results", "default")
    runs = found.runs.set_index("drafter")
    assert runs["baseline_of"].isna().to_dict() == {"chain4": True, "opt_tree": True, "prompt_lookup": False}
    assert runs.loc["prompt_lookup", "baseline_of"] == runs.loc["chain4", "run_id"]
    plain = found.prompts[found.prompts["arm"] == "autoregressive"]
    arms = {
        name: plain[plain["run_id"] == run_id].set_index(["prompt_id", "turn"])
        for name, run_id in runs["run_id"].items()
    }
    assert [arms[name]["start"].notna().mean() for name in DRAFTERS] == [1, 1, 0]
    assert arms["prompt_lookup"]["decode_s"].to_dict() == arms["chain4"]["decode_s"].to_dict()
    assert not set(arms["opt_tree"]["decode_s"]) & set(arms["chain4"]["decode_s"])


def test_later_turns_are_lent_by_the_cell_that_lends_the_first(tmp_path: Path) -> None:
    """All but Traversal write the same text on a chain, so that their second turns have the same prompt."""
    rules = "verifier=spec_infer,chain,traversal_iid,multi_candidate_iid,k_seq"
    drawn = ("drafter=chain4", "drafter.draws=iid", "decoding.temperature=1", "limit=6", rules)
    assert command(tmp_path, *SWEEP[:-1], *drawn) is None
    found = load(tmp_path / "results", "default")
    assert found.runs.set_index("verifier")["mal"].nunique() == 2
    plain = found.prompts[found.prompts["arm"] == "autoregressive"].set_index(["run_id", "prompt_id", "turn"])
    lenders = found.runs.set_index("run_id")["baseline_of"].dropna()
    lent = [(run, lender, *turn) for run, lender in lenders.items() for turn in plain.loc[run].index]
    theirs = [(plain.loc[(run, *turn)], plain.loc[(lender, *turn)]) for run, lender, *turn in lent]
    borrowed = [one["decode_s"] == other["decode_s"] for one, other in theirs]
    assert borrowed == [one["prompt_ids_sha256"] == other["prompt_ids_sha256"] for one, other in theirs]
    assert any(done for (*_, turn), done in zip(lent, borrowed, strict=True) if turn == 1)


def test_what_was_lent_is_no_control_of_itself(tmp_path: Path) -> None:
    """A baseline set against itself would say that the machine is perfectly quiet; the other half's tells."""
    assert command(tmp_path, *SWEEP, "limit=6") is None
    found = frame.load(load(tmp_path / "results", "default")).set_index("drafter")
    gains, (chain, opt_tree) = found["gain"], (found.loc[name, "gain"].controls[0] for name in ("chain4", "opt_tree"))
    assert not samples.compare(gains["chain4"], gains["prompt_lookup"]).control.known
    apart = samples.upright(samples.paired_ratio(chain, opt_tree))
    assert (apart.n, apart.known) == (6, True)
    assert samples.compare(gains["prompt_lookup"], gains["opt_tree"]).control == apart
    assert samples.paired_ratio(gains["chain4"], gains["prompt_lookup"]).n == 6
    both = noise.baselines(found.reset_index())
    assert both["drafter"].tolist() == ["chain4", "opt_tree"]


def test_what_was_lent_makes_a_busy_machine_no_quieter() -> None:
    """Many copies of one control agree with each other, whatever the machine did."""

    def gain(speeds: list[float]) -> samples.Sample:
        sums = pd.DataFrame({"seconds": 1.0, "tokens": speeds}, index=[f"p{n}" for n in range(len(speeds))])
        return samples.Sample(sums, ("tokens",), ("seconds",), (samples.Sample(sums, ("tokens",), ("seconds",)),))

    calm, disturbed = gain([1.0, 1.1, 0.9, 1.0, 1.0, 1.1]), gain([3.0, 0.5, 2.0, 1.0, 0.4, 2.5])
    assert samples.too_busy([calm, disturbed])
    assert samples.too_busy([calm, *[disturbed] * 9])
    assert not samples.too_busy([calm] * 9)


def test_a_shared_baseline_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    assert command(tmp_path, *SWEEP, "runtime.baseline=shared") is None
    alone = {turn: number for (_, turn, arm), number in counted.decoded.items() if arm == "autoregressive"}
    assert alone == {0: 1, 1: 1}
    found = load(tmp_path / "results", "default").runs.set_index("drafter")
    assert found["baseline_of"].notna().to_dict() == {"chain4": False, "opt_tree": True, "prompt_lookup": True}


def test_cells_that_wait_run_also_where_a_job_breaks_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = run.cell_of

    def failing(cfg: DictConfig) -> Cell:
        if cfg["drafter"]["method"] == "opt_tree":
            raise RuntimeError("CUDA error")
        return genuine(cfg)

    monkeypatch.setattr(run, "cell_of", failing)
    with pytest.raises(RuntimeError, match="CUDA error"):
        command(tmp_path, *SWEEP)
    assert load(tmp_path / "results", "default").runs["drafter"].tolist() == ["chain4", "prompt_lookup"]


def test_jobs_of_this_process_are_composed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine, composed = Composer.__call__, []

    def counting(own: Composer, overrides: list[str]) -> DictConfig:
        composed.append(tuple(overrides))
        return genuine(own, overrides)

    monkeypatch.setattr(Composer, "__call__", counting)
    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", lambda *_, **__: pytest.fail("half a second a job"))
    assert command(tmp_path, *SWEEP) is None
    assert len(composed) == len(set(composed)) == len(DRAFTERS)


def test_all_cells_hear_of_a_stop_also_where_one_cannot_write() -> None:
    heard = []

    def way(name: str) -> Generator[tuple[int, str], None, str]:
        try:
            yield 1, ""
            if name == "a":
                raise KeyboardInterrupt
            yield 1, ""
        except KeyboardInterrupt:
            heard.append(name)
            if name == "b":
                raise OSError("no space left") from None
            raise
        return "ok"

    with pytest.raises(KeyboardInterrupt):
        Group().run({name: way(name) for name in "abc"}, (), "")
    assert heard == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("left", "first"),
    [("", ""), ("a", "a"), ("ab", "ab"), ("abcdef", "ab"), ("acdef", "ad"), ("ace", "a"), ("bcdf", "bc")],
)
def test_each_conversation_has_its_own_order(left: str, first: str) -> None:
    """Who decodes a baseline goes first, also when another has failed; the others rotate."""
    orders = ["".join(in_turn("abcdef", left, place)) for place in range(12)]
    assert all(sorted(order) == [*left] for order in orders)
    leaders, others = {order[: len(first)] for order in orders}, {order[len(first) :] for order in orders}
    assert leaders == {first, first[::-1]}
    assert {order[:1] for order in others} == set(left) - set(first) or not set(left) - set(first)


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
    assert found["baseline_of"].notna().to_dict() == {"chain4": False, "opt_tree": False, "prompt_lookup": True}


def test_who_has_no_memory_takes_the_pair_from_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those behind it would load a second one, beside the first."""
    genuine, loads, settle = pairs.load_pair, [], Measurement._settle

    def failing(own: Measurement, turn: object) -> None:
        if own.cell.drafter == "opt_tree":
            raise torch.OutOfMemoryError("no memory")
        settle(own, turn)

    monkeypatch.setattr(Measurement, "_settle", failing)
    monkeypatch.setattr(pairs, "load_pair", lambda *given, **more: loads.append(given) or genuine(*given, **more))
    pairs.release()
    warm = [replace(run, runtime=replace(run.runtime, warmup_conversations=1)) for run in runs(tmp_path)]
    assert list(runner.run_cells(warm).values()) == ["ok", "oom", "ok"]
    assert len(loads) == 1
    assert not pairs._loaded, "then it is given back"


def test_what_fails_when_it_is_written_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, sweep = Store.write, runs(tmp_path)

    def failing(own: Store, table: str, run_id: str, rows: object) -> None:
        if table == "runs" and run_id == sweep[1].run_id:
            raise MemoryError("no memory")
        write(own, table, run_id, rows)

    monkeypatch.setattr(Store, "write", failing)
    ended = list(runner.run_cells(sweep).values())
    assert [ended[0], ended[2]] == ["ok", "ok"]
    assert isinstance(ended[1], MemoryError)


def test_all_arms_of_a_group_lose_as_much_before_they_are_decoded_again() -> None:
    group = Group()
    group.fastest = 0.01
    turn = {"method": Timed([0.1] * 5, 0.5, tokens=20)}
    assert group.limit_s(turn) == math.inf, "alone a cell has its own arms to go by"
    for name in "ab":
        group.join(name)
    assert group.limit_s(turn) == pytest.approx(0.2)
    assert group.limit_s({"method": Timed([], 0.0)}) == math.inf
    stalls = Stalls()
    for _ in range(2):
        stalls.learn("method", 0.06, None)
    slow = {"method": Timed([0.06] * 4 + [0.2], 0.44, tokens=20)}
    assert not stalls.stalled(slow)
    assert stalls.stalled(slow, group.limit_s(slow))


@pytest.mark.few(1)
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
