"""`python -m specdec_trees.statistics.coverage`: how often a 95% interval of few conversations holds the value of all.

The conversations of committed cells of 80 are taken for all that there are. Of them n are drawn, with replacement, and
the interval of these holds the value of the 80 or misses it. The bootstrap that reports had before stands beside.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specdec_trees.results import store
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import Scale
from specdec_trees.statistics.samples import Sample

CELLS = Path("results/reference/bench/mt_bench")
CONVERSATIONS = 80
SIZES = (6, 8, 12, 24, 40, 80)
DRAWS = 2000
BOOTSTRAP, JACKKNIFE = "bootstrap, before", "jackknife"
Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]
AS_REPORTED: dict[str, tuple[float, Scale]] = {
    "E(A)": (intervals.EVEN, "log"),
    "acceptance rate, of depth": (intervals.ALONE, "logit"),
}
"""Stretch and scale of those metrics of one run that reports do not give by the logarithm like the others."""


@dataclass(frozen=True, slots=True)
class Population:
    """Sums of all conversations, [conversations, columns], and the metric that is made of their totals."""

    metric: str
    sums: Floats
    value: Callable[[Floats], Floats]
    stretch: float = intervals.ALONE
    scale: Scale = "log"

    def jackknife(self, drawn: Floats) -> Bounds:
        """The intervals of reports, of drawn conversations [draws, n, columns]."""
        total = drawn.sum(axis=1)
        without = self.value(np.moveaxis(total[:, None] - drawn, 2, 0))
        return intervals.bounds(self.value(total.T), without, self.stretch, self.scale)[:2]

    def bootstrap(self, drawn: Floats, rng: np.random.Generator, resamples: int = 400) -> Bounds:
        """Percentiles over conversations drawn anew from those drawn."""
        count = drawn.shape[1]
        often = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(float)
        low, high = np.quantile(self.value(np.moveaxis(often @ drawn, 2, 0)), [0.025, 0.975], axis=1)
        return low, high


def populations(folder: Path = CELLS) -> list[Population]:
    """All metrics of the drafting cells of 80 conversations, and of every two in pairs."""
    results = store.load(*store.located(folder))
    runs = results.runs[results.runs["num_conversations"] == CONVERSATIONS]
    if runs.empty:
        raise ValueError(f"{folder} has no cell of {CONVERSATIONS} conversations")
    steps, prompts = (dict(iter(frame.groupby("run_id"))) for frame in (results.steps, results.prompts))
    drafting = runs.loc[runs["method"] != AUTOREGRESSIVE, "run_id"]
    alone = [of_run(steps[run_id], prompts[run_id]) for run_id in drafting]
    plain = [samples.tokens_per_s(prompts[run_id], AUTOREGRESSIVE) for run_id in runs["run_id"]]
    pairs = [
        ("ratio of two MAL", [one["MAL"] for one in alone]),
        ("ratio of two speedups", [one["speedup"] for one in alone]),
        ("A/A", plain),
    ]
    single = [_alone(name, one) for every in alone for name, one in every.items()]
    ratios = [_paired(name, *two) for name, every in pairs for two in itertools.combinations(every, 2)]
    apart = [_apart("difference of two MAL", *two) for two in itertools.combinations([one["MAL"] for one in alone], 2)]
    return [*single, *ratios, *apart]


def of_run(steps: pd.DataFrame, prompts: pd.DataFrame) -> dict[str, Sample]:
    """The metrics of one run by name."""
    by = steps.groupby("prompt_id")
    columns = ["expected_acceptance", "num_accepted", "depth", "num_drafted"]
    sums = by[columns].sum().astype(float).assign(steps=by.size())
    return {
        "MAL": samples.mal(steps),
        "E(A)": Sample(sums, ("expected_acceptance",), ("steps",)),
        "acceptance rate, of depth": Sample(sums, ("num_accepted",), ("depth",)),
        "acceptance rate, of nodes": Sample(sums, ("num_accepted",), ("num_drafted",)),
        "tokens/s": samples.tokens_per_s(prompts),
        "speedup": samples.speedup(prompts),
    }


def misses(population: Population, size: int, draws: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """By rule, of how many draws of so many conversations the value of all lies below the interval, and above."""
    rng = np.random.default_rng(seed)
    drawn = population.sums[rng.integers(len(population.sums), size=(draws, size))]
    truth = population.value(population.sums.sum(axis=0))
    ends = {BOOTSTRAP: population.bootstrap(drawn, rng), JACKKNIFE: population.jackknife(drawn)}
    return {rule: (float(np.mean(truth < low)), float(np.mean(truth > high))) for rule, (low, high) in ends.items()}


def table(every: Sequence[Population], draws: int, sizes: Sequence[int] = SIZES) -> pd.DataFrame:
    """Mean shares `covered`, `below` and `above` over the populations of a metric, by metric, rule and size."""
    rows = [
        {"metric": one.metric, "rule": rule, "n": size, "covered": 1 - below - above, "below": below, "above": above}
        for size in sizes
        for place, one in enumerate(every)
        for rule, (below, above) in misses(one, size, draws, seed=place).items()
    ]
    found = pd.DataFrame(rows).pivot_table(index=["metric", "rule"], columns="n", sort=False)
    return found.sort_index(axis=1)


def to_markdown(found: pd.DataFrame) -> Iterator[str]:
    """A line for every metric and rule: percent that hold the value; in parentheses, that it lies below and above."""
    sizes = list(dict.fromkeys(found.columns.get_level_values("n")))
    yield "| Metric | Interval | " + " | ".join(f"n = {size}" for size in sizes) + " |"
    yield "|---|---|" + "---|" * len(sizes)
    for names, row in found.iterrows():
        cells = [_percents(*(row[part, size] for part in ("covered", "below", "above"))) for size in sizes]
        yield "| " + " | ".join([*names, *cells]) + " |"  # type: ignore[misc]


def _percents(covered: float, below: float, above: float) -> str:
    return f"{covered * 100:.0f} ({below * 100:.0f}, {above * 100:.0f})"


def _places(sums: pd.DataFrame, names: Sequence[str]) -> list[int]:
    return [list(sums.columns).index(name) for name in names]


def _alone(metric: str, sample: Sample) -> Population:
    stretch, scale = AS_REPORTED.get(metric, (intervals.ALONE, "log"))
    return Population(metric, sample.sums.to_numpy(dtype=float), _quotient(sample), stretch, scale)


def _paired(metric: str, first: Sample, other: Sample) -> Population:
    sums = first.sums.join(other.sums.add_suffix("/other"), how="inner")
    above, below = ([f"{name}/other" for name in names] for names in (other.under, other.over))
    ratio = Sample(sums, (*first.over, *above), (*first.under, *below))
    return Population(metric, sums.to_numpy(dtype=float), _quotient(ratio), intervals.IN_PAIRS)


def _apart(metric: str, first: Sample, other: Sample) -> Population:
    sums = first.sums.join(other.sums.add_suffix("/other"), how="inner")
    above, below = (tuple(f"{name}/other" for name in names) for names in (other.over, other.under))
    sides = [_quotient(side) for side in (replace(first, sums=sums), Sample(sums, above, below))]
    value = sums.to_numpy(dtype=float)
    return Population(metric, value, lambda total: sides[0](total) - sides[1](total), intervals.IN_PAIRS, "plain")


def _quotient(sample: Sample) -> Callable[[Floats], Floats]:
    over, under = (_places(sample.sums, names) for names in (sample.over, sample.under))
    return lambda total: np.asarray(total[over].prod(axis=0) / total[under].prod(axis=0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.statistics.coverage", description=__doc__)
    parser.add_argument("--results", type=Path, default=CELLS, help="folder of an experiment with cells of 80")
    parser.add_argument("--draws", type=int, default=DRAWS, help="samples of each size from each cell")
    args = parser.parse_args()
    print("\n".join(to_markdown(table(populations(args.results), args.draws))))


if __name__ == "__main__":
    main()
