"""Sequoia, Figures 1, 2 and 5a: tokens per step of tree structures against tree size, expected and measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import definitions, style, tables
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import scale, setting
from bench.papers.sequoia import vectors
from bench.papers.sequoia.bounds import limits
from bench.papers.sequoia.vectors import Vector
from bench.published import params_of
from bench.results.kept_rows import GrowthRow
from bench.results.roles import Role, columns
from bench.results.rows import RunRow
from bench.results.store import Results
from bench.statistics import samples
from bench.statistics.intervals import Interval

_SAME = [column for column in columns(RunRow, Role.SETTING, Role.LOADED) if column in GrowthRow.__dataclass_fields__]
"""What a vector's growth rows share with the runs that they are drawn with; what older rows lack is not known."""
_ROOM = 1.35  # a limit that far above all else is still drawn
DRAFTED = 31
"""Nodes of the trees that are drawn, root excluded."""


@dataclass(frozen=True, slots=True)
class Structure:
    """One structure: its name in growth rows, its label, and the method of its runs."""

    name: str
    label: str
    method: str
    any_k: bool = False  # whether its k is chosen anew for every size

    @property
    def look(self) -> dict[str, Any]:
        """The same in every figure."""
        return style.of_method(self.method)


SEQUOIA = Structure("sequoia", "Sequoia", "sequoia")
K_SEQUENCES = Structure("k_sequences", "k sequences", "k_sequences", any_k=True)
SIXTEEN = Structure("sixteen_sequences", "16 sequences", "sixteen_sequences")
SMALLEST = 16
"""A tree of 16 sequences has more nodes, its root counted."""
_OTHERS = (K_SEQUENCES, SIXTEEN)
"""What the gain of Sequoia's tree is told over."""
STRUCTURES = (
    SEQUOIA,
    K_SEQUENCES,
    Structure("k_ary", "k-ary tree", "k_ary", any_k=True),
    Structure("binary", "binary tree", "binary"),
    Structure("sequence", "sequence", "chain"),
    SIXTEEN,
)
_TREES = "Sequoia Figure 1 (right): tree structures of N = {} nodes, each at its best for the measured vector"
_HOW = "; lines: F(T), markers: MAL with 95% interval, dotted: limits for N → ∞ (Table 1)"
COLUMNS = ("Setting", "Structure", "Drafter", "N", "k", "levels", "F(T)", "MAL", "MAL - F(T)", "limit")
GAINS = ("gain predicted", "gain MAL", "gain over 16", "gain published")
LEGEND = {
    "N": definitions.NODES,
    "k": "how many sequences, or children a node: the best for F(T) at this N unless the drafter's shape fixes it",
    "levels": definitions.LEVELS,
    "F(T)": definitions.EXPECTED_TREE,
    "MAL": definitions.MAL,
    "MAL - F(T)": "0 if whether a child is accepted depended on its position alone, as F(T) assumes",
    "limit": "F(T) for N -> infinity at the best k (Table 1), p made non-increasing as for F(T)",
    "gain predicted": "F(T) of Sequoia's tree over that of the best k sequences of the same N: computed, so that there "
    "is no interval",
    "gain MAL": "MAL of Sequoia's tree over that of k sequences of the same N, paired over the conversations that both "
    "decoded; in brackets the 95% interval. Of several runs of one structure and size the one of most MAL is chosen "
    "before, which the interval does not know",
    "gain over 16": "the same over 16 sequences, which is what the paper's text has",
    "gain published": "the paper's text as a ratio, on average over 16 sequences of 512 tokens in all",
}


@dataclass(frozen=True)
class Panel:
    """One setting: a block of runs, the growth rows of an acceptance vector, or both."""

    block: Block | None
    growth: pd.DataFrame
    vector: Vector | None

    @property
    def name(self) -> str:
        """The words above the panel."""
        return (
            self.block.name
            if self.block
            else vectors.words(self.growth, ["pair", "dataset", "temperature", "verifier"])
        )

    @property
    def drawn(self) -> bool:
        """Whether there is anything to draw."""
        return len(self.growth) > 0 or (self.block is not None and self.block.ran)

    def grown(self, structure: Structure) -> dict[int, pd.Series]:
        """The growth rows of a structure by N, root counted, in its order."""
        rows = self.growth[self.growth["structure"] == structure.name].sort_values("n")
        return {int(row["n"]) + 1: row for _, row in rows.iterrows()}

    def runs(self, structure: Structure) -> list[Run]:
        """The runs of a structure by size, those that failed too; so few nodes as 16 and a root are no 16 sequences."""
        every = [run for run in (self.block.every if self.block else ()) if run.method == structure.method]
        fits = (run for run in every if structure is not SIXTEEN or run.nodes is None or run.nodes > SMALLEST)
        return sorted(fits, key=lambda run: run.nodes or 0)

    def measured(self, structure: Structure) -> list[tuple[int, Interval]]:
        """Size N and tokens per step of the runs that ended well."""
        return [(run.nodes, run.mal) for run in self.runs(structure) if run.nodes and run.mal]

    def promised(self, structure: Structure) -> list[tuple[float, float]]:
        """Size N and F(T) of the runs' own trees."""
        found = ((run.nodes, run.predicted("mal")) for run in self.runs(structure))
        return [(float(nodes), value) for nodes, value in found if nodes and value is not None]

    def best(self, structure: Structure, nodes: int) -> Run | None:
        """Of the runs of a structure at one size the one of most MAL; None where none ended well."""
        found = {run.mal.value: run for run in self.runs(structure) if run.mal and run.nodes == nodes}
        return found[max(found)] if found else None

    def expected(self, structure: Structure, nodes: int) -> float | None:
        """F(T) of a structure at one size; None where there is no growth row."""
        row = self.grown(structure).get(nodes)
        return None if row is None else float(row["expected_tokens"])

    def limit(self, structure: Structure) -> tuple[float, int]:
        """F(T) of a structure without end and its best k; nan for Sequoia, and where no vector was measured."""
        return (limits(self.vector.accepted) if self.vector else {}).get(structure.name, (math.nan, 0))

    def facts(self) -> pd.DataFrame:
        """What the paper's text says of Sequoia's gain with these models, prompts and temperature."""
        facts = gains_said()
        models = self.block.standing_in(facts).published_as if self.block else None
        first = self.block.first if self.block else self.growth.iloc[0]
        given = (*(models or ("", "")), first["dataset"], first["temperature"])
        return facts[(facts[["target", "draft", "dataset", "temperature"]] == list(given)).all(axis=1)]

    def pinned(self) -> list[tuple[float, int]]:
        """Gains in percent that the paper states for one size, with it."""
        facts = [(fact.value, params_of(fact.params)) for fact in tables.named_rows(self.facts())]
        return [(value, int(params["size"])) for value, params in facts if "size" in params]


def gains_said() -> pd.DataFrame:
    """What the paper's text says of Figure 5a, with the pair that Figures 5a and 5c have."""
    return published.find("sequoia", "fig_text", metric="tokens_per_step_gain")


def panels(results: Results, structures: Sequence[Structure]) -> list[Panel]:
    """A panel for every block with runs of the structures, then one for every vector that belongs to none of them.

    Raises NoResultsError where no run ended well and no vector was measured.
    """
    methods = [structure.method for structure in structures if structure.method]
    runs, rows = results.runs[results.runs["method"].isin(methods)], results.growth
    if rows.empty and not (runs["status"] == "ok").any():
        raise NoResultsError(f"no run of {', '.join(methods)} ended well and no acceptance vector was measured")
    measured = vectors.vectors(results) if len(results.acceptance) else []
    known = {vector.run_id: vector for vector in measured}
    found = [_of_block(block.standing_in(gains_said()), rows, known) for block in blocks(results, runs)]
    taken = {run_id for panel in found for run_id in panel.growth["run_id"]}
    others = rows[~rows["run_id"].isin(list(taken))].groupby("run_id", sort=False)
    return [*found, *(Panel(None, group, known.get(str(run_id))) for run_id, group in others)]


def _of_block(block: Block, rows: pd.DataFrame, known: Mapping[str, Vector]) -> Panel:
    """A block with the growth rows of its setting and draws; of several vectors the one of most positions."""
    same = (rows[_SAME].isna() | (rows[_SAME] == block.first[_SAME])).all(axis=1)
    same &= rows["draws"].isin(block.runs["draws"])
    candidates = {str(run_id): known.get(str(run_id)) for run_id in rows.loc[same, "run_id"].unique()}
    positions = {run_id: int(one.first["num_positions"]) if one else 0 for run_id, one in candidates.items()}
    best = max(candidates, key=lambda run_id: positions[run_id], default=None)
    return Panel(block, rows[rows["run_id"] == best], candidates.get(best) if best else None)


def _words(found: Sequence[Panel]) -> str:
    """The words of a title: those of the runs, and of vectors that belong to none."""
    measured = [panel.block for panel in found if panel.block]
    expected = [panel.growth for panel in found if not panel.block]
    alone = vectors.words(pd.concat(expected)) if expected else ""
    return f"{setting(measured)}; {alone} (expected alone)" if measured and alone else alone or setting(measured)


def fig1(name: str, results: Results) -> list[Output]:
    """Every structure, and what their trees look like in the first setting that has any."""
    outputs = _tokens_by_size(name, "Sequoia Figure 1: tokens per step against tree size, by structure", results)
    grown = [panel for panel in panels(results, STRUCTURES) if len(panel.growth)]
    return [*outputs, *(_trees(f"{name}_trees", grown[0]) if grown else [])]


def fig2(name: str, results: Results) -> list[Output]:
    """Every structure for several pairs."""
    return _tokens_by_size(name, "Sequoia Figure 2: tokens per step against tree size, by structure and pair", results)


def fig5a(name: str, results: Results) -> list[Output]:
    """Two structures, and what Sequoia's tree gains."""
    title = "Sequoia Figure 5a: tokens per step against tree size, Sequoia's tree and k sequences"
    return _tokens_by_size(name, title, results, gains=True)


def _tokens_by_size(name: str, title: str, results: Results, *, gains: bool = False) -> list[Output]:
    """One panel per setting: F(T) as lines, measured MAL as markers, the limits of Table 1 dotted; and all points."""
    structures = (SEQUOIA, K_SEQUENCES, SIXTEEN) if gains else STRUCTURES[:-1]
    found = panels(results, structures)
    drawn = [panel for panel in found if panel.drawn]
    words = _words(drawn)

    def draw(axes: Axes, panel: Panel) -> None:
        spans = [span for structure in structures for span in _draw(axes, panel, structure)]
        _legend(axes, panel, structures, highest=max(value for _, value in spans))
        if gains:
            _draw_published(axes, panel)
        axes.set(title=panel.name, xlabel="tree size N (root counted)", ylabel="tokens per step")
        style.powers_of_two(axes, [size for size, _ in spans])
        style.legend_below(axes)

    rows = [row for panel in found for structure in structures for row in _rows(panel, structure, gains)]
    frame = tables.frame([row for row, _ in rows], (*COLUMNS, *GAINS * gains)).fillna(ABSENT)
    notes = dict.fromkeys(note for panel in found for note in _notes(panel, gains))
    table = Table(name, f"{title} ({words})", frame, tuple(notes), LEGEND, tuple(run_id for _, run_id in rows))
    shown, runs = ((panel,) for panel in drawn), filter(None, table.runs)
    return [style.drawn(name, title, words, draw, shown, runs, aside=_HOW), table]


def _draw(axes: Axes, panel: Panel, structure: Structure) -> list[tuple[float, float]]:
    """The line and the markers of a structure; all of their (N, tokens per step)."""
    grown, look, measured = panel.grown(structure), structure.look, panel.measured(structure)
    computed = [(float(size), float(row["expected_tokens"])) for size, row in grown.items()]
    expected = computed or panel.promised(structure)
    sizes, values = [size for size, _ in measured], [mal for _, mal in measured]
    if expected:
        axes.plot(*zip(*expected, strict=True), **look | {"marker": ""})
        style.points(axes, sizes, values, 0, **look | {"linestyle": "none"})
    elif len(panel.growth):
        style.points(axes, sizes, values, 0, **look | {"linestyle": "none"})  # lines are of F(T), which is not known
    else:
        style.band(axes, sizes, values, 0, **look)
    return [*expected, *((size, mal.value) for size, mal in measured)]


def _legend(axes: Axes, panel: Panel, structures: Sequence[Structure], highest: float) -> None:
    """An entry for each structure that is drawn, with its limit, which is dotted where it is not far above the rest."""
    for structure in structures:
        measured = panel.measured(structure)
        if not (measured or panel.grown(structure)):
            continue
        value, k = panel.limit(structure)
        look = structure.look | ({} if measured else {"marker": ""})
        if value <= highest * _ROOM:
            axes.axhline(value, color=look["color"], linestyle=":", linewidth=1)
        best = f" at k={k}" if structure.any_k else ""
        words = f" (limit {value:.3g}{best})" if math.isfinite(value) else " (no limit)"
        axes.plot([], [], **look, label=structure.label + ("" if math.isnan(value) else words))


def _draw_published(axes: Axes, panel: Panel) -> None:
    """A star where Sequoia's tree would be, were it as far above our sequences, 16 if run, as the paper says."""
    for value, size in panel.pinned():
        every = [
            (structure, panel.best(structure, n)) for structure in (SIXTEEN, K_SEQUENCES) for n in (size, size + 1)
        ]
        best = [run.mal.value for _, run in every if run and run.mal]
        whose = next((structure.label for structure, run in every if run and run.mal), K_SEQUENCES.label)
        ours = [*best, *(tokens for n in (size, size + 1) if (tokens := panel.expected(K_SEQUENCES, n)))]
        if ours:
            words = f"{1 + value / 100:.2f} x our {whose} (paper)"
            axes.plot(size, ours[0] * (1 + value / 100), "*", color="black", markersize=9, label=words)


def _rows(panel: Panel, structure: Structure, gains: bool) -> Iterator[tuple[dict[str, str], str]]:
    """A row per size and run, and its run, in the order of N; runs whose size is not known come first.

    Sizes that were not run have F(T) alone, and the vector's run.
    """
    runs, grown, limit = panel.runs(structure), panel.grown(structure), tables.number(panel.limit(structure)[0])
    for nodes in sorted({*grown, *(run.nodes or 0 for run in runs)}):
        row = {"Setting": panel.name, "Structure": structure.label, "limit": limit, "N": str(nodes or ABSENT)}
        if gains and structure is SEQUOIA:
            row |= _gains(panel, nodes)
        of_size = [run for run in runs if (run.nodes or 0) == nodes]
        yield from ((row | _measured(run, grown.get(nodes)), run.run_id) for run in of_size)
        if not of_size:
            yield row | _expected(grown[nodes]), str(grown[nodes]["run_id"])


def _expected(row: pd.Series) -> dict[str, str]:
    levels, tokens = str(int(row["depth"]) + 1), tables.number(row["expected_tokens"])
    return {"k": tables.number(row["num_branches"], 0), "levels": levels, "F(T)": tokens}


def _measured(run: Run, grown: pd.Series | None) -> dict[str, str]:
    """A run; F(T) is that of its own tree, and of the growth row where it has the same k."""
    shape = run.params.get("shape")
    fixed = shape.get("num_sequences") if isinstance(shape, dict) else None  # None: left to the search, or no matter
    row = None if grown is None or fixed not in (None, grown["num_branches"]) else grown
    known = {"k": str(fixed or ABSENT)} if row is None else _expected(row)
    value = run.predicted("mal")
    if value is None and row is not None:
        value = row["expected_tokens"]
    return known | {
        "Drafter": run.name,
        "levels": str(run.levels or known.get("levels", ABSENT)),
        "F(T)": tables.number(value),
        "MAL": tables.interval(run.mal) if run.ok else run.status,
        "MAL - F(T)": tables.number(run.mal.value - value if run.mal and value is not None else None),
    }


def _gains(panel: Panel, nodes: int) -> dict[str, str]:
    """How many more tokens a step Sequoia's tree gives than k sequences of the same size, root counted."""
    printed = [1 + value / 100 for value, size in panel.pinned() if nodes in (size, size + 1)]
    expected = [panel.expected(structure, nodes) for structure in (SEQUOIA, K_SEQUENCES)]
    predicted = None if expected[0] is None or expected[1] is None else expected[0] / expected[1]
    runs = [panel.best(structure, nodes) for structure in (SEQUOIA, *_OTHERS)]
    own, *others = (run.sample("mal") if run else None for run in runs)
    of_mal = [tables.ratio(samples.paired_ratio(own, other)) for other in others]
    cells = (tables.number(predicted, 3), *of_mal, tables.number(printed[0] if printed else None))
    return dict(zip(GAINS, cells, strict=True))


def _notes(panel: Panel, gains: bool) -> Iterator[str]:
    if panel.block:
        yield scale(panel.block)
    if panel.vector:
        yield (
            f"Acceptance vector: {vectors.scale(panel.vector)} F(T) and the limits rest on it, and have its error "
            "(Table 1 has intervals): a measured point may lie above its limit."
        )
    for fact in tables.named_rows(panel.facts()) if gains else ():
        baseline = params_of(fact.params)["baseline"].replace("_", " ")
        yield (
            f"The paper's text on {fact.target} + {fact.draft}: {fact.value:g}% more tokens a step than "
            f"{baseline} ({fact.notes})."
        )


def _trees(name: str, panel: Panel) -> list[Output]:
    """What the structures look like at one size, a panel each; nothing where there are no trees of that size."""
    rows, words = panel.growth[panel.growth["n"] == DRAFTED], _words([panel])
    trees = {row["structure"]: row for _, row in rows.iterrows()}
    shown = [structure for structure in STRUCTURES if structure.name in trees]
    if not shown:
        return []
    title = _TREES.format(DRAFTED + 1)

    def draw(axes: Axes, structure: Structure) -> None:
        row = trees[structure.name]
        _tree(axes, list(row["parents"]), structure.look["color"])
        best = f", k = {row['num_branches']:g}" if structure.any_k else ""
        axes.set_title(f"{structure.label}{best}\nF(T) = {row['expected_tokens']:.2f}")

    each, runs = ((structure,) for structure in shown), rows["run_id"].unique()
    return [style.drawn(name, title, words, draw, each, runs, columns=len(shown), panel=(2.4, 3.2))]


def places(parents: Sequence[int]) -> list[tuple[float, int]]:
    """Where each node stands: leaves side by side, a parent over the middle of its children; and its depth."""
    children, leaves = defaultdict(list), count()
    for node, parent in enumerate(parents):
        children[parent].append(node)
    at: dict[int, tuple[float, int]] = {}

    def place(node: int, depth: int) -> None:
        for child in children[node]:
            place(child, depth + 1)
        below = [at[child][0] for child in children[node]]
        at[node] = ((below[0] + below[-1]) / 2 if below else float(next(leaves)), depth)

    place(0, 0)
    return [at[node] for node in range(len(parents))]


def _tree(axes: Axes, parents: Sequence[int], colour: str) -> None:
    at = places(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            (x, y), (above, level) = at[node], at[parent]
            axes.plot([above, x], [level, y], color=style.GREY, linewidth=0.8, zorder=1)
    axes.scatter([x for x, _ in at], [y for _, y in at], s=14, color=colour, zorder=2)
    axes.scatter(*at[0], s=22, color="black", zorder=3)
    axes.invert_yaxis()
    axes.margins(0.08)
    axes.axis("off")
