"""OPT-Tree, Figure 6: mean acceptance length against tree size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import control, definitions, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.measured import SPEED_LEGEND, SPEEDS, expected, measure, method_label, speeds
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.series import Series, series
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.store import Results
from bench.statistics import samples

TITLE = "OPT-Tree Figure 6: mean acceptance length against tree size"
COLUMNS = ("Pair", "Line", "Tree size n", "MAL", "E(A)", *SPEEDS)
_FACTS = {
    "mal_growth_until_nodes": "paper: grows until",
    "mal_slow_growth_from_nodes": "paper: slow growth from",
    "mal_saturates_from_nodes": "paper: saturates from",
}


@style.styled
def mal_by_size(name: str, results: Results) -> list[Output]:
    """One panel per pair, one line per method and parameters; what the paper's text says of its curves is marked."""
    found = [(block, series(block, "n")) for block in measured_blocks(results)]
    found = [(block, lines) for block, lines in found if lines]
    if not found:
        raise NoResultsError("no run has a tree size n")
    words = setting(block for block, _ in found)
    canvas, axes = style.panels(TITLE, words, len(found))
    for axis, (block, lines) in zip(axes, found, strict=True):
        _panel(axis, block, lines)
    table = _table(name, f"{TITLE} ({words})", found, _calibrated(results.acceptance))
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _panel(axes: Axes, block: Block, lines: list[Series]) -> None:
    for index, line in enumerate(lines):
        values = [samples.interval(samples.mal(block.steps(run["run_id"]))) for run in line.runs]
        style.band(axes, line.x, values, index, label=line.label)
    axes.set(title=block.name, xlabel="tree size n (drafted nodes)", ylabel="MAL (95% interval)")
    for index, fact in enumerate(tables.named_rows(_facts(block))):
        if fact.metric in _FACTS and fact.value <= max(max(line.x) for line in lines):
            words, dashes = f"{_FACTS[fact.metric]} {fact.value:g}{_whose(fact.method)}", ":" if index % 2 else "--"
            axes.axvline(fact.value, color=style.GREY, linestyle=dashes, linewidth=1, label=words)
        if fact.metric == "mal":
            size = float(fact.params.removeprefix("nodes="))
            axes.plot(
                size, fact.value, "*", color="black", markersize=9, label=f"paper: MAL {fact.value:g} at {size:g}"
            )
    style.legend_below(axes)


def _whose(method: str) -> str:
    """The method of which the paper says it; nothing where it says it of all."""
    return "" if "|" in method else f" ({method_label(method)})"


def _facts(block: Block) -> pd.DataFrame:
    """What the paper's text says of the curve of these models."""
    target, draft = block.published_as or ("", "")
    return published.find("opt_tree", "section4_3", target=target, draft=draft)


def _calibrated(vectors: pd.DataFrame) -> Iterator[str]:
    """For whose texts Sequoia's trees were made, if they were."""
    for dataset, rows in vectors.groupby("dataset"):
        prompts = " / ".join(str(count) for count in sorted(set(rows["num_prompts"])))
        yield f"Sequoia's trees are made for {dataset} (prompts: {prompts}); the paper's: for 200 samples of C4."


def _table(name: str, title: str, found: list[tuple[Block, list[Series]]], said: Iterable[str]) -> Table:
    points = [
        (block, line.label, x, run)
        for block, lines in found
        for line in lines
        for x, run in zip(line.x, line.runs, strict=True)
    ]
    rows = [_row(*point) for point in points]
    facts = pd.concat([_facts(block) for block, _ in found]).drop_duplicates()
    blocks = [block for block, _ in found]
    notes = (*map(scale, blocks), *draft_temperatures(run for _, _, _, run in points), *control.notes(blocks))
    notes += tuple(said)
    notes += tuple(
        f"The paper on {row.target} + {row.draft}, {row.method}: {row.notes}." for row in tables.named_rows(facts)
    )
    legend = {"Tree size n": definitions.SIZE, "MAL": definitions.MAL, "E(A)": definitions.EXPECTED}
    legend |= SPEED_LEGEND
    runs = tuple(str(run["run_id"]) for _, _, _, run in points)
    return Table(name, title, tables.frame(rows, COLUMNS), notes, legend, runs)


def _row(block: Block, label: str, size: float, run: pd.Series) -> dict[str, str]:
    steps = block.steps(run["run_id"])
    return {
        "Pair": block.name,
        "Line": label,
        "Tree size n": f"{size:g}",
        "MAL": tables.interval(samples.interval(samples.mal(steps))),
        "E(A)": tables.number(expected(steps).value),
    } | speeds(measure(block, run))
