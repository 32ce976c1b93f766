"""DySpec's node orders: pictures of tree masks (Figures 6 and 7), their blocks (9), attention's time (Table 5, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from specdec_trees import published
from specdec_trees.artifacts import definitions, draw, frame, notes, style, tables, verdict
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.published import params_of
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals
from specdec_trees.statistics.intervals import Interval

ORDERS = {
    "heap": "heap order",
    "creation": "as drafted, by layers",
    "dfs": "depth first",
    "heavy_path": "heavy path first",
}
"""The node orders of the rows, in the words of figures and tables."""
PICTURES = "DySpec Figure {}: attention mask of one tree, blocks of {} x {}"
_MASK = (
    Metric("mask_nodes", "Nodes", "rows of the mask, root included", lambda row: len(row.mask.parents), 0),
    Metric(
        "filled",
        "Blocks filled",
        "blocks of the nodes among themselves with an entry that is seen; prefix left out",
        lambda row: row.mask.filled,
        0,
    ),
    Metric(
        "at_most",
        "of at most",
        "blocks on and below the diagonal, the most that any order fills",
        lambda row: row.mask.at_most,
        0,
    ),
    Metric("filled_share", "share", "", lambda row: row.mask.filled / row.mask.at_most, percent=True),
)
BY_PREFIX = "DySpec Figure 9: blocks of the tree attention mask against the length of the prefix"
BLOCKS = Metric(
    "blocks",
    "blocks",
    "mean blocks with an entry that is seen, prefix included, counted from the first cached token; in brackets the 95% "
    f"interval ({intervals.METHOD} over conversations); published: the paper's text for a mask of so many rows; it "
    "states neither pair nor prefix, nor whether its size counts the root, which its blocks do not tell",
    lambda row: intervals.ratio_of_sums(row.steps, "num_blocks"),
    1,
)
_STEPS = (
    Metric("mask_steps", "steps", "", lambda row: len(row.steps), 0),
    Metric("mean_nodes", "nodes", "mean rows of the mask, root included", lambda row: row.steps["num_nodes"].mean(), 1),
    Metric(
        "prefix",
        "prefix",
        "mean number of cached tokens before the tree",
        lambda row: row.steps["num_prefix"].mean(),
        1,
    ),
    BLOCKS,
    Metric(
        "tree_blocks",
        "tree blocks",
        "the same of the nodes among themselves, prefix left out",
        lambda row: intervals.ratio_of_sums(row.steps, "num_tree_blocks"),
        1,
    ),
    Metric("of_heap", "share", "tree blocks of this order / of the heap order", lambda row: _of_heap(row)),
)
_MEANS = {
    "n": "budget of drafted nodes, root excluded",
    "words": "heap: as the paper's Algorithm 1 creates nodes, taken to be its original order; as drafted: here layer "
    "by layer; depth first: children in draft order; heavy path first: the child of the largest subtree first",
}
_BIN = 16
"""Prefix lengths that are averaged for a point of a line; half a block."""
_EMPTY, _MASKED, _SEEN = "#D9D9D9", "#FFFFFF", "#0072B2"
_WORDS = {_SEEN: "node (row) sees node (column)", _MASKED: "masked, in a block that is read", _EMPTY: "empty block"}


@dataclass(frozen=True)
class Mask:
    """The mask of a tree from the parents of its nodes (parents first), and its blocks."""

    parents: Sequence[int]
    block: int

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Row i marks node i and its ancestors."""
        mask = np.eye(len(self.parents), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    @cached_property
    def blocks(self) -> NDArray[np.bool_]:
        """Which blocks have an entry that is seen; the last ones may be smaller."""
        starts = range(0, len(self.parents), self.block)
        by_rows = np.logical_or.reduceat(self.visible, starts, axis=0)
        return np.logical_or.reduceat(by_rows, starts, axis=1)

    @property
    def filled(self) -> int:
        """How many blocks have an entry that is seen."""
        return int(self.blocks.sum())

    @property
    def at_most(self) -> int:
        """How many any order in which parents come first fills at most."""
        side = len(self.blocks)
        return side * (side + 1) // 2

    def picture(self) -> NDArray[np.float64]:
        """One colour per entry, `[nodes, nodes, 3]`."""
        size = len(self.parents)
        read = self.blocks.repeat(self.block, 0).repeat(self.block, 1)[:size, :size]
        colours = np.array([to_rgb(colour) for colour in (_EMPTY, _MASKED, _SEEN)])
        return colours[read.astype(int) + self.visible]


def _recorded(results: Results, orders: Iterable[str]) -> pd.DataFrame:
    """The runs that recorded their masks, as `masks`, once for each of these orders that they have, in `words`."""
    runs = frame.finished(results)
    rows = draw.repeated(frame.put(runs, masks=frame.of_runs(results.masks, runs["run_id"])), order=[*orders])
    rows = rows[[order in set(masks["order"]) for order, masks in zip(rows["order"], rows["masks"], strict=True)]]
    if rows.empty:
        raise NoResultsError("no run recorded its masks")
    return rows.assign(words=rows["order"].map(ORDERS))


def tree_masks(name: str, results: Results, *, orders: Sequence[str], block: int) -> list[Output]:
    """A row of panels per run, one order each: the largest tree of the run, the first of several."""
    rows = _recorded(results, orders)
    rows = frame.put(rows, mask=[Mask(_largest(row.masks, row.order), block) for row in named_rows(rows)])
    words = (PICTURES.format(name.removeprefix("fig"), block, block), notes.setting(rows))
    figure = draw.per_run(name, words, _picture, rows, panel=(5.4, 5.8))
    return [figure, _table(figure, frame.measure(rows, _MASK), (*draw.RUN_ROWS, "words"), _MASK)]


def _largest(masks: pd.DataFrame, order: str) -> list[int]:
    """The parents of the largest tree of a run in an order."""
    one = masks.iloc[int(masks["num_nodes"].argmax())]
    same = masks[(masks[["prompt_id", "turn", "step"]] == one[["prompt_id", "turn", "step"]]).all(axis=1)]
    return [int(parent) for parent in same.set_index("order")["parents"][order]]


def _picture(axes: Axes, row: Any) -> None:
    mask, size = row.mask, len(row.mask.parents)
    axes.imshow(mask.picture(), extent=(0, size, size, 0), interpolation="antialiased")
    edges = np.arange(0, size + mask.block, mask.block).clip(max=size)
    axes.grid(visible=False)
    axes.hlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    axes.vlines(edges, 0, size, color=style.GREY, linewidth=0.35)
    step = -(-len(mask.blocks) // 8)
    axes.set(xlim=(-0.5, size + 0.5), ylim=(size + 0.5, -0.5), xticks=edges[::step], yticks=edges[::step])
    counts = f"{mask.filled} of {mask.at_most} blocks filled, {size} nodes"
    axes.set(xlabel="node that is seen", ylabel="node", title=f"{row.words}: {counts}")
    if not axes.figure.legends:  # one for all panels
        handles = [Patch(facecolor=colour, edgecolor=style.GREY, label=text) for colour, text in _WORDS.items()]
        axes.figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))


def blocks_by_prefix(name: str, results: Results) -> list[Output]:
    """One panel per run that recorded its masks: every step as a dot, means as lines, the paper's values dashed."""
    rows = _recorded(results, ORDERS)
    steps = [row.masks[row.masks["order"] == row.order] for row in named_rows(rows)]
    budgets = [params.get("n") for params in rows["params"]]
    rows = frame.put(rows, steps=steps, n=[budget or tables.ABSENT for budget in budgets])
    rows = rows.assign(asked=[budget or 0 for budget in budgets]).sort_values("asked", kind="stable")
    long = frame.measure(rows.assign(size=rows["asked"] + 1), _STEPS)
    long = frame.beside(long, _blocks_printed(), ["size", "order"], {BLOCKS.key: "num_blocks"})
    panels = [(own,) for _, own in long[long["metric"].isin([BLOCKS])].groupby("run_id", sort=False)]
    figure = style.drawn(name, BY_PREFIX, notes.setting(rows), _by_prefix, panels, rows["run_id"], panel=(5.8, 4.6))
    return [figure, _table(figure, long, (*draw.RUN_ROWS, "n", "words"), _STEPS)]


def _blocks_printed() -> pd.DataFrame:
    """The paper's mean blocks by the rows of a mask, in its original order and depth first."""
    facts = published.find("dyspec", "fig_text", metric="num_blocks")
    given = [params_of(text) for text in facts["params"]]
    orders = ["dfs" if one["reorder"] == "true" else "heap" for one in given]
    return facts.assign(size=[int(one["size"]) for one in given], order=orders)


def _of_heap(row: Any) -> float | None:
    means = row.masks.groupby("order")["num_tree_blocks"].mean()
    return means[row.order] / means["heap"] if "heap" in means else None


def _by_prefix(axes: Axes, rows: pd.DataFrame) -> None:
    for row in named_rows(rows):
        look, steps = style.look([*ORDERS].index(row.order)), row.steps
        axes.plot(steps["num_prefix"], steps["num_blocks"], ".", color=look["color"], markersize=2.5, alpha=0.35)
        means = steps.groupby(steps["num_prefix"] // _BIN)[["num_prefix", "num_blocks"]].mean()
        words = f"{row.words}: mean {row.value:.1f}, tree alone {steps['num_tree_blocks'].mean():.1f}"
        axes.plot(means["num_prefix"], means["num_blocks"], label=words, **look)
        if row.published is not None:
            words = f"paper, {'original order' if row.order == 'heap' else row.words}: {row.published:g}"
            axes.axhline(row.published, color=look["color"], linestyle="--", linewidth=1, label=words)
    first = rows.iloc[0]
    size = first["steps"]["block"].iloc[0]
    axes.set_title(f"{first['setting']}, {first['name']}, blocks of {size} x {size}")
    axes.set(xlabel="prefix length (cached tokens)", ylabel="blocks, prefix included", ylim=(0, None))
    style.legend_below(axes, columns=1)


def _table(figure: style.Figure, long: pd.DataFrame, rows: Sequence[str], shown: Sequence[Metric]) -> Table:
    """A row per run and order."""
    below = notes.of_blocks(long.drop_duplicates("run_id"), timed=False, temperatures=False)
    look = {"means": _MEANS, "headers": {"words": "Order"}}
    return table(figure.name, figure.title, long, rows, shown, notes=below, **look)


# Table 5 and Figure 8: time of attention over random trees, and the blocks of its mask

TITLE = "DySpec Table 5: attention over random trees, by kernel and node order"
FIGURE_TITLE = "DySpec Figure 8: time of attention over random trees against the number of tokens"
PAPERS_KERNELS = ("custom", "manual", "xformers")
REORDERED = {"creation": "no", "dfs": "yes"}
_SETTING = ["run_id", "device_name", "dtype", "heads", "kv_heads", "head_dim", "num_prefix", "block"]
_LINES = {"creation": "-", "dfs": "--", "heavy_path": ":"}
_LOOKS = {"tree_triton": 0, "custom": 0, "manual": 1, "sdpa": 2, "xformers": 2, "flex_attention": 3}
"""Colours of the kernels; those that stand beside each other have the same."""
_TIMED = {"num_prefix": 0, "block": 32, "heads": 64, "head_dim": 128}
"""The grid of the paper's times."""
_RANDOM = "uniform random recursive trees"
NOTES = (
    "The paper's times are in a unit that it does not state, on an A100 with 40 GB: they stand beside ours to be read "
    "as ratios, and have no verdict.",
    "The paper's times are of 64 heads of 128, no cached tokens, blocks of 32: they stand beside no other grid.",
    "Beside which of ours they stand: custom beside tree_triton, manual beside manual, and xformers, the paper's "
    "library kernel, beside sdpa and flex_attention. Only tree_triton and flex_attention skip blocks; flex_attention's "
    "are of 128 x 128.",
    f"The verdict is on block counts alone, which depend on no device: means over {_RANDOM} (the parent of a node is "
    "uniform among those before it), as the paper's appear to be.",
)
_GRID = "heads x their dimension, with the number of key heads where it is another; cached tokens; size of a block"
HEADERS = {
    "device": "Device",
    "grid": "Grid",
    "num_nodes": "Tokens",
    "order": "Order",
    "reordered": "Reordered",
    "blocks_published": "paper's",
    "blocks_verdict": "Verdict",
    "kernel": "Kernel",
    "over_created": "creation / this",
}
LEGEND = {
    "grid": _GRID,
    "num_nodes": "nodes of a tree, root included; queries and keys where there is no prefix",
    "reordered": "no: as created; yes: depth first, children in order of creation",
    "blocks": "mean number of blocks of the mask with an entry that is seen, tree columns alone; in brackets the 95% "
    f"interval ({intervals.METHOD} over trees)",
    "difference": "(ours - the paper's) / the paper's",
    "blocks_verdict": f"matches: our interval lies wholly within {verdict.TOLERANCE:.0%} of the paper's value; "
    f"differs: wholly outside; not resolved: neither, or of fewer than {verdict.FEWEST} trees; "
    f"{definitions.UNCORRECTED}",
}
FIGURE_COLUMNS = ("device", "grid", "kernel", "order", "num_nodes", "ms", "smallest", "largest", "over_created")
FIGURE_LEGEND = {
    "grid": _GRID,
    "ms": "median over trees of the median of the runs",
    "smallest": "of a tree, as largest; both are shaded in the figure",
    "over_created": "speedup over the order of creation: median over trees of the ratio of a tree's two times; in "
    f"brackets the 95% interval ({intervals.METHOD} over trees)",
}


def attention_table(name: str, results: Results) -> list[Output]:
    """A row per size and order: times of the kernels that were run, blocks, and the paper's of both."""
    times = _times(results)
    kernels = list(dict.fromkeys(times["kernel"]))
    groups = list(times.groupby([*_SETTING, "num_nodes", "order"], sort=False))
    rows = [_row(group, kernels) for _, group in groups]
    verdict.correct(rows)
    ours = {f"{kernel}_ms": f"{kernel} ms" for kernel in kernels}
    papers = {kernel + tables.PUBLISHED: f"{kernel}, paper" for kernel in PAPERS_KERNELS}
    blocks = ("blocks", "blocks_published", "difference", "blocks_verdict")
    columns = ("device", "grid", "num_nodes", "reordered", *ours, *blocks, *papers)
    grid, headers = tables.frame(rows, columns).fillna(tables.ABSENT), HEADERS | ours | papers
    ids = tuple(str(key[0]) for key, _ in groups)
    return [Table(name, f"{TITLE} ({_words(times)})", grid, (*NOTES, *_repeats(times)), LEGEND, ids, headers)]


def attention_figure(name: str, results: Results) -> list[Output]:
    """One panel per device and setting, a line per kernel and order; the paper's own beside those of its grid."""
    times = _times(results)
    settings = list(times.groupby(_SETTING, sort=False))
    several = len(times[_SETTING[3:]].drop_duplicates()) > 1
    panels = [
        (
            rows.assign(ms=1e3 * rows["forward_s"]),
            f"{key[1]}, {key[2]}" + f"\n{_grid(rows.iloc[0])}" * several,
            "time of one attention (ms)",
        )
        for key, rows in settings
    ]
    if any(_papers_grid(rows.iloc[0]) for _, rows in settings):
        papers = _papers()
        title = "the paper: A100, 40 GB, 64 x 128, prefix 0"
        panels.append((papers[papers["kernel"] != "blocks"], title, "time (unit unspecified)"))
    groups = list(times.groupby([*_SETTING, "kernel", "order", "num_nodes"], sort=False))
    figure = style.drawn(name, FIGURE_TITLE, _words(times), _panel, panels, (str(key[0]) for key, _ in groups))
    points = tables.frame([_point(group, times) for _, group in groups], FIGURE_COLUMNS)
    return [figure, Table(name, figure.title, points, NOTES[:3], FIGURE_LEGEND, figure.runs, HEADERS)]


def _times(results: Results) -> pd.DataFrame:
    if results.attention.empty:
        raise NoResultsError("no attention was timed")
    return results.attention.sort_values([*_SETTING, "num_nodes"], kind="stable", ignore_index=True)


def _words(times: pd.DataFrame) -> str:
    """Devices, dtypes, heads, blocks and trees."""
    device = "; ".join(" / ".join(times[column].unique()) for column in ("device_name", "dtype"))
    heads = dict.fromkeys(
        f"{row.heads} heads of {row.head_dim}, {row.num_prefix} cached tokens, blocks of {row.block}"
        for row in tables.named_rows(times[_SETTING[3:]].drop_duplicates())
    )
    return f"{device}; batch 1, {' / '.join(heads)}; {times['tree'].nunique()} {_RANDOM}"


def _row(group: pd.DataFrame, kernels: Sequence[str]) -> dict[str, str]:
    first, paper = group.iloc[0], _published(group.iloc[0])
    times = 1e3 * group.groupby("kernel")["forward_s"].median()
    blocks = intervals.ratio_of_sums(group.drop_duplicates("tree"), "num_tree_blocks", by="tree")
    row = _who(first) | {"reordered": REORDERED.get(first["order"], str(first["order"]))}
    row |= {f"{kernel}_ms": f"{times[kernel]:.4g}" for kernel in kernels if kernel in times}
    row |= {"blocks": _written(blocks, 1)}
    row |= {f"{kernel}_published": f"{paper[kernel]:g}" for kernel in PAPERS_KERNELS if kernel in paper}
    if "blocks" not in paper:
        return row | {"blocks_verdict": verdict.not_comparable("no published value")}
    judged = verdict.by_value(blocks, paper["blocks"]) if blocks.n > 1 else verdict.not_comparable("no interval")
    difference = f"{100 * (blocks.value / paper['blocks'] - 1):+.1f}%"
    return row | {"blocks_published": f"{paper['blocks']:g}", "difference": difference, "blocks_verdict": judged}


def _written(value: Interval, digits: int) -> str:
    """With its interval, which one tree has not."""
    return tables.interval(value, digits) if value.n > 1 else tables.number(value.value, digits)


def _papers() -> pd.DataFrame:
    """The paper's numbers as rows like ours, times by kernel; the kernel of numbers of blocks is `blocks`."""
    facts = published.find("dyspec", "table5")
    given = pd.DataFrame([params_of(text) for text in facts["params"]])
    whole = given[["size", "block"]].astype(int)
    order = given["reorder"].map({"true": "dfs", "false": "creation"})
    kernel = given["kernel"].fillna("blocks")
    return pd.DataFrame(
        {"kernel": kernel, "num_nodes": whole["size"], "order": order, "block": whole["block"], "ms": facts["value"]}
    )


def _published(row: pd.Series) -> dict[str, float]:
    """The paper's `blocks` for a size, order and size of blocks, and its times by kernel if the grid is its own."""
    papers, alike = _papers(), ["num_nodes", "order", "block"]
    values = papers[(papers[alike] == row[alike]).all(axis=1)].set_index("kernel")["ms"].to_dict()
    return {str(name): value for name, value in values.items() if name == "blocks" or _papers_grid(row)}


def _papers_grid(row: pd.Series) -> bool:
    """Whether attention is that of the paper's times."""
    return all(row[name] == value for name, value in _TIMED.items())


def _who(row: pd.Series) -> dict[str, str]:
    device = f"{row['device_name']}, {row['dtype']}"
    return {"device": device, "grid": _grid(row), "num_nodes": str(row["num_nodes"])}


def _grid(row: pd.Series) -> str:
    keys = f" ({row['kv_heads']} of keys)" if row["kv_heads"] != row["heads"] else ""
    return f"{row['heads']} x {row['head_dim']}{keys}, prefix {row['num_prefix']}, block {row['block']}"


def _panel(axes: Axes, rows: pd.DataFrame, title: str, label: str) -> None:
    for (kernel, order), line in rows.groupby(["kernel", "order"], sort=False):
        index = _LOOKS[str(kernel)]
        look = style.look(index) | {"linestyle": _LINES[str(order)]}
        look["markerfacecolor"] = look["color"] if order == "creation" else "white"
        points = line.groupby("num_nodes")["ms"].agg(["median", "min", "max"])
        axes.plot(points.index, points["median"], label=f"{kernel}, {order}", **look)
        axes.fill_between(points.index, points["min"], points["max"], color=look["color"], alpha=0.15, linewidth=0)
    style.powers_of_two(axes, rows["num_nodes"])
    axes.set(title=title, xlabel="tokens of the tree", ylabel=label, yscale="log")
    style.legend_below(axes)


def _point(group: pd.DataFrame, times: pd.DataFrame) -> dict[str, str]:
    first, ms, alike = group.iloc[0], 1e3 * group["forward_s"], [*_SETTING, "kernel", "num_nodes"]
    created = times[(times[alike] == first[alike]).all(axis=1) & (times["order"] == "creation")]
    both = group.merge(created, on="tree", suffixes=("", "_created"))
    ratios = both["forward_s_created"] / both["forward_s"]  # one slow tree does not move their median
    return {
        **_who(first),
        "kernel": str(first["kernel"]),
        "order": str(first["order"]),
        **{
            name: f"{value:.4g}" for name, value in (("ms", ms.median()), ("smallest", ms.min()), ("largest", ms.max()))
        },
        "over_created": _written(intervals.of_median(ratios.to_numpy(dtype=float)), 2),
    }


def _repeats(times: pd.DataFrame) -> Iterator[str]:
    low, high = times["repeats"].min(), times["repeats"].max()
    runs = f"{low} to {high} runs" if low < high else f"{low} runs" if low > 1 else "one run"
    yield f"Ours: median over {times['tree'].nunique()} trees of the median of {runs}, the fewer the slower."
    if not {"tree_triton", "flex_attention"} & set(times["kernel"]):
        yield "tree_triton and flex_attention are timed on a GPU alone; here they were not run."
