"""Which published rows are about which cells of an experiment, and which reasons say why there is none.

A row of a numbered table is about the experiment of that table; what the text says of a metric is about those that
`sources.csv` names. Cells are described in the papers' words by whoever composes the configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.published import params_of

ANY = frozenset({"unstated", "unspecified", "all"})
"""What a paper does not name, or says of all it has: every model, dataset and method fits."""
NOBODY = "none"
"""What stands for models and methods where there are none."""
PLAIN = "autoregressive"
"""The method of a target without a draft, whatever the draft of a cell with a baseline."""
_ABOUT = frozenset({"aggregate", "bound", "figure", "source", "end", "baseline", "decoding"})
"""Params that tell of several cells, or where a number stands; the last two have rules of their own."""
_GIVEN_BY = {
    **dict.fromkeys(("speedup", "min_speedup", "max_speedup", "speedup_gain", "speedup_ratio"), "baseline"),
    **dict.fromkeys(("latency_reduction", "throughput_gain", "step_latency"), "baseline"),
    **dict.fromkeys(("rouge1", "rouge2", "rougeL"), "quality"),
    **dict.fromkeys(("mt_bench_score", "mt_bench_delta"), "answers"),
    **dict.fromkeys(("num_blocks", "block_reduction"), "blocks"),
    **dict.fromkeys(("attention_time", "attention_speedup"), "attention"),
    "flat_verify_length": "latency",
    "accepted_from_merged_share": "answer by token",
    "kl": "distributions",
}
"""What a cell must record for a metric (`Cell.gives`); for others its decoding steps suffice."""
STEPS = "steps"
_OPEN: Mapping[tuple[str, str], frozenset[str]] = {
    ("opt_tree", "binary"): frozenset({"nodes"}),  # 25, 50 and 60 are no full binary trees, and no others are told of
    ("gsd/table", "tsd"): frozenset({"theta_sib"}),  # the paper does not say that TSD prunes siblings
}
"""Params that a cell need not have, by the start of the artifact and the method."""
_KEYS = ("target", "draft", "dataset", "method", "metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of an experiment, or what it measures in place of cells, in the words of the paper."""

    experiment: str
    target: str
    draft: str
    dataset: str
    temperature: float
    methods: Mapping[str, Mapping[str, str]]
    """The paper's names of its method, each with what the params of a row must hold besides."""
    gives: frozenset[str]
    params: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The values of a param for which it stands."""
    beside: frozenset[str] = frozenset()
    """What its experiment has to set it against: names of methods, drafts and choices."""


def joins(rows: pd.DataFrame, cells: Iterable[Cell]) -> pd.Series:
    """For each published row whether cells give its number."""
    every = list(cells)
    found = [[cell for cell in every if fits(row, cell)] for row in rows.to_dict("records")]
    pairs = zip(rows["params"], found, strict=True)
    return pd.Series([_decoded(params_of(text), alike) for text, alike in pairs], index=rows.index, dtype=bool)


def fits(row: Mapping[Any, Any], cell: Cell) -> bool:
    """Whether a row is about a cell: experiment, models, prompts, decoding, method, params, and what is recorded."""
    return (
        cell.experiment in experiments(row["paper"], row["artifact"], row["metric"])
        and _GIVEN_BY.get(row["metric"], STEPS) in cell.gives
        and _is(row["target"], cell.target)
        and (_is(row["draft"], cell.draft) or _alone(row))
        and (_is(row["dataset"], cell.dataset) or row["dataset"] == NOBODY)
        and (pd.isna(row["temperature"]) or row["temperature"] == cell.temperature)
        and _of_method(row, cell)
        and _alike(row, cell)
    )


def experiments(paper: str, artifact: str, metric: str) -> list[str]:
    """Where a row's number comes from: a numbered table's own experiment, or those of the metric; [] for settings."""
    if metric.startswith("setting_"):
        return []
    if _numbered(artifact):
        return [f"{paper}/{artifact}"]
    return [f"{paper}/{name}" for name in published.sources().get((paper, metric), ())]


def covered(rows: pd.DataFrame, reason: Mapping[Any, Any]) -> pd.Series:
    """The rows of which a row of `published.unjoined` speaks; its params are items that theirs must hold."""
    keep = (rows["paper"] == reason["paper"]) & (rows["artifact"] == reason["artifact"])
    for key in _KEYS:
        keep &= True if reason[key] == "" else rows[key] == reason[key]
    if not pd.isna(reason["temperature"]):
        keep &= rows["temperature"] == reason["temperature"]
    wanted = params_of(reason["params"]).items()
    return keep & pd.Series([wanted <= params_of(text).items() for text in rows["params"]], index=rows.index)


def counted(paper: str) -> pd.DataFrame:
    """The rows of `published.unjoined` about a paper, each with the number of `rows` that it covers."""
    reasons, rows = published.unjoined(), published.load(paper)
    own = reasons[reasons["paper"] == paper].reset_index(drop=True)
    return own.assign(rows=[int(covered(rows, reason).sum()) for reason in own.to_dict("records")])


def _numbered(artifact: str) -> bool:
    return artifact.removeprefix("table").isdigit()


def _is(printed: str, name: str) -> bool:
    """Whether a name is among those that a row speaks of, `a|b` and `a+b` of either."""
    return printed in ANY or name in printed.replace("+", "|").split("|")


def _alone(row: Mapping[Any, Any]) -> bool:
    return bool(row["draft"] == NOBODY and row["method"] in (PLAIN, "verification"))


def _of_method(row: Mapping[Any, Any], cell: Cell) -> bool:
    """Whether a row is of a cell's method. A table's row says which of several it is, a text need not."""
    held, table = params_of(row["params"]), _numbered(row["artifact"])
    return any(
        _is(row["method"], name) and all(held.get(key, None if table else value) == value for key, value in own.items())
        for name, own in cell.methods.items()
    )


def _alike(row: Mapping[Any, Any], cell: Cell) -> bool:
    """Whether a cell has the params of a row, but for those that are open."""
    params, artifact = params_of(row["params"]), f"{row['paper']}/{row['artifact']}"
    rules = (keys for (start, method), keys in _OPEN.items() if artifact.startswith(start) and method == row["method"])
    asked = params.keys() - _ABOUT - frozenset().union(*rules)
    against = params.get("baseline")
    same = all(_numbers(cell.params.get(key, ())) & _numbers(params[key].split("|")) for key in asked)
    return same and (against is None or against in cell.beside)


def _numbers(values: Iterable[str]) -> set[str]:
    """Numbers in one spelling: 1.0 is 1."""
    return {f"{float(value):g}" if value.replace(".", "", 1).isdigit() else value for value in values}


def _decoded(params: Mapping[str, str], cells: Sequence[Cell]) -> bool:
    """Whether there are cells, and of both decodings where a number is a mean over greedy and top-p."""
    if params.get("decoding") != "greedy+top_p_mean":
        return bool(cells)
    greedy = any(cell.temperature == 0 for cell in cells)
    return greedy and any(_numbers(cell.params.get("top_p", ())) - {"1"} for cell in cells)
