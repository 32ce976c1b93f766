"""The sentence above a table whose intervals do not tell its best method from its worst."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from compared import REFERENCE
from scipy import stats

from specdec_trees.artifacts import frame
from specdec_trees.artifacts.tables import Table, to_html, to_latex, to_markdown
from specdec_trees.artifacts.unresolved import warn
from specdec_trees.papers.opt_tree.tables import paper_table
from specdec_trees.papers.registry import build
from specdec_trees.report.site import views

pytestmark = pytest.mark.long


def warned(cells) -> Table:
    (table,) = paper_table("table1", cells.load())
    return warn(frame.load(cells.load()), table)


def lengths(cells, run_id: str) -> np.ndarray:
    """Tokens and steps by conversation."""
    steps = cells.load().steps
    by = steps[steps["run_id"] == run_id].groupby("prompt_id")["acceptance_length"]
    return np.column_stack([by.sum(), by.size()]).astype(float)


def test_methods_that_the_intervals_cannot_tell_apart_are_named_first_with_the_number_that_would(cells) -> None:
    """The number is recomputed: conversations x (reach of the ratio's logarithm / its value) squared."""
    runs = [cells.add(method, mal=mal, conversations=6) for method, mal in (("opt_tree", 2.55), ("binary", 2.5))]
    sums = np.hstack([lengths(cells, run_id) for run_id in runs])
    often = np.vstack([np.ones(6), 1 - np.eye(6)])  # all, then all but one
    value, *without = [np.log(total[0] / total[1] * total[3] / total[2]) for total in often @ sums]
    reach = stats.t.ppf(0.975, 5) * (1 + 1 / 6) * np.sqrt(5 * np.var(without))
    assert abs(value) <= reach
    needed = 6 * (reach / value) ** 2
    table = warned(cells)
    text = to_markdown(table).splitlines()[2]
    assert text.startswith("**MAL does not tell the best method from the worst here: not ")
    said = int(re.search(r"over 6 conversations \(about ([\d,]+) needed\)", text)[1].replace(",", ""))
    assert needed <= said <= max(needed * 1.1, 7)
    assert to_latex(table).index("does not tell") > 0
    assert "does not tell" in to_html(table)
    assert views.of(table, [], REFERENCE)["warning"] == table.warning


def test_methods_that_are_told_apart_have_no_sentence(cells) -> None:
    cells.add("opt_tree", mal=4.0, speedup=3.0)
    cells.add("binary", mal=2.0, speedup=1.2)
    cells.add("autoregressive", mal=1.0, speedup=1.0)
    assert warned(cells).warning == ""
    assert "**" not in to_markdown(warned(cells)).splitlines()[2]


def headline(cells, *methods: str) -> str:
    """The sentence above a table of all runs, which calls them by these methods, if any are given."""
    results = cells.load()
    shown = {"label": list(methods)} if methods else {}
    cells = pd.DataFrame(shown | {"mal": "", "speedup": ""}, index=range(len(results.runs)))
    return warn(frame.load(results), Table("t", "t", cells, runs=tuple(results.runs["run_id"]))).warning


SWEPT = ({"tau": 2, "tau_as_context": False, "n": 8}, {"tau": 0, "tau_as_context": True, "n": 8})


def compared(text: str) -> set[str]:
    """The two methods that a sentence on MAL names."""
    return set(re.match(r"MAL does not tell .* here: not (.+?) from (.+?) over 6", text).groups())


def test_runs_of_one_method_are_named_by_their_rows_or_by_what_they_differ_in(cells) -> None:
    for params, mal in zip(SWEPT, (2.55, 2.5), strict=True):
        cells.add("opt_tree", mal=mal, conversations=6, params=params)
    words = {"OPT-Tree, n = 8, tau = 2", "OPT-Tree, n = 8, tau = 0, tau as context"}
    assert compared(headline(cells)) == words
    assert compared(headline(cells, "A", "B (lossy)")) == {"A", "B (lossy)"}
    assert compared(headline(cells, "A", "A")) == words  # rows alike tell nothing


@pytest.mark.parametrize(("step", "noisy"), [(0.002, False), (0.008, True)])
def test_of_times_that_are_too_noisy_nothing_else_is_said(step: float, noisy: bool, cells) -> None:
    """Also where one is far ahead of the other: its speedup is of another minute."""
    for dataset, speedup in (("gsm8k", 1.0), ("mt_bench", 4.0)):
        for method, own, base_step_s in (("opt_tree", speedup, 0.002), ("binary", 1.0, step)):
            cells.add(method, dataset=dataset, speedup=own, base_step_s=base_step_s, mal=3.0)
    (text,) = re.findall(r"speedup does.*", headline(cells))
    assert (
        text == "speedup does not tell the best method from the worst in 2 of 2 settings: times are too noisy."
    ) == noisy
    assert ("conversations" in text) != noisy


def test_one_method_is_set_against_none(cells) -> None:
    cells.add("opt_tree")
    cells.add("autoregressive", mal=1.0, speedup=1.0)
    assert warned(cells).warning == ""


@pytest.mark.parametrize("artifact", ["dyspec/table1", "smoke"])
def test_reference_tables_know_their_settings(artifact: str) -> None:
    """Of several settings those without an answer are counted; two of fourteen have fewer than six conversations."""
    for table in build(artifact, REFERENCE):
        if isinstance(table, Table):
            for blurred, of in re.findall(r"in (\d+) of (\d+) settings", table.warning):
                assert 0 < int(blurred) <= int(of) == 12
