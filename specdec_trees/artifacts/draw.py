"""Figures of the long frame: curves over what is swept, and a panel per run.

`lines` puts runs into lines, `specdec_trees.artifacts.frame.measure` gives them values, `curves` draws these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import frame, notes, style
from specdec_trees.artifacts.definitions import method_label
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import metrics

MARKED = "Marked among the lines of a pair at one point."
OPEN: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white"}
STAR: dict[str, Any] = {"color": "black", "marker": "*", "markersize": 9, "linestyle": ""}
ACROSS: dict[str, Any] = {"color": style.GREY, "linestyle": "--", "linewidth": 1}
"""The looks of a second metric, of a published point, and of a line across."""
UNRANKED = "no lines: times too noisy to rank"
RUN_ROWS = ("setting", "name")
LINE_ROWS = ("setting", "line")
"""The columns that say in a table which run or line a row is of."""
Drawing = tuple[Callable[..., object], *tuple[Metric, ...]]
"""What is called with the axes, the rows of a block and these metrics."""
Marks = Iterable[Mapping[str, Any]]
"""The arguments of `mark`, each with the `block` in whose first panel it stands."""


def lines(runs: pd.DataFrame, swept: str, values: Iterable[float | None] | None = None) -> pd.DataFrame:
    """The drafting runs in lines along a parameter of their drafters, or along `values`, one for each run.

    Runs of a block that differ in nothing else are one `curve`; `line` tells it from the others of its block. A run
    stands at `x`, in words `point`. NoResultsError where nothing is swept.
    """
    x = [params.get(swept) for params in runs["params"]] if values is None else values
    pairs = zip(runs["method"], runs["params"], strict=True)
    fixed = [{"method": method} | {key: params[key] for key in params if key != swept} for method, params in pairs]
    runs = frame.put(runs, x=x, fixed=[json.dumps(one, sort_keys=True) for one in fixed])
    runs = runs[(runs["method"] != AUTOREGRESSIVE) & runs["x"].notna()]
    if runs.empty:
        raise NoResultsError(f"no run sweeps the {swept}")
    labels = pd.concat([_labels(texts) for _, texts in runs.groupby("block")["fixed"]])
    curve = runs.groupby(["block", "fixed"], sort=False).ngroup()
    runs = runs.assign(x=runs["x"].astype(float), curve=curve, line=labels)
    return runs.assign(point=runs["x"].map("{:g}".format)).sort_values(["curve", "x"], kind="stable")


def _labels(texts: pd.Series) -> pd.Series:
    """Each line of a block by its method, and by the parameters in which the lines of one method are not alike."""
    parts = {text: json.loads(text) for text in texts.unique()}
    keys = dict.fromkeys(key for line in parts.values() for key in line if key != "method")
    alike = [(a, b) for a in parts.values() for b in parts.values() if a["method"] == b["method"]]
    differ = [key for key in keys if any(a.get(key) != b.get(key) for a, b in alike)]
    words = {text: [_argument(key, line[key]) for key in differ if line.get(key)] for text, line in parts.items()}
    return texts.map(lambda text: ", ".join([method_label(parts[text]["method"]), *words[text]]))


def _argument(name: str, value: Any) -> str:
    """A parameter as a label can hold it: a switch by its name, of a list, such as an acceptance vector, its start."""
    if value is True:
        return name.replace("_", " ")
    if not isinstance(value, list):
        return f"{name}={value}"
    return f"{name}=[{', '.join(f'{item:.3g}' for item in value[:3])}{', …' if len(value) > 3 else ''}]"


def drafting(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of other methods than autoregressive decoding; NoResultsError without any."""
    runs = runs[runs["method"] != AUTOREGRESSIVE]
    if runs.empty:
        raise NoResultsError("no run but autoregressive ones")
    return runs


def decoded(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of which some step was decoded, not replayed, and has times; NoResultsError without any."""
    runs = runs[[len(metrics.timed(steps)) > 0 for steps in runs["steps"]]]
    if runs.empty:
        raise NoResultsError("every run was replayed, and has no times")
    return runs


def repeated(runs: pd.DataFrame, **values: Sequence[Any]) -> pd.DataFrame:
    """Each run once for every one of these values."""
    times = len(next(iter(values.values())))
    rows = runs.loc[runs.index.repeat(times)].reset_index(drop=True)
    return frame.put(rows, **{name: [*column] * len(runs) for name, column in values.items()})


def curves(
    name: str,
    words: tuple[str, str, str],
    long: pd.DataFrame,
    panels: Sequence[Sequence[Drawing]],
    marks: Marks = (),
    *,
    columns: int = 2,
    across: int = 2,
    **look: Any,
) -> style.Figure:
    """A panel for each block of the long frame and each of `panels`.

    `words` are the title, the setting and what stands below the x axis; `columns` are those of the legend, `across` the
    panels side by side, and `look` is the canvas's.
    """
    title, setting, label = words
    marks = [*marks]
    shown = [
        (rows, label, drawings, [one for one in marks if one["block"] == block and drawings is panels[0]], columns)
        for block, rows in long.groupby("block", sort=False)
        for drawings in panels
    ]
    return style.drawn(name, title, setting, _panel, shown, dict.fromkeys(long["run_id"]), columns=across, **look)


def _panel(axes: Axes, rows: pd.DataFrame, label: str, drawings: Sequence[Drawing], marks: Marks, columns: int) -> None:
    axes.set(title=rows["setting"].iloc[0], xlabel=label)
    for draw, *shown in drawings:
        draw(axes, rows, *shown)
    for one in marks:
        mark(axes, **{key: value for key, value in one.items() if key != "block"})
    if axes.get_legend_handles_labels()[1]:
        style.legend_below(axes, columns=columns)
    else:
        axes.remove()  # nothing has a value


def mark(axes: Axes, words: str, x: float | None = None, y: float | None = None, **look: Any) -> None:
    """What a paper says of a curve: a star at (x, y), else a line across at x or at y."""
    if x is not None and y is not None:
        axes.plot(x, y, **STAR | look, label=words)
    elif x is not None:
        axes.axvline(x, **ACROSS | look, label=words)
    elif y is not None:
        axes.axhline(y, **ACROSS | look, label=words)


def curve(axes: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """The lines of a metric with their intervals; points alone where times rank nothing."""
    noisy = metric.timed and bool(rows["busy"].astype(bool).any())
    for label, points, look in _of(rows, metric):
        _band(axes, points, label=label, **look | ({"linestyle": ""} if noisy else {}))
    if noisy:
        axes.plot([], [], linestyle="none", label=UNRANKED)
    axes.set_ylabel(f"{metric.header} (95% interval)")


def bare(axes: Axes, rows: pd.DataFrame, metric: Metric) -> None:
    """Lines of values alone, dashed with open markers; one entry in the legend for all."""
    for _, points, look in _of(rows, metric):
        axes.plot(points["x"], points["value"].astype(float), **look | OPEN)
    axes.plot([], [], color=style.GREY, marker="o", label=metric.header, **OPEN)


def pair(axes: Axes, rows: pd.DataFrame, solid: Metric, dashed: Metric) -> None:
    """Two metrics of each line with their intervals, the second one dashed with open markers."""
    for (label, points, look), (_, others, _) in zip(_of(rows, solid), _of(rows, dashed), strict=True):
        _band(axes, points, label=f"{solid.header}, {label}", **look | {"linestyle": "-"})
        _band(axes, others, label=f"{dashed.header}, {label}", **look | OPEN)
    axes.set_ylabel(f"{solid.header.partition('_')[0]} (95% interval)")


def twin(axes: Axes, rows: pd.DataFrame, left: Metric, right: Metric) -> Axes:
    """Two metrics, one on each axis, in one colour each; lines differ in their markers. The right axis."""
    other = axes.twinx()
    other.grid(visible=False)
    other.spines["right"].set_visible(True)
    sides = [
        (axes, left, "left", style.COLOURS[0], {"linestyle": "-"}),
        (other, right, "right", style.COLOURS[1], OPEN),
    ]
    for side, metric, _, colour, dash in sides:
        side.set_ylabel(f"{metric.header} (95% interval)", color=colour)
        for _, points, look in _of(rows, metric):
            _band(side, points, **look | {"color": colour} | dash)
    for label, _, look in _of(rows, left):
        for _, metric, where, colour, dash in sides:
            axes.plot([], [], label=f"{metric.header} ({where}), {label}", **look | {"color": colour} | dash)
    return other


def _of(rows: pd.DataFrame, metric: Metric) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """The lines of a metric: words, points and look."""
    parts = [points for _, points in rows[rows["metric"].isin([metric])].groupby("curve", sort=False)]
    looks = style.of_methods([points["method"].iloc[0] for points in parts])
    yield from zip((points["line"].iloc[0] for points in parts), parts, looks, strict=True)


def _band(axes: Axes, points: pd.DataFrame, **look: Any) -> None:
    known = points[points["interval"].notna()]
    if len(known):
        style.band(axes, known["x"].tolist(), known["interval"], 0, **look)


def per_run(
    name: str, words: tuple[str, str], draw: Callable[[Axes, Any], None], runs: pd.DataFrame, most: int = 2, **look: Any
) -> style.Figure:
    """A panel for each run, `most` side by side but never more than two of up to four; `words`: title and setting."""
    panels, columns = [(run,) for run in named_rows(runs)], most if len(runs) > 4 else min(most, 2)
    return style.drawn(name, *words, draw, panels, runs["run_id"], columns=columns, **look)


def ranked(long: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The frame with marks on the best of the lines of a block at each `x`, of this metric alone."""
    return frame.rank(long, ["block", "x"], long["metric"].isin([metric]))


def below(loaded: pd.DataFrame, runs: pd.DataFrame, remarks: Iterable[str] = (), **given: Any) -> list[str]:
    """What was run in the blocks of these runs, which `loaded` has whole, and what an artifact remarks."""
    return [*notes.of_blocks(loaded[loaded["block"].isin(runs["block"])], **given), *remarks]
