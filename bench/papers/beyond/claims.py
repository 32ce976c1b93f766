"""Which claims hold: each paper's main orders on the embedded pairs and on the real model, from the same results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bench import published
from bench.artifacts import tables, verdict
from bench.artifacts.arms import LENGTH, Arm
from bench.artifacts.blocks import Block, blocks, drafted
from bench.artifacts.grid import Cell, Column, Setting
from bench.artifacts.metric import MAL
from bench.artifacts.outputs import NoResultsError, Output, read_results
from bench.artifacts.speedups import of_block
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.verdict import Pairing
from bench.papers.dyspec.layouts import LAYOUTS as DYSPEC
from bench.papers.gsd import methods as gsd
from bench.papers.gsd.table1 import RATE
from bench.papers.improving_mcsd.comparison import ALPHA, TABLES
from bench.papers.sequoia.layouts import LAYOUTS as SEQUOIA
from bench.results.store import Results
from bench.statistics import samples

TITLE = "Which claims hold on a real model"
GROUPS = {"embedded pair": "tiny", "real model": "smollm2"}
"""What the pairs of a column are called, and how their names begin."""
KINDS = {"causal_lm": "model", "reduced_lm": "model", "eagle": "EAGLE head"}
"""Of drafts; no paper compares methods where the target drafts for itself."""
_OPT_TREE = Column(MAL, paper="mal")
_LENGTH = Column(MAL, paper=LENGTH)


LEGEND = {
    "Claim": "which method is ahead of which in the paper's table",
    "measure": f"of both; MAL: {MAL.means}; acceptance rate and alpha as in the paper's table",
    "Draft": "a model or an EAGLE head; the papers' are models but for OPT-Tree's heads",
} | {
    header: meaning
    for group in GROUPS
    for header, meaning in {
        group: "the first method's value / the second's, each the mean over the table's datasets that were run; in "
        "brackets the 95% interval of the ratio, bootstrap over conversations that both decoded",
        f"{group} published": "the ratio of the paper's values, means over the same datasets",
        f"{group} n": "conversations",
        f"verdict {group}": "on these two methods alone, by the rule of all tables (bench/artifacts/verdict.py)",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Claim:
    """In a paper's table the first method is ahead of the second; `rows` are the paper's for a block."""

    artifact: str
    ahead: Arm
    behind: Arm
    column: Column
    rows: Callable[[pd.DataFrame, Block], pd.DataFrame]
    given: Mapping[str, Any] = field(default_factory=dict)
    """What a block's runs must have."""

    @property
    def words(self) -> str:
        """`OPT-Tree > binary`."""
        return f"{self.ahead.header} > {self.behind.header}"

    @property
    def measure(self) -> str:
        """`MAL`, `acceptance rate`."""
        header = self.column.header
        return header if header.isupper() else header.lower()


@dataclass(frozen=True, slots=True)
class _Found:
    """Both methods on one pair and one dataset, where the paper has both as well."""

    block: Block
    setting: Setting

    @property
    def kind(self) -> tuple[float, str]:
        """The temperature and the kind of draft."""
        return float(self.block.first["temperature"]), KINDS[_draft(self.block)]


def _of_table(*match: str) -> Callable[[pd.DataFrame, Block], pd.DataFrame]:
    return lambda paper, block: of_block(paper, match, block)


def _first_ahead(
    artifact: str,
    arms: Sequence[Arm],
    column: Column,
    rows: Callable[[pd.DataFrame, Block], pd.DataFrame],
    **given: Any,
) -> list[Claim]:
    """Of the first method against each other one."""
    first, *others = arms
    return [Claim(artifact, first, other, column, rows, given) for other in others]


_PLAIN = _of_table("dataset", "temperature")
_TREES = (
    Arm("OPT-Tree, n = 25", ("opt_tree",), "opt_tree", given={"n": 25}),
    Arm("EAGLE's tree", ("eagle25",), "eagle_tree"),
    Arm("binary, n = 25", ("binary_n25",), "binary"),
)
_PRINTED = [arm for arm in reversed(TABLES["table2"].methods) if arm.paper]
CLAIMS: Sequence[Claim] = (
    *_first_ahead("opt_tree/table1", _TREES, _OPT_TREE, _PLAIN),
    *_first_ahead("sequoia/table4", SEQUOIA["table4"].arms[1:], _LENGTH, _PLAIN),
    *_first_ahead(
        "sequoia/table6", SEQUOIA["table6"].arms, _LENGTH, _of_table("dataset", "temperature", "top_p"), top_p=1.0
    ),
    *_first_ahead("dyspec/table1", DYSPEC["table1"].arms[:3], _LENGTH, _PLAIN),
    *_first_ahead("gsd/table1", (gsd.GSD, gsd.TSD, gsd.SSD), RATE, gsd.of_setting, temperature=0.0),
    *_first_ahead("improving_mcsd/table2", _PRINTED, ALPHA, _PLAIN),
)


def read(folder: Path, pair: str | None) -> dict[str, Results]:
    """The results of every experiment that a claim is of, of those beside `folder` that were run."""
    found: dict[str, Results] = {}
    for name in dict.fromkeys(claim.artifact for claim in CLAIMS):
        with contextlib.suppress(NoResultsError):
            found[name] = read_results(folder.parent / name, pair)
    if not found:
        raise NoResultsError("no experiment that a claim is of was run")
    return found


def claims(name: str, found: Mapping[str, Results]) -> list[Output]:
    """A row per claim, temperature and kind of draft: the ratio and the verdict on either side."""
    rows, shown = [], []
    for claim in CLAIMS:
        known = [*_found(claim, found[claim.artifact])] if claim.artifact in found else []
        for temperature, draft in dict.fromkeys(one.kind for one in known):
            alike = [one for one in known if one.kind == (temperature, draft)]
            words = {"Table": claim.artifact, "Claim": claim.words, "measure": claim.measure}
            sides = [_side(claim, group, [one for one in alike if _is_of(group, one)]) for group in GROUPS]
            rows.append(words | {"temperature": f"{temperature:g}", "Draft": draft} | sides[0] | sides[1])
            shown.append(" ".join(one.setting.run_ids for one in alike))
    if not rows:
        raise NoResultsError("of no claim both methods were run")
    return [Table(name, TITLE, tables.frame(rows, rows[0]), (), LEGEND, tuple(shown))]


def _is_of(group: str, one: _Found) -> bool:
    return one.block.pair.startswith(GROUPS[group])


def _draft(block: Block) -> str:
    pair = json.loads(block.first["config"]).get("pair") or {}
    return str((pair.get("draft") or {}).get("kind"))


def _found(claim: Claim, results: Results) -> Iterator[_Found]:
    paper = published.find(*claim.artifact.split("/"))
    paper["top_p"] = [float(published.params_of(text).get("top_p", "nan")) for text in paper["params"]]
    for block in blocks(results):
        block = block.standing_in(drafted(paper))
        setting = Setting({}, (claim.ahead, claim.behind), claim.rows(paper, block), [block])
        asked = _draft(block) in KINDS and all(block.first[name] == value for name, value in claim.given.items())
        if asked and all(_pairing(claim.column, [cell]) for cell in setting.cells):
            yield _Found(block, setting)


def _pairing(column: Column, cells: Sequence[Cell]) -> Pairing | None:
    """Ours and the paper's value, means over settings; None where one of them lacks either."""
    numbers, sums = [column.number(cell) for cell in cells], [column.sample(cell) for cell in cells]
    known, own = [one for one in numbers if one is not None], [one for one in sums if one is not None]
    if not cells or min(len(known), len(own)) < len(cells):
        return None
    sample = samples.mean_over(*own)
    return Pairing(samples.interval(sample), sum(known) / len(known), sample)


def _side(claim: Claim, group: str, found: Sequence[_Found]) -> dict[str, str]:
    """The cells of one group's pairs."""
    headers = (group, f"{group} published", f"{group} n", f"verdict {group}")
    first, other = (_pairing(claim.column, [one.setting.cells[place] for one in found]) for place in (0, 1))
    if not (first and other and first.sample and other.sample and first.published and other.published):
        return dict.fromkeys(headers, ABSENT)
    ratio = samples.compare(first.sample, other.sample).ratio
    said = verdict.judge("first", {"first": first, "other": other}, stand_in=True)
    lead = tables.number(first.published / other.published)
    return dict(zip(headers, (tables.ratio(ratio), lead, str(ratio.n), said), strict=True))
