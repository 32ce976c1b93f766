"""All lossless drafters at equal budget: MAL and speedup against the measured tree size, as a figure and a table."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.artifacts import control, definitions, style, tables, ties
from bench.artifacts.blocks import Block, blocks, drafted_blocks
from bench.artifacts.definitions import method_label
from bench.artifacts.metric import MAL, SPEEDUP, Metric
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.ties import BEST, BUSY_NOTE, TIED
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics.intervals import Interval

TITLE = "All drafters at equal budget: MAL and speedup against tree size"
METRICS = (MAL, SPEEDUP)
LEGEND = {
    "Budget": "the most nodes a step that the method may draft for the target, root excluded",
    "nodes": "drafted nodes a step that the target read, root excluded, mean over steps",
    "MAL": definitions.MAL,
    "speedup": definitions.CONTROLLED_SPEEDUP,
    "conversations": "how many the intervals are over",
}
MARKS = (
    "*: the best of its dataset, temperature and budget; =: tied with it (the paired 95% interval of their difference "
    "holds 0, or, of speedups, the two runs' autoregressive arms lie as far apart). A budget is an upper bound: what "
    "smaller trees leave of it is seen in the column nodes and on the figure's axis."
)
UNRANKED = "Times rank nothing, in no setting and at no budget, of {}: they are too noisy."
HOLLOW = "hollow: times too noisy to rank"
LEFT_OUT = (
    "Only rules that keep the target's distribution are compared. Not here: drafters without a size to set (EAGLE's 25 "
    "nodes, DySpec's threshold, Sequoia's hardware-aware tree, SSD), and target-initialised trees, which with one "
    "first token are accepted as MCSD's below it are, and with several are not lossless."
)
_SIZES = ("n", "total", "verify_cap", "shape", "acceptance")
"""Parameters that say how large a drafter's trees are, or what shape they have at that size."""
ACROSS = 4
"""Settings side by side; others go below."""
APART = 0.4
"""Over how many doublings of the size the methods of a budget are spread sideways, so that intervals do not overlap."""
Labelled = tuple[str, Run]
"""A run by the name of its method, as it stands in table and legend."""
Found = Sequence[Sequence[Labelled]]
"""By setting."""
Looks = Mapping[str, Mapping[str, Any]]


def at_equal_budget(name: str, results: Results) -> list[Output]:
    """The figure, and the table of all its points; raises NoResultsError where no tree method ended well."""
    drafted_blocks(results)
    found = [labelled(block) for block in sorted(blocks(results), key=_order)]
    found = [lines for lines in found if lines]
    words = setting(_blocks(found))
    drawn = [lines for lines in found if lines[0][1].block.ran]
    return [_figure(name, words, drawn), _table(name, f"{TITLE} ({words})", found)]


def _order(block: Block) -> tuple[str, str, float]:
    return block.pair, str(block.first["dataset"]), float(block.first["temperature"])


def _blocks(found: Found) -> list[Block]:
    return [lines[0][1].block for lines in found]


def labelled(block: Block) -> list[Labelled]:
    """The lossless runs of a setting, the autoregressive first, then by method, variant and budget."""
    runs = [run for run in block.every if run.lossless]
    found = [(_label(run, [other for other in runs if other.method == run.method]), run) for run in runs]
    order = [AUTOREGRESSIVE, *style.METHODS]

    def place(one: Labelled) -> tuple[int, str, str, int]:
        label, run = one
        return order.index(run.method) if run.method in order else len(order), run.method, label, budget(run) or 0

    return sorted(found, key=place)


def _label(run: Run, alike: Sequence[Run]) -> str:
    """The method, and in what but its size it is not like its other runs of the setting."""
    differ = [key for key in run.params if key not in _SIZES]
    differ = [key for key in differ if any(other.params.get(key) != run.params[key] for other in alike)]
    name = method_label(run.method)
    return ", ".join([name, *(f"{key}={run.params[key]}" for key in sorted(differ))])


def budget(run: Run) -> int | None:
    """The size a run was given: n, EAGLE-2's total less its root, a graph's cap; else the largest tree it drew."""
    params = run.params
    if isinstance(params.get("total"), int):
        return int(params["total"]) - 1
    if isinstance(params.get("verify_cap"), int) and params.get("k") != 1:
        return int(params["verify_cap"])
    shape = params.get("shape")
    if run.method == "chain" and isinstance(shape, dict) and isinstance(shape.get("depth"), int):
        return int(shape["depth"])
    return run.size


def _place(block: Block, found: Found, *, temperature: bool = True) -> str:
    """The words for a setting among others: pair if there are several, dataset, temperature, and what else differs."""
    pairs = len({other.pair for other in _blocks(found)}) > 1
    marks = [mark for mark in block.mark.split(", ") if mark and not mark.startswith(("dataset ", "temperature "))]
    words = [block.pair] * pairs + [str(block.first["dataset"])]
    return ", ".join([*words, *[f"temperature {block.first['temperature']:g}"] * temperature, *marks])


def _table(name: str, title: str, found: Found) -> Table:
    """Of every setting the autoregressive run, then the methods of one budget side by side."""
    every = [one for lines in found for one in sorted(lines, key=lambda one: budget(one[1]) or 0)]
    rows = [_row(label, run, _place(run.block, found, temperature=False)) for label, run in every]
    entries = {metric.header: [metric.entry(run) for _, run in every] for metric in METRICS}
    noisy = control.unranked(_blocks(found))
    among = [(id(run.block), budget(run) or run.run_id) for _, run in every]
    ties.mark(rows, entries, among, [control.place(run.block) in noisy for _, run in every])
    frame = tables.frame(rows, rows[0])
    notes = [scale(block) for block in _blocks(found)]
    notes += draft_temperatures(run for block in _blocks(found) for run in block.ok)
    notes += [*control.notes(_blocks(found)), *_summary(rows, [run for _, run in every]), MARKS]
    notes += [*[BUSY_NOTE] * (BUSY_NOTE in ties.note(frame)), LEFT_OUT]
    warning = UNRANKED.format(", ".join(sorted(pair for pair, _ in noisy))) if noisy else ""
    return Table(name, title, frame, tuple(notes), LEGEND, tuple(run.run_id for _, run in every), warning=warning)


def _row(label: str, run: Run, place: str) -> dict[str, str]:
    counts = dict.fromkeys(str(value.n) for metric in METRICS if (value := metric.of(run)))
    row = {
        "Dataset": place,
        "Temperature": f"{run['temperature']:g}",
        "Budget": str(budget(run) or tables.ABSENT),
        "Method": label,
        "nodes": tables.number(run.mean_size if run.ok else None, 1),
        **{metric.header: metric.cell(run) for metric in METRICS},
        "conversations": " / ".join(counts) or "0",
    }
    return row if run.ok else row | {"MAL": run.status}


def _summary(rows: Sequence[Mapping[str, str]], runs: Sequence[Run]) -> Iterator[str]:
    """By budget and metric: in how many settings a method is the best, or tied with it."""
    for size in sorted({size for run in runs if (size := budget(run))}):
        for metric in METRICS:
            judged = [
                (row["Method"], run)
                for row, run in zip(rows, runs, strict=True)
                if budget(run) == size and row[metric.header].endswith((BEST, TIED))
            ]
            settings = len({id(run.block) for _, run in judged})
            if judged:
                words = ", ".join(
                    f"{label} {count}" for label, count in Counter(name for name, _ in judged).most_common()
                )
                yield f"Budget {size}, {metric.header}: best or tied, in how many of {settings} settings: {words}."


@style.styled
def _figure(name: str, words: str, found: Found) -> style.Figure:
    """Two panels for every setting: MAL above, below it the speedup with the A/A control as a band around 1."""
    columns = min(ACROSS, len(found))
    groups = [found[start : start + columns] for start in range(0, len(found), columns)]
    aside, count = f"{words}; methods of one budget are set side by side", 2 * columns * len(groups)
    canvas, axes = style.panels(TITLE, aside, count, columns=columns, panel=(3.7, 3.1))
    looks, noisy = _looks(found), control.unranked(_blocks(found))
    for row, group in enumerate(groups):
        above, below = (axes[(2 * row + metric) * columns :][:columns] for metric in range(len(METRICS)))
        for both, lines in zip(zip(above, below, strict=True), group, strict=False):
            block = lines[0][1].block
            both[0].set_title(textwrap.fill(_place(block, found), 42))
            for axis, metric in zip(both, METRICS, strict=True):
                _panel(axis, metric, lines, looks, hollow=metric is SPEEDUP and control.place(block) in noisy)
            _control(both[1], None if control.place(block) in noisy else control.itself(block))
        for spare in (*above[len(group) :], *below[len(group) :]):
            spare.remove()
        above[0].set_ylabel("MAL (95% interval)")
        below[0].set_ylabel("speedup (95% interval)")
    for kind in range(len(METRICS)):
        same = [one for place, one in enumerate(axes) if place // columns % len(METRICS) == kind and one.figure]
        style.one_scale(same, "y")
    style.one_scale([one for one in axes if one.figure], "x")
    ranked = [block for block in _blocks(found) if control.place(block) not in noisy]
    _legend(canvas, looks, any(map(control.itself, ranked)), hollow=bool(noisy))
    runs = tuple(run.run_id for lines in found for _, run in lines if run.ok)
    return style.Figure(name, f"{TITLE} ({words})", canvas, runs)


def _panel(axes: Axes, metric: Metric, lines: Sequence[Labelled], looks: Looks, *, hollow: bool) -> None:
    """Each method's points, with their intervals as bars: bands of so many methods would hide each other.

    They are hollow, and no line leads from one to the next, where times rank nothing.
    """
    plain = {"markerfacecolor": "none", "linestyle": "none"} if hollow else {}
    sized = [(label, run) for label, run in lines if run.ok and budget(run) and run.method != AUTOREGRESSIVE]
    for index, (label, look) in enumerate(looks.items()):
        runs = [run for name, run in sized if name == label and metric.of(run) is not None]
        runs.sort(key=lambda run: (budget(run) or 0, run.mean_size or 0))
        aside = 2 ** (APART * ((index + 0.5) / len(looks) - 0.5))
        x, values = [(run.mean_size or 0) * aside for run in runs], [metric.of(run) for run in runs]
        low, high = ([value.ends[end] for value in values] for end in (0, 1))
        axes.vlines(x, low, high, color=look["color"], linewidth=1)
        axes.plot(x, [value.value for value in values], **{**look, **plain})
    if sized:
        style.powers_of_two(axes, [run.mean_size or 0 for _, run in sized])
    axes.set_xlabel("drafted nodes a step (points side by side)")


def _control(axes: Axes, against: Interval | None) -> None:
    """A line at speedup 1, and the A/A interval around it, if it says something, which does not stretch the axis."""
    axes.axhline(1, color=style.GREY, linewidth=1, zorder=0.6)
    limits = axes.get_ylim()
    if against is not None:
        axes.axhspan(against.low, against.high, color=style.GREY, alpha=0.25, linewidth=0, zorder=0.5)
    axes.set_ylim(limits)


def _looks(found: Found) -> Looks:
    """Colour, marker and line of every label: the method's own for the first of its labels."""
    methods = {label: run.method for lines in found for label, run in lines if run.method != AUTOREGRESSIVE}
    return dict(zip(methods, style.of_methods(list(methods.values())), strict=True))


def _legend(canvas: Canvas, looks: Looks, controlled: bool, *, hollow: bool) -> None:
    handles: list[Any] = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    if controlled:
        words = "autoregressive against itself (A/A, 95%)"
        handles.append(Patch(facecolor=style.GREY, alpha=0.35, linewidth=0, label=words))
    if hollow:
        unfilled: dict[str, Any] = {"marker": "o", "color": style.GREY, "markerfacecolor": "none", "linestyle": "none"}
        handles.append(Line2D([], [], label=HOLLOW, **unfilled))
    across = max(2, min(6, int(canvas.get_figwidth() / 1.9)))
    canvas.legend(handles=handles, loc="outside lower center", ncols=across, handlelength=3.2)
