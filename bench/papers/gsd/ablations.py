"""GSD, Figure 5: acceptance rate and drafted tokens against a parameter of the token graph, one panel an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from bench import published
from bench.artifacts import definitions, style, tables
from bench.artifacts.blocks import Block, measured_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.series import Series, series
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.gsd import settings
from bench.papers.gsd.twin import Quantity, twin
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval

Found = list[tuple[Block, list[Series]]]


def per_sample(column: str) -> Callable[[Block, Run], Interval]:
    """The mean over a run's samples of a column of `graph_metrics.samples`, with its interval."""

    def of(block: Block, run: Run) -> Interval:
        return intervals.ratio_of_sums(graph_metrics.samples(run.steps).dropna(subset=[column]), column)

    return of


RATE = Quantity("acceptance rate", per_sample("acceptance_rate"))
DRAFTED = Quantity("drafted tokens", per_sample("drafted"))


@dataclass(frozen=True, slots=True)
class Ablation:
    """One of the panels: its letter in the paper, the swept parameter of the drafter, and what it is."""

    letter: str
    swept: str
    meaning: str

    @property
    def title(self) -> str:
        """What stands above the panel."""
        return f"GSD Figure 5{self.letter}: acceptance rate and drafted tokens against {self.swept}"


ABLATIONS: Mapping[str, Ablation] = {
    "fig5a": Ablation("a", "k", "most children of a node"),
    "fig5b": Ablation("b", "tau", "length of the n-gram at whose recurrence nodes are merged"),
    "fig5c": Ablation("c", "theta_prob", "draft probability below which a node is a leaf"),
    "fig5d": Ablation("d", "theta_sib", "share of the best sibling below which a node is a leaf"),
}
_MEASURES = {
    RATE.name: (RATE.of, 3),
    "accepted": (per_sample("accepted_per_step"), 2),
    DRAFTED.name: (DRAFTED.of, 1),
    "merge edges": (per_sample("aliases"), 1),
    "verified": (per_sample("verified"), 1),
}
LEGEND = {
    RATE.name: definitions.ACCEPTANCE_RATE,
    "accepted": "accepted drafted tokens / decoding steps, mean over samples; in brackets the 95% interval",
    DRAFTED.name: definitions.DRAFTED_TOKENS,
    "merge edges": definitions.ALIASES,
    "verified": definitions.VERIFIED,
    "capped": definitions.CAPPED,
    "MAL": definitions.MAL,
}
_STAR: Any = {
    "marker": "*",
    "linestyle": "none",
    "color": style.COLOURS[1],
    "markeredgecolor": "black",
    "markersize": 11,
}


@style.styled
def ablation(name: str, results: Results) -> list[Output]:
    """One panel per block, a line per method on each of the two axes; the right one is logarithmic."""
    panel = ABLATIONS[name]
    every = map(settings.of_main_pair, measured_blocks(results))
    found = [(block, lines) for block in every if (lines := _lines(block, panel.swept))]
    if not found:
        raise NoResultsError(f"no run of a token graph sweeps {panel.swept}")
    words = setting(block for block, _ in found)
    canvas, axes = style.panels(panel.title, words, len(found))
    for axis, (block, lines) in zip(axes, found, strict=True):
        _panel(axis, block, lines, panel)
    table = _table(name, f"{panel.title} ({words})", found, panel)
    return [style.Figure(name, table.title, canvas, table.runs), table]


def _lines(block: Block, swept: str) -> list[Series]:
    """The lines of the runs that drafted token graphs."""
    graphs = [run["run_id"] for run in block.ok if run.steps["num_live"].notna().any()]
    return [line for line in series(block, swept) if all(run["run_id"] in graphs for run in line.runs)]


def _panel(axes: Axes, block: Block, lines: Sequence[Series], panel: Ablation) -> None:
    right = twin(axes, block, lines, RATE, DRAFTED)
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7), numticks=12))
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter(NullFormatter())
    right.set_ylabel(f"{DRAFTED.name}, log (95% interval)")
    axes.set(title=block.name, xlabel=f"{panel.swept}: {panel.meaning}")
    axes.set_xticks(sorted({x for line in lines for x in line.x}))
    for k, tokens in _published(panel):
        words = f"paper's text: TSD drafts more than {tokens:g} (right) at k = {k:g}"
        right.plot(k, tokens, **_STAR)
        axes.plot([], [], label=words, **_STAR)  # stands in the legend
    style.legend_below(axes, columns=1)


def _published(panel: Ablation) -> Iterator[tuple[float, float]]:
    """What the paper's text says of its curves: k, and how many tokens TSD drafts there."""
    if panel.swept == "k":
        for fact in tables.named_rows(published.find("gsd", "fig5", metric="drafted_tokens")):
            yield float(fact.params.removeprefix("k=")), fact.value


def _table(name: str, title: str, found: Found, panel: Ablation) -> Table:
    points = [
        (block, line.label, x, run)
        for block, lines in found
        for line in lines
        for x, run in zip(line.x, line.runs, strict=True)
    ]
    rows = [_row(*point, panel) for point in points]
    said = draft_temperatures(run for _, _, _, run in points)
    notes = (*(scale(block) for block, _ in found), *_notes(panel), *said)
    legend = LEGEND | {panel.swept: panel.meaning}
    frame = tables.frame(rows, ("Pair", "Line", panel.swept, *_MEASURES, "capped", "MAL"))
    return Table(name, title, frame, notes, legend, tuple(run.run_id for _, _, _, run in points))


def _row(block: Block, label: str, x: float, run: Run, panel: Ablation) -> dict[str, str]:
    steps = run.steps
    row = {"Pair": block.name, "Line": label, panel.swept: f"{x:g}"}
    row |= {column: tables.interval(of(block, run), digits) for column, (of, digits) in _MEASURES.items()}
    row["capped"] = tables.percent(graph_metrics.capped_share(steps))
    return row | {"MAL": tables.interval(run.mal)}


def _notes(panel: Ablation) -> Iterator[str]:
    yield "The paper states neither models nor data of this figure, and prints its values in the figure alone."
    for k, tokens in _published(panel):
        yield f"Its text: at k = {k:g} TSD's tree has more than {tokens:g} tokens."
        yield "TSD prunes no siblings, and (ii) does not count those that GSD prunes; Table 1 has TSD with pruning too."
