"""One row of Tables 3 to 7: the arms of one block beside the paper's numbers for the same setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.report import tables, verdict
from bench.report.blocks import Block
from bench.report.sequoia.arms import METRICS, Arm, Cell, params_of
from bench.report.sequoia.layouts import Layout

DETAILS = (
    *("Method", "N", "levels"),
    *("speedup", "speedup published", "speedup predicted"),
    *("MAL", "MAL published", "MAL predicted"),
    *("s/token", "s/token published", "lossless", "verdict speedup", "verdict MAL"),
)


@dataclass(frozen=True)
class Row:
    """A block, or a setting of the paper that was not run (`block` is None), and the paper's rows for it."""

    layout: Layout
    who: dict[str, str]  # pair, dataset, temperature
    paper: pd.DataFrame
    block: Block | None = None

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Ours by arm."""
        return {arm.header: arm.pick(self.block) if self.block else Cell() for arm in self.layout.arms}

    @cached_property
    def published(self) -> dict[str, dict[str, float]]:
        """The paper's numbers by arm and metric."""
        return {arm.header: arm.published(self.paper) for arm in self.layout.arms}

    @property
    def runs(self) -> str:
        """The runs of all arms."""
        return " ".join(cell.run_id for cell in self.cells.values() if cell.run_id)

    def wide(self) -> dict[str, str]:
        """The paper's layout: a column per arm, the published value beside it."""
        row = dict(self.who)
        first = self.layout.arms[0].header
        if self.layout.tree:
            chosen, paper = self.cells[first], self.published[first]
            row["Tree"] = _tree(chosen.nodes, chosen.levels)
            row["Tree published"] = _tree(paper.get("tree_size"), paper.get("tree_depth"))
        for arm in self.layout.arms:
            cell, paper = self.cells[arm.header], self.published[arm.header]
            row[arm.header] = _ours(cell)
            row[f"{arm.header} published"] = _times(paper.get("speedup"), paper.get("tokens_per_step"))
            if arm.header == first and self.layout.tree:
                row[f"{first} predicted"] = _times(cell.predicted_speedup, cell.predicted_mal)
            if arm.header == first and self.layout.seconds:
                row["s/token"] = tables.number(cell.seconds.value if cell.seconds else None, 4)
                row["s/token published"] = tables.number(paper.get("latency_s_per_token"))
        return row

    def details(self) -> Iterator[tuple[dict[str, str], str]]:
        """A row per arm with intervals, predictions and verdicts, and its run."""
        for arm in self.layout.arms:
            yield self.who | self._detail(arm), self.cells[arm.header].run_id

    def _detail(self, arm: Arm) -> dict[str, str]:
        cell, paper = self.cells[arm.header], self.published[arm.header]
        nodes, levels = cell.nodes or tables.ABSENT, cell.levels or tables.ABSENT
        row = {"Method": arm.header, "N": str(nodes), "levels": str(levels)}
        for header, metric in (("speedup", "speedup"), ("MAL", "mal")):
            row[header] = tables.interval(getattr(cell.measured, metric, None))
            row[f"{header} published"] = tables.number(paper.get(METRICS[metric]))
            row[f"{header} predicted"] = tables.number(getattr(cell, f"predicted_{metric}"))
            row[f"verdict {header}"] = self._verdict(arm, metric)
        row["s/token"] = tables.interval(cell.seconds, 4)
        row["s/token published"] = tables.number(paper.get("latency_s_per_token"))
        row["lossless"] = tables.ABSENT if cell.measured is None else "yes" if cell.measured.lossless else "no"
        return row if cell.status in (None, "ok") else row | {"speedup": str(cell.status)}

    def _verdict(self, arm: Arm, metric: str) -> str:
        if self.block is None:
            return verdict.NOT_RUN
        pairings = {name: cell.pairing(metric, self.published[name]) for name, cell in self.cells.items()}
        hardware = "".join(self.paper["hardware"].unique()[:1])
        same = metric == "mal" or verdict.same_device(str(self.block.first["device_name"]), hardware)
        return verdict.judge(arm.header, pairings, stand_in=self.block.stand_in, same_device=same)


def setting_of(paper: pd.DataFrame, layout: Layout, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models, prompts and decoding; empty if it has none."""
    target, draft = block.published_as or ("", "")
    keep = (paper["target"] == target) & (paper["draft"] == draft)
    for column in layout.match:
        keep &= paper[column] == block.first[column]
    rows = paper[keep]
    return rows[_top_p(rows) == float(block.first["top_p"])] if layout.top_p else rows


def settings(paper: pd.DataFrame, layout: Layout) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """All rows of the paper's table: the words for the setting, and its published rows."""
    keys = [paper["target"], paper["draft"], *(paper[column] for column in layout.match)]
    keys += [_top_p(paper)] if layout.top_p else []
    for _, rows in paper.groupby(keys, sort=False):
        first = rows.iloc[0]
        who = {"Target": first["target"], "Draft": first["draft"], "Dataset": first["dataset"]}
        who["temperature"] = tables.ABSENT if pd.isna(first["temperature"]) else f"{first['temperature']:g}"
        yield who | ({"top-p": params_of(first["params"])["top_p"]} if layout.top_p else {}), rows


def _top_p(rows: pd.DataFrame) -> pd.Series:
    values = [float(params_of(text).get("top_p", "nan")) for text in rows["params"]]
    return pd.Series(values, index=rows.index, dtype=float, name="top_p")


def _ours(cell: Cell) -> str:
    if cell.measured is None or cell.status != "ok":
        return cell.status or tables.ABSENT
    speedup, mal = (value.value if value else None for value in (cell.measured.speedup, cell.measured.mal))
    return _times(speedup, mal)


def _times(speedup: float | None, mal: float | None) -> str:
    """`2.31x (3.40)`: speedup and tokens per step, as the paper prints them."""
    if speedup is None and mal is None:
        return tables.ABSENT
    return f"{tables.number(speedup)}{'' if speedup is None else 'x'} ({tables.number(mal)})"


def _tree(nodes: float | None, levels: float | None) -> str:
    return tables.ABSENT if nodes is None else f"({nodes:g}, {tables.number(levels, 0)})"
