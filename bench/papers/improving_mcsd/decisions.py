"""Improved MCSD, Figure 8: acceptance rate and speed against width, with and without a decision model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts import control, definitions, style, tables
from bench.artifacts.metric import SPEEDS, cells, headers, legend, lossless_words
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.papers.improving_mcsd.gains import Side, ahead, gain
from bench.papers.improving_mcsd.remarks import NOT_LOSSLESS, left_out
from bench.papers.improving_mcsd.settings import draft_levels, virtual
from bench.papers.improving_mcsd.widths import NO_DECISION, Line, Point, band, lines, nodes, width_axis
from bench.results.store import Results
from bench.statistics import metrics
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Figure 8: acceptance rate and speed with and without a decision model"
FASTER, SLOWER, LEVEL = "faster", "slower", "within the interval"
COLUMNS = (
    *("Pair", "Decision", "W", "nodes", "draft levels", "alpha_max", "alpha_drafted", *headers(SPEEDS), "speedup"),
    *("with / without", "calls", "decision time", "MAL", "lossless"),
)
_OPEN: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white"}
LEGEND = {
    "Decision": "the model that may end a tree early, by what it reads of the draft: its hidden state, or its 10 "
    "largest probabilities and the entropy (topk)",
    "W": "sequences of the tree",
    "nodes": "nodes that the target verifies, first tokens counted; mean over steps",
    "draft levels": "drafted a step, mean over steps; without a decision model always the most",
    "alpha_max": definitions.ALPHA,
    "alpha_drafted": definitions.ALPHA_DRAFTED,
    **legend(SPEEDS),
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    "with / without": f"speedup with the decision model / without it at the same width, paired over conversations: "
    f"{FASTER} or {SLOWER} where 1 lies outside the 95% interval",
    "calls": "of the decision model, per decoding step",
    "decision time": "its share of the time of decoding steps",
    "MAL": definitions.MAL,
    "lossless": definitions.LOSSLESS,
}


def _tokens_per_s(point: Point) -> Interval | None:
    return point.tokens_per_s


def _speedup(point: Point) -> Interval | None:
    return point.speedup


@style.styled
def with_decisions(name: str, results: Results) -> list[Output]:
    """Three panels per block, alpha, tokens/s and speedup, a line per decision model; a table of all points."""
    found = [line for line in lines(results) if any(point.ok for point in line.points)]
    if not found:
        raise NoResultsError("no run of a dynamic tree has a width")
    found.sort(key=lambda line: not _plain(line))  # first within its block
    blocks = list({id(line.block): line.block for line in found}.values())
    groups = [[line for line in found if line.block is block] for block in blocks]
    words = setting(blocks)
    canvas, axes = style.panels(TITLE, words, 3 * len(groups), columns=3, panel=(4.6, 4.8))
    for place, group in enumerate(groups):
        _draw(axes[3 * place : 3 * place + 3], group)
    points = [(line, point, group) for group in groups for line in group for point in line.points]
    frame = tables.frame([_row(*each) for each in points], COLUMNS)
    shown = tuple(point.run_id for _, point, _ in points)
    notes = (*map(scale, blocks), *_papers(), *(note for group in groups for note in _notes(group)))
    notes += (*control.notes(blocks), *left_out(results, shown))
    table = Table(name, f"{TITLE} ({words})", frame, notes, LEGEND, shown)
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _draw(axes: Sequence[Axes], group: Sequence[Line]) -> None:
    """The panels of a block: both acceptance rates in the first, the second one dashed with open markers."""
    for index, line in enumerate(group):
        label = _name(line)
        band(axes[0], line, lambda point: point.alpha, index, label=f"alpha_max, {label}")
        band(axes[0], line, lambda point: point.alpha_drafted, index, label=f"alpha_drafted, {label}", **_OPEN)
        band(axes[1], line, _tokens_per_s, index, label=label)
        band(axes[2], line, _speedup, index, label=label)
    axes[2].axhline(1, color="black", linewidth=1, label="autoregressive decoding")
    for axis, what in zip(axes, ("alpha", "tokens/s", "speedup"), strict=True):
        width_axis(axis, group, title=f"{group[0].block.name}: {what}", ylabel=f"{what} (95% interval)")
        if axis.lines:
            style.legend_below(axis, columns=1)


def _name(line: Line) -> str:
    """The label; of the only line of its block, the decision model."""
    return line.label or line.decision


def _row(line: Line, point: Point, group: Sequence[Line]) -> dict[str, str]:
    run, steps = point, point.steps
    levels = metrics.drafted_levels(steps, virtual=virtual(point))
    return {
        "Pair": line.block.name,
        "Decision": _name(line),
        "W": str(point.width),
        "nodes": nodes(point),
        "draft levels": tables.number(float(levels.mean()) if len(levels) else None),
        "alpha_max": tables.interval(point.alpha, 3) if point.ok else run.status,
        "alpha_drafted": tables.interval(point.alpha_drafted, 3),
        **cells(SPEEDS, run),
        "speedup": tables.interval(run.speedup),
        "with / without": _compared(_ratio(line, point, group)),
        "calls": tables.number(_calls(point)),
        "decision time": tables.percent(_share(point)),
        "MAL": tables.interval(run.mal),
        "lossless": lossless_words(run),
    }


def _calls(point: Point) -> float | None:
    """Of the decision model, a step; None without one."""
    calls = point.steps["decision_calls"].dropna().astype(float)
    return float(calls.mean()) if len(calls) else None


def _share(point: Point) -> float | None:
    """Of the time of all steps, that of the decision model; None without one."""
    seconds = point.steps["decision_s"].dropna().astype(float)
    total = point.steps[[f"{phase}_s" for phase in metrics.PHASES]].sum().sum()
    return float(seconds.sum() / total) if len(seconds) and total else None


def _ratio(line: Line, point: Point, group: Sequence[Line]) -> Interval | None:
    """Speedup with the decision model over that without, all else being the same; None where there is no other run."""
    if _plain(line) or not point.ok:
        return None
    found = [at for other in group if _plain(other) and _rest(other) == _rest(line) and (at := other.at(point.width))]
    same = [at for at in found if at["verifier"] == point["verifier"]]
    return gain([(Side(line.block, point.run_id), Side(line.block, same[0].run_id))]) if same else None


def _plain(line: Line) -> bool:
    return line.decision == NO_DECISION


def _rest(line: Line) -> dict[str, Any]:
    """What a line without a decision model shares with one that has it; of rules the runs tell."""
    return {name: value for name, value in line.rest.items() if name not in ("decision", "beta", "rule")}


def _word(ratio: Interval | None) -> str | None:
    return ahead(ratio, FASTER, SLOWER, LEVEL)


def _compared(ratio: Interval | None) -> str:
    return tables.ABSENT if ratio is None else f"{tables.ratio(ratio)} ({_word(ratio) or 'no interval'})"


def _papers() -> Iterator[str]:
    yield (
        "The paper's text: most of the time decoding is faster without the decision model, which improves the speed "
        "only slightly where the width is low; its curves have no numbers, and it does not say which of its two models "
        "they show."
    )
    yield NOT_LOSSLESS
    yield (
        "Intervals are over conversations. The runs came one after another: what changed on the machine meanwhile is "
        "seen in each run's own autoregressive arm alone."
    )


def _notes(group: Sequence[Line]) -> Iterator[str]:
    """What was found of each decision model, counted over widths."""
    for line in group:
        words: dict[str, list[str]] = {FASTER: [], SLOWER: [], LEVEL: []}
        for point in line.points:
            if word := _word(_ratio(line, point, group)):
                words[word].append(str(point.width))
        if total := sum(map(len, words.values())):
            counted = "; ".join(_counted(word, widths) for word, widths in words.items())
            ended = tables.percent(_ended_early(line))
            yield (
                f"{line.block.name}, {_name(line)} against none, at {total} widths: {counted}. In {ended} of its steps "
                "the tree ended early."
            )
        elif not _plain(line):
            yield f"{line.block.name}, {_name(line)}: no width has an interval with it and without it."


def _ended_early(line: Line) -> float:
    """Share of all steps whose tree has fewer draft levels than it might."""
    levels = [metrics.drafted_levels(point.steps, virtual=virtual(point)) for point in line.points if point.ok]
    return float((pd.concat(levels) < draft_levels(line.points[0])).mean())


def _counted(word: str, widths: Sequence[str]) -> str:
    return f"{word} at {len(widths)}" + (f" (W = {', '.join(widths)})" if widths else "")
