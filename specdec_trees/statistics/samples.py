"""Samples: a metric of one run as sums over its conversations, so that two runs can be compared in pairs.

A metric is a product of sums over conversations, divided by a product of others: MAL is tokens / steps, the speedup
(seconds of the baseline x tokens) / (tokens of the baseline x seconds); or the mean of several such quotients. What two
runs differ by is asked of the conversations that both decoded, each left out in turn, so that what one prompt gives to
both does not widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import intervals, metrics
from specdec_trees.statistics.intervals import Interval, Scale

_TURN = ["run_id", "prompt_id", "turn"]
_BOTH = pd.MultiIndex.from_product([["seconds", "tokens"], [METHOD, AUTOREGRESSIVE]])
Quotient = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of the sums above the line and below it."""
_Columns = list[tuple[list[int], list[int]]]
"""Where they stand, of every quotient of a metric."""
_COUNTED = {False: ("num_decoded_tokens", "decode_s"), True: ("num_decoded_tokens", "prefill_s", "decode_s")}
"""Tokens and seconds of a turn, without and with its prefill."""
TOO_BUSY = 0.2
"""Where autoregressive arms, which do the same work, may mostly lie further apart, times rank nothing."""
NOTHING = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """`sums` has a row per conversation; the metric is the product of `over`'s totals / the product of `under`'s.

    With `more` it is the mean of this quotient and of those. `controls` are metrics of the same runs, one for each run,
    that other runs should have too, were it not for the machine: the speeds of their autoregressive arms. Conversations
    know nothing of what changed between two runs; these do.
    """

    sums: pd.DataFrame
    over: tuple[str, ...]
    under: tuple[str, ...] = ()
    controls: tuple[Sample, ...] = ()
    more: tuple[Quotient, ...] = ()
    least: float = -math.inf
    most: float = math.inf
    """Between these the metric lies by its definition, and so does its interval."""

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """Those whose mean the metric is, mostly one."""
        return (self.over, self.under), *self.more

    def of(self, conversations: pd.Index) -> Sample:
        """The same of some conversations."""
        controls = tuple(control.of(conversations) for control in self.controls)
        return replace(self, sums=self.sums[self.sums.index.isin(conversations)], controls=controls)


def mal(steps: pd.DataFrame) -> Sample:
    """New tokens / decoding steps: 1 or more, and no more than a path of the deepest tree and the target's token.

    Below a virtual root the path has the target's token.
    """
    if steps.empty:
        return Sample(pd.DataFrame(columns=["tokens", "steps"]), ("tokens",), ("steps",), least=1.0)
    lengths = steps.groupby("prompt_id")["acceptance_length"]
    sums = pd.DataFrame({"tokens": lengths.sum(), "steps": lengths.size()})
    own = (steps["acceptance_length"] - steps["num_accepted"]).max()
    return Sample(sums, ("tokens",), ("steps",), least=1.0, most=float(steps["depth"].max() + own))


def expected_mal(prompts: pd.DataFrame, steps: pd.DataFrame) -> Sample | None:
    """MAL over all that draft and rule might draw, given the recorded answers; None without replays that sample."""
    known = prompts[prompts["expected_steps"].notna()]
    if known.empty:
        return None
    sums = known.groupby("prompt_id")[["expected_length", "expected_steps"]].sum()
    return replace(mal(steps), sums=sums.set_axis(["tokens", "steps"], axis=1))


def mal_as_published(steps: pd.DataFrame) -> Sample:
    """New tokens of all steps / (steps - 1 of each turn): OPT-Tree's script divides by the last step's index from 0.

    The tokens are those of `mal`: accepted ones and the target's own of every step, the token drawn from the prefill
    left out. No value where every turn is a single step.
    """
    if steps.empty:
        return mal(steps)
    sums = mal(steps).sums
    turns = steps.drop_duplicates(["prompt_id", "turn"]).groupby("prompt_id").size()
    return Sample(sums.assign(steps=sums["steps"] - turns), ("tokens",), ("steps",), least=1.0)


def speedup(prompts: pd.DataFrame, *, prefill: bool = False) -> Sample:
    """Decoding seconds per decoded token, autoregressive / method, of the turns that ended well in both arms.

    The first new token is drawn from the prefill, so that neither arm counts it; with `prefill` both count the seconds
    of the prefill. Raises ValueError where a turn is there twice in an arm.
    """
    turns = _turns(prompts, prefill=prefill)
    control = _speed(turns[turns["arm"] == AUTOREGRESSIVE])
    return _gain(_in_both(turns).groupby("prompt_id").sum(), control.sums)


def speedups(prompts: pd.DataFrame, run_ids: Sequence[str]) -> list[Sample]:
    """`speedup` of each of these runs, at the cost of one."""
    turns = _turns(prompts[prompts["run_id"].isin(run_ids)], prefill=False)
    plain = turns.loc[turns["arm"] == AUTOREGRESSIVE, ["run_id", "prompt_id", "seconds", "tokens"]]
    both, alone = (rows.groupby(["run_id", "prompt_id"]).sum() for rows in (_in_both(turns), plain))
    return [_gain(one, control) for one, control in zip(each(both, run_ids), each(alone, run_ids), strict=True)]


def speedup_of_each(prompts: pd.DataFrame) -> pd.Series:
    """The value of `speedup` of every run."""
    sums = _in_both(_turns(prompts, prefill=False)).groupby("run_id").sum()
    return (sums["seconds_base"] * sums["tokens"]) / (sums["tokens_base"] * sums["seconds"])


def each(sums: pd.DataFrame, run_ids: Iterable[str]) -> list[pd.DataFrame]:
    """The conversations of each run, none of one that has none."""
    by_run: dict[Any, pd.DataFrame] = dict(list(sums.groupby(level="run_id")))
    return [by_run.get(run_id, sums[:0]).droplevel("run_id") for run_id in run_ids]


def _in_both(turns: pd.DataFrame) -> pd.DataFrame:
    """Seconds and tokens of both arms, of the turns that both have."""
    pairs = turns.pivot(index=_TURN, columns="arm", values=["seconds", "tokens"]).reindex(columns=_BOTH).dropna()
    return pairs.set_axis(["seconds", "seconds_base", "tokens", "tokens_base"], axis=1)


def _gain(sums: pd.DataFrame, control: pd.DataFrame) -> Sample:
    plain = Sample(control, ("tokens",), ("seconds",))
    return Sample(sums, ("seconds_base", "tokens"), ("tokens_base", "seconds"), (plain,))


def tokens_per_s(prompts: pd.DataFrame, arm: str = METHOD, *, prefill: bool = False) -> Sample:
    """Decoded tokens / seconds of decoding of an arm, with `prefill` of both; the token drawn from it is left out."""
    turns = _turns(prompts, prefill=prefill)
    controls = (_speed(turns[turns["arm"] == AUTOREGRESSIVE]),) if arm == METHOD else ()
    return replace(_speed(turns[turns["arm"] == arm]), controls=controls)


def _speed(turns: pd.DataFrame) -> Sample:
    return Sample(turns.groupby("prompt_id")[["seconds", "tokens"]].sum(), ("tokens",), ("seconds",))


def seconds_per_token(prompts: pd.DataFrame, arm: str = METHOD) -> Sample:
    """Seconds of decoding / decoded tokens of an arm, prefill excluded."""
    speed = tokens_per_s(prompts, arm)
    return replace(speed, over=speed.under, under=speed.over)


def mean(values: pd.Series) -> Sample:
    """The mean over conversations of one value for each; `values` is indexed by prompt_id, missing ones left out."""
    kept = values.dropna().astype(float)
    return Sample(pd.DataFrame({"value": kept, "conversations": 1.0}), ("value",), ("conversations",))


def mean_of(*several: Sample) -> Sample:
    """The mean of several metrics, such as of a method's speedups in two decodings, over the conversations of all.

    Each is a ratio of its own totals, so that their mean is no ratio of sums.
    """
    return _mean(several, "inner")


def mean_over(*several: Sample) -> Sample:
    """The mean of several metrics over prompts of their own, such as of a method's speedups on several datasets."""
    apart = [pd.concat({place: one.sums}) for place, one in enumerate(several)]
    return _mean([replace(one, sums=sums) for one, sums in zip(several, apart, strict=True)], "outer")


def _mean(several: Sequence[Sample], join: Literal["inner", "outer"]) -> Sample:
    """Of the conversations of all, or of any: where one of the metrics knows nothing of it, its sums are 0."""
    ends = [f"/{place}" for place in range(len(several))]
    every = [one.sums.add_suffix(end) for one, end in zip(several, ends, strict=True)]
    sums = pd.concat(every, axis=1, join=join).fillna(0.0)
    (over, under), *more = [
        (tuple(name + end for name in above), tuple(name + end for name in below))
        for one, end in zip(several, ends, strict=True)
        for above, below in one.quotients
    ]
    controls = tuple(control for one in several for control in one.controls)
    least, most = (
        math.fsum(ends) / len(several) for ends in zip(*((one.least, one.most) for one in several), strict=True)
    )
    return Sample(sums, over, under, controls, tuple(more), least, most)


def interval(sample: Sample) -> Interval:
    """The metric with its 95% interval over conversations; nan without any."""
    made = _interval(sample.sums.sort_index(), lambda total: _value(total, _columns(sample)))
    return made.within(sample.least, sample.most)


def paired_ratio(first: Sample | None, other: Sample | None) -> Interval:
    """The first metric / the other over the conversations that both decoded, with its interval; nan without any."""
    return NOTHING if first is None or other is None else _ratio(*_joined(first, other))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two metrics over the conversations that both decoded: their difference and their ratio, first against other."""

    difference: Interval
    ratio: Interval
    control: Interval = NOTHING
    """The ratio of the two runs' controls, larger over smaller, of several the coarsest; nan where one has none."""

    @property
    def apart(self) -> Interval:
        """How far apart the two are: the logarithm of their ratio where both are above 0, else their difference.

        By the ratio a lead that all conversations share is one, however much they differ from each other.
        """
        ratio, difference = self.ratio, self.difference
        if not (ratio.known and ratio.low > 0 and (ratio.value - 1) * difference.value >= 0):
            return difference
        value, low, high = map(math.log, (ratio.value, ratio.low, ratio.high))
        return replace(ratio, value=value, low=low, high=high)

    @property
    def noise(self) -> float:
        """How far from 1 the machine alone may have moved the ratio; 0 without controls."""
        return resolution(self.control) if self.control.known else 0.0

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return self.difference.known

    @property
    def noisy(self) -> bool:
        """Whether the ratio is no further from 1 than the machine alone may move it."""
        return self.ratio.value > 0 and self._lead <= self.noise + 1e-9  # rounding tells nothing apart

    @property
    def blurred(self) -> bool:
        """Whether the conversations tell the two apart, and the machine alone may have done it."""
        return self.known and self.noisy and not self.apart.low <= 0 <= self.apart.high

    @property
    def _lead(self) -> float:
        """How far the ratio is from 1, either way round."""
        return max(self.ratio.value, 1 / self.ratio.value) - 1

    @property
    def ahead(self) -> int | None:
        """1 where the first metric is the larger one, -1 where it is the smaller one, 0 for a tie; None: unknown.

        A tie: the interval of how far they are apart holds 0, or the machine alone may move the ratio as far.
        """
        if not self.known:
            return None
        return 0 if self.noisy else int(self.apart.low > 0) - int(self.apart.high < 0)

    @property
    def needed(self) -> float:
        """Conversations after which a tie would be told apart, were all to go on like this; inf: no number would.

        More conversations help only if the machine drifted less than the two values differ.
        """
        told = intervals.needed(self.apart, -math.inf, 0.0)
        if self.known and self.difference.value == 0:
            return math.inf
        if not (self.known and self.noisy):
            return told
        drift = self.control.value - 1  # of the machine, as far as it is known
        if drift >= self._lead:
            return math.inf
        return max(told, self.control.n * ((self.noise - drift) / (self._lead - drift)) ** 2)


def compare(first: Sample, other: Sample) -> Comparison:
    """Set two metrics against each other; intervals are nan without common conversations."""
    both, sides = _joined(first, other)
    difference = _interval(
        both, lambda total: _value(total, sides[0]) - _value(total, sides[1]), intervals.IN_PAIRS, "plain"
    )
    return Comparison(difference, _ratio(both, sides), _control(first, other))


def unpaired(first: Interval, other: Interval) -> Comparison:
    """The same of two separate intervals, whose conversations are not the same or not known."""
    fewest = min(first.n, other.n), min(first.degrees, other.degrees)
    difference = Interval(first.value - other.value, first.low - other.high, first.high - other.low, *fewest)
    value, low, high = first.value, first.low, first.high
    ratio = Interval(_quotient(value, other.value), _quotient(low, other.high), _quotient(high, other.low), *fewest)
    return Comparison(difference, ratio)


def ahead(first: Sample, other: Sample) -> int | None:
    """`Comparison.ahead` of the two; in the other order the answer is the negative."""
    return compare(first, other).ahead


def resolution(ratio: Interval) -> float:
    """How far from 1 the interval of a run against its like reaches, either way round: less is not resolved."""
    return max(ratio.high, 1 / ratio.low if ratio.low > 0 else math.inf) - 1


def too_busy(every: Sequence[Sample]) -> bool:
    """Whether controls of two such metrics, over what both decoded, may mostly lie further apart than `TOO_BUSY`.

    A control that was lent to other runs counts once: with itself it always agrees.
    """
    controls = zip(*(one.of(one.sums.index).controls for one in every), strict=True)
    return any(typical_resolution(_once(of_place)) > TOO_BUSY for of_place in controls)


def _once(controls: Sequence[Sample]) -> list[Sample]:
    """Those that differ from all before them in a conversation that both have."""
    kept: list[Sample] = []
    for control in controls:
        if not any(_same(control, other) for other in kept):
            kept.append(control)
    return kept


def _same(first: Sample, other: Sample) -> bool:
    """Whether the two were measured once, in all conversations that both have."""
    both, _ = _joined(first, other)
    own, others = np.hsplit(both.to_numpy(), [len(first.sums.columns)])
    return len(both) > 0 and np.array_equal(own, others)


def typical_resolution(every: Sequence[Sample]) -> float:
    """The median `resolution` of the ratio of two of these metrics, over the conversations that both have.

    Pairs of fewer than `FEWEST` common conversations are left out; 0 without any. It is what `paired_ratio` gives for
    all pairs, at the cost of one for each metric. The largest would only grow with the number of runs.
    """
    known = [one for one in every if len(one.sums)]
    if len(known) < 2:
        return 0.0
    index = reduce(pd.Index.union, [one.sums.index for one in known])
    decoded = np.array([index.isin(one.sums.index) for one in known])
    pairs: dict[bytes, list[tuple[int, int]]] = {}
    for first, other in combinations(range(len(known)), 2):
        pairs.setdefault((decoded[first] & decoded[other]).tobytes(), []).append((first, other))
    shared = {both: index[np.frombuffer(both, dtype=bool)] for both in pairs}
    reach = [_resolutions(known, shared[both], alike) for both, alike in pairs.items()]
    return float(np.median(np.concatenate(reach))) if any(map(len, reach)) else 0.0


def _resolutions(known: Sequence[Sample], shared: pd.Index, pairs: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """`resolution` of the ratios of pairs of metrics, by their places, over shared conversations."""
    if len(shared) < intervals.FEWEST:
        return np.empty(0)
    whole, without = np.ones(len(known)), np.ones((len(known), len(shared)))
    for place in {place for pair in pairs for place in pair}:
        sums, columns = known[place].sums.loc[shared].to_numpy(dtype=float), _columns(known[place])
        whole[place], without[place] = _value(sums.sum(axis=0), columns), _value(intervals.left_out(sums), columns)
    sound = {place for place, values in enumerate(without) if (np.isfinite(values) & (values > 0)).all()}
    places = [pair for pair in pairs if sound.issuperset(pair)]
    first, other = np.array(places, dtype=int).reshape(-1, 2).T
    low, high, _ = intervals.bounds(whole[other] / whole[first], without[other] / without[first], intervals.IN_PAIRS)
    return np.maximum(high, 1 / low) - 1


def _control(first: Sample, other: Sample) -> Interval:
    """The ratio of the two metrics' controls, larger over smaller; of several pairs the one that resolves least.

    A control that both have of one decoding says nothing.
    """
    if not (first.controls and other.controls):
        return NOTHING
    pairs = zip(first.controls, other.controls, strict=True)
    found = [upright(paired_ratio(*pair)) for pair in pairs if not _same(*pair)]
    return max((one for one in found if one.known), key=resolution, default=NOTHING)


def upright(ratio: Interval) -> Interval:
    """A ratio the larger over the smaller, so that it reaches furthest upwards."""
    if not ratio.value < 1 or not ratio.low > 0:
        return ratio
    return replace(ratio, value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def _turns(prompts: pd.DataFrame, *, prefill: bool) -> pd.DataFrame:
    """Seconds and tokens of the turns that ended well and have times that count: of decoding, or of the prefill too.

    Turns whose answer ended with its first token have no decoding to count.
    """
    if prompts.empty:
        prompts = pd.DataFrame(columns=[*_TURN, "status", "arm", *_COUNTED[True]])
    tokens, *seconds = _COUNTED[prefill]
    counted = (prompts["status"] == "ok") & ~metrics.untimed(prompts)
    counted = counted if prefill else counted & (prompts[tokens] > 0)
    known = {name: prompts[name][counted] for name in (*_TURN, "arm", tokens, *seconds)}
    spent = sum(known.pop(name).fillna(0) for name in seconds)
    return pd.DataFrame(known).rename(columns={tokens: "tokens"}).assign(seconds=spent)


def _joined(first: Sample, other: Sample) -> tuple[pd.DataFrame, tuple[_Columns, _Columns]]:
    """Sums of both over the conversations of both, [conversations, columns]; in which columns each metric stands."""
    alike = first.sums.index.equals(other.sums.index)
    shared = first.sums.index if alike else first.sums.index.intersection(other.sums.index).sort_values()
    rows = (one.sums if alike else one.sums.loc[shared] for one in (first, other))
    sums = np.hstack([one.to_numpy(dtype=float) for one in rows])
    return pd.DataFrame(sums, index=shared), (_columns(first), _columns(other, len(first.sums.columns)))


def _ratio(both: pd.DataFrame, sides: tuple[_Columns, _Columns]) -> Interval:
    return _interval(both, lambda total: _divide(*(_value(total, side) for side in sides)), intervals.IN_PAIRS)


def _columns(sample: Sample, start: int = 0) -> _Columns:
    place = {name: start + column for column, name in enumerate(sample.sums.columns)}
    return [([place[name] for name in over], [place[name] for name in under]) for over, under in sample.quotients]


def _value(total: NDArray[np.float64], columns: _Columns) -> NDArray[np.float64]:
    """The mean of the quotients."""
    each = [_divide(total[over].prod(axis=0), total[under].prod(axis=0)) for over, under in columns]
    return np.mean(each, axis=0)


def _divide(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """A quotient, nan where there is nothing to divide by."""
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=np.asarray(below) != 0)


def _quotient(above: float, below: float) -> float:
    return above / below if below else math.nan


def _interval(
    sums: pd.DataFrame,
    value: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    stretch: float = intervals.ALONE,
    scale: Scale = "log",
) -> Interval:
    """Within each of several datasets, which the first level of the index tells apart.

    A conversation in which nothing was counted, such as one that ended with its first token, says nothing.
    """
    values = sums.to_numpy(dtype=float)
    counted = (values != 0).any(axis=1)
    if not counted.any():
        return NOTHING
    strata = sums.index.codes[0][counted] if isinstance(sums.index, pd.MultiIndex) else None
    return intervals.of_sums(values[counted], value, stretch=stretch, scale=scale, strata=strata)
