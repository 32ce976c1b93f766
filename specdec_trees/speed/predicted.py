"""How fast a machine would run what was decoded or replayed: every step priced by times of forwards.

    python -m specdec_trees.speed.predicted results/reference --pair tiny --on "h100 80gb"

A step costs the target's forward over the tree and its root, each draft forward over its tokens, and what the loop
takes beside forwards. The last is what the method's other runs with trees of about this size took on this machine, or
on all others where nothing was timed there. Forward times are those kept of the pair (`python -m
specdec_trees.latency`), of each machine apart; thread counts are not told apart.

A card named by --on is not measured (`specdec_trees.calibrate.prices`). With --keep the speeds are kept beside the
runs, and tables show them.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specdec_core.errors import SpecdecError
from specdec_trees.calibrate.prices import Prices
from specdec_trees.configs import variants
from specdec_trees.configs.cells import pair_of
from specdec_trees.names import unknown
from specdec_trees.plan.composing import composer
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.rows import AUTOREGRESSIVE, PredictionRow
from specdec_trees.results.store import OK, Store, experiments

NEAREST = 3
"""Other runs of a method that tell what the loop takes: those whose trees are nearest in size."""
KEY = ["dataset", "temperature", "drafter", "verifier", "size"]


def speeds(prices: Prices, runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """By run id: tokens per second, and the speedup over the target alone, prefills left out.

    The speedup is NaN where no run tells what the loop takes without a draft, and of the target alone.
    """
    forwards, nodes = steps["draft_forwards"].to_numpy(float), steps["num_drafted"].to_numpy(float)
    widths = steps["draft_tokens"].to_numpy(float) / np.maximum(forwards, 1)
    draft_s = np.nan if prices.draft is None else prices.draft(widths)
    seconds = prices.target(nodes + 1) + np.where(forwards > 0, forwards * draft_s, 0.0)
    sums = steps.assign(seconds=seconds, steps=1).groupby("run_id")[["seconds", "steps", "kept"]].sum(min_count=1)
    unpriced = steps.assign(unpriced=np.isnan(seconds)).groupby("run_id")["unpriced"].any()
    sums.loc[unpriced, "seconds"] = np.nan
    here = timed_here(prices, runs)
    timed = runs[here] if runs.loc[here, "step_s"].notna().any() else runs
    host = pd.Series({run.run_id: _host(timed, run) for run in runs.itertuples()}).reindex(sums.index)
    per_token = (sums["seconds"] + host * sums["steps"]) / sums["kept"]
    alone = prices.target(np.ones(1))[0] + timed.loc[timed["method"] == AUTOREGRESSIVE, "step_s"].median()
    plain = sums.index.isin(runs.loc[runs["method"] == AUTOREGRESSIVE, "run_id"])
    return pd.DataFrame({"tokens_per_s": 1 / per_token, "speedup": (alone / per_token).where(~plain)})


def timed_here(prices: Prices, runs: pd.DataFrame) -> pd.Series:
    """Whether each run was decoded on the machine of these prices."""
    here: pd.Series = runs["device_name"] + " in " + runs["dtype"] == prices.machine
    return here


def read(root: Path, pair: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `runs` of a pair that ended well, each once, decoded before replayed, and their steps, of all experiments.

    `mean_size` is a run's mean number of drafted nodes; `step_s` what its step takes beside forwards, NaN of replays.
    """
    stores = {store.experiment: store for store in experiments(root, "runs")}
    tables = [store.read("runs").assign(place=name) for name, store in stores.items()]
    runs = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"pair": []})
    if pair not in set(runs["pair"]):
        raise ValueError(unknown("pair with runs", pair, dict.fromkeys(runs["pair"])))
    runs = runs[(runs["pair"] == pair) & (runs["status"] == OK)]
    if runs.empty:
        raise ValueError(f"no run of {pair} in {root} ended well")
    decoded = runs["recording"].isna()
    runs = pd.concat([runs[decoded], runs[~decoded]], ignore_index=True).drop_duplicates("run_id")
    steps = pd.concat([stores[str(name)].read("steps", list(own["run_id"])) for name, own in runs.groupby("place")])
    return _described(runs, steps), steps


def lines(root: Path, pair: str, cards: Sequence[str], *, keep: bool = False) -> Iterator[str]:
    """A table of the pair's cells, and how far predictions are from what was measured on the same machine."""
    runs, steps = read(root, pair)
    latency = Store(root, FOLDER).read("latency")
    prices = [*Prices.kept(latency[latency["pair"] == pair]), *(_of_card(pair, card) for card in cards)]
    if not prices:
        yield f"no forward times of {pair} in {root}: `specdec latency pair={pair}` measures them"
    shown = runs.set_index("run_id")[[*KEY, "mal", "speedup"]]
    found = {one.machine: speeds(one, runs, steps) for one in prices}
    for machine, of_runs in found.items():
        shown[machine] = of_runs["speedup"]
    if keep:
        _keep(root, found)
    yield shown.sort_values(KEY).to_string(index=False, float_format="{:.2f}".format, na_rep="-")
    for one in prices:
        yield from _errors(runs, shown, one)


def errors(runs: pd.DataFrame, predicted: pd.Series, prices: Prices) -> pd.DataFrame:
    """Of drafting runs on the machine: method, speedup as `measured` and `predicted`, and their ratio less 1, `off`."""
    here = runs[timed_here(prices, runs) & (runs["method"] != AUTOREGRESSIVE)].set_index("run_id")
    rows = pd.DataFrame({"method": here["method"], "measured": here["speedup"], "predicted": predicted}).dropna()
    return rows.assign(off=rows["predicted"] / rows["measured"] - 1)


def _errors(runs: pd.DataFrame, shown: pd.DataFrame, prices: Prices) -> Iterator[str]:
    if shown[prices.machine].isna().all():
        yield f"{prices.machine}: no speedup is known; drafter=autoregressive times the loop without a draft"
    if not prices.measured:
        yield f"{prices.machine}: by its data sheet; the loop's own time is that of where it was decoded"
        return
    if len(rows := errors(runs, shown[prices.machine], prices)):
        size, flipped = rows["off"].abs(), (rows["predicted"] > 1) != (rows["measured"] > 1)
        yield (
            f"{prices.machine}: {len(rows)} speedups are predicted and measured; off by {size.median():.1%} (median), "
            f"{size.quantile(0.9):.1%} (nine in ten at most); {flipped.sum()} are on the other side of 1"
        )
        of_method = rows.assign(size=size).groupby("method")
        columns = {
            "runs": of_method.size(),
            "off_by": of_method["size"].median(),
            "too_fast": of_method["off"].median(),
        }
        yield pd.DataFrame(columns).sort_values("off_by").to_string(float_format="{:+.1%}".format)


def _keep(root: Path, found: Mapping[str, pd.DataFrame]) -> None:
    """Beside the runs of all experiments, in place of what was kept before."""
    rows: dict[str, list[PredictionRow]] = {}
    for machine, of_runs in found.items():
        known: dict[Any, dict[Any, Any]] = of_runs.astype(object).where(of_runs.notna(), None).to_dict("index")
        for run_id, speed in known.items():
            rows.setdefault(run_id, []).append(PredictionRow(run_id=run_id, machine=machine, **speed))
    for store in experiments(root, "runs"):
        for run_id in rows.keys() & {*store.read("runs")["run_id"]}:
            store.write("predictions", run_id, rows[run_id])


def _described(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """With the columns `size`, `mean_size` and `step_s`."""
    beside = steps.assign(s=steps[["tree_s", "judge_s", "commit_s"]].sum(axis=1, min_count=3)).groupby("run_id")
    means, largest = beside[["s", "num_drafted"]].mean(), beside["num_drafted"].max()
    step_s = runs["run_id"].map(means["s"]).where(runs["recording"].isna())
    sizes = runs["run_id"].map(largest), runs["run_id"].map(means["num_drafted"])
    return runs.assign(step_s=step_s, size=sizes[0], mean_size=sizes[1])


def _host(timed: pd.DataFrame, run: Any) -> float:
    """Seconds of a run's step beside forwards: of the method's other runs those of nearest trees, else of all runs."""
    others = timed[(timed["run_id"] != run.run_id) & timed["step_s"].notna()]
    same = others[others["method"] == run.method]
    near = (same if len(same) else others).copy()
    near["far"] = (np.log1p(near["mean_size"]) - np.log1p(run.mean_size)).abs()
    return float(near.nsmallest(NEAREST, "far", keep="all")["step_s"].median())


def _of_card(pair: str, card: str) -> Prices:
    """ValueError for a pair without a yaml, or a card that is not known."""
    if pair not in (names := variants.choices("pair")):
        raise ValueError(unknown("pair with a yaml", pair, names))
    with composer() as composes:
        return Prices.of_card(pair_of(composes([f"pair={pair}"])), card)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; 0, or 2 with a sentence on stderr where there is nothing to price."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.speed.predicted", description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="default: %(default)s")
    parser.add_argument("--pair", default="tiny", help="default: %(default)s")
    parser.add_argument("--on", nargs="*", default=[], metavar="CARD", help="cards such as 'h100 80gb', not measured")
    parser.add_argument("--keep", action="store_true", help="keep the speeds in the results, whose tables show them")
    given = parser.parse_args(arguments)
    try:
        print("\n".join(lines(given.results, given.pair, given.on, keep=given.keep)))
    except (ValueError, SpecdecError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
