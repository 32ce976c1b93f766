"""Who is ahead in a table, from the files alone: marks of the best and verdicts by order, without `specdec_trees`.

The rule is the one that the reports state. Two rows are told apart by the 95% interval of the ratio of their values, or
of their difference where one may be 0, over the conversations that both decoded, each left out in turn; two times also
need a ratio beyond what the autoregressive arms of their runs may differ by, of a mean of two decodings those of
either.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
from recomputed import Files, Numbers, gain, interval, of_two

PUBLISHED = Path(__file__).parents[1] / "specdec_trees" / "published"
NO_VALUE, NO_INTERVAL, ALONE = (
    f"not comparable: {reason}" for reason in ("no published value", "no interval", "other models")
)


def quotient(total: Any, end: str = "") -> Any:
    return total[f"above{end}"] / total[f"below{end}"]


@dataclass(frozen=True)
class Line:
    """One value of a row: sums by conversation, and what is made of them."""

    sums: pd.DataFrame
    value: Callable[..., Any] = quotient
    controls: tuple[pd.DataFrame, ...] = ()  # tokens and seconds of its runs' autoregressive arms, of times
    published: float | None = None
    lossless: bool = True
    plain: bool = False
    """Whether it is autoregressive decoding, against which a speedup's own interval stands."""

    @property
    def interval(self) -> Numbers:
        return interval(self.sums, self.value)

    @property
    def known(self) -> bool:
        return len(self.sums) >= 6 and not math.isnan(sum(self.interval))


def per_row(rows: pd.DataFrame, values: pd.Series, each: float = 1.0, **more: Any) -> Line:
    """Of a value per row: its sum / `each` times the number of rows that have one."""
    by = values.dropna().astype(float).groupby(rows["prompt_id"])
    return Line(pd.DataFrame({"above": by.sum(), "below": by.size() * each}), **more)


def mal(files: Files, run_id: str, **more: Any) -> Line:
    steps = files.steps(run_id)
    return per_row(steps, steps["acceptance_length"], **more)


def mal_as_published(files: Files, run_id: str, **more: Any) -> Line:
    by = files.steps(run_id).groupby("prompt_id")
    below = by.size() - by["turn"].nunique()
    return Line(pd.DataFrame({"above": by["acceptance_length"].sum(), "below": below}), **more)


def speedup(files: Files, run_id: str, *, prefill: bool = False, **more: Any) -> Line:
    control = _speed(files, "autoregressive", run_id, prefill=prefill)
    return Line(files.speedup_sums(run_id, prefill=prefill), gain, (control,), **more)


def mean_speedup(files: Files, first: str, other: str, **more: Any) -> Line:
    """Of two runs, over the conversations of both; the arms of either may say that two such means are a tie."""
    sums = files.speedup_sums(first).join(files.speedup_sums(other).add_suffix("/other"), how="inner")
    controls = tuple(_speed(files, "autoregressive", run_id) for run_id in (first, other))
    return Line(sums, lambda total, end="": (gain(total, end) + gain(total, f"/other{end}")) / 2, controls, **more)


def tokens_per_s(files: Files, run_id: str, *, prefill: bool = False, **more: Any) -> Line:
    own, control = (_speed(files, arm, run_id, prefill=prefill) for arm in ("method", "autoregressive"))
    return Line(own, quotient, (control,), **more)


def ahead(first: Line, other: Line) -> int:
    """1, -1, or 0 for a tie."""
    return compared(first, other)[0]


def compared(first: Line, other: Line) -> tuple[int, Numbers | None, Numbers, Numbers]:
    """Who is ahead, the ratio of the runs' arms where that hides it, and intervals: how far apart, and the ratio."""
    if other.plain:
        value, low, high = first.interval
        return int(low > 1) - int(high < 1), None, _logs((value, low, high)), (value, low, high)
    both = of_two(first.sums, other.sums)
    difference = interval(both, lambda total: first.value(total) - other.value(total, "_"), c=1, scale="plain")
    ratio = interval(both, lambda total: first.value(total) / other.value(total, "_"), c=1)
    alike = (ratio[0] > 1 and difference[0] > 0) or (ratio[0] < 1 and difference[0] < 0) or difference[0] == 0
    apart = _logs(ratio) if ratio[1] > 0 and alike else difference
    for found in _drifts(first, other):
        if max(ratio[0], 1 / ratio[0]) <= max(found[2], 1 / found[1]) + 1e-9:
            return 0, found, apart, ratio
    return int(apart[1] > 0) - int(apart[2] < 0), None, apart, ratio


def _logs(ratio: Numbers) -> Numbers:
    value, low, high = (math.log(one) if one > 0 else -math.inf for one in ratio)
    return value, low, high


def marks(lines: Sequence[Line]) -> list[str]:
    """` *` behind the best and ` =` behind its ties, over what all of them decoded; lossy rows are ranked apart.

    ` !` behind all where the autoregressive arms of most pairs may lie more than 20% apart.
    """
    if _busy([line for line in lines if line.known]):
        return [" !" if line.known else "" for line in lines]
    signs = [""] * len(lines)
    for lossless in (True, False):
        places = [place for place, line in enumerate(lines) if line.lossless == lossless and line.known]
        if len(places) < 2:
            continue
        shared = reduce(pd.Index.intersection, (lines[place].sums.index for place in places))
        if len(shared) < 6:
            continue
        kept = {place: _of(lines[place], shared) for place in places}
        best = max(places, key=lambda place: kept[place].interval[0])
        for place, line in kept.items():
            signs[place] = " *" if place == best else " =" if ahead(kept[best], line) == 0 else ""
    return signs


def _busy(lines: Sequence[Line]) -> bool:
    """By the median over pairs of runs."""
    reach: dict[int, list[float]] = {}
    for first, other in combinations(lines, 2):
        shared = first.sums.index.intersection(other.sums.index)
        for place, arms in enumerate(zip(first.controls, other.controls, strict=False)):
            both = of_two(*(arm[arm.index.isin(shared)] for arm in arms))
            if len(both) < 6:
                continue
            _, slower, faster = interval(both, lambda total: quotient(total) / quotient(total, "_"), c=1)
            reach.setdefault(place, []).append(max(faster, 1 / slower) - 1)
    return any(statistics.median(found) > 0.2 for found in reach.values())


def verdict(line: Line, others: Sequence[Line]) -> str:
    """Of a row of a stand-in: whether no other row with a published value says that the paper's order is not ours."""
    if line.published is None:
        return NO_VALUE
    if math.isnan(sum(line.interval)):
        return NO_INTERVAL
    judged = [other for other in others if other.published is not None and not math.isnan(sum(other.interval))]
    if not judged:
        return ALONE
    if _busy([line, *(other for other in others if other.known)]):
        return "not comparable: times too noisy"
    found = [_agrees(line, other) for other in judged]
    if False in [one for one, *_ in found]:
        return "differs"
    left = [(n, needed) for one, n, needed in found if one is None]
    if not left:
        return "order holds"
    fewest, most = min(n for n, _ in left), max(needed for _, needed in left)
    return f"not resolved (n = {fewest}; {words(fewest, most)})"


def words(n: int, needed: float) -> str:
    """The number to two digits, rounded up."""
    if needed == math.inf:
        return "more conversations would not tell"
    text = f"{max(needed, n + 1):.12f}".partition(".")[0]
    step = 10 ** max(len(text) - 2, 0)
    count = -(-max(needed, n + 1) // step) * step
    return f"about {count:,.0f} needed" if count <= 100_000 else "over 100,000 needed"


def _drifts(first: Line, other: Line) -> list[Numbers]:
    """How far apart the runs' autoregressive arms are; autoregressive decoding, which is 1, has none."""
    pairs = zip(first.controls, other.controls, strict=bool(first.controls and other.controls))
    return [interval(of_two(*arms), lambda total: quotient(total) / quotient(total, "_"), c=1) for arms in pairs]


def autoregressive(line: Line) -> Line:
    """What every speedup is set against: 1 by definition, in every conversation."""
    return Line(pd.DataFrame({"above": 1.0, "below": 1.0}, index=line.sums.index), published=1.0, plain=True)


def mark_of(cell: str) -> str:
    return cell[-2:] if cell.endswith((" *", " =", " !")) else ""


class Paper:
    """The published numbers of a table, for the models that a stand-in stands for."""

    def __init__(self, paper: str, table: str, run: dict[str, Any]) -> None:
        rows = pd.read_csv(PUBLISHED / f"{paper}.csv", keep_default_na=False, dtype=str)
        rows = rows[rows["artifact"] == table]
        names = json.loads(run["config"])["pair"]["published"]
        assert names["stand_in"], "other pairs are judged by value"
        printed = list(zip(rows["target"], rows["draft"], strict=True))
        drafted = [pair for pair in printed if pair[1] != "none"]
        own = (names["target"], names["draft"])
        target, draft = own if own in drafted else drafted[0]
        rows = rows[(rows["target"] == target) & rows["draft"].isin([draft, "none"])]
        rows = rows[rows["dataset"] == run["dataset"]]
        same = [text == "" or float(text) == run["temperature"] for text in rows["temperature"]]
        self.rows = rows[pd.Series(same, index=rows.index, dtype=bool)]

    def sizes(self, method: str) -> set[int]:
        """The tree sizes n of which the paper chose one; empty where it tells of none."""
        texts = self.rows.loc[self.rows["method"] == method, "params"]
        found = {
            size
            for text in texts
            for part in text.split(";")
            if part.startswith("nodes=")
            for size in part[6:].split("|")
        }
        return {int(size) for size in found}

    def value(self, method: str, metric: str, params: str = "") -> float | None:
        """The number, None where there is none; `params` is what its parameters begin with."""
        rows = self.rows[(self.rows["method"] == method) & (self.rows["metric"] == metric)]
        rows = rows[rows["params"].str.startswith(params)]
        assert len(rows) < 2
        return float(rows["value"].iloc[0]) if len(rows) else None


def _agrees(line: Line, other: Line) -> tuple[bool | None, int, float]:
    """Whether two rows stand as in the paper, None where it is not resolved; conversations there are, and needed."""
    assert line.published is not None
    assert other.published is not None
    theirs, n = line.published - other.published, len(line.sums.index.intersection(other.sums.index))
    ours, _, _, ratio = compared(line, other)
    if n < 6:
        return None, n, 6
    if ours * theirs > 0:
        return True, n, 0
    larger, smaller = max(line.published, other.published), min(line.published, other.published)
    if larger - smaller >= 0.05 * larger:
        half = (larger / smaller - 1) / 2 if smaller else 0.0
        drift = max((max(found[2], 1 / found[1]) for found in _drifts(line, other)), default=1.0)
        level = ratio[1] / drift >= 1 / (1 + half) and ratio[2] * drift <= 1 + half
        return (False, n, 0) if ours or level else (None, n, max(6, _of_a_pair(n, theirs, line, other)))
    if ratio[1] >= 0.95 and ratio[2] <= 1 / 0.95:
        return True, n, 0
    if ours and (ratio[2] < 0.95 or ratio[1] > 1 / 0.95):
        return False, n, 0
    return None, n, max(6, _of_a_pair(n, theirs, line, other))


def _of_a_pair(n: int, theirs: float, line: Line, other: Line) -> float:
    """Conversations that decide by sign, or, where the paper has a tie, by sign or by 5% of 1."""
    _, arms, (value, low, high), ratio = compared(line, other)
    by_sign = math.inf if value == 0 else n * max(1, ((value - low if value > 0 else high - value) / value) ** 2)
    if arms is not None:
        apart, drift = max(ratio[0], 1 / ratio[0]), max(arms[0], 1 / arms[0])
        hidden = (max(arms[2], 1 / arms[1]) - drift) / (apart - drift) if apart > drift else math.inf
        by_sign = max(by_sign, n * hidden**2)
    assert line.published is not None
    assert other.published is not None
    if abs(theirs) >= 0.05 * max(line.published, other.published):
        return by_sign
    band = math.inf if arms is not None else n * max(1, _into_or_out_of_the_band(*ratio))
    return min(band, by_sign) if value * theirs > 0 else band


def _into_or_out_of_the_band(value: float, low: float, high: float) -> float:
    """How many times as many conversations bring an interval wholly into 5% of 1, or wholly out of it."""
    if value > 1 / 0.95:
        return ((value - low) / (value - 1 / 0.95)) ** 2
    if value < 0.95:
        return ((high - value) / (0.95 - value)) ** 2
    return max(((value - low) / (value - 0.95)) ** 2, ((high - value) / (1 / 0.95 - value)) ** 2)


def _speed(files: Files, arm: str, run_id: str, *, prefill: bool = False) -> pd.DataFrame:
    by = files.seconds(arm, run_id, prefill=prefill).groupby("prompt_id")
    return pd.DataFrame({"above": by["t"].sum(), "below": by["s"].sum()})


def _of(line: Line, shared: pd.Index) -> Line:
    controls = tuple(control[control.index.isin(shared)] for control in line.controls)
    return Line(line.sums.loc[shared], line.value, controls)
