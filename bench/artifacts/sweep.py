"""A sweep: lines of runs that differ in one parameter alone, drawn over it, and a table of all points."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.blocks import Block
from bench.artifacts.definitions import method_label
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.wording import setting
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics.intervals import Interval

OPEN: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white"}
"""The look of what is not the first metric of a panel."""


@dataclass(frozen=True, slots=True)
class Series:
    """Runs in the order of their `x`, and the words that tell this line from the others of its panel."""

    label: str
    x: list[float]
    runs: list[Run]

    @property
    def points(self) -> Iterator[tuple[float, Run]]:
        """Each x with its run."""
        return zip(self.x, self.runs, strict=True)


def series(block: Block, swept: str, x: Callable[[Run], float | None] | None = None) -> list[Series]:
    """The lines of a block along `swept`, a parameter of the drafter unless `x` reads it elsewhere.

    Autoregressive runs are left out: every run has its own baseline.
    """
    lines: dict[str, list[tuple[float, Run]]] = {}
    for run in block.ok:
        value = x(run) if x else run.params.get(swept)
        if run.method != AUTOREGRESSIVE and value is not None:
            rest = {"method": run.method} | {key: value for key, value in run.params.items() if key != swept}
            lines.setdefault(json.dumps(rest, sort_keys=True), []).append((float(value), run))
    rests = [json.loads(key) for key in lines]
    differ = _differing(rests)
    return [_series(rest, line, differ) for rest, line in zip(rests, lines.values(), strict=True)]


def _differing(rests: list[dict[str, object]]) -> list[str]:
    """The parameters in which the lines of one method are not alike."""
    keys = dict.fromkeys(key for rest in rests for key in rest if key != "method")
    same = [(a, b) for a in rests for b in rests if a["method"] == b["method"]]
    return [key for key in keys if any(a.get(key) != b.get(key) for a, b in same)]


def _series(rest: dict[str, object], line: list[tuple[float, Run]], differ: list[str]) -> Series:
    line.sort(key=lambda point: point[0])
    words = [
        method_label(str(rest["method"])),
        *(_argument(key, rest[key]) for key in differ if rest.get(key) not in (None, False)),
    ]
    return Series(", ".join(words), [value for value, _ in line], [run for _, run in line])


def _argument(name: str, value: object) -> str:
    """A parameter as a label can hold it: a switch by its name, of a list, such as an acceptance vector, its start."""
    if value is True:
        return name.replace("_", " ")
    if not isinstance(value, list):
        return f"{name}={value}"
    return f"{name}=[{', '.join(f'{item:.3g}' for item in value[:3])}{', …' if len(value) > 3 else ''}]"


@dataclass(frozen=True)
class Panel:
    """A block and its lines."""

    block: Block
    lines: Sequence[Series]

    @property
    def runs(self) -> list[Run]:
        """All points, line by line."""
        return [run for line in self.lines for run in line.runs]

    @property
    def looks(self) -> list[dict[str, Any]]:
        """How the lines are drawn."""
        return style.of_methods([line.runs[0].method for line in self.lines])

    @property
    def x(self) -> list[float]:
        """Where they stand."""
        return [x for line in self.lines for x in line.x]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a paper says of a curve, or what was measured: a star at (x, y), else a line across at x or at y.

    `look` may have another marker.
    """

    words: str
    x: float | None = None
    y: float | None = None
    look: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, axes: Axes) -> None:
        """Put it on the axes."""
        if self.x is not None and self.y is not None:
            star: dict[str, Any] = {"color": "black", "marker": "*", "markersize": 9, "linestyle": ""} | dict(self.look)
            axes.plot(self.x, self.y, label=self.words, **star)
            return
        line: dict[str, Any] = {"color": style.GREY, "linestyle": "--", "linewidth": 1, "label": self.words}
        line |= self.look
        if self.x is not None:
            axes.axvline(self.x, **line)
        elif self.y is not None:
            axes.axhline(self.y, **line)


Draw = Callable[[Axes, Panel], None]


def curve(metric: Metric) -> Draw:
    """Lines of a metric with their intervals."""

    def draw(axes: Axes, panel: Panel) -> None:
        for line, look in zip(panel.lines, panel.looks, strict=True):
            band(axes, line, metric, label=line.label, **look)
        axes.set_ylabel(f"{metric.header} (95% interval)")

    return draw


@dataclass(frozen=True, slots=True)
class Sweep:
    """One artifact: what is swept, what is drawn over it, what stands in the table, what the paper says."""

    title: str
    over: str
    label: str
    draw: Sequence[Sequence[Draw]]  # of every panel of a block
    columns: Sequence[Metric]
    panels: Callable[[Results], Iterable[Panel]]
    header: str = ""  # of the column with what is swept, if not its name
    means: str = ""
    line: str = "Line"  # the header of the column with the lines' labels
    line_means: str = ""
    together: bool = False  # the lines of all blocks share their panels
    remarks: Callable[[Sequence[Panel], Results], Iterable[str]] = lambda panels, results: ()
    ranked: Sequence[Metric] = ()
    along: bool = False  # the best of a line are marked, in place of the best line at every x
    look: Mapping[str, Any] = field(default_factory=dict)  # of the canvas
    legend_columns: int = 2

    def __call__(self, name: str, results: Results) -> list[Output]:
        """The figure, its panels for every block, and the table."""
        found = list(self.panels(results))
        if not found:
            raise NoResultsError(f"no run sweeps the {self.over}")
        words = setting(panel.block for panel in found)
        groups = [_joined(found)] if self.together else found
        every = [(panel, draws) for panel in groups for draws in self.draw]
        ids = run_ids(run for panel in found for run in panel.runs)
        figure = style.drawn(name, self.title, words, self._panel, every, ids, **self.look)
        header = self.header or self.over
        rows = [
            ({"Pair": panel.block.name, self.line: line.label or tables.ABSENT, header: f"{x:g}"}, run)
            for panel in found
            for line in panel.lines
            for x, run in line.points
        ]
        table = run_table(
            name,
            figure.title,
            rows,
            self.columns,
            ranked=self.ranked,
            among=lambda row: (id(row[1].block), row[0][self.line if self.along else header]),
            said=self.remarks(found, results),
            marks="" if self.along else f"Marked among the lines of a pair at one {self.over.replace('_', ' ')}.",
            means={name: means for name, means in ((self.line, self.line_means), (header, self.means)) if means},
        )
        return [figure, table]

    def _panel(self, axes: Axes, panel: Panel, draws: Sequence[Draw]) -> None:
        axes.set(title=panel.block.name, xlabel=self.label)
        for draw in draws:
            draw(axes, panel)
        if not axes.get_legend_handles_labels()[1]:
            axes.remove()  # nothing has a value
        elif axes.lines:
            style.legend_below(axes, columns=self.legend_columns)


def _joined(panels: Sequence[Panel]) -> Panel:
    """All lines, each with the name of its block."""
    named = [
        (", ".join(filter(None, (panel.block.name, line.label))), line) for panel in panels for line in panel.lines
    ]
    return Panel(panels[0].block, [Series(label, line.x, line.runs) for label, line in named])


def band(axes: Axes, line: Series, metric: Metric, **look: Any) -> None:
    """A line in its look with its intervals over the runs that have a value; nothing where none has."""
    found = [(x, value) for x, run in line.points if isinstance(value := metric.of(run), Interval)]
    if found:
        style.band(axes, [x for x, _ in found], [value for _, value in found], 0, **look)
