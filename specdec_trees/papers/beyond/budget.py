"""All lossless drafters at equal budget: MAL and speedup against the measured tree size, as a figure and a table."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from specdec_trees.artifacts import draw, frame, noise, notes, style, tables
from specdec_trees.artifacts.definitions import differing, method_label
from specdec_trees.artifacts.metrics import MAL, MEAN_SIZE, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.artifacts.ties import BEST, TIED
from specdec_trees.papers.beyond.by_speedup import CONTROLLED
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples

BY_SIZE = "MAL and speedup against tree size"
TITLE = f"All drafters at equal budget: {BY_SIZE}"
SIZE = replace(MEAN_SIZE, means="drafted nodes a step that the target read, root excluded, mean over steps")
METRICS = (MAL, CONTROLLED)
ROWS = ("place", "temperature", "words", "label")
HEADERS = {"place": "Dataset", "words": "Budget"}
MEANS = {"words": "the most nodes a step that the method may draft for the target, root excluded"}
MARKS = (
    "Marked among the methods of one dataset, temperature and budget. A budget is an upper bound: what smaller trees "
    "leave of it is seen in the column nodes and on the figure's axis."
)
HOLLOW = "hollow: times too noisy to rank"
UNRANKED = "Times rank nothing, in no setting and at no budget, of {}: they are too noisy."
LEFT_OUT = (
    "Only rules that keep the target's distribution are compared. Not here: drafters without a size to set (EAGLE's 25 "
    "nodes, DySpec's threshold, Sequoia's hardware-aware tree, SSD), and target-initialised trees, which with one "
    "first token are accepted as MCSD's below it are, and with several are not lossless."
)
SIZES = ("n", "total", "verify_cap", "shape", "acceptance")
"""Parameters that say how large a drafter's trees are, or what shape they have at that size."""
ACROSS = 4
"""Settings side by side; others go below."""
APART = 0.4
"""Over how many doublings of the size the methods of a budget are spread sideways, so that intervals do not overlap."""
Looks = Mapping[str, Mapping[str, Any]]


def _conversations(run: Any) -> str:
    """How many MAL and the speedup are of."""
    counts = (len(sample.sums) for sample in (samples.mal(run.steps), run.gain))
    return " / ".join(dict.fromkeys(str(count) for count in counts if count))


CONVERSATIONS = Metric("conversations", "conversations", "how many the intervals are over", _conversations)


def at_equal_budget(name: str, results: Results) -> list[Output]:
    """The figure, and the table of all its points; raises NoResultsError where no tree method ended well."""
    loaded = frame.load(results)
    draw.drafting(frame.done(loaded))
    loaded, runs = _comparable(loaded)
    long = frame.measure(runs, (SIZE, *METRICS, CONVERSATIONS))
    drawn = long[long.groupby("block")["ok"].transform("any")]
    long = long.sort_values(["order", "asked"], kind="stable", na_position="first")
    rivals = long["asked"].fillna(long["run_id"]).rename("rivals")
    long = frame.rank(long.assign(rivals=rivals), ["block", "rivals"])
    figure = _figure(name, TITLE, notes.setting(runs), drawn)
    below = [*draw.below(loaded, runs), *_wins(long), MARKS, LEFT_OUT]
    shown = table(
        name, figure.title, long, ROWS, (SIZE, *METRICS, CONVERSATIONS), notes=below, headers=HEADERS, means=MEANS
    )
    noisy = sorted(runs.loc[runs["busy"].astype(bool), "pair"].unique())
    return [figure, replace(shown, warning=UNRANKED.format(", ".join(noisy)) if noisy else "")]


def by_size(name: str, finished: pd.DataFrame) -> list[Output]:
    """The figure alone, of whatever runs; nothing where no method was run at two sizes in one setting."""
    _, runs = _comparable(finished)
    sizes = runs[runs["method"] != AUTOREGRESSIVE].groupby(["block", "label"])["asked"].nunique()
    if not (sizes > 1).any():
        return []
    return [_figure(name, BY_SIZE, notes.setting(runs), frame.measure(runs, (SIZE, *METRICS)))]


def _comparable(loaded: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs with `busy` where their times rank nothing, and of these the lossless ones, `labelled`."""
    loaded = loaded.assign(busy=noise.unranked(loaded))
    return loaded, labelled(loaded[loaded["lossless"].astype(bool)])


def labelled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs by setting, the autoregressive first, then by method, `label` and budget.

    A run was given the budget `asked`, None if it has none, in words `words`; `place` are the words for its setting.
    """
    asked = [budget(run) for run in named_rows(runs)]
    runs = frame.put(runs, asked=asked, words=[str(size or tables.ABSENT) for size in asked], place=_places(runs))
    alike = runs.groupby(["block", "method"], sort=False)["params"].agg(list)
    runs = runs.assign(label=[_label(run, alike[run.block, run.method]) for run in named_rows(runs)])
    known = [AUTOREGRESSIVE, *style.METHODS]
    runs["rank"] = [known.index(method) if method in known else len(known) for method in runs["method"]]
    runs = runs.sort_values(["pair", "dataset", "temperature", "block"], kind="stable")
    runs["order"] = runs.groupby("block", sort=False).ngroup()
    return runs.sort_values(["order", "rank", "method", "label", "asked"], kind="stable", ignore_index=True)


def _label(run: Any, alike: list[dict[str, Any]]) -> str:
    """The method, and in what but its size it is not like its other runs of the setting."""
    apart = sorted((key, value) for key, value in differing(run.params, alike).items() if key not in SIZES)
    return ", ".join([method_label(run.method), *(f"{key}={value}" for key, value in apart)])


def budget(run: Any) -> int | None:
    """The size a run was given: n, EAGLE-2's total less its root, a graph's cap; else the largest tree it drew."""
    params = run.params
    if isinstance(params.get("total"), int):
        return int(params["total"]) - 1
    if isinstance(params.get("verify_cap"), int) and params.get("k") != 1:
        return int(params["verify_cap"])
    shape = params.get("shape")
    if run.method == "chain" and isinstance(shape, dict) and isinstance(shape.get("depth"), int):
        return int(shape["depth"])
    return None if run.size is None else int(run.size)


def _places(runs: pd.DataFrame) -> Iterator[str]:
    """The words for a setting among others: pair if there are several, dataset, and what differs but temperature."""
    several = runs["pair"].nunique() > 1
    for run in named_rows(runs):
        marks = [mark for mark in run.variant.split(", ") if not mark.startswith(("dataset ", "temperature "))]
        yield ", ".join(filter(None, [run.pair * several, run.dataset, *marks]))


def _wins(long: pd.DataFrame) -> Iterator[str]:
    """By budget and metric: in how many settings a method is the best, or tied with it."""
    first = long[long["mark"].isin([BEST, TIED]) & long["asked"].notna()]
    for size, rows in first.groupby("asked"):
        for metric in METRICS:
            own = rows[rows["metric"].isin([metric])]
            words = ", ".join(f"{label} {count}" for label, count in Counter(own["label"]).most_common())
            if words:
                yield (
                    f"Budget {size}, {metric.header}: best or tied, in how many of {own['block'].nunique()} settings: "
                    f"{words}."
                )


@style.styled
def _figure(name: str, title: str, words: str, long: pd.DataFrame) -> style.Figure:
    """Two panels for every setting: MAL, and below or beside it the speedup with the A/A control as a band around 1."""
    settings: list[pd.DataFrame | None] = [rows for _, rows in long.groupby("block", sort=False)]
    across, looks = min(ACROSS, len(settings)), _looks(long)
    columns = max(across, len(METRICS))
    settings += [None] * (-len(settings) % across)
    rows = [settings[start : start + across] for start in range(0, len(settings), across)]
    shown = [
        (setting, metric, looks, place == 0) for row in rows for metric in METRICS for place, setting in enumerate(row)
    ]
    ids = long.loc[long["ok"].astype(bool), "run_id"].unique()
    look: dict[str, Any] = {"aside": "; methods of one budget are set side by side", "columns": columns}
    figure = style.drawn(name, title, words, _panel, shown, ids, panel=(3.7, 3.1), **look)
    _legend(figure.canvas, looks, long)
    return figure


def _panel(axes: Axes, rows: pd.DataFrame | None, metric: Metric, looks: Looks, first: bool) -> None:
    """A metric of a setting; nothing where there is none."""
    if rows is None:
        axes.remove()
        return
    rows = rows[rows["metric"].isin([metric])]
    sized = rows[rows["ok"].astype(bool) & rows["asked"].notna() & (rows["method"] != AUTOREGRESSIVE)]
    _points(axes, sized[sized["interval"].notna()], looks, hollow=metric.timed and bool(rows["busy"].any()))
    if len(sized):
        style.powers_of_two(axes, sized["mean_size"])
    if metric.timed:
        _control(axes, rows)
    else:
        axes.set_title(textwrap.fill(_place(rows.iloc[0]), 42))
    axes.set(xlabel="drafted nodes a step (points side by side)", ylabel=f"{metric.header} (95% interval)")
    axes.yaxis.label.set_visible(first)


def _place(run: pd.Series) -> str:
    """The words for a setting with its temperature, which stands behind pair and dataset."""
    before, dataset, marks = run["place"].partition(run["dataset"])
    return f"{before}{dataset}, temperature {run['temperature']:g}{marks}"


def _points(axes: Axes, points: pd.DataFrame, looks: Looks, *, hollow: bool) -> None:
    """Each method's points, with their intervals as bars: bands of so many methods would hide each other.

    They are hollow, and no line leads from one to the next, where times rank nothing.
    """
    plain = {"markerfacecolor": "none", "linestyle": "none"} if hollow else {}
    points = points.sort_values(["asked", "mean_size"], kind="stable")
    for index, (label, look) in enumerate(looks.items()):
        own = points[points["label"] == label]
        x = own["mean_size"].astype(float) * 2 ** (APART * ((index + 0.5) / len(looks) - 0.5))
        low, high = ([one.ends[end] for one in own["interval"]] for end in (0, 1))
        axes.vlines(x, low, high, color=look["color"], linewidth=1)
        axes.plot(x, own["value"].astype(float), **{**look, **plain})


def _control(axes: Axes, rows: pd.DataFrame) -> None:
    """A line at speedup 1, and the A/A interval around it, if it says something, which does not stretch the axis."""
    axes.axhline(1, color=style.GREY, linewidth=1, zorder=0.6)
    limits, against = axes.get_ylim(), noise.itself(rows)
    if against is not None and not rows["busy"].any():
        axes.axhspan(against.low, against.high, color=style.GREY, alpha=0.25, linewidth=0, zorder=0.5)
    axes.set_ylim(limits)


def _looks(long: pd.DataFrame) -> Looks:
    """Colour, marker and line of every label: the method's own for the first of its labels."""
    drafted = long[long["method"] != AUTOREGRESSIVE].drop_duplicates("label")
    return dict(zip(drafted["label"], style.of_methods([*drafted["method"]]), strict=True))


def _legend(canvas: Canvas, looks: Looks, long: pd.DataFrame) -> None:
    handles: list[Any] = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    busy = long["busy"].astype(bool)
    if noise.itself(long[long["metric"].isin([CONTROLLED]) & ~busy]) is not None:
        words = "autoregressive against itself (A/A, 95%)"
        handles.append(Patch(facecolor=style.GREY, alpha=0.35, linewidth=0, label=words))
    if busy.any():
        unfilled: dict[str, Any] = {"marker": "o", "color": style.GREY, "markerfacecolor": "none", "linestyle": "none"}
        handles.append(Line2D([], [], label=HOLLOW, **unfilled))
    style.legend_below_all(canvas, handles, max(2, min(6, int(canvas.get_figwidth() / 1.9))))
