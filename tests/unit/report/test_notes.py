"""What notes are made of: A/A numbers from the rows of the prompts alone, and the facts of a block."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import Cells
from recomputed import of_columns

from specdec_trees.artifacts import frame, noise, notes, ties
from specdec_trees.artifacts.metrics import MAL, SPEEDUP
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.statistics import samples


def sums(cells: Cells, run_id: str, arm: str = "autoregressive") -> np.ndarray:
    """Seconds and decoded tokens by conversation."""
    rows = cells.load().prompts.query("run_id == @run_id and arm == @arm")
    return rows.groupby("prompt_id")[["decode_s", "num_decoded_tokens"]].sum().sort_index().to_numpy()


def ratio(first: np.ndarray, other: np.ndarray, c: float) -> tuple[float, ...]:
    """Tokens per second of the first over the other's, with the ends of its interval."""
    return of_columns(np.hstack([first, other]), lambda s, n, other_s, other_n: (n / s) / (other_n / other_s), c=c)


def loaded(cells: Cells, across: Iterable[str] = (), **changed: pd.DataFrame) -> pd.DataFrame:
    return frame.load(replace(cells.load(), **changed), across=list(across))


def slower(cells: Cells, run_id: str, factor: float) -> pd.DataFrame:
    """All turns, those of one run so many times as long."""
    prompts = cells.load().prompts
    return prompts.assign(decode_s=prompts["decode_s"] * np.where(prompts["run_id"] == run_id, factor, 1))


def test_the_numbers_of_a_a_are_those_of_the_prompts(cells: Cells) -> None:
    plain = cells.add("autoregressive", mal=1.0, speedup=1.0)
    runs = [plain, *(cells.add("opt_tree", params={"n": size}) for size in (8, 16, 32))]
    rows = loaded(cells)
    alone = noise.itself(rows)
    assert alone is not None
    expected = of_columns(
        np.hstack([sums(cells, plain), sums(cells, plain, "method")]), lambda s, n, own_s, own: (s / n) / (own_s / own)
    )
    assert (alone.value, alone.low, alone.high) == pytest.approx(expected)
    pairs = [ratio(sums(cells, one), sums(cells, two), 1) for one, two in itertools.permutations(runs, 2)]
    pairs = [pair for pair in pairs if pair[0] >= 1]
    reach = [max(high, 1 / low) - 1 for _, low, high in pairs]
    (arm,) = named_rows(noise.arms(rows))
    assert (arm.widest.value, arm.widest.low, arm.widest.high) == pytest.approx(pairs[int(np.argmax(reach))])
    assert (arm.runs, arm.typical) == (4, pytest.approx(np.median(reach)))
    (words,) = notes.facts(rows)["A/A"]
    percents = [float(text) for text in re.findall(r"([\d.]+)%", words)]
    for percent, exact in zip(percents, (max(expected[2], 1 / expected[1]) - 1, max(reach), arm.typical), strict=True):
        assert 100 * exact <= percent <= 100 * exact + (0.1 if exact < 0.1 else 1), "rounded up"


def test_only_baselines_of_the_same_work_are_set_against_each_other(cells: Cells) -> None:
    for temperature in (0.0, 1.0):
        cells.add("opt_tree", temperature=temperature)
    assert noise.arms(loaded(cells, ["temperature"])).empty
    cells.add("binary", temperature=1.0)
    rows = loaded(cells, ["temperature"])
    assert rows["block"].nunique() == 1
    assert noise.arms(rows)[["decoding", "runs"]].to_numpy().tolist() == [["temperature 1", 2]]


@pytest.mark.parametrize(("factor", "busy"), [(1.0, False), (1.6, True), (1 / 1.6, True)])
def test_what_is_too_noisy_in_one_setting_ranks_nothing_of_its_pair_and_machine(
    cells: Cells, factor: float, busy: bool
) -> None:
    first, _ = cells.add("opt_tree"), cells.add("binary")
    for given in ({"dataset": "gsm8k"}, {"pair": "other"}, {"device": "Other CPU", "seed": 1}):
        for drafter in ("opt_tree", "binary"):
            cells.add(drafter, **given)
    rows = loaded(cells, prompts=slower(cells, first, factor))
    assert rows.loc[noise.unranked(rows), ["pair", "device_name"]].drop_duplicates().to_numpy().tolist() == (
        [["tiny", "Test CPU"]] * busy
    )
    assert noise.unranked(rows).sum() == 4 * busy
    assert (noise.arms(rows)["typical"] > 0.2).tolist() == [busy, False, False, False]


def test_a_baseline_that_was_lent_is_no_control(cells: Cells) -> None:
    """Set against its lender's it would be found equal whatever the machine did."""
    lender, *_ = (cells.add(drafter) for drafter in ("opt_tree", "binary", "eagle25"))
    runs = cells.load().runs
    assert noise.arms(loaded(cells))["runs"].tolist() == [3]
    rows = loaded(
        cells, runs=runs.assign(baseline_of=runs["run_id"].map(lambda one: None if one == lender else lender))
    )
    assert noise.arms(rows).empty
    (words,) = notes.facts(rows)["shared"]
    assert re.findall(r"\d+", words) == ["2", "3"]


def test_without_two_of_a_work_or_six_conversations_nothing_is_known(cells: Cells) -> None:
    for drafter in ("autoregressive", "opt_tree"):
        cells.add(drafter, conversations=5)
    cells.add("opt_tree", seed=1)
    cells.add("opt_tree", seed=2, status="oom")
    rows = loaded(cells)
    assert noise.itself(rows) is None
    assert noise.arms(rows).empty
    assert not noise.unranked(rows).any()
    words = notes.facts(rows)["A/A"]
    assert words.tolist() == [notes.NO_AA, notes.NO_AA, ""]


def test_facts_have_the_numbers_of_the_runs(cells: Cells) -> None:
    """Seconds of memory's limit, turns that were disturbed, starts, and a loop."""
    first = cells.add("opt_tree", limit=900.0, conversations=8)
    cells.add("binary", limit=300.0, conversations=8)
    runs, prompts = cells.load().runs, cells.load().prompts
    runs = runs.assign(num_contaminated=[3, None], num_repeated=[2, 5], num_starts=[2, 1])
    loops = [[1, 2, 3, 4] * 4 if run_id == first else list(range(16)) for run_id in prompts["run_id"]]
    (facts,) = notes.facts(loaded(cells, runs=runs, prompts=prompts.assign(output_ids=loops))).to_dict("records")
    shares = [
        np.divide(*sums(cells, run_id).sum(axis=0)[::-1]) / limit
        for run_id, limit in zip(runs["run_id"], (900, 300), strict=True)
    ]
    assert f"{np.median(shares):.0%}" in facts["limit"]
    assert re.findall(r"\d+", facts["disturbed"]) == ["3", "64", "7", "32"]
    assert ("OPT-Tree" in facts["resumed"], "binary" in facts["resumed"]) == (True, False)
    assert re.findall(r"\d+", facts["conversations"]) == ["8"]
    assert re.findall(r"\d+%", facts["repetition"]) == [f"{9 / 26:.0%}"] * 2
    assert ("OPT-Tree" in facts["repetition"], "binary" in facts["repetition"]) == (True, False)


def test_conversations_that_failed_or_decode_nothing_are_counted(cells: Cells) -> None:
    """Two of eight failed in some run of the same prompts; three have no decoding step."""
    cells.add("opt_tree", conversations=8)
    cells.add("opt_tree", conversations=6, seed=1)
    steps, runs = cells.load().steps, cells.load().runs.set_index("num_conversations")
    lost = pd.DataFrame({"prompt_id": ["p8", "p9", "p9"], "error": "long", "pair": "tiny"})
    lost = lost.assign(prompts_sha256=runs.loc[8, "prompts_sha256"], run_id=runs.loc[8, "run_id"])
    rows = loaded(cells, failed=lost, steps=steps[~steps["prompt_id"].isin(["p0", "p1", "p2"])])
    assert [re.findall(r"\d+", words) for words in notes.facts(rows)["conversations"]] == [["8", "3", "2"], ["6", "3"]]


def test_what_blocks_share_is_said_once_and_no_run_is_named(cells: Cells) -> None:
    for dataset, conversations in (("mt_bench", 6), ("gsm8k", 8)):
        for drafter in ("autoregressive", "opt_tree"):
            cells.add(drafter, dataset=dataset, conversations=conversations, params={"draft_temperature": 0.6})
    rows = loaded(cells)
    text = "\n".join(notes.of_blocks(rows))
    for once in ("Test CPU", "float32", "mt_bench", "gsm8k", "llama2_7b + jf68m", "0.6 for tiny"):
        assert text.count(once) == 1
    assert not any(run_id in text for run_id in rows["run_id"])
    assert not {*notes.facts(rows, timed=False)} & {*notes.TIMED}


def test_noise_is_of_the_decoding_that_has_it(cells: Cells) -> None:
    """Two greedy runs lie far apart, three that sample do not: over all pairs most would not."""
    greedy = [cells.add(drafter) for drafter in ("opt_tree", "binary")]
    for drafter in ("opt_tree", "binary", "eagle25"):
        cells.add(drafter, temperature=0.7)
    rows = loaded(cells, across=("temperature",), prompts=slower(cells, greedy[0], 1.6))
    assert rows["block"].nunique() == 1
    assert rows.groupby("temperature")["busy"].agg(set).to_dict() == {0.0: {True}, 0.7: {False}}
    arms = noise.arms(rows).sort_values("runs")
    assert (arms["typical"] > samples.TOO_BUSY).tolist() == [True, False]
    long = frame.rank(frame.measure(rows, [SPEEDUP, MAL]), ["block", "temperature"])
    unranked = long[long["mark"] == ties.UNRANKED]
    assert set(zip(unranked["metric"], unranked["temperature"], strict=True)) == {(SPEEDUP, 0.0)}


@pytest.mark.parametrize(("factor", "busy"), [(1.0, False), (1.6, True), (1 / 1.6, True)])
def test_a_machine_that_changed_between_runs_ranks_nothing(cells: Cells, factor: float, busy: bool) -> None:
    run_id, _ = cells.add("opt_tree"), cells.add("binary")
    rows = loaded(cells, prompts=slower(cells, run_id, factor))
    assert set(rows["busy"]) == {busy}
    assert noise.too_noisy(rows) == busy
