"""Improved MCSD's Figures 3 to 8: which runs stand where, what is compared with what, and scores by definition.

That curves have their tables' values is in test_drawn, what these are in test_recomputed_long.
"""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Cells
from drawn import axes_of, build, column, labels, lines, outputs, row_of, speedup_of, table_of
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_rgb
from matplotlib.patches import Rectangle, StepPatch
from mcsd_figure_fills import (
    DRAWN,
    HIDDEN,
    LARGE,
    LLAMA,
    SETTING,
    TOPK,
    add,
    decision_rows,
    fill_fig4,
    fill_fig7,
    fill_fig8,
    fork,
)
from mcsd_table_fills import AT_ONE, VICUNA, fill_dynamic, fill_static, run
from scipy import stats
from scipy.special import expit, logit

from specdec_trees.artifacts import style
from specdec_trees.artifacts.outputs import NoResultsError, read_results
from specdec_trees.artifacts.tables import ABSENT, Table
from specdec_trees.artifacts.ties import BEST, TIED, UNRANKED
from specdec_trees.papers import registry
from specdec_trees.papers.improving_mcsd import scores
from specdec_trees.papers.improving_mcsd.heat_map import readable
from specdec_trees.papers.improving_mcsd.methods import ahead
from specdec_trees.papers.improving_mcsd.widths import forks
from specdec_trees.results.rows import PromptRow, StepRow
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

TI, MCSD = "TI-MCSD (lossy)", "MCSD 4x2x2x1"


@pytest.mark.parametrize("name", ["fig3", "fig4", "fig5", "fig6", "fig7", "fig8"])
def test_without_a_run_of_its_own_there_is_no_figure(name: str, cells) -> None:
    """Neither other methods nor failures are one."""
    run(cells, "ti", temperature=0.2, params={"widths": [2, 4]})
    cells.add("mcsd", "mcsd", **SETTING | {"params": {"width": 4}})
    with pytest.raises(NoResultsError):
        build(f"improving_mcsd/{name}", cells)
    run(cells, "ti", status="oom")
    run(cells, "dynamic", status="failed", **AT_ONE)
    with pytest.raises(NoResultsError):
        build(f"improving_mcsd/{name}", cells)


# Figures 3 and 5


def gains(name: str, cells) -> Table:
    return outputs(f"improving_mcsd/{name}", cells)[-1]


def gain(made: Table, over: str, key: str, name: str = "value", pair: str = LLAMA["pair"]) -> Any:
    return column(made, key, name, who="over", panel=pair)[over]


def heights(axes: Axes) -> dict[str, list[float]]:
    """The bars by the name in the legend, from left to right."""
    bars = [bars for bars in axes.containers if hasattr(bars, "patches")]
    return {str(one.get_label()): [bar.get_height() for bar in one] for one in bars}


def test_bars_are_the_speedups_by_dataset_and_gains_ratios_of_their_means(cells) -> None:
    """Every run decodes other tokens here; the conversations are the same."""
    runs = fill_static(cells, **LLAMA)
    (axes,), made = axes_of("improving_mcsd/fig3", cells), gains("fig3", cells)
    names = {"sd4": "SD", "mcsd4221": "MCSD", "matched": "MCSD, equal budget", "ti": TI}
    speeds = {key: speedup_of(cells, run_id) for key, run_id in runs.items()}
    for name, header in names.items():
        assert heights(axes)[header] == pytest.approx([speeds[dataset, name] for dataset in ("mt_bench", "alpaca")])
    means = {name: np.mean([speeds[dataset, name] for dataset in ("mt_bench", "alpaca")]) for name in names}
    for name, over in (("mcsd4221", MCSD), ("matched", "MCSD, equal budget 8x3x1x1")):
        mean, interval = (gain(made, over, "mean_of_datasets", part) for part in ("value", "interval"))
        assert interval.low < mean < interval.high
        assert mean == pytest.approx(means["ti"] / means[name])
        assert gain(made, over, "alpaca") == pytest.approx(speeds["alpaca", "ti"] / speeds["alpaca", name])
    most = max(("mt_bench", "alpaca"), key=lambda key: gain(made, MCSD, key))
    assert gain(made, MCSD, "most_of_datasets") == gain(made, MCSD, most)
    assert set(made.frame["label"]) == {TI}


def test_every_pair_seed_and_device_has_a_panel_of_the_same_height(cells) -> None:
    for pair in (LLAMA, VICUNA, LARGE):
        fill_static(cells, **pair)
    run(cells, "ti", speedup=4.0, seed=1, **LLAMA)
    run(cells, "ti", device="Test GPU", **VICUNA)
    axes, made = axes_of("improving_mcsd/fig3", cells), gains("fig3", cells)
    assert len({one.get_title() for one in axes}) == len(axes) == 5
    assert len({one.get_ylim() for one in axes}) == len({one.get_xlim() for one in axes}) == 1
    known = made.long[made.long["published"].notna()]
    assert known[["over", "published"]].to_numpy().tolist() == [[MCSD, 1.275]], "of the paper's own pair"


def test_a_method_that_was_not_run_somewhere_or_failed_leaves_a_gap(cells) -> None:
    for dataset in ("mt_bench", "alpaca"):
        run(cells, "sd4", dataset=dataset, **LLAMA)
    alone = run(cells, "ti", dataset="alpaca", **LLAMA)
    failed = run(cells, "mcsd4221", dataset="alpaca", status="oom", **LLAMA)
    ((axes,), made), more = build("improving_mcsd/fig3", cells), gains("fig3", cells)
    assert heights(axes)[TI] == pytest.approx([speedup_of(cells, alone)])
    (bar,) = next(bars for bars in axes.containers if bars.get_label() == TI)
    assert 0.5 < bar.get_x() < 1.5
    assert gain(more, "SD gamma = 4", "mt_bench") is None
    assert gain(more, "SD gamma = 4", "alpaca") == gain(more, "SD gamma = 4", "mean_of_datasets") is not None
    assert row_of(made, failed)["speedup"] == "oom"
    assert MCSD not in set(more.frame["over"])


def test_a_published_gain_is_of_figure_3_alone_and_of_its_stand_in(cells) -> None:
    fill_dynamic(cells, **LLAMA)
    assert gains("fig5", cells).long["published"].isna().all()
    fill_static(cells)
    assert gain(gains("fig3", cells), MCSD, "most_of_datasets", "published", "tiny") == 1.275


def test_the_gain_counts_the_tokens_of_every_arm_and_the_conversations_of_both_runs(cells) -> None:
    """The target alone decoded other tokens than the methods, and one run lacks a conversation."""
    fast, slow = run(cells, "ti", speedup=2.0, **LLAMA), run(cells, "mcsd4221", speedup=1.5, **LLAMA)
    for run_id, factor in ((fast, 2), (slow, 3)):
        rows = cells.store.read("prompts", [run_id]).replace({np.nan: None}).to_dict("records")
        kept = [row for row in rows if (run_id, row["prompt_id"]) != (slow, "p0")]
        for row in kept:
            row["num_decoded_tokens"] *= factor if row["arm"] == "autoregressive" else 1
        cells.store.write("prompts", run_id, [PromptRow(**row) for row in kept])
    prompts = cells.load().prompts
    both = prompts[prompts["prompt_id"] != "p0"]
    rows = (both[both["run_id"] == run_id] for run_id in (fast, slow))
    expected, other = (samples.interval(samples.speedup(own)).value for own in rows)
    assert expected < 1.2, "twice the tokens in the same time"
    assert gain(gains("fig3", cells), MCSD, "mt_bench") == pytest.approx(expected / other)


def test_gains_are_marked_as_too_noisy_by_block_as_the_speedups_are(cells) -> None:
    """Two runs of mt_bench were as slow as each other; of alpaca one of three was not, which is no noisy block."""
    for dataset, slow in (("mt_bench", (0.002, 0.002, 0.008)), ("alpaca", (0.004, 0.004, 0.0042))):
        for name, base in zip(("ti", "mcsd4221", "sd4"), slow, strict=True):
            run(cells, name, dataset=dataset, base_step_s=base)
    speeds = table_of("improving_mcsd/fig3", cells).frame.groupby("dataset")["speedup"]
    assert speeds.agg(lambda own: own.str.endswith(UNRANKED).all()).to_dict() == {"mt_bench": True, "alpaca": False}
    keys = ("mt_bench", "alpaca", "mean_of_datasets")
    marks = [gain(gains("fig3", cells), MCSD, key, "mark", "tiny") for key in keys]
    assert marks == [UNRANKED, "", UNRANKED]


# Figure 4


def tree(cells, widths: tuple[int, ...], drafter: str = "ti_mcsd", **given) -> str:
    params = {"widths": list(widths)} | DRAWN | given.pop("params", {})
    options = SETTING | {"params": params, "spread": False} | given
    return add(cells, drafter, "target_init_mcsd", levels=len(widths) - 1, chance=0.5, **options)


def maps(cells) -> list[Axes]:
    """The panels without the scales of their colours."""
    return [axes for axes in axes_of("improving_mcsd/fig4", cells) if axes.get_title()]


def texts(axes: Axes) -> dict[tuple[str, str], str]:
    """What stands in every cell, by its labels a and b."""
    rows, columns = ([label.get_text() for label in of.get_ticklabels()] for of in (axes.yaxis, axes.xaxis))
    return {(rows[int(y)], columns[int(x)]): text.get_text() for text in axes.texts for x, y in [text.get_position()]}


def frames(axes: Axes, colour: str) -> set[tuple[int, int]]:
    """Row and column of the frames of this colour, from 0."""
    found = [one for one in axes.patches if isinstance(one, Rectangle) and same_color(one.get_edgecolor(), colour)]
    return {(int(patch.get_y()), int(patch.get_x())) for patch in found}


def test_a_cell_has_the_numbers_of_its_run_and_the_best_and_the_papers_are_framed(cells) -> None:
    runs = fill_fig4(cells)
    (speed, alpha), made = maps(cells), table_of("improving_mcsd/fig4", cells)
    for (a, b), run_id in runs.items():
        row = row_of(made, run_id)
        assert row["tree"] == f"2-{a}-{b}-1-1"
        expected = ["oom", "oom"]
        if (a, b) == (4, 3):
            assert row[["tokens_per_s", "alpha", "against_best"]].tolist() == ["oom", "oom", ABSENT]
        else:
            expected = [f"{row['speedup'].split()[0]}\n", f"{float(row['alpha'].split()[0]):.2f}"]
        for axes, start in zip((speed, alpha), expected, strict=True):
            assert texts(axes)[str(a), str(b)].startswith(start)
    assert texts(speed)["4", "1"] == texts(alpha)["4", "1"] == "not run"
    standings = dict(zip(made.frame["tree"], made.frame["against_best"], strict=True))
    behind = dict.fromkeys(("2-1-1-1-1", "2-1-3-1-1", "2-2-1-1-1"), "behind")
    assert standings == {**behind, "2-2-3-1-1": "best", "2-4-3-1-1": ABSENT}
    for panel in (speed, alpha):
        assert (frames(panel, style.COLOURS[1]), frames(panel, "black")) == ({(1, 1)}, {(2, 1)})


def test_trees_that_are_as_fast_are_level(cells) -> None:
    fast = [tree(cells, (2, 1, b, 1), speedup=1.5, steps=40) for b in (1, 2, 3)]
    slow = tree(cells, (2, 2, 1, 1), speedup=1.2, steps=40)
    made = table_of("improving_mcsd/fig4", cells)
    assert sorted(row_of(made, run_id)["against_best"] for run_id in fast) == ["best", "level", "level"]
    assert row_of(made, slow)["against_best"] == "behind"


def test_times_that_are_too_noisy_and_runs_without_plain_decoding_give_no_standings(cells) -> None:
    for place, key in enumerate(((4, 3), (1, 1), (2, 2))):
        tree(cells, (2, *key, 1, 1), speedup=1.2 + place, steps=40, base_step_s=0.002 * 3**place)
    assert set(table_of("improving_mcsd/fig4", cells).frame["against_best"]) == {f"{ABSENT}{UNRANKED}"}
    assert {frozenset(frames(panel, style.COLOURS[1])) for panel in maps(cells)} == {frozenset()}
    results = cells.load()
    cells.load = lambda: replace(results, prompts=results.prompts[results.prompts["arm"] == "method"])
    assert set(table_of("improving_mcsd/fig4", cells).frame["against_best"]) == {ABSENT}


def test_what_drafts_otherwise_or_failed_takes_no_cell(cells) -> None:
    tree(cells, (2, 1, 1, 1))
    shown = tree(cells, (2, 1, 1, 1), drafter="again")
    tree(cells, (2, 1, 1, 1), params={"draft_temperature": 0.3})
    tree(cells, (2, 1, 1, 1), params={"draws": "topk"}, draws="targets_topk")
    tree(cells, (2, 1, 1, 1), drafter="late", status="failed")
    made = table_of("improving_mcsd/fig4", cells)
    assert made.runs == (shown,)
    for what in ("draft_temperature 0.3", "draws topk"):
        assert any(f"(widths 2x1x1x1, {what}) by" in note for note in made.notes)


def test_the_papers_claim_stands_beside_its_trees_place(cells) -> None:
    speeds = {(4, 3): 1.5, (1, 1): 2.5, (2, 2): 1.2}
    runs = {key: tree(cells, (2, *key, 1, 1), speedup=speed, steps=40) for key, speed in speeds.items()}
    (said,) = [note for note in table_of("improving_mcsd/fig4", cells).notes if "paper's tree, 2-4-3-1-1" in note]
    ratio = speedup_of(cells, runs[4, 3]) / speedup_of(cells, runs[1, 1])
    assert "2 of 3" in said
    assert float(said.split("behind the best (")[1].split()[0]) == pytest.approx(ratio, abs=0.01)


def test_other_shapes_and_rules_have_panels_of_their_own(cells) -> None:
    tree(cells, (2, 1, 1, 1))
    tree(cells, (3, 1, 1, 1))
    tree(cells, (2, 1, 1, 1), verifier="longest_subtree")
    tree(cells, (1, 1, 1, 1), verifier="longest_subtree", draws="target_without_replacement", lossless=True)
    titles = [panel.get_title() for panel in maps(cells)[::2]]
    assert len(set(titles)) == len(titles) == 4


def contrast(one, other) -> float:
    """WCAG 2's contrast ratio, once more."""
    light = []
    for colour in (one, other):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        light.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_black_or_white_stands_out_from_any_colour() -> None:
    for colour in itertools.product(np.linspace(0, 1, 9), repeat=3):
        assert contrast(readable(colour), colour) >= 4.5
        assert contrast(readable(colour), colour) >= contrast({"black": "white"}.get(readable(colour), "black"), colour)


# Figure 6


def test_what_the_paper_says_stands_at_its_widths(cells) -> None:
    for width in (1, 16, 24):
        fork(cells, width, chance=0.5, **LLAMA)
        fork(cells, width, chance=0.5, **LARGE)
    fork(cells, 16, chance=0.5, params={"depth": 4}, **LLAMA)
    (alpha, *speeds), made = build("improving_mcsd/fig6", cells)
    assert {x for line in lines(alpha, color=style.GREY) for x, _ in line} == {12}
    assert [{x for line in lines(axes, color=style.GREY) for x, _ in line} for axes in speeds] == [{10, 21}] * 2
    assert sorted(point for line in lines(alpha, marker="*") for point in line) == [(16, 0.74), (16, 0.95)]
    published = made.long[made.long["published"].notna()]
    assert published[["pair", "x", "published"]].to_numpy().tolist() == [
        [LLAMA["pair"], 16, 0.74],
        [LARGE["pair"], 16, 0.95],
    ]


def test_a_stand_in_is_set_against_the_first_pair_and_widths_beyond_ours_are_not_drawn(cells) -> None:
    fork(cells, 10, chance=0.5)
    fork(cells, 16, chance=0.5)
    axes, made = build("improving_mcsd/fig6", cells)
    assert [{x for line in lines(one, color=style.GREY) for x, _ in line} for one in axes] == [{12}, {10}, {10}]
    assert column(made, "alpha", "published", who="x") == {10: None, 16: 0.74}


def test_a_line_is_of_runs_that_differ_in_width_alone(cells) -> None:
    other = HIDDEN | {"sha256": "fedcba987654"}
    for width in (2, 4):
        for decision in (None, HIDDEN, other):
            fork(cells, width, chance=0.5, params={"decision": decision})
    made = table_of("improving_mcsd/fig6", cells)
    assert made.frame.groupby("line").size().tolist() == [2, 2, 2]


def test_two_rules_of_one_width_are_two_lines_and_of_two_runs_the_last_counts(cells) -> None:
    for rule in ("independent_longest", "longest_subtree", "independent_longest"):
        last = fork(cells, 4, chance=0.5, verifier=rule)
    fork(cells, 4, chance=0.5, status="oom")
    fork(cells, 1, chance=0.5)
    found = forks(cells.load())
    rules = [[4, "independent_longest"], [1, "longest_subtree"], [4, "longest_subtree"]]
    assert found[["x", "rule"]].to_numpy().tolist() == rules
    assert last in set(found["run_id"])


def test_sequences_from_the_root_have_no_first_token_of_the_targets(cells) -> None:
    fork(cells, 4, chance=0.5, params={"init": "draft"}, draws="without_replacement", lossless=True)
    steps = cells.load().steps
    alphas = column(table_of("improving_mcsd/fig6", cells), "alpha", who="x")
    assert alphas[4] == pytest.approx(steps["num_accepted"].mean() / 5)


@pytest.mark.parametrize("busy", [False, True])
def test_the_notes_name_the_widths_that_the_table_marks(busy: bool, cells) -> None:
    """Conversations differ by more than widths do: intervals overlap where the paired comparison tells them apart."""
    for place, (width, more) in enumerate(((1, 4), (2, 0), (4, 1), (8, 1))):
        run_id = fork(cells, width, chance=0.5, conversations=6, base_step_s=0.002 * 3 ** (busy * place))
        rows = cells.store.read("steps", [run_id])[[field.name for field in fields(StepRow)]].to_dict("records")
        accepted = [int(row["prompt_id"][1:]) // (1 + (more == 4)) + more * (row["step"] % 2) for row in rows]
        changed = [StepRow(**row | {"num_accepted": 1 + own}) for row, own in zip(rows, accepted, strict=True)]
        cells.store.write("steps", run_id, changed)
    made = table_of("improving_mcsd/fig6", cells)
    intervals, marks = (column(made, "alpha", name, who="x") for name in ("interval", "mark"))
    assert intervals[2].high > intervals[4].low, "the two intervals overlap"
    assert {marks[4], marks[8]} == {BEST, TIED}
    best = next(width for width, mark in marks.items() if mark == BEST)
    assert any(f"alpha is best at W = {best:g} (" in note for note in made.notes)
    assert (set(column(made, "speedup", "mark", who="x").values()) == {UNRANKED}) == busy
    assert any("the speedup is best at" in note for note in made.notes) != busy


def test_failed_widths_are_in_the_table_alone(cells) -> None:
    fork(cells, 4, chance=0.5)
    failed = fork(cells, 24, chance=0.5, status="oom")
    axes, made = build("improving_mcsd/fig6", cells)
    assert row_of(made, failed)["alpha"] == "oom"
    assert axes[0].get_xticks().tolist() == [4]


# Figure 7


def scored(**given) -> pd.DataFrame:
    return pd.DataFrame(decision_rows("a" * 12, "hidden", **{"apart": 0.2} | given))


def area(rows: pd.DataFrame) -> float:
    """Pairs of an accepted and a rejected token that the first wins, one by one."""
    accepted, rejected = (rows["score"][rows["accepted"] == fate].to_numpy() for fate in (True, False))
    wins = (accepted[:, None] > rejected).sum() + (accepted[:, None] == rejected).sum() / 2
    return wins / (len(accepted) * len(rejected))


@pytest.mark.parametrize("digits", [1, 9])  # one digit: many ties
def test_auc_counts_pairs_and_its_interval_leaves_out_conversations(digits: int) -> None:
    rows = scored(prompts=7)
    rows["score"] = rows["score"].round(digits)
    names = sorted(rows["prompt_id"].unique())
    without = logit([area(rows[rows["prompt_id"] != name]) for name in names])
    reach = stats.t.ppf(0.975, 6) * (1 + 5 / 7) * np.sqrt(6 * np.var(without))
    found = scores.auc(rows.sample(frac=1, random_state=0))
    assert found.value == pytest.approx(area(rows), abs=1e-12)
    ends = tuple(expit(logit(area(rows)) + side * reach) for side in (-1, 1))
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-12)
    assert found.n == 7


def test_auc_at_its_ends() -> None:
    rows = scored()
    assert scores.auc(rows.assign(score=rows["accepted"].astype(float))).value == 1
    assert scores.auc(rows.assign(score=1.0 - rows["accepted"])).value == 0
    assert scores.auc(rows.assign(score=0.3)).value == 0.5
    assert np.isnan(scores.auc(rows.assign(accepted=True)).value)
    assert np.isnan(scores.auc(rows[rows["prompt_id"] == "p0"]).low)


def test_a_border_counts_above_it_and_1_in_the_last_bin() -> None:
    counts = scores.histogram(pd.Series([0.0, 0.049, 0.05, 0.4, 0.999, 1.0]))
    assert len(counts) == 20
    assert {place: count for place, count in enumerate(counts) if count} == {0: 2, 1: 1, 8: 1, 19: 2}


def test_overlap_is_the_common_area_whatever_the_numbers_are() -> None:
    rows = pd.DataFrame({"score": [0.11, 0.12, 0.61, 0.62, 0.11, 0.61], "accepted": [True] * 4 + [False] * 2})
    assert scores.overlap(rows) == 1
    rows.loc[3, "score"] = 0.9
    assert scores.overlap(rows) == pytest.approx(0.5 + 0.25)
    assert scores.overlap(rows.assign(score=rows["accepted"] * 0.5)) == 0
    assert np.isnan(scores.overlap(rows[rows["accepted"]]))


def test_histograms_are_shares_of_each_fate(cells) -> None:
    fill_fig7(cells)
    axes, made = build("improving_mcsd/fig7", cells)
    decisions = cells.load().decisions
    assert made.frame["kind"].tolist() == ["hidden", "topk"]
    for panel, run_id, (_, row) in zip(axes, made.runs, made.frame.iterrows(), strict=True):
        rows = decisions[decisions["run_id"] == run_id]
        drawn = [patch for patch in panel.patches if isinstance(patch, StepPatch) and not patch.get_fill()]
        for patch, fate in zip(drawn, (True, False), strict=True):
            counts, edges = np.histogram(rows["score"][rows["accepted"] == fate], bins=20, range=(0, 1))
            assert patch.get_data().values == pytest.approx(counts / counts.sum())
            assert patch.get_data().edges == pytest.approx(edges)
        accepted = rows["accepted"].astype(bool)
        shares = [accepted.mean(), (rows["score"][accepted] <= 0.4).mean(), (rows["score"][~accepted] > 0.4).mean()]
        names = ["accepted", "accepted_below", "rejected_above"]
        assert row[names].tolist() == [f"{100 * share:.1f}%" for share in shares]
        assert row["auc"].startswith(f"{area(rows):.3f} [")
        assert row[["num_prompts", "conversations", "num_tokens"]].tolist() == ["40", "6", "180"]


def test_a_score_of_exactly_the_threshold_does_not_go_on(cells) -> None:
    first = decision_rows("a" * 12, "hidden", apart=0.1)[0]
    rows = [replace(first, score=0.4, accepted=fate) for fate in (True, False)]
    cells.store.write("decisions", "a" * 12, rows)
    row = table_of("improving_mcsd/fig7", cells).frame.iloc[0]
    assert row[["accepted_below", "rejected_above", "auc"]].tolist() == ["100%", "0.0%", "0.500"]


def test_models_are_told_apart_and_tokens_of_one_fate_tell_nothing(cells) -> None:
    for run_id, given in {"a": {}, "b": {"dataset": "alpaca"}, "c": {"pair": "other"}}.items():
        cells.store.write("decisions", run_id * 12, decision_rows(run_id * 12, "hidden", apart=0.1, **given))
    rows = [row for row in decision_rows("d" * 12, "topk", apart=0.1) if row.accepted]
    cells.store.write("decisions", "d" * 12, rows)
    axes, made = build("improving_mcsd/fig7", cells)
    assert len({panel.get_title().split("\n")[0] for panel in axes}) == 4
    alike = row_of(made, "d" * 12)
    assert alike[["auc", "overlap", "rejected_above"]].tolist() == [ABSENT] * 3
    assert len(read_results(cells.store.folder, "other").decisions) == 180


# Figure 8


def ratio(cells, first: str, other: str, without: str = "") -> float:
    """Of two speedups, over the conversations but one."""
    rows = cells.load().prompts
    rows = rows[rows["prompt_id"] != without]
    one, two = (samples.interval(samples.speedup(rows[rows["run_id"] == run_id])).value for run_id in (first, other))
    return one / two


def test_both_acceptance_rates_and_the_decision_models_share(cells) -> None:
    runs = fill_fig8(cells)
    axes, made = build("improving_mcsd/fig8", cells)
    steps = dict(list(cells.load().steps.groupby("run_id")))
    for (kind, width), run_id in runs.items():
        own, row = steps[run_id], row_of(made, run_id)
        accepted, levels = (own["num_accepted"] - 1).sum(), own["depth"] - 1
        assert row["alpha_max"].startswith(f"{accepted / (5 * len(own)):.3f} [")
        assert row["alpha_drafted"].startswith(f"{accepted / levels.sum():.3f} [")
        assert row["draft_levels"] == f"{levels.mean():.2f}"
        if kind == "none":
            assert row[["decision_calls", "decision_time", "with_without"]].tolist() == [ABSENT] * 3
            continue
        assert row["decision_calls"] == f"{own['decision_calls'].astype(float).mean():.2f}"
        whole = own[["draft_s", "tree_s", "score_s", "judge_s", "commit_s"]].sum().sum()
        assert row["decision_time"] == f"{own['decision_s'].astype(float).sum() / whole * 100:.1f}%"
        assert row["with_without"].startswith(f"{ratio(cells, run_id, runs['none', width]):.3f} [")
    words = {width: row_of(made, runs["hidden", width])["with_without"].split()[-1] for width in (1, 12)}
    assert words == {1: "(faster)", 12: "(slower)"}
    assert labels(axes[1]) == ["no decision model", "hidden", "topk"]


def test_a_conversation_of_one_run_alone_does_not_count(cells) -> None:
    first, other = (fork(cells, 4, chance=0.5, params={"decision": kind}) for kind in (HIDDEN, None))
    expected, results = ratio(cells, first, other, without="p3"), cells.load()
    rows = results.prompts
    cells.load = lambda: replace(results, prompts=rows[(rows["run_id"] != other) | (rows["prompt_id"] != "p3")])
    shown = row_of(table_of("improving_mcsd/fig8", cells), first)["with_without"]
    assert shown.startswith(f"{expected:.3f} (")


def test_times_that_are_too_noisy_are_neither_faster_nor_slower(cells) -> None:
    for kind, base in ((None, 0.002), (HIDDEN, 0.008)):
        for width in (1, 4):
            fork(cells, width, chance=0.5, speedup=2.0 if kind else 1.0, base_step_s=base, params={"decision": kind})
    made = table_of("improving_mcsd/fig8", cells)
    words = made.frame.groupby("line", sort=False)["with_without"].agg(list)
    assert words["no decision model"] == [ABSENT, ABSENT]
    assert all(text.endswith(f"]{UNRANKED}") for text in words["hidden"])


@pytest.mark.parametrize(("other", "same"), [("a", True), ("c", False)])
def test_figures_7_and_8_say_where_their_models_are_not_the_same(other: str, same: bool, tmp_path: Path) -> None:
    folders = {name: Cells(tmp_path, f"improving_mcsd/{name}") for name in ("fig7", "fig8")}
    fork(folders["fig8"], 4, chance=0.5)
    for name, model, prompts in (("fig7", "a", 140), ("fig8", other, 7)):
        rows = decision_rows(model * 12, "topk", apart=0.1, num_prompts=prompts)
        folders[name].store.write("decisions", model * 12, rows)
    for name in folders:
        (made,) = [one for one in registry.build(f"improving_mcsd/{name}", tmp_path) if isinstance(one, Table)]
        assert any(("140 prompts" in one and "trained on 7" in one) or "7 prompts" in one for one in made.notes) or same


def test_a_ratio_is_a_word_by_its_interval() -> None:
    words = ("faster", "slower", "level")
    assert ahead(Interval(1.2, 1.01, 1.3, 9), *words) == "faster"
    assert ahead(Interval(0.8, 0.7, 0.99, 9), *words) == "slower"
    assert ahead(Interval(1.2, 1.0, 1.3, 9), *words) == "level"
    assert ahead(Interval(1.2, float("nan"), float("nan"), 1), *words) is None
    assert ahead(None, *words) is None


def test_nothing_is_compared_across_widths_parameters_or_failures(cells) -> None:
    fork(cells, 4, chance=0.5, stops=0.2, params={"decision": HIDDEN})
    fork(cells, 8, chance=0.5)
    fork(cells, 4, chance=0.5, params={"depth": 4})
    failed = fork(cells, 8, chance=0.5, params={"decision": HIDDEN}, status="failed")
    fork(cells, 16, chance=0.5, params={"decision": HIDDEN})
    fork(cells, 16, chance=0.5, status="oom")
    made = table_of("improving_mcsd/fig8", cells)
    assert set(made.frame["with_without"]) == {ABSENT}
    assert row_of(made, failed)["alpha_max"] == "failed"


def test_the_threshold_is_none_of_a_run_without_a_model(cells) -> None:
    """Beta was swept of all: the runs without a model are the same, and the others are compared with them."""
    plain = [fork(cells, width, chance=0.5, params={"beta": beta}) for beta in (0.2, 0.6) for width in (1, 4)]
    asked = {
        (beta, width): fork(cells, width, chance=0.5, stops=0.2, params={"decision": TOPK, "beta": beta})
        for beta in (0.2, 0.6)
        for width in (1, 4)
    }
    made = table_of("improving_mcsd/fig8", cells)
    for (beta, _), run_id in asked.items():
        row = row_of(made, run_id)
        assert (row["line"], row["with_without"] == ABSENT) == (f"topk, beta={beta}", False)
    assert set(made.runs) == {*plain[2:], *asked.values()}


def test_a_model_is_compared_by_the_same_rule(cells) -> None:
    other, same = (
        fork(cells, 4, chance=0.5, verifier=rule, speedup=speed)
        for rule, speed in (("longest_subtree", 3.0), ("independent_longest", 1.2))
    )
    run_id = fork(cells, 4, chance=0.5, params={"decision": TOPK})
    made = table_of("improving_mcsd/fig8", cells)
    assert row_of(made, run_id)["with_without"].startswith(f"{ratio(cells, run_id, same):.3f} [")
    assert other in made.runs


def test_every_pair_has_its_three_panels(cells) -> None:
    for pair in (LLAMA, LARGE):
        for decision in (None, TOPK):
            fork(cells, 4, chance=0.5, stops=0.1 if decision else 0, params={"decision": decision}, **pair)
    axes, made = build("improving_mcsd/fig8", cells)
    assert len(axes) == 6
    assert made.frame["setting"].tolist() == [pair["pair"] for pair in (LLAMA, LLAMA, LARGE, LARGE)]
