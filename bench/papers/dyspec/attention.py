"""DySpec, Table 5 and Figure 8: time of attention over random trees, and the blocks of its mask, by node order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables, verdict
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import intervals

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
LEGEND = {
    "Grid": _GRID,
    "Tokens": "nodes of a tree, root included; queries and keys where there is no prefix",
    "Reordered": "no: as created; yes: depth first, children in order of creation",
    "blocks": "mean number of blocks of the mask with an entry that is seen, tree columns alone; in brackets the 95% "
    "interval (bootstrap over trees)",
    "difference": "(ours - the paper's) / the paper's",
    "Verdict": "matches: the paper's mean is within our interval, widened by 5% of it",
}
FIGURE_COLUMNS = ("Device", "Grid", "Kernel", "Order", "Tokens", "ms", "smallest", "largest", "creation / this")
FIGURE_LEGEND = {
    "Grid": _GRID,
    "ms": "mean over trees of the median of the runs",
    "smallest": "of a tree, as largest; both are shaded in the figure",
    "creation / this": "speedup over the order of creation",
}


def attention_table(name: str, results: Results) -> list[Output]:
    """A row per size and order: times of the kernels that were run, blocks, and the paper's of both."""
    times = _times(results)
    kernels = list(dict.fromkeys(times["kernel"]))
    found = list(times.groupby([*_SETTING, "num_nodes", "order"], sort=False))
    rows = [_row(group, kernels) for _, group in found]
    columns = ("Device", "Grid", "Tokens", "Reordered", *(f"{kernel} ms" for kernel in kernels))
    papers = (*(f"{kernel}, paper" for kernel in PAPERS_KERNELS),)
    frame = tables.frame(rows, (*columns, "blocks", "paper's", "difference", "Verdict", *papers)).fillna(tables.ABSENT)
    ids = tuple(str(key[0]) for key, _ in found)
    return [Table(name, f"{TITLE} ({_words(times)})", frame, (*NOTES, *_repeats(times)), LEGEND, ids)]


@style.styled
def attention_figure(name: str, results: Results) -> list[Output]:
    """One panel per device and setting, a line per kernel and order; the paper's own beside those of its grid."""
    times = _times(results)
    settings = list(times.groupby(_SETTING, sort=False))
    same = any(_papers_grid(rows.iloc[0]) for _, rows in settings)
    canvas, axes = style.panels(FIGURE_TITLE, _words(times), len(settings) + same)
    several = len(times[_SETTING[3:]].drop_duplicates()) > 1
    for axis, (key, rows) in zip(axes, settings, strict=False):
        _panel(axis, rows.assign(ms=1e3 * rows["forward_s"]))
        grid = f"\n{_grid(rows.iloc[0])}" if several else ""
        axis.set(title=f"{key[1]}, {key[2]}{grid}", ylabel="time of one attention (ms)")
    if same:
        papers = _papers()
        _panel(axes[-1], papers[papers["kernel"] != "blocks"])
        axes[-1].set(title="the paper: A100, 40 GB, 64 x 128, prefix 0", ylabel="time (unit unspecified)")
    groups = list(times.groupby([*_SETTING, "kernel", "order", "num_nodes"], sort=False))
    points = [_point(group, times) for _, group in groups]
    ids = tuple(str(key[0]) for key, _ in groups)
    table = Table(
        name, f"{FIGURE_TITLE} ({_words(times)})", tables.frame(points, FIGURE_COLUMNS), NOTES[:3], FIGURE_LEGEND, ids
    )
    return [style.Figure(name, table.title, canvas, ids), table]


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
    means = 1e3 * group.groupby("kernel")["forward_s"].mean()
    blocks = intervals.ratio_of_sums(group.drop_duplicates("tree"), "num_tree_blocks", by="tree")
    row = _who(first) | {"Reordered": REORDERED.get(first["order"], str(first["order"]))}
    row |= {f"{kernel} ms": f"{means[kernel]:.4g}" for kernel in kernels if kernel in means}
    row |= {"blocks": tables.interval(blocks, 1) if blocks.n > 1 else tables.number(blocks.value, 1)}
    row |= {f"{kernel}, paper": f"{paper[kernel]:g}" for kernel in PAPERS_KERNELS if kernel in paper}
    if "blocks" not in paper:
        return row | {"Verdict": verdict.not_comparable("no published value")}
    judged = verdict.by_value(blocks, paper["blocks"]) if blocks.n > 1 else verdict.not_comparable("no interval")
    difference = f"{100 * (blocks.value / paper['blocks'] - 1):+.1f}%"
    return row | {"paper's": f"{paper['blocks']:g}", "difference": difference, "Verdict": judged}


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
    found = papers[(papers[alike] == row[alike]).all(axis=1)].set_index("kernel")["ms"].to_dict()
    return {str(name): value for name, value in found.items() if name == "blocks" or _papers_grid(row)}


def _papers_grid(row: pd.Series) -> bool:
    """Whether attention is that of the paper's times."""
    return all(row[name] == value for name, value in _TIMED.items())


def _who(row: pd.Series) -> dict[str, str]:
    device = f"{row['device_name']}, {row['dtype']}"
    return {"Device": device, "Grid": _grid(row), "Tokens": str(row["num_nodes"])}


def _grid(row: pd.Series) -> str:
    keys = f" ({row['kv_heads']} of keys)" if row["kv_heads"] != row["heads"] else ""
    return f"{row['heads']} x {row['head_dim']}{keys}, prefix {row['num_prefix']}, block {row['block']}"


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    for (kernel, order), line in rows.groupby(["kernel", "order"], sort=False):
        index = _LOOKS[str(kernel)]
        look: dict[str, Any] = {"color": style.COLOURS[index], "marker": style.MARKERS[index]}
        look["linestyle"] = _LINES[str(order)]
        look["markerfacecolor"] = look["color"] if order == "creation" else "white"
        points = line.groupby("num_nodes")["ms"].agg(["mean", "min", "max"])
        axes.plot(points.index, points["mean"], label=f"{kernel}, {order}", **look)
        axes.fill_between(points.index, points["min"], points["max"], color=look["color"], alpha=0.15, linewidth=0)
    style.powers_of_two(axes, rows["num_nodes"])
    axes.set(xlabel="tokens of the tree", yscale="log")
    style.legend_below(axes)


def _point(group: pd.DataFrame, times: pd.DataFrame) -> dict[str, str]:
    first, ms, alike = group.iloc[0], 1e3 * group["forward_s"], [*_SETTING, "kernel", "num_nodes"]
    created = times[(times[alike] == first[alike]).all(axis=1) & (times["order"] == "creation")]["forward_s"]
    return {
        **_who(first),
        "Kernel": str(first["kernel"]),
        "Order": str(first["order"]),
        **{name: f"{value:.4g}" for name, value in (("ms", ms.mean()), ("smallest", ms.min()), ("largest", ms.max()))},
        "creation / this": tables.number(1e3 * created.mean() / ms.mean()),
    }


def _repeats(times: pd.DataFrame) -> Iterator[str]:
    low, high = times["repeats"].min(), times["repeats"].max()
    runs = f"{low} to {high} runs" if low < high else f"{low} runs" if low > 1 else "one run"
    yield f"Ours: mean over {times['tree'].nunique()} trees of the median of {runs}, the fewer the slower."
    if not {"tree_triton", "flex_attention"} & set(times["kernel"]):
        yield "tree_triton and flex_attention are timed on a GPU alone; here they were not run."
