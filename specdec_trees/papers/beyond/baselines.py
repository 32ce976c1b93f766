"""How strong the papers' baselines were: printed autoregressive times beside those of reading the weights once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import devices, style, tables
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.tables import ABSENT, Table, named_rows

TITLE = "How strong the papers' autoregressive baselines were"
STRONG = (0.7, 0.9)
"""Shares of the memory's bandwidth that a baseline in the place of the paper's would reach."""
WEIGHT_BYTES = 2
LINK = "pcie 4.0 x16"
AT = {f"at_{share:.0%}": f"over one at {share:.0%}" for share in STRONG}
HEADERS = {
    "paper": "Paper",
    "table": "Table",
    "target": "Target",
    "hardware": "hardware",
    "dataset": "Dataset",
    "temperature": "temperature",
    "baseline": "baseline, ms/token",
    "least": "least, ms/token",
    "share": "share, %",
    "speedup": "best speedup",
    **AT,
}
LEGEND = {
    "baseline": "autoregressive decoding as printed; =: not printed, the median of the methods' speedup x time",
    "least": "every weight of 16 bits read once, at the bandwidth of the card's data sheet",
    "share": "least / baseline: of the bandwidth that the baseline reached",
    "speedup": "the largest that the paper prints for this row, or baseline / time, and its method",
    "at_70%": "that speedup over a baseline which reaches 70% of the bandwidth; the paper's own where it reached more",
    "at_90%": "the same of 90%",
}
NOTES = (
    "Assumed: of several cards each has layers of its own and they work one after another, so that the bandwidth is "
    "that of one. An offloaded target is read whole over PCIe 4.0 x16; a paper that keeps layers on the card has less "
    "to read. Keys and values are not counted: at 1,024 tokens 4% of what a 7B reads, by which its share is more.",
    "A speedup is a ratio: the same method over a faster baseline has a smaller one. The method's own time stays as "
    "printed here; in an engine that gives a faster baseline it might fall too.",
    "Bandwidths and their sources are in specdec_trees/published/cards.csv, sizes of models in models.csv. Nothing "
    "here was measured by us. Tables that are not here print neither the baseline's time nor a method's time with its "
    "speedup.",
)
PLAIN = "autoregressive"
GROUP = ["paper", "artifact", "target", "dataset", "temperature", "hardware"]
SECONDS = {"latency_s_per_token": lambda value: value, "tokens_per_s": lambda value: 1 / value}


def baselines(name: str, results: None) -> list[Output]:
    """A row per printed or implied autoregressive time; a figure of the shares."""
    rows = pd.DataFrame(_rows())
    shown = tables.frame([_cells(row) for row in named_rows(rows)], HEADERS)
    table = Table(name, TITLE, shown, NOTES, LEGEND, ("",) * len(rows), HEADERS, lead=6)
    setting = "share of the memory's bandwidth; one point a dataset and temperature"
    return [table, style.drawn(name, TITLE, setting, _panel, [(rows,)], (), panel=(7.6, 3.2))]


def read(folder: Path, pair: str | None) -> None:
    """Nothing is measured for it."""


def _rows() -> Iterator[dict[str, Any]]:
    printed = pd.concat([published.load(paper) for paper in published.papers()])
    printed = printed[printed["target"].isin(published.parameters()) & ~printed["params"].str.contains("role=draft")]
    for key, rows in printed.groupby(GROUP, dropna=False, sort=False):
        where: dict[str, Any] = dict(zip(GROUP, key, strict=True))
        plain = (rows["method"] == PLAIN) & rows["metric"].isin(SECONDS)
        offloaded = bool(rows["params"].str.contains("offload=true").any())
        least = _least_s(where["target"], where["hardware"], offloaded=offloaded)
        if least is None:
            continue
        for seconds, system in _times(rows[plain]) if plain.any() else _implied(rows):
            speedup, method = _best(rows[rows["method"] != PLAIN], seconds)
            mine = {"seconds": seconds, "system": system, "speedup": speedup, "method": method}
            yield where | mine | {"least": least, "share": least / seconds}


def _times(rows: pd.DataFrame) -> Iterator[tuple[float, str]]:
    """Printed seconds per token, and of which system where the paper says that."""
    for row in named_rows(rows):
        yield SECONDS[row.metric](row.value), published.params_of(row.params).get("system", "")


def _implied(rows: pd.DataFrame) -> Iterator[tuple[float, str]]:
    """Of methods whose time and speedup are both printed."""
    values = rows.pivot_table(index=["method", "params"], columns="metric", values="value")
    if {"speedup", "latency_s_per_token"} <= set(values):
        baselines = (values["speedup"] * values["latency_s_per_token"]).dropna()
        yield from [(float(baselines.median()), "=")] * bool(len(baselines))


def _best(rows: pd.DataFrame, seconds: float) -> tuple[float, str]:
    """The largest printed speedup and its method; of times alone the baseline's over the shortest."""
    speedups = rows[rows["metric"] == "speedup"].set_index("method")["value"]
    if speedups.empty:
        speedups = seconds / rows[rows["metric"] == "latency_s_per_token"].set_index("method")["value"]
    return (float(speedups.max()), str(speedups.idxmax())) if len(speedups) else (math.nan, "")


def _least_s(target: str, hardware: str, *, offloaded: bool) -> float | None:
    """Seconds of reading the weights once, but for all rows of the embedding but one; None for unknown cards."""
    device = devices.parse(hardware)
    if device is None:
        return None
    card = published.card(LINK) if offloaded else device.card
    weights, embedding = published.parameters()[target]
    return None if card is None else WEIGHT_BYTES * (weights - embedding) / card.bytes_per_s


def _cells(row: Any) -> dict[str, str]:
    over = {name: row.speedup * min(1.0, row.share / share) for name, share in zip(AT, STRONG, strict=True)}
    return {
        "paper": row.paper,
        "table": row.artifact,
        "target": row.target,
        "hardware": row.hardware,
        "dataset": row.dataset,
        "temperature": ABSENT if pd.isna(row.temperature) else f"{row.temperature:g}",
        "baseline": f"{1e3 * row.seconds:.1f} {row.system}".strip(),
        "least": f"{1e3 * row.least:.1f}",
        "share": f"{100 * row.share:.0f}",
        "speedup": f"{row.speedup:.2f} ({row.method})" if row.method else ABSENT,
        **{name: f"{speedup:.2f}" if row.method else ABSENT for name, speedup in over.items()},
    }


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    """A line per paper, target, hardware and system."""
    labels = [
        ", ".join([row.paper, row.target, row.hardware, *[row.system] * (row.system not in ("", "="))])
        for row in named_rows(rows)
    ]
    names = list(dict.fromkeys(labels))
    axes.plot(100 * rows["share"], [names.index(label) for label in labels], linestyle="none", **style.look(0))
    for share in STRONG:
        axes.axvline(100 * share, color=style.GREY, linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the bandwidth, %")
