"""Improved MCSD's Figure 8: what a decision model costs and brings, against plain numpy and by its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import Cells
from drawn import labels, lines, row_of
from matplotlib.axes import Axes
from mcsd_figure_fills import HIDDEN, LARGE, LLAMA, TOPK, decision_rows, fill_fig7, fill_fig8, fork
from recomputed import written
from scipy import stats

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import UNRANKED
from bench.papers import registry
from bench.papers.improving_mcsd.methods import ahead
from bench.papers.registry import ARTIFACTS
from bench.statistics.intervals import Interval

pytestmark = pytest.mark.long


PHASES = ["draft_s", "tree_s", "score_s", "judge_s", "commit_s"]


def build(cells) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS["improving_mcsd/fig8"].build("fig8", cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert figure.runs == table.runs
    return figure.canvas.axes, table


def speeds(prompts: pd.DataFrame, run_id: str, often: np.ndarray) -> np.ndarray:
    """Speedups over conversations that count so often: one for every row of `often`."""
    rows = prompts[prompts["run_id"] == run_id]
    per_token = {}
    for arm, group in rows.groupby("arm"):
        sums = group.groupby("prompt_id")[["decode_s", "num_decoded_tokens"]].sum().sort_index().to_numpy(dtype=float)
        seconds, tokens = (often @ sums).T
        per_token[arm] = seconds / tokens
    return per_token["autoregressive"] / per_token["method"]


def test_both_acceptance_rates_and_the_decision_models_share(cells) -> None:
    runs = fill_fig8(cells)
    axes, table = build(cells)
    results = cells.load()
    kinds = ["none", "hidden", "topk"]
    for (kind, width), run_id in runs.items():
        steps, row = results.steps[results.steps["run_id"] == run_id], row_of(table, run_id)
        accepted, levels = (steps["num_accepted"] - 1).sum(), steps["depth"] - 1
        highest, drafted = accepted / (5 * len(steps)), accepted / levels.sum()
        assert row["alpha_max"].startswith(f"{highest:.3f} [")
        assert row["alpha_drafted"].startswith(f"{drafted:.3f} [")
        assert row["draft levels"] == f"{levels.mean():.2f}"
        look = {"color": style.of_methods(["dynamic_mcsd"] * 3)[kinds.index(kind)]["color"]}
        drawn = [dict(line) for line in (lines(axes[0], linestyle=dash, **look)[0] for dash in ("-", "--"))]
        assert [line[width] for line in drawn] == [pytest.approx(highest), pytest.approx(drafted)]
        if kind == "none":
            assert highest == drafted
            assert row[["calls", "decision time", "with / without"]].tolist() == [ABSENT] * 3
        else:
            assert highest < drafted
            assert row["calls"] == f"{steps['decision_calls'].astype(float).mean():.2f}"
            share = steps["decision_s"].astype(float).sum() / steps[PHASES].sum().sum()
            assert row["decision time"] == f"{share * 100:.1f}%"
    assert table.frame["Decision"].tolist() == ["no decision model"] * 3 + ["hidden"] * 3 + ["topk"] * 3
    assert labels(axes[1]) == ["no decision model", "hidden", "topk"]
    assert labels(axes[0])[2:4] == ["alpha_max, hidden", "alpha_drafted, hidden"]


def test_speeds_are_compared_over_the_conversations_of_both(cells) -> None:
    runs = fill_fig8(cells)
    _, table = build(cells)
    prompts = cells.load().prompts
    count = prompts["prompt_id"].nunique()
    often = np.vstack([np.ones(count), 1 - np.eye(count)])  # all, then all but one
    for width, word in ((1, "faster"), (12, "slower")):
        value, *without = speeds(prompts, runs["hidden", width], often) / speeds(prompts, runs["none", width], often)
        reach = stats.t.ppf(0.975, count - 1) * (1 + 1 / count) * np.sqrt((count - 1) * np.var(np.log(without)))
        found = row_of(table, runs["hidden", width])["with / without"]
        assert found == f"{written((value, value * np.exp(-reach), value * np.exp(reach)), 3)} ({word})"


def test_a_conversation_of_one_run_alone_does_not_count(cells) -> None:
    first, other = (fork(cells, 4, chance=0.5, params={"decision": kind}) for kind in (HIDDEN, None))
    results, lost = cells.load(), "p3"
    rows = results.prompts
    prompts = rows[(rows["run_id"] != other) | (rows["prompt_id"] != lost)]
    _, table = ARTIFACTS["improving_mcsd/fig8"].build("fig8", replace(results, prompts=prompts))
    assert isinstance(table, Table)
    both, once = rows[rows["prompt_id"] != lost], np.ones((1, rows["prompt_id"].nunique() - 1))
    ratio = (speeds(both, first, once) / speeds(both, other, once))[0]
    assert row_of(table, first)["with / without"].startswith(f"{ratio:.3f} (")


def ahead_of(table: Table, line: str) -> list[str | None]:
    rows = table.long[table.long["metric"].map(lambda metric: metric.key) == "with_without"]
    return rows.loc[rows["line"] == line, "ahead"].tolist()


def test_times_that_are_too_noisy_are_neither_faster_nor_slower(cells) -> None:
    for kind, base in ((None, 0.002), (HIDDEN, 0.008)):
        for width in (1, 4):
            fork(cells, width, chance=0.5, speedup=2.0 if kind else 1.0, base_step_s=base, params={"decision": kind})
    _, table = build(cells)
    (plain, words) = (set(rows) for _, rows in table.frame.groupby("Decision", sort=False)["with / without"])
    assert plain == {ABSENT}
    assert all(text.endswith(f"]{UNRANKED}") for text in words)
    assert ahead_of(table, "hidden") == [None, None]


def test_a_model_that_ended_no_tree_is_said_to_have_ended_none(cells) -> None:
    for decision in (None, TOPK):
        fork(cells, 4, chance=0.5, params={"decision": decision})
    cells.store.write("decisions", "a" * 12, decision_rows("a" * 12, "topk", apart=0.1, dataset="alpaca"))
    _, table = build(cells)
    steps = len(cells.load().steps) // 2
    assert any("40 prompts of alpaca" in note and f"0 of {steps} steps" in note for note in table.notes)


@pytest.mark.parametrize(("other", "same"), [("a", True), ("c", False)])
def test_figures_7_and_8_say_where_their_models_are_not_the_same(other: str, same: bool, tmp_path: Path) -> None:
    folders = {name: Cells(tmp_path, f"improving_mcsd/{name}") for name in ("fig7", "fig8")}
    fork(folders["fig8"], 4, chance=0.5)
    for name, model, prompts in (("fig7", "a", 140), ("fig8", other, 7)):
        rows = decision_rows(model * 12, "topk", apart=0.1, num_prompts=prompts)
        folders[name].store.write("decisions", model * 12, rows)
    for name, figure, words in (("fig7", "8", (140, 7)), ("fig8", "7", (7, 140))):
        (table,) = [one for one in registry.build(f"improving_mcsd/{name}", tmp_path) if isinstance(one, Table)]
        note = f"trained on {words[0]} prompts, are not those of Figure {figure}, trained on {words[1]}."
        assert any(one.endswith(note) for one in table.notes) != same


def test_a_figure_alone_has_no_models_to_differ_from(cells) -> None:
    mine = Cells(cells.root, "improving_mcsd/fig7")
    fill_fig7(mine)
    _, table = registry.build("improving_mcsd/fig7", cells.root)
    assert isinstance(table, Table)
    assert not any("are not those of" in note for note in table.notes)


def test_a_ratio_is_a_word_by_its_interval() -> None:
    words = ("faster", "slower", "level")
    assert ahead(Interval(1.2, 1.01, 1.3, 9), *words) == "faster"
    assert ahead(Interval(0.8, 0.7, 0.99, 9), *words) == "slower"
    assert ahead(Interval(1.2, 1.0, 1.3, 9), *words) == "level"
    assert ahead(Interval(1.2, float("nan"), float("nan"), 1), *words) is None
    assert ahead(None, *words) is None


def test_nothing_is_compared_across_widths_or_parameters(cells) -> None:
    lonely = fork(cells, 4, chance=0.5, stops=0.2, params={"decision": HIDDEN})
    fork(cells, 8, chance=0.5)
    fork(cells, 4, chance=0.5, params={"depth": 4})
    _, table = build(cells)
    assert set(table.frame["with / without"]) == {ABSENT}
    assert row_of(table, lonely)["Decision"] == "hidden, depth=5"
    assert ahead_of(table, "hidden, depth=5") == [None]


def test_the_threshold_is_none_of_a_run_without_a_model(cells) -> None:
    """Beta was swept of all: the runs without a model are the same, and the others are compared with them."""
    plain = [fork(cells, width, chance=0.5, params={"beta": beta}) for beta in (0.2, 0.6) for width in (1, 4)]
    asked = {
        (beta, width): fork(cells, width, chance=0.5, stops=0.2, params={"decision": TOPK, "beta": beta})
        for beta in (0.2, 0.6)
        for width in (1, 4)
    }
    axes, table = build(cells)
    assert labels(axes[1]) == ["no decision model", "topk, beta=0.2", "topk, beta=0.6"]
    for (beta, _), run in asked.items():
        assert row_of(table, run)["Decision"] == f"topk, beta={beta}"
        assert row_of(table, run)["with / without"] != ABSENT
    assert set(table.runs) == {*plain[2:], *asked.values()}


def test_a_model_is_compared_by_the_same_rule(cells) -> None:
    other, same = (
        fork(cells, 4, chance=0.5, verifier=rule, speedup=speed)
        for rule, speed in (("longest_subtree", 3.0), ("independent_longest", 1.2))
    )
    run = fork(cells, 4, chance=0.5, params={"decision": TOPK})
    _, table = build(cells)
    own, once = cells.load().prompts, np.ones((1, 6))
    ratio = (speeds(own, run, once) / speeds(own, same, once))[0]
    assert row_of(table, run)["with / without"].startswith(f"{ratio:.3f} [")
    assert other in table.runs


def test_every_pair_has_its_three_panels(cells, tmp_path: Path) -> None:
    for pair in (LLAMA, LARGE):
        for decision in (None, TOPK):
            fork(cells, 4, chance=0.5, stops=0.1 if decision else 0, params={"decision": decision}, **pair)
    axes, table = build(cells)
    assert [panel.get_title() for panel in axes] == [
        f"{pair['pair']}: {what}" for pair in (LLAMA, LARGE) for what in ("alpha", "tokens/s", "speedup")
    ]
    assert table.frame["Pair"].tolist() == [pair["pair"] for pair in (LLAMA, LLAMA, LARGE, LARGE)]
    outputs = ARTIFACTS["improving_mcsd/fig8"].build("fig8", cells.load())
    assert all(path.stat().st_size > 100 for path in write_all(outputs, tmp_path))


def test_a_failed_run_is_in_the_table_and_not_compared(cells) -> None:
    fork(cells, 4, chance=0.5)
    failed = fork(cells, 4, chance=0.5, params={"decision": HIDDEN}, status="failed")
    other = fork(cells, 8, chance=0.5, stops=0.2, params={"decision": HIDDEN})
    fork(cells, 8, chance=0.5, status="oom")
    _, table = build(cells)
    assert row_of(table, failed)[["alpha_max", "with / without", "calls"]].tolist() == ["failed", ABSENT, ABSENT]
    assert row_of(table, other)["with / without"] == ABSENT


def test_there_is_no_figure_without_a_fork(cells) -> None:
    cells.add("mcsd", "mcsd")
    with pytest.raises(NoResultsError):
        build(cells)
