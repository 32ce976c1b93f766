"""One style for all figures, and the figure as a value that writes itself as PNG and PDF."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, NullFormatter

from specdec_trees.results.parquet import replacing
from specdec_trees.statistics.intervals import Interval

CUT = 2
"""Times the highest value, where intervals leave a panel."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette: told apart with every common colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
METHODS: Mapping[str, tuple[int, str, str]] = {  # colour, marker, line
    "chain": (6, "X", "-."),
    "binary": (4, "<", "--"),
    "mcsd": (5, "P", "--"),
    "branching": (5, "P", "--"),  # the same tree by another name
    "k_sequences": (3, ">", "--"),
    "spec_infer": (3, ">", ":"),
    "spec_infer_merged": (3, "<", "-."),
    "sixteen_sequences": (2, "h", "-."),
    "k_ary": (5, "H", "-"),
    "sequoia": (1, "s", "-"),
    "eagle_tree": (6, "d", "-"),
    "opt_tree": (0, "o", "-"),
    "best_first": (0, "h", "--"),
    "eagle2": (3, "D", "-"),
    "dyspec": (2, "^", "-"),
    "k_seq": (0, "v", ":"),
    "target_sample": (6, "o", "--"),
    "ssd": (2, "8", "--"),
    "tsd": (5, "v", "-."),
    "gsd": (4, "p", "-"),
    "prompt_lookup_tree": (2, "*", ":"),
    "suffix_decoding": (1, "H", ":"),
}
"""What methods, and rules where these are compared, look like in every figure; no two share colour and line."""
_OTHERS = (("x", "-."), ("+", (0, (1, 1))), ("1", (0, (5, 1))), ("2", (0, (3, 1, 1, 1))))
"""Markers and lines of the methods that are not among them, and of a method's second line."""
GREY = "#666666"
_PANEL = (5.4, 3.7)
_DPI = 150
_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.facecolor": "white",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.8,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
}

styled = matplotlib.rc_context(_RC)
"""Decorator of functions that draw."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure, and the runs whose rows it shows."""

    name: str
    title: str
    canvas: Canvas
    runs: tuple[str, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write `<name>.png` (150 dpi) and `<name>.pdf`; both name title and runs in their metadata."""
        png, pdf = (folder / f"{self.name}.{suffix}" for suffix in ("png", "pdf"))
        runs = ",".join(dict.fromkeys(self.runs))
        if all(axes.get_aspect() == "auto" for axes in self.canvas.axes):
            self.canvas.draw_without_rendering()  # which ticks there are depends on the layout, and the layout on them
        with replacing(png) as file:
            self.canvas.savefig(file, format="png", dpi=_DPI, metadata={"Title": self.title, "run_ids": runs})
        self.canvas.set_layout_engine("none")  # the PDF's is the PNG's
        about = {"Title": self.title, "Keywords": f"run_ids={runs}", "CreationDate": None}
        with replacing(pdf) as file:
            self.canvas.savefig(file, format="pdf", metadata=about)
        return [png, pdf]


def panels(
    title: str, setting: str, count: int = 1, *, columns: int = 2, panel: tuple[float, float] = _PANEL
) -> tuple[Canvas, list[Axes]]:
    """A canvas with `count` panels, at most `columns` in a row, under the title and the words for the setting."""
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    width, height = panel[0] * columns, panel[1] * rows
    lines = [line for text in (title, setting) for line in textwrap.wrap(text, int(width * 13))]
    canvas = Canvas(figsize=(width, height + 0.18 * len(lines)), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[count:]:
        spare.remove()
    canvas.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
    return canvas, axes[:count]


@styled
def drawn(
    name: str,
    title: str,
    setting: str,
    draw: Callable[..., None],
    shown: Iterable[Sequence[Any]],
    runs: Iterable[str],
    *,
    aside: str = "",
    **look: Any,
) -> Figure:
    """A figure with a panel for each of `shown`, whose items `draw` gets; `aside` stands in the picture alone."""
    items = list(shown)
    canvas, axes = panels(title, setting + aside, len(items), **look)
    for axis, one in zip(axes, items, strict=True):
        draw(axis, *one)
    same_scale(canvas)
    return Figure(name, f"{title} ({setting})", canvas, tuple(runs))


def look(index: int) -> dict[str, Any]:
    """The colour and the marker of an index."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def of_method(method: str) -> dict[str, Any]:
    """The colour, the marker and the line of a method; of one that is not known here by its name, so that they stay."""
    place = crc32(method.encode())
    colour, marker, line = METHODS.get(method) or (place % len(COLOURS), *_OTHERS[place % len(_OTHERS)])
    return {"color": COLOURS[colour], "marker": marker, "linestyle": line}


def of_methods(methods: Sequence[str]) -> list[dict[str, Any]]:
    """The looks of lines by their methods: its own for the first of a method, others for those that follow."""
    own = {method: of_method(method) for method in methods}
    taken = {look["color"] for look in own.values()}
    rest = cycle(product(_OTHERS, [colour for colour in COLOURS if colour not in taken] or COLOURS))
    return [
        own[method]
        if method not in methods[:place]
        else dict(zip(("marker", "linestyle", "color"), (*(more := next(rest))[0], more[1]), strict=True))
        for place, method in enumerate(methods)
    ]


def same_scale(canvas: Canvas) -> None:
    """One scale for each quantity: the panels of a figure whose axes have the same label have the same limits.

    Square maps have axes of their data.
    """
    for axes in canvas.axes:
        _cut(axes)
    for side in ("x", "y"):
        shared: dict[tuple[str, str], list[Axes]] = {}
        for axes in canvas.axes:
            axis = axes.xaxis if side == "x" else axes.yaxis
            square = axes.get_aspect() == 1  # a map whose sides are compared with each other
            if axes.get_label() != "<colorbar>" and axis.get_label_text() and not square:
                shared.setdefault((axis.get_label_text(), axis.get_scale()), []).append(axes)
        for group in shared.values():
            one_scale(group, side)
    shades: dict[str, list[QuadMesh]] = {}
    for mesh in (one for axes in canvas.axes for one in axes.collections if isinstance(one, QuadMesh) and one.colorbar):
        bar: Any = mesh.colorbar
        shades.setdefault(bar.ax.get_ylabel(), []).append(mesh)
    for meshes in shades.values():
        low, high = (pick(mesh.get_clim()[end] for mesh in meshes) for end, pick in enumerate((min, max)))
        for mesh in meshes:
            mesh.set_clim(low, high)


def _cut(axes: Axes) -> None:
    """Let intervals of a linear axis end at `CUT` times the highest value, so that they press no line flat."""
    values = [line.get_ydata() for line in axes.lines if line.get_marker() not in ("None", "_")]
    highest = np.nanmax(np.concatenate(values).astype(float), initial=0) if values else 0
    if axes.get_yscale() == "linear" and 0 < CUT * highest < axes.get_ylim()[1]:
        axes.set_ylim(top=CUT * highest)


def one_scale(panels: Sequence[Axes], side: str) -> None:
    """The widest limits of these axes for all of them; axes that run downwards are left as they are."""
    lows, highs = zip(*(getattr(axes, f"get_{side}lim")() for axes in panels), strict=True)
    if all(low < high for low, high in zip(lows, highs, strict=True)):
        for axes in panels:
            getattr(axes, f"set_{side}lim")(min(lows), max(highs))


def band(axes: Axes, x: Sequence[float], values: Iterable[Interval], index: int, **line: Any) -> None:
    """A line with markers and its 95% intervals, in the colour and marker of its index."""
    intervals, style = list(values), look(index) | line
    axes.plot(x, [value.value for value in intervals], **style)
    low, high = ([value.ends[end] for value in intervals] for end in (0, 1))
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.vlines(x, low, high, color=style["color"], alpha=0.6, linewidth=1)


def points(axes: Axes, x: Sequence[float], values: Iterable[Interval], index: int, **marker: Any) -> None:
    """Markers with their 95% intervals and no line, in the colour and marker of their index."""
    intervals, style = list(values), look(index) | marker
    axes.plot(x, [value.value for value in intervals], **style | {"linestyle": "none"})
    low, high = ([value.ends[end] for value in intervals] for end in (0, 1))
    axes.vlines(x, low, high, color=style["color"], linewidth=1)


def bars(
    axes: Axes, places: Iterable[float], values: Iterable[Interval], index: int, of: int, *, width: float, **bar: Any
) -> list[float]:
    """Bars with their 95% intervals, at every place the one of this index among `of` side by side; where they stand."""
    intervals, one = list(values), width / of
    x = [place - width / 2 + (index + 0.5) * one for place in places]
    middle = [value.value for value in intervals]
    axes.bar(x, middle, one * 0.92, **bar)
    reach = np.array([[abs(value.value - end) for end in value.ends] for value in intervals]).T
    axes.errorbar(x, middle, yerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    return x


def pie(axes: Axes, title: str, times: Mapping[str, float], colours: Iterable[int], beside: Mapping[str, str]) -> None:
    """The parts of a time in milliseconds, by name, in these colours; the title ends with the whole.

    `beside` has words that stand behind the share of a part.
    """
    total = sum(times.values())
    labels = [f"{part}: {time:.2f} ms ({time / total:.1%}{beside.get(part, '')})" for part, time in times.items()]
    look: dict[str, Any] = {
        "startangle": 90,
        "counterclock": False,
        "wedgeprops": {"edgecolor": "white", "linewidth": 1},
    }
    wedges = axes.pie([time / total for time in times.values()], colors=[COLOURS[one] for one in colours], **look)[0]
    axes.set(title=f"{title}: {total:.1f} ms a step", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    axes.legend(wedges, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0))


def powers_of_two(axes: Axes, sizes: Iterable[float]) -> None:
    """A logarithmic x axis with a tick at every power of two that the sizes span."""
    exponents = [math.log2(size) for size in sizes]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**power for power in range(low, high + 1)])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(2 ** (min(exponents) - 0.3), 2 ** (max(exponents) + 0.3))


def few_log_ticks(axes: Axes) -> None:
    """A logarithmic y axis with a label at 1, 1.5, 2, 3, 5 and 7 of every power of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7), numticks=12))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below_all(canvas: Canvas, handles: Sequence[Any], columns: int) -> None:
    """A figure's legend under all of its panels, in at most so many columns, and in as many as its width takes."""
    for number in range(columns, 0, -1):
        legend = canvas.legend(handles=handles, loc="outside lower center", ncols=number, handlelength=3.2)
        if number == 1 or legend.get_window_extent().width <= canvas.bbox.width:
            return
        legend.remove()


def legend_below(axes: Axes, columns: int = 2, **given: Any) -> None:
    """The legend under the x axis, where it hides nothing; `handles` may name what is in it."""
    below = (0.5, -0.6 / (axes.bbox.height / axes.figure.dpi))
    axes.legend(loc="upper center", bbox_to_anchor=below, ncols=columns, **given)
