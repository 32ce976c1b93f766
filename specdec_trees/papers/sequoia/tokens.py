"""Sequoia, Figures 1, 2 and 5a: tokens per step of tree structures against tree size, expected and measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import definitions, draw, frame, notes, style, tables
from specdec_trees.artifacts.metrics import MAL, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.sequoia import vectors
from specdec_trees.papers.sequoia.bounds import limits
from specdec_trees.papers.sequoia.vectors import Vector
from specdec_trees.published import params_of
from specdec_trees.results.kept_rows import GrowthRow
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import OK, RunRow
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples

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


SEQUOIA = Structure("sequoia", "Sequoia", "sequoia")
K_SEQUENCES = Structure("k_sequences", "k sequences", "k_sequences", any_k=True)
SIXTEEN = Structure("sixteen_sequences", "16 sequences", "sixteen_sequences")
SMALLEST = 16
"""A tree of 16 sequences has more nodes, its root counted."""
STRUCTURES = (
    SEQUOIA,
    K_SEQUENCES,
    Structure("k_ary", "k-ary tree", "k_ary", any_k=True),
    Structure("binary", "binary tree", "binary"),
    Structure("sequence", "sequence", "chain"),
    SIXTEEN,
)
MODELS = ["target", "draft"]
_NONE = ["block", "structure", "nodes", "setting", "levels", "steps", *MODELS]
"""The columns of runs that are asked for where there are none."""
TITLES = {
    "fig1": "Sequoia Figure 1: tokens per step against tree size, by structure",
    "fig2": "Sequoia Figure 2: tokens per step against tree size, by structure and pair",
    "fig5a": "Sequoia Figure 5a: tokens per step against tree size, Sequoia's tree and k sequences",
}
_TREES = "Sequoia Figure 1 (right): tree structures of N = {} nodes, each at its best for the measured vector"
_HOW = "; lines: F(T), markers: MAL with 95% interval, dotted: limits for N → ∞ (Table 1)"
_ERROR = (
    "Acceptance vector: {} F(T) and the limits rest on it, and have its error (Table 1 has intervals): a measured "
    "point may lie above its limit."
)
ROWS = ("setting", "label", "name", "words")
ASIDE = ("k", "levels", "limit")
LOOK: Mapping[str, Any] = {
    "aside": ASIDE,
    "headers": {"label": "Structure", "words": "N"},
    "means": {"words": definitions.NODES},
}
POINT = (
    Metric(
        "k",
        "k",
        "how many sequences, or children a node: the best for F(T) at this N unless the drafter's shape fixes it",
        lambda row: row.k,
        0,
    ),
    Metric("levels", "levels", definitions.LEVELS, lambda row: row.levels, 0),
    Metric("expected_tree", "F(T)", definitions.EXPECTED_TREE, lambda row: row.expected),
    Metric(
        "limit",
        "limit",
        "F(T) for N -> infinity at the best k (Table 1), p made non-increasing as for F(T)",
        lambda row: row.limit,
    ),
)


def _gain(row: Any, other: str) -> Any:
    """Over the conversations that both decoded."""
    first, second = (row.best.get(structure) for structure in (SEQUOIA.name, other))
    return samples.paired_ratio(first, second) if row.structure == SEQUOIA.name else None


GAIN = Metric(
    "gain",
    "gain MAL",
    "MAL of Sequoia's tree over that of k sequences of the same N, paired over the conversations that both decoded; in "
    "brackets the 95% interval. Of several runs of one structure and size the one of most MAL is chosen before, which "
    "the interval does not know; published: the paper's text as a ratio, on average over 16 sequences of 512 tokens in "
    "all",
    partial(_gain, other="k_sequences"),
    3,
    counterpart="gain",
)
GAIN_OVER_16 = Metric(
    "gain_over_16",
    "gain over 16",
    "the same over 16 sequences, which is what the paper's text has",
    partial(_gain, other="sixteen_sequences"),
    3,
)


def gains_said() -> pd.DataFrame:
    """What the paper's text says of Figure 5a, with the pair that Figures 5a and 5c have."""
    return published.find("sequoia", "fig_text", metric="tokens_per_step_gain")


def tokens_by_size(name: str, results: Results) -> list[Output]:
    """One panel per setting: F(T) as lines, measured MAL as markers, the limits of Table 1 dotted; and all points.

    Figures 1 and 2 have every structure, and 1 what their trees look like; 5a has what Sequoia's tree gains over two.
    """
    gains = name == "fig5a"
    structures = (SEQUOIA, K_SEQUENCES, SIXTEEN) if gains else STRUCTURES[:-1]
    facts = gains_said() if gains else gains_said()[:0]
    rows = _compared(points(results, structures))
    shown = (*POINT[:3], MAL, *POINT[3:], *(GAIN, GAIN_OVER_16) * gains)
    long = frame.measure(rows, shown)
    if gains:
        on = ["target", "draft", "dataset", "temperature", "structure", "nodes"]
        long = frame.beside(long, _pinned(facts), on, {GAIN.key: "tokens_per_step_gain"})
    drawn = long[long["metric"].isin([MAL]) & long["drawn"].astype(bool)]
    words = (TITLES[name], _words(rows[rows["drawn"].astype(bool)]), "tree size N (root counted)")
    drawing = partial(_structures, structures=structures)
    figure = draw.curves(name, words, drawn, [[(drawing,)]], _stars(drawn, facts), aside=_HOW)
    below = [*_scales(rows), *_gains_told(drawn, facts)]
    made = table(name, figure.title, long, ROWS, shown, notes=dict.fromkeys(below), **LOOK)
    return [figure, made, *(_trees(f"{name}_trees", rows) if name == "fig1" else ())]


def points(results: Results, structures: Sequence[Structure]) -> pd.DataFrame:
    """A row for every run of the structures, and for every size of a vector's growth that none of them has.

    A block is one of runs with the growth of the vector of most positions for its setting, or a vector that belongs to
    none. `expected` is F(T) of the run's own tree, or of the growth row where that has the same k. NoResultsError where
    no run ended well and no vector was measured.
    """
    methods = {one.method: one for one in structures}
    chosen = results.runs[results.runs["method"].isin(list(methods))]
    if results.growth.empty and frame.done(chosen).empty:
        raise NoResultsError(f"no run of {', '.join(methods)} ended well and no acceptance vector was measured")
    measured = vectors.vectors(results) if len(results.acceptance) else []
    known = {vector.run_id: vector for vector in measured}
    runs = _runs(replace(results, runs=chosen), methods) if len(chosen) else pd.DataFrame(columns=_NONE)
    grown = _grown(results.growth, runs, known)
    names = [one.name for one in structures]
    both = _joined(runs, grown[grown["structure"].isin(names)], results.steps[:0])
    both = both.copy().assign(place=both["structure"].map(names.index), at=both["nodes"].fillna(0).astype(int))
    both = both.sort_values(["block", "place", "at"], kind="stable", ignore_index=True)
    return _described(both, known)


def _runs(results: Results, methods: Mapping[str, Structure]) -> pd.DataFrame:
    """The runs with their structure; so few nodes as 16 and a root are no 16 sequences."""
    runs = frame.standing_in(frame.load(results), gains_said())
    runs = runs.assign(structure=[methods[method].name for method in runs["method"]], ran=True)
    small = (runs["structure"] == SIXTEEN.name) & (runs["nodes"].astype(float) <= SMALLEST)
    return runs[~small]


def _grown(growth: pd.DataFrame, runs: pd.DataFrame, known: Mapping[str, Vector]) -> pd.DataFrame:
    """The growth rows of each block, then of the vectors that belong to none, as blocks of their own."""
    growth = growth.assign(nodes=growth["n"] + 1, vector=growth["run_id"])
    parts = [
        growth[growth["vector"] == _vector_of(rows, growth, known)].assign(block=block, setting=rows["setting"].iloc[0])
        for block, rows in runs.groupby("block", sort=False)
    ]
    taken, first = {vector for part in parts for vector in part["vector"]}, len(parts)
    rest = growth[~growth["vector"].isin(list(taken))].groupby("vector", sort=False)
    named = ["pair", "dataset", "temperature", "verifier"]
    parts += [part.assign(block=first + n, setting=vectors.words(part, named)) for n, (_, part) in enumerate(rest)]
    return pd.concat(parts or [growth.assign(block=0, setting="")])


def _vector_of(runs: pd.DataFrame, growth: pd.DataFrame, known: Mapping[str, Vector]) -> str | None:
    """The vector of a block's setting and draws; of several the one of most positions."""
    same = (growth[_SAME].isna() | (growth[_SAME] == runs.iloc[0][_SAME])).all(axis=1)
    candidates = growth.loc[same & growth["draws"].isin(runs["draws"]), "vector"].unique()
    sizes = {name: int(known[name].first["num_positions"]) if name in known else 0 for name in candidates}
    return max(sizes, key=lambda name: sizes[name], default=None)


def _joined(runs: pd.DataFrame, grown: pd.DataFrame, none: pd.DataFrame) -> pd.DataFrame:
    """The runs beside the growth rows of their size, then the growth rows of other sizes, which have no steps."""
    on, own = ["block", "structure", "nodes"], ["num_branches", "depth", "expected_tokens", "parents"]
    rows = runs.astype(object).merge(grown[[*on, *own]].astype(object), how="left", on=on)
    sizes = {*runs[on].itertuples(index=False, name=None)}
    rest = grown[[size not in sizes for size in grown[on].itertuples(index=False, name=None)]]
    rest = rest.assign(ok=True, status=OK, ran=False, lossless=True, name=tables.ABSENT)
    rest = frame.put(rest, steps=[none] * len(rest), params=[{}] * len(rest))
    both = pd.concat([rows, rest.astype(object)], ignore_index=True)
    both[MODELS] = both.groupby("block")[MODELS].transform("first")
    return both.assign(vector=both["block"].map(dict(zip(grown["block"], grown["vector"], strict=True))))


def _described(rows: pd.DataFrame, known: Mapping[str, Vector]) -> pd.DataFrame:
    """The rows with words, limits, `k`, `levels`, F(T) as `expected`, and as `promised` of the run's own tree."""
    bounds = {name: limits(vector.accepted) for name, vector in known.items()}
    trees = [_of_tree(row, bounds.get(row.vector, {})) for row in named_rows(rows)]
    return frame.put(
        rows,
        label=rows["structure"].map({one.name: one.label for one in STRUCTURES}),
        words=[tables.ABSENT if pd.isna(nodes) else str(int(nodes)) for nodes in rows["nodes"]],
        drawn=rows.groupby("block")["ok"].transform("any"),
        scale=[vectors.scale(known[name]) if name in known else "" for name in rows["vector"]],
        **pd.DataFrame(trees, dtype=object),
    )


def _of_tree(row: Any, bounds: Mapping[str, tuple[float, int]]) -> dict[str, Any]:
    """What is known of the tree of a row; of the growth row that stands beside a run only where it has the same k."""
    shape, promised = row.params.get("shape"), getattr(row, "predicted_mal", None)
    fixed = shape.get("num_sequences") if isinstance(shape, dict) else None
    k, levels, expected = fixed, None, None
    if not pd.isna(row.expected_tokens) and fixed in (None, row.num_branches):
        k, levels, expected = row.num_branches, row.depth + 1, row.expected_tokens
    limit, best = bounds.get(row.structure, (math.nan, 0))
    own = None if pd.isna(promised) else promised
    tokens = {"promised": own, "expected": expected if own is None else own}
    return {
        **tokens,
        "k": k,
        "levels": row.levels if row.ran and row.levels else levels,
        "limit": limit,
        "limit_k": best,
    }


def _compared(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the samples of the `best` of all structures of their size."""
    measured, size = frame.measure(rows, (MAL,)), ["block", "nodes"]
    ranked = measured[measured["value"].notna()].sort_values("value", kind="stable")
    best = {key: dict(zip(own["structure"], own["sample"], strict=True)) for key, own in ranked.groupby(size)}
    return frame.put(rows, best=[best.get(key, {}) for key in rows[size].itertuples(index=False, name=None)])


def _pinned(facts: pd.DataFrame) -> pd.DataFrame:
    """Gains that the paper states for one size, as ratios, with `nodes` being this size and one more."""
    sizes = pd.to_numeric(facts["params"].map(lambda text: params_of(text).get("size")))
    facts = facts.assign(size=sizes, value=1 + facts["value"] / 100, structure=SEQUOIA.name).dropna(subset=["size"])
    facts = facts.astype({"size": int})
    return pd.concat([facts.assign(nodes=facts["size"] + root) for root in (0, 1)])


def _facts(rows: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """What the paper's text says of Sequoia's gain with the models, prompts and temperature of a block."""
    setting = ["target", "draft", "dataset", "temperature"]
    return facts[(facts[setting] == rows.iloc[0][setting].tolist()).all(axis=1)]


def _words(rows: pd.DataFrame) -> str:
    """The words of a title: those of the runs, and of vectors that belong to none."""
    runs = rows[rows["ran"].astype(bool)]
    rest = rows[~rows["block"].isin(runs["block"])]
    measured, alone = (notes.setting(runs) if len(runs) else ""), (vectors.words(rest) if len(rest) else "")
    return f"{measured}; {alone} (expected alone)" if measured and alone else alone or measured


def _scales(rows: pd.DataFrame) -> Iterator[str]:
    """What was run, and how the vectors were measured."""
    runs = rows[rows["ran"].astype(bool)]
    if len(runs):
        yield from notes.of_blocks(runs, timed=False, temperatures=False)
    yield from (_ERROR.format(words) for words in rows["scale"].unique() if words)


def _gains_told(rows: pd.DataFrame, facts: pd.DataFrame) -> Iterator[str]:
    for _, own in rows.groupby("block", sort=False):
        for fact in named_rows(_facts(own, facts)):
            baseline = params_of(fact.params)["baseline"].replace("_", " ")
            gain = f"{fact.value:g}% more tokens a step than {baseline} ({fact.notes})"
            yield f"The paper's text on {fact.target} + {fact.draft}: {gain}."


def _structures(axes: Axes, rows: pd.DataFrame, structures: Sequence[Structure]) -> None:
    """F(T) as lines and MAL as markers of each structure, and limits."""
    parts = [(one, rows[rows["structure"] == one.name]) for one in structures]
    grown = bool(rows["expected_tokens"].notna().any())
    spans = [span for one, own in parts for span in _draw(axes, own, style.of_method(one.method), grown)]
    for one, own in parts:
        _entry(axes, own, one, max(tokens for _, tokens in spans))
    axes.set_ylabel("tokens per step")
    style.powers_of_two(axes, [size for size, _ in spans])


def _draw(axes: Axes, rows: pd.DataFrame, look: Mapping[str, Any], grown: bool) -> list[tuple[float, float]]:
    """The line and the markers of a structure; all of their (N, tokens per step)."""
    measured, bare = _measured(rows), {**look, "linestyle": "none"}
    sizes = measured["nodes"].tolist()
    expected = _pairs(rows.drop_duplicates("nodes"), "expected_tokens") or _pairs(rows, "promised")
    if expected:
        axes.plot(*zip(*expected, strict=True), **{**look, "marker": ""})
    if expected or grown:
        style.points(axes, sizes, measured["interval"], 0, **bare)  # lines are of F(T), which may not be known
    else:
        style.band(axes, sizes, measured["interval"], 0, **look)
    return [*expected, *zip(sizes, measured["value"], strict=True)]


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["interval"].notna() & rows["nodes"].notna()]


def _pairs(rows: pd.DataFrame, column: str) -> list[tuple[float, float]]:
    rows = rows[rows[column].notna() & rows["nodes"].notna()]
    return [(float(nodes), float(value)) for nodes, value in zip(rows["nodes"], rows[column], strict=True)]


def _entry(axes: Axes, rows: pd.DataFrame, structure: Structure, highest: float) -> None:
    """An entry in the legend for a structure that is drawn; its limit is dotted where it is not far above the rest."""
    measured = len(_measured(rows)) > 0
    if not (measured or rows["expected_tokens"].notna().any()):
        return
    (value, k), look = rows[["limit", "limit_k"]].iloc[0], style.of_method(structure.method)
    look |= {} if measured else {"marker": ""}
    if value <= highest * _ROOM:
        axes.axhline(value, color=look["color"], linestyle=":", linewidth=1)
    best = f" at k={k}" if structure.any_k else ""
    words = f" (limit {value:.3g}{best})" if math.isfinite(value) else " (no limit)"
    axes.plot([], [], **look, label=structure.label + words * (not math.isnan(value)))


def _stars(rows: pd.DataFrame, facts: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    """A star where Sequoia's tree would be, were it as far above our sequences, 16 if run, as the paper says."""
    for block, own in rows.groupby("block", sort=False):
        for fact in named_rows(_pinned(_facts(own, facts)).drop_duplicates(["size", "value"])):
            near = own[own["nodes"].isin([fact.size, fact.size + 1])]
            if tokens := [*_of_sequences(near)]:
                whose, ours = tokens[0]
                words = f"{fact.value:.2f} x our {whose} (paper)"
                yield {"block": block, "words": words, "x": fact.size, "y": ours * fact.value}


def _of_sequences(rows: pd.DataFrame) -> Iterator[tuple[str, float]]:
    """Tokens per step of our sequences with their label: measured ones first, 16 before the best k."""
    ran = rows[rows["value"].notna()].sort_values(["nodes", "value"], ascending=[True, False])
    for found, column, one in (
        (ran, "value", SIXTEEN),
        (ran, "value", K_SEQUENCES),
        (rows, "expected_tokens", K_SEQUENCES),
    ):
        known = found.loc[(found["structure"] == one.name) & found[column].notna(), column]
        yield from ((one.label, value) for value in known)


def _trees(name: str, rows: pd.DataFrame) -> list[Output]:
    """What the structures look like at one size, a panel each; nothing where there are no trees of that size."""
    grown = rows[rows["expected_tokens"].notna()]
    own = grown[(grown["block"] == grown["block"].min()) & (grown["nodes"] == DRAFTED + 1)].drop_duplicates("structure")
    if own.empty:
        return []
    title, panels = _TREES.format(DRAFTED + 1), [(row,) for row in named_rows(own)]
    words = _words(rows[rows["block"] == own["block"].iloc[0]])
    return [style.drawn(name, title, words, _shape, panels, own["vector"].unique(), columns=len(own), panel=(2.4, 3.2))]


def _shape(axes: Axes, row: Any) -> None:
    structure = next(one for one in STRUCTURES if one.name == row.structure)
    _tree(axes, list(row.parents), style.of_method(structure.method)["color"])
    best = f", k = {row.num_branches:g}" if structure.any_k else ""
    axes.set_title(f"{row.label}{best}\nF(T) = {row.expected_tokens:.2f}")


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
