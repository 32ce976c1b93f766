"""Improved MCSD, Figure 6: acceptance rate and speed of fork-shaped trees against their width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes

from bench import published
from bench.artifacts import control, definitions, style, tables, ties
from bench.artifacts.metric import SPEEDS, cells, headers, legend, lossless_words
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.artifacts.ties import Entry
from bench.artifacts.wording import scale, setting
from bench.papers.improving_mcsd.remarks import NOT_LOSSLESS, left_out
from bench.papers.improving_mcsd.settings import PAPER
from bench.papers.improving_mcsd.widths import Line, Point, band, lines, nodes, published_alpha, width_axis
from bench.results.store import Results
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Figure 6: acceptance rate and speed against the width of dynamic trees"
Of = Callable[[Point], Interval | None]
COLUMNS = (
    *("Pair", "Line", "W", "nodes", "alpha", "alpha published", *headers(SPEEDS), "speedup", "MAL", "draft forwards"),
    "lossless",
)
LEGEND = {
    "Line": "what tells it from others of this pair",
    "W": "sequences of the tree, each below a first token from the target's law where the tree starts from it",
    "nodes": "nodes that the target verifies, first tokens counted; mean over steps",
    "alpha": definitions.ALPHA,
    "alpha published": "the paper's Table 4 for this width, depth, dataset and temperature",
    **legend(SPEEDS),
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    "MAL": definitions.MAL,
    "draft forwards": "per decoding step",
    "lossless": definitions.LOSSLESS,
}
_RANKED = {"tokens_per_s": "tokens/s", "speedup": "speedup", "mal": "MAL"}


def _alpha(point: Point) -> Interval | None:
    return point.alpha


def _tokens_per_s(point: Point) -> Interval | None:
    return point.tokens_per_s


def _speedup(point: Point) -> Interval | None:
    return point.speedup


_PANELS: tuple[tuple[str, Of, str], ...] = (
    ("alpha", _alpha, "acceptance"),
    ("tokens/s", _tokens_per_s, "speed"),
    ("speedup", _speedup, "speed"),
)
"""What a panel shows, and what the paper's text says of it."""


@style.styled
def by_width(name: str, results: Results) -> list[Output]:
    """Three panels, alpha, tokens/s and speedup, a line per pair; a table of all points."""
    found = [line for line in lines(results) if any(point.ok for point in line.points)]
    if not found:
        raise NoResultsError("no run of a dynamic tree has a width")
    words = setting(line.block for line in found)
    canvas, axes = style.panels(TITLE, words, len(_PANELS), columns=3, panel=(4.6, 4.6))
    for axis, panel in zip(axes, _PANELS, strict=True):
        _draw(axis, found, *panel)
    frame = tables.frame([row for line in found for row in _rows(line)], COLUMNS)
    shown = tuple(point.run_id for line in found for point in line.points)
    blocks = list({id(line.block): line.block for line in found}.values())
    notes = (*dict.fromkeys(scale(line.block) for line in found), *_notes(found), *control.notes(blocks))
    notes += (*ties.note(frame), *left_out(results, shown))
    table = Table(name, f"{TITLE} ({words})", frame, notes, LEGEND, shown)
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _draw(axes: Axes, found: Sequence[Line], title: str, of: Of, said: str) -> None:
    for index, line in enumerate(found):
        band(axes, line, of, index, label=", ".join(filter(None, (line.block.name, line.label))))
        if of is _alpha:
            _stars(axes, line, index)
    widest = max(point.width for line in found for point in line.points)
    for place, (width, words) in enumerate(fact for fact in _papers_widths(said) if fact[0] <= widest):
        axes.axvline(width, color=style.GREY, linestyle=("--", ":")[place], linewidth=1, label=words)
    if of is _speedup:
        axes.axhline(1, color="black", linewidth=1, label="autoregressive decoding")
    width_axis(axes, found, title=title, ylabel=f"{title} (95% interval)")
    style.legend_below(axes, columns=1)


def _stars(axes: Axes, line: Line, index: int) -> None:
    """The paper's alpha of these models."""
    for point in line.points:
        value = published_alpha(line, point)
        if value is not None:
            who = f"the paper's Table 4: {' + '.join(line.block.published_as or ())}"
            colour = style.COLOURS[index % len(style.COLOURS)]
            axes.plot(point.width, value, "*", color=colour, markeredgecolor="black", markersize=11, label=who)


def _papers_widths(said: str) -> Iterator[tuple[float, str]]:
    """What the paper's text says of its curves, all of them together."""
    facts = published.find(PAPER, "fig_text").set_index("metric")["value"]
    converges = facts[f"width_at_{said}_convergence"]
    yield converges, f"the paper's text: converges at W = {converges:g}"
    if said == "speed":
        yield facts["width_at_speed_drop"], f"the paper's text: drops at W = {facts['width_at_speed_drop']:g}"


def _rows(line: Line) -> list[dict[str, str]]:
    """A row per width."""
    rows = [_row(line, point) for point in line.points]
    runs = list(line.points)
    entries = {header: [ties.of(run, metric) for run in runs] for metric, header in _RANKED.items()}
    alphas = [Entry(point.alpha, point.alpha_sample, point.lossless) for point in line.points]
    ties.mark(rows, entries | {"alpha": alphas})
    return rows


def _row(line: Line, point: Point) -> dict[str, str]:
    run = point
    return {
        "Pair": line.block.name,
        "Line": line.label or tables.ABSENT,
        "W": str(point.width),
        "nodes": nodes(point),
        "alpha": tables.interval(point.alpha, 3) if point.ok else run.status,
        "alpha published": tables.number(published_alpha(line, point)),
        **cells(SPEEDS, run),
        "speedup": tables.interval(run.speedup),
        "MAL": tables.interval(run.mal),
        "draft forwards": tables.number(point.draft_forwards if point.ok else None, 1),
        "lossless": lossless_words(run),
    }


def _notes(found: Sequence[Line]) -> Iterator[str]:
    facts = published.find(PAPER, "fig_text").set_index("metric")["value"]
    alpha, speed, drop = (
        facts[f"width_at_{what}"] for what in ("acceptance_convergence", "speed_convergence", "speed_drop")
    )
    yield (
        f"The paper's text: alpha converges at W = {alpha:g}, speed at W = {speed:g}, and speed drops noticeably at "
        f"W = {drop:g}. It states neither dataset nor temperature, and the curves have no numbers."
    )
    yield NOT_LOSSLESS
    for line in found:
        name = ", ".join(filter(None, (line.block.name, line.label)))
        for what, of in (("alpha", _alpha), ("the speedup", _speedup)):
            if words := _level(line, of):
                yield f"{name}: {what} is largest at {words}."


def _level(line: Line, of: Of) -> str:
    """`W = 12 (0.74); the 95% intervals at W = 8, 10 and 14 meet that one`; nothing without two intervals."""
    every = [(width, value) for width, value in zip(*line.drawn(of), strict=True) if value.low == value.low]
    if len(every) < 2:
        return ""
    best, most = max(every, key=lambda point: point[1].value)
    level = [f"{width:g}" for width, value in every if width != best and value.high >= most.low]
    met = f"meet it at W = {', '.join(level)}" if level else "meet it nowhere else"
    return f"W = {best:g} ({tables.interval(most)}); other intervals {met}"
