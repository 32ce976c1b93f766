"""Sequoia, Figure 5b: speedup against temperature by rule of acceptance, all on one tree."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.wording import setting
from bench.papers.sequoia.leads import COLUMNS, LEGEND, Point, lead_notes, leads, points
from bench.papers.sequoia.run_table import run_table
from bench.papers.sequoia.vectors import rule_index, rule_label
from bench.results.store import Results

TITLE = "Sequoia Figure 5b: speedup against temperature, by rule"


@style.styled
def speedup_by_temperature(name: str, results: Results) -> list[Output]:
    """One panel per block, one line per rule (and tree, if several were run); and a table with Sequoia's lead."""
    found = drafted_blocks(results, across=["temperature"])
    drawn = [(block, of_block) for block in found if (of_block := points(block))]
    if not drawn:
        raise NoResultsError("no run has a speedup: the autoregressive arm was not run")
    words = setting([block for block, _ in drawn], but=("temperature",))
    canvas, axes = style.panels(TITLE, words, len(drawn))
    for axis, (block, of_block) in zip(axes, drawn, strict=True):
        _panel(axis, block.name, of_block)
    known = {run_id: cells for block, of_block in drawn for run_id, cells in leads(block, of_block).items()}
    runs = [(block, run) for block in found for run in _by_rule(block)]
    more = [known.get(run.run_id, dict.fromkeys(COLUMNS, tables.ABSENT)) for _, run in runs]
    notes = [note for block, of_block in drawn for note in lead_notes(block, of_block)]
    table = run_table(name, f"{TITLE} ({words})", runs, notes, more, LEGEND)
    ids = tuple(point.run_id for _, of_block in drawn for point in of_block)
    return [style.Figure(name, table.title, canvas, ids), table]


def _by_rule(block: Block) -> list[Run]:
    return sorted(block.every, key=lambda run: (rule_index(run["verifier"]), run["verifier"], run["temperature"]))


def _panel(axes: Axes, title: str, every: Sequence[Point]) -> None:
    trees = list(dict.fromkeys(point.tree for point in every))
    for rule in dict.fromkeys(point.rule for point in every):
        for place, tree in enumerate(trees):
            line = [point for point in every if (point.rule, point.tree) == (rule, tree)]
            label = rule_label(rule) + (f" ({tree})" if len(trees) > 1 else "")
            x, values = [point.temperature for point in line], [point.speedup for point in line]
            if line:
                style.band(axes, x, values, rule_index(rule), label=label, linestyle=("-", "--", ":", "-.")[place % 4])
    axes.set(title=title if len(trees) > 1 else f"{title}: {trees[0]}", xlabel="temperature")
    axes.set(ylabel="speedup (95% interval)", ylim=(0, None))
    style.legend_below(axes, columns=3 if len(trees) == 1 else 2)
