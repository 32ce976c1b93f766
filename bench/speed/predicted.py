"""How fast a machine would run what was decoded or replayed: every step priced by times of forwards.

    python -m bench.speed.predicted results/reference --pair tiny --on "h100 80gb"

A step costs the target's forward over the tree and its root, each draft forward over its tokens, and what the loop
takes beside forwards: the median of the method's other runs of the pair, else of all. Forward times are those kept of
the pair (`make latency`), of each machine apart. A card named by --on is not measured: its forwards read the weights
once, by the bandwidth of its data sheet, and take no less than their launches; more than some 200 tokens take longer.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bench.configs.cells import pair_of
from bench.names import unknown
from bench.plan.composing import composer
from bench.plan.estimates import memory_of, shape_of
from bench.plan.times import Times
from bench.results.kept_rows import FOLDER
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import OK, Store, experiments

LAUNCH_S = 4.5e-6
LAUNCHES, LAUNCHES_PER_LAYER = 20, 40
"""Of a forward of a Llama in bfloat16, without graphs, as counted."""
KEY = ["dataset", "temperature", "drafter", "verifier", "size"]
Floats = NDArray[np.float64]
Forward = Callable[[Floats], Floats]
"""Seconds of forwards over so many tokens; NaN where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What forwards of a pair cost on a machine."""

    machine: str
    target: Forward
    draft: Forward
    measured: bool = True

    @classmethod
    def kept(cls, rows: pd.DataFrame) -> "list[Prices]":
        """Of each device and dtype with forward times of the pair: the medians by size, and lines between these."""
        found = []
        for (device, dtype), group in rows.groupby(["device_name", "dtype"]):
            roles = {str(role): _between(times) for role, times in group.groupby("role")}
            if "target" in roles:
                draft = roles.get("draft", lambda sizes: np.full_like(sizes, np.nan))
                found.append(cls(machine=f"{device}, {dtype}", target=roles["target"], draft=draft))
        return found

    @classmethod
    def of_card(cls, pair: str, card: str) -> "Prices":
        """Of a card of `cards.csv`, in bfloat16. ValueError for another one."""
        with composer() as composes:
            spec = pair_of(composes([f"pair={pair}"]))
        times = Times.of_bandwidth(memory_of(spec, [], torch.bfloat16), card)
        if times is None:
            raise ValueError(f"bench/published/cards.csv has no bandwidth of one card {card!r}")
        shape = shape_of(spec.target)
        target = _least(times.target(1), shape)
        draft = _least(times.draft(1), shape_of(spec.draft, shape)) if spec.draft else 0.0
        return cls(
            machine=f"{card}, bfloat16, estimated",
            target=lambda sizes: np.full_like(sizes, target),
            draft=lambda sizes: np.full_like(sizes, draft),
            measured=False,
        )

    def predicted(self, runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
        """By run id: tokens per second and the speedup over the target alone, prefills left out."""
        forwards = steps["draft_forwards"].to_numpy(float)
        widths = steps["draft_tokens"].to_numpy(float) / np.maximum(forwards, 1)
        drafted = np.where(forwards > 0, forwards * self.draft(widths), 0.0)
        seconds = self.target(steps["num_drafted"].to_numpy(float) + 1) + drafted
        sums = steps.assign(seconds=seconds, steps=1).groupby("run_id")[["seconds", "steps", "kept"]].sum(min_count=1)
        unknown = steps.assign(unknown=np.isnan(seconds)).groupby("run_id")["unknown"].any()
        sums.loc[unknown, "seconds"] = np.nan
        host = runs.set_index("run_id")["host_s"].reindex(sums.index)
        per_token = (sums["seconds"] + host * sums["steps"]) / sums["kept"]
        plain = runs.loc[runs["method"] == AUTOREGRESSIVE, "step_s"].median()
        alone = self.target(np.ones(1))[0] + (0.0 if np.isnan(plain) else plain)
        return pd.DataFrame({"tokens_per_s": 1 / per_token, "speedup": alone / per_token})


def read(root: Path, pair: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `runs` of a pair that ended well, each once, and their steps, of all experiments of a folder.

    `step_s` is what a run's step takes beside forwards, NaN of replays; `host_s` the same as other runs tell it.
    """
    runs, steps, seen = [], [], set[str]()
    for store in experiments(root, "runs"):
        rows = store.read("runs")
        new = rows[(rows["pair"] == pair) & (rows["status"] == OK) & ~rows["run_id"].isin(seen)]
        seen |= set(new["run_id"])
        runs.append(new.drop_duplicates("run_id"))
        steps.append(store.read("steps", list(runs[-1]["run_id"])))
    if not seen:
        raise ValueError(unknown("pair with runs", pair, _pairs(root)))
    both = pd.concat(runs, ignore_index=True), pd.concat(steps, ignore_index=True)
    return _with_host(*both), both[1]


def lines(root: Path, pair: str, cards: Sequence[str]) -> Iterator[str]:
    """A table of the pair's cells, and how far predictions are from what was measured on the same machine."""
    runs, steps = read(root, pair)
    latency = Store(root, FOLDER).read("latency")
    prices = [*Prices.kept(latency[latency["pair"] == pair]), *(Prices.of_card(pair, card) for card in cards)]
    if not prices:
        yield f"no forward times of {pair} in {root}: `python -m bench.latency pair={pair}` measures them"
    shown = runs.set_index("run_id")[[*KEY, "mal", "speedup"]]
    for one in prices:
        shown[one.machine] = one.predicted(runs, steps)["speedup"]
    yield shown.sort_values(KEY).to_string(index=False, float_format="{:.2f}".format, na_rep="-")
    for one in prices:
        yield from _errors(runs, shown, one)


def errors(runs: pd.DataFrame, predicted: pd.Series, machine: str) -> pd.Series:
    """Of runs on the machine predicted / measured - 1 of their speedups, by run id."""
    here = runs[runs["device_name"] + ", " + runs["dtype"] == machine].set_index("run_id")["speedup"].dropna()
    return (predicted.reindex(here.index) / here - 1).dropna()


def _errors(runs: pd.DataFrame, shown: pd.DataFrame, prices: Prices) -> Iterator[str]:
    found = errors(runs, shown[prices.machine], prices.machine)
    if not prices.measured:
        yield f"{prices.machine}: speedups are estimates by bandwidth and launches; the loop's own time is that of here"
    elif len(found):
        size = found.abs()
        yield (
            f"{prices.machine}: {len(found)} speedups are predicted and measured; off by {size.median():.1%} (median), "
            f"{size.quantile(0.9):.1%} (nine in ten at most); too fast by {found.median():+.1%} (median)"
        )


def _with_host(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """With the columns `size`, `step_s` and `host_s`."""
    beside = steps.assign(s=steps[["tree_s", "judge_s", "commit_s"]].sum(axis=1, min_count=3))
    step_s = runs["run_id"].map(beside.groupby("run_id")["s"].mean())
    step_s = step_s.where(runs["recording"].isna())
    most = runs["run_id"].map(steps.groupby("run_id")["num_drafted"].max())
    runs = runs.assign(step_s=step_s, size=most)
    return runs.assign(host_s=[_host(runs, row) for row in runs.itertuples()])


def _host(runs: pd.DataFrame, run: Any) -> float:
    """Seconds of a run's step beside forwards, by the other runs of its method, else by all."""
    others = runs[runs["run_id"] != run.run_id]
    same = others.loc[others["method"] == run.method, "step_s"].dropna()
    return float(same.median() if len(same) else others["step_s"].median())


def _between(times: pd.DataFrame) -> Forward:
    medians = times.groupby("num_tokens")["forward_s"].median().sort_index()
    sizes, seconds = medians.index.to_numpy(float), medians.to_numpy(float)
    return lambda asked: np.interp(asked, sizes, seconds, left=seconds[0], right=np.nan)


def _least(seconds: float, shape: Any) -> float:
    """A forward's time by bandwidth, or that of its launches if that is more."""
    layers = getattr(shape, "num_hidden_layers", 1)
    return max(seconds, LAUNCH_S * (LAUNCHES + LAUNCHES_PER_LAYER * layers))


def _pairs(root: Path) -> Mapping[str, None]:
    return {str(name): None for store in experiments(root, "runs") for name in store.read("runs")["pair"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; 0, or 2 with a sentence on stderr where there is nothing to price."""
    parser = argparse.ArgumentParser(prog="python -m bench.speed.predicted", description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="default: %(default)s")
    parser.add_argument("--pair", default="tiny", help="default: %(default)s")
    parser.add_argument("--on", nargs="*", default=[], metavar="CARD", help="cards such as 'h100 80gb', not measured")
    given = parser.parse_args(arguments)
    try:
        print("\n".join(lines(given.results, given.pair, given.on)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
