"""The A/A controls, recomputed from the rows of the runs."""

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from recomputed import of_columns

from bench.artifacts import control, ties
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.metric import MAL, SPEEDUP


def times(cells, run_id: str, arm: str) -> np.ndarray:
    """Seconds and decoded tokens by conversation."""
    rows = cells.load().prompts
    rows = rows[(rows["run_id"] == run_id) & (rows["arm"] == arm)]
    return rows.groupby("prompt_id")[["decode_s", "num_decoded_tokens"]].sum().sort_index().to_numpy()


def test_autoregressive_decoding_is_set_against_itself(cells) -> None:
    run_id = cells.add("autoregressive", mal=1.0, speedup=1.0)
    cells.add("opt_tree")
    sums = np.hstack([times(cells, run_id, arm) for arm in ("autoregressive", "method")])
    expected = of_columns(sums, lambda base_s, base, own_s, own: (base_s / base) / (own_s / own))
    found = control.itself(cells.block())
    assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert found.n == 6


def test_the_baselines_that_lie_furthest_apart(cells) -> None:
    runs = [cells.add("opt_tree", params={"n": size}) for size in (8, 16, 32)]
    expected = []
    for pair in itertools.permutations(runs, 2):
        sums = np.hstack([times(cells, run_id, "autoregressive") for run_id in pair])
        expected.append(of_columns(sums, lambda own_s, own, other_s, other: (own / own_s) / (other / other_s), c=1))
    (found,) = control.arms(cells.block()).values()
    assert (found.widest.value, found.widest.low, found.widest.high) == pytest.approx(
        max((one for one in expected if one[0] >= 1), key=lambda one: max(one[2], 1 / one[1]))
    )
    assert found.widest.value > 1
    assert found.runs == 3


def test_baselines_are_set_against_the_limit_of_memory(cells) -> None:
    bare = cells.add("autoregressive", mal=1.0, speedup=1.0)
    assert "memory" not in " ".join(control.notes([cells.block()]))
    runs = {cells.add("opt_tree", params={"n": size}, limit=limit): limit for size, limit in ((8, 900.0), (16, 300.0))}
    shares = [np.divide(*times(cells, run_id, "autoregressive").sum(axis=0)[::-1]) / runs[run_id] for run_id in runs]
    (said,) = control.notes([cells.block()])
    assert bare not in runs  # a run without a limit is left out
    assert said.endswith(control.LIMIT.format(sum(shares) / 2))


def test_only_baselines_of_the_same_work_are_set_against_each_other(cells) -> None:
    cells.add("opt_tree", temperature=0.0)
    cells.add("opt_tree", temperature=1.0)
    (block,) = blocks(cells.load(), across=["temperature"])
    assert control.arms(block) == {}
    assert list(control.notes([block])) == [control.NONE]
    cells.add("binary", temperature=1.0)
    (block,) = blocks(cells.load(), across=["temperature"])
    assert {words: found.runs for words, found in control.arms(block).items()} == {"at temperature 1": 2}
    (note,) = control.notes([block])
    assert "of 2 runs at temperature 1 against each other" in note


def test_the_note_says_what_is_not_resolved(cells) -> None:
    cells.add("autoregressive", mal=1.0, speedup=1.0)
    cells.add("opt_tree")
    block = cells.block()
    (note,) = control.notes([block])
    (found,) = control.arms(block).values()
    itself, arms = control.itself(block), found.widest
    percents = [float(text) for text in re.findall(r"(?:less than|within) ([\d.]+)%", note)]
    for percent, ratio in zip(percents, (itself, arms), strict=True):
        reach = 100 * (max(ratio.high, 1 / ratio.low) - 1)
        assert reach <= percent <= reach + (0.1 if reach < 10 else 1) + 1e-9
    assert f"speedup {itself.value:.2f} [{itself.low:.2f}, {itself.high:.2f}] in 6 conversations" in note
    assert "of 2 runs against each other" in note


def test_without_a_control_the_note_says_so_and_without_a_run_there_is_none(cells) -> None:
    cells.add("opt_tree")
    assert list(control.notes([cells.block()])) == [control.NONE]
    cells.experiment = "opt_tree/table2"
    cells.add("opt_tree", status="oom")
    assert list(control.notes([cells.block()])) == []


def test_over_a_single_conversation_nothing_is_known_though_there_are_controls(cells) -> None:
    for drafter in ("autoregressive", "opt_tree"):
        cells.add(drafter, conversations=1)
    assert list(control.notes([cells.block()])) == [control.TOO_FEW]


def test_conversations_that_decode_nothing_are_no_control(cells) -> None:
    """Eight conversations in each arm, of which four end with their first token; and runs without an arm."""
    for size in (8, 16):
        cells.add("opt_tree", params={"n": size}, conversations=8)
    block = cells.block()
    assert "A/A (the autoregressive arms of 2 runs" in " ".join(control.notes([block]))
    turns = block.results.prompts
    ended = turns["prompt_id"].isin(sorted(turns["prompt_id"].unique())[:4])
    turns.loc[ended, "num_decoded_tokens"] = 0
    assert list(control.notes([of(block, prompts=turns)])) == [control.TOO_FEW]
    assert list(control.notes([of(block, prompts=turns[turns["arm"] == "method"])])) == [control.NO_ARM]


def of(block: Block, **tables) -> Block:
    """The block of the same runs with other rows."""
    (other,) = blocks(replace(block.results, **tables))
    return other


def test_several_blocks_are_named(cells) -> None:
    for dataset in ("mt_bench", "gsm8k"):
        for drafter in ("autoregressive", "opt_tree"):
            cells.add(drafter, dataset=dataset, speedup=1.0)
    found = blocks(cells.load())
    notes = list(control.notes(found))
    assert [note.partition(": A/A")[0] for note in notes] == [block.name for block in found]


def slowed(cells, run_id: str, factor: float, *, across: tuple[str, ...] = ()) -> Block:
    """The block, with every second of one run so many times as long."""
    results = cells.load()
    prompts = results.prompts.copy()
    prompts.loc[prompts["run_id"] == run_id, "decode_s"] *= factor
    (block,) = blocks(replace(results, prompts=prompts), across=across)
    return block


def test_noise_is_told_of_the_decoding_that_has_it_as_marks_are(cells) -> None:
    """Two greedy runs lie far apart, three that sample do not: over all pairs most would not."""
    greedy = [cells.add(drafter) for drafter in ("opt_tree", "binary")]
    for drafter in ("opt_tree", "binary", "eagle25"):
        cells.add(drafter, temperature=0.7)
    block = slowed(cells, greedy[0], 1.6, across=("temperature",))
    busy = {words: found.too_noisy for words, found in control.arms(block).items()}
    assert busy == {"of greedy decoding": True, "at temperature 0.7": False}
    (note,) = control.notes([block])
    first, other = note.split("A/A ")[1:]
    assert first.startswith("(the autoregressive arms of 2 runs of greedy decoding against each other)")
    assert other.startswith("(the autoregressive arms of 3 runs at temperature 0.7 against each other)")
    assert ["too noisy" in part for part in (first, other)] == [True, False]


def test_a_block_of_a_busy_machine_says_that_its_times_rank_nothing(cells) -> None:
    run_id, _ = cells.add("opt_tree"), cells.add("binary")
    words = "20%: times here are too noisy to rank anything."
    for factor, busy in ((1.0, False), (1.6, True), (1 / 1.6, True)):
        block = slowed(cells, run_id, factor)
        (note,) = control.notes([block])
        assert (words in note) == busy
        assert [found.too_noisy for found in control.arms(block).values()] == [busy]
        entries = [metric.entry(run) for metric in (SPEEDUP, MAL) for run in block.ok]
        assert (ties.marks(entries[:2]) == [ties.UNRANKED] * 2) == busy  # paired in one run, but between two
        assert ties.UNRANKED not in ties.marks(entries[2:])


def test_a_baseline_that_was_lent_is_no_control_and_is_told(cells) -> None:
    """Set against its lender's it would be found equal whatever the machine did."""
    lender = cells.add("opt_tree")
    for drafter in ("binary", "eagle25"):
        cells.add(drafter)
    runs = cells.block().runs.copy()
    (alone,) = control.arms(cells.block()).values()
    assert alone.runs == 3
    runs["baseline_of"] = [None if run_id == lender else lender for run_id in runs["run_id"]]
    block = replace(cells.block(), runs=runs)
    assert control.arms(block) == {}
    (note,) = control.notes([block])
    assert f"One autoregressive arm (run {lender}) is shared by binary, eagle25" in note


def test_runs_of_several_starts_are_named() -> None:
    runs = [SimpleNamespace(name=name, row={"num_starts": count}) for name, count in (("a", 3), ("b", 1), ("c", None))]
    assert control._resumed(SimpleNamespace(ok=runs)) == control.RESUMED.format("a")
    assert control._resumed(SimpleNamespace(ok=runs[1:])) == ""
