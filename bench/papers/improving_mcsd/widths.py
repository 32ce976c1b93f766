"""Runs of fork-shaped trees along their width: one line per setting of all else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes

from bench import published
from bench.artifacts import style, tables
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.runs import Run
from bench.papers.improving_mcsd.methods import last
from bench.papers.improving_mcsd.rates import alpha, alpha_drafted, alpha_sample
from bench.papers.improving_mcsd.settings import PAPER
from bench.results.store import Results
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

METHOD = "dynamic_mcsd"
NO_DECISION = "no decision model"


class Point(Run):
    """The run of one width."""

    @property
    def width(self) -> int:
        """W."""
        return int(self.params["width"])

    @cached_property
    def alpha(self) -> Interval | None:
        """The paper's acceptance rate, over the most draft levels."""
        return alpha(self.block, self) if self.ok else None

    @property
    def alpha_sample(self) -> Sample | None:
        """The sums over conversations behind it."""
        return alpha_sample(self.block, self) if self.ok else None

    @cached_property
    def alpha_drafted(self) -> Interval | None:
        """The same over the levels that were drafted."""
        return alpha_drafted(self.block, self) if self.ok else None


@dataclass(frozen=True)
class Line:
    """The runs of a block that differ in their width alone, one a width; `label` tells it from others of its block."""

    block: Block
    rest: dict[str, Any]
    points: tuple[Point, ...]
    label: str = ""

    @property
    def decision(self) -> str:
        """Which decision model may end trees early."""
        return decision_words(self.rest.get("decision"))

    def at(self, width: int) -> Point | None:
        """The run of a width, if it ended well."""
        return next((point for point in self.points if point.width == width and point.ok), None)

    def drawn(self, of: Callable[[Point], Interval | None]) -> tuple[list[float], list[Interval]]:
        """Widths and values of the points that have one."""
        found = [(float(point.width), value) for point in self.points if (value := of(point))]
        return [width for width, _ in found], [value for _, value in found]


def lines(results: Results) -> list[Line]:
    """All lines, block by block; raises NoResultsError where no dynamic tree was drafted."""
    every = drafted_blocks(results, (METHOD,))
    printed = published.find(PAPER, "table4")
    return [line for block in every for line in _lines(block.standing_in(printed))]


def decision_words(decision: Any) -> str:
    """`no decision model`, or the kind of the one there is."""
    if not decision:
        return NO_DECISION
    return str(decision["kind"]) if isinstance(decision, dict) else str(decision)


def width_axis(axes: Axes, found: Iterable[Line], **texts: Any) -> None:
    """Ticks at the widths that were run, and the words of a panel."""
    points = [point for line in found for point in line.points if point.ok]
    lossless = {point.width for point in points if point["lossless"]}
    lossy = {point.width for point in points} - lossless
    but = f" but at W = {', '.join(map(str, sorted(lossless)))}" if lossless else ""
    axes.set_xticks(sorted(lossless | lossy))
    axes.set(xlabel="W: sequences of the tree" + (f" (lossy{but})" if lossy else ""), **texts)


def published_alpha(line: Line, point: Point) -> float | None:
    """The paper's, from its Table 4, for these models (or a stand-in's), prompts, temperature, width and depth."""
    target, draft = line.block.published_as or ("", "")
    first = line.block.first
    at: dict[str, Any] = {"dataset": first["dataset"], "temperature": float(first["temperature"])}
    params = f"width={point.width};depth={line.rest.get('depth')}"
    rows = published.find(PAPER, "table4", target=target, draft=draft, params=params, **at)
    return float(rows["value"].iloc[0]) if len(rows) else None


def nodes(point: Point) -> str:
    """Verified nodes a step, first tokens counted."""
    return tables.number(float(point.steps["num_drafted"].mean()) if len(point.steps) else None, 1)


def _lines(block: Block) -> Iterator[Line]:
    groups: dict[str, list[Point]] = {}
    for run in block.every:
        params = run.params
        if not params.get("decision"):
            params.pop("beta", None)  # a threshold of nothing
        if params.pop("width", None) is not None:
            groups.setdefault(json.dumps(params, sort_keys=True), []).append(Point(block, run.row))
    found = [part for key, points in groups.items() for part in _by_rule(Line(block, json.loads(key), tuple(points)))]
    for line in found:
        yield replace(line, label=_label(line, found))


def _by_rule(line: Line) -> Iterator[Line]:
    """The line itself; or one per rule, where some width was run by several. Of runs of the same `last` counts."""
    pairs = {(point.width, str(point["verifier"])) for point in line.points}
    rules: list[str | None] = [*sorted({rule for _, rule in pairs})]
    for rule in rules if len({width for width, _ in pairs}) < len(pairs) else [None]:
        runs: dict[int, list[Run]] = {}
        for point in line.points:
            if rule in (None, point["verifier"]):
                runs.setdefault(point.width, []).append(point)
        rest = line.rest | ({"rule": rule} if rule else {})
        yield Line(line.block, rest, tuple(Point(line.block, last(same).row) for _, same in sorted(runs.items())))


def _label(line: Line, found: Sequence[Line]) -> str:
    """What tells a line from the others of its block; two models of one kind by their hashes."""
    differ = [key for key in line.rest if any(other.rest.get(key, line.rest[key]) != line.rest[key] for other in found)]
    words = [f"{key}={line.rest[key]}" for key in differ if key != "decision"]
    if "decision" in differ:
        own = line.rest["decision"]
        several = any(other.decision == line.decision and other.rest.get("decision") != own for other in found)
        words.insert(0, f"{line.decision} {own['sha256']}" if several else line.decision)
    return ", ".join(words)


def band(axes: Axes, line: Line, of: Callable[[Point], Interval | None], index: int, **look: Any) -> None:
    """A line over the widths with its 95% intervals; nothing where no point has a value."""
    x, values = line.drawn(of)
    if values:
        style.band(axes, x, values, index, **look)
