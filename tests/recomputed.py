"""The numbers of tables once more, from the files alone: plain pandas and numpy, nothing of `specdec_trees`.

Intervals are what the reports say they are: every conversation is left out once; what the logarithm then moves by gives
its standard error; Student's t reaches so far, 1 + 5 / n times, or 1 + 1 / n times of E(A) and of two runs in pairs.
Fewer than six conversations have the range of what each of them gives. Those that decoded nothing are none.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import special, stats

TURN = ["prompt_id", "turn"]
Numbers = tuple[float, ...]
"""A value, or a value and the ends of its interval."""


def experiments(root: Path) -> list[str]:
    """Those that have packed runs in a folder of results."""
    footer = json.loads(pq.read_schema(root / "rows" / "runs.parquet").metadata[b"cells"])
    return sorted({name for names, _ in footer for name in names})


@cache
def _whole(path: Path) -> pa.Table:
    """The file of all experiments, whose footer says whose rows follow each other."""
    return pq.ParquetFile(path).read()


class Files:
    """The rows of an experiment's runs: a file each, or groups of the file of all experiments in a folder above."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019 - a few experiments of a few runs
    def rows(self, table: str, *run_ids: str) -> pd.DataFrame:
        """Rows of these runs, with those of conversations that were replayed alone."""
        return pd.concat([self._joined(table, run_id) for run_id in run_ids], ignore_index=True)

    def _joined(self, table: str, run_id: str) -> pd.DataFrame:
        rows = self.table(table, run_id).to_pandas()
        if table not in ("prompts", "steps") or (other := self.replays().get(run_id)) is None:
            return rows
        known = set(self.table("prompts", run_id)["prompt_id"].to_pylist())
        more = self.table(table, other).to_pandas()
        return pd.concat([rows, more[~more["prompt_id"].isin(known)].assign(run_id=run_id)], ignore_index=True)

    @cache  # noqa: B019 - a few experiments
    def replays(self) -> dict[str, str]:
        """Of each decoded run the replay of the same config on more prompts, where all drafting runs beside it have
        one on these."""
        runs = [self.run(run_id) for run_id in self._all()]
        replayed = [run for run in runs if _replayed(run) and run["status"] == "ok"]
        pairs: dict[str, str] = {}
        for run in runs:
            beside = [one for one in runs if _setting(one) == _setting(run) and one["method"] != "autoregressive"]
            beside = [one for one in beside if not _replayed(one) and one["status"] == "ok"]
            for prompts in sorted({one["prompts_sha256"] for one in replayed}):
                mine = {_config(one): one for one in replayed if one["prompts_sha256"] == prompts}
                if not _replayed(run) and _config(run) in mine and all(_config(one) in mine for one in beside):
                    pairs[run["run_id"]] = mine[_config(run)]["run_id"]
        return pairs

    def table(self, table: str, run_id: str) -> pa.Table:
        """Rows of a run. Read through bytes: the `=` in the names is no partition."""
        alone = self.folder / table / f"run_id={run_id}.parquet"
        if alone.exists():
            return pq.read_table(io.BytesIO(alone.read_bytes()))
        return self.packed(table).filter(pc.field("run_id") == run_id)

    @cache  # noqa: B019 - a few experiments
    def packed(self, table: str) -> pa.Table:
        """The rows of all its runs in the file of all experiments, whose footer says which row groups are of which."""
        (root, *_) = (path for path in self.folder.parents if (path / "rows" / f"{table}.parquet").exists())
        rows = _whole(root / "rows" / f"{table}.parquet")
        name, parts, at = self.folder.relative_to(root).as_posix(), [rows.slice(0, 0)], 0
        for names, counts in json.loads(rows.schema.metadata[b"cells"]):
            count = sum(counts.values())
            parts += [rows.slice(at, count)] if name in names else []
            at += count
        return pa.concat_tables(parts)

    def ids(self) -> list[str]:
        """The run ids, of a config that was decoded without those of its replays."""
        runs = [self.run(run_id) for run_id in self._all()]
        decoded = {_config(run) for run in runs if not _replayed(run)}
        return [run["run_id"] for run in runs if not _replayed(run) or _config(run) not in decoded]

    def _all(self) -> list[str]:
        alone = [path.stem.partition("=")[2] for path in (self.folder / "runs").glob("*.parquet")]
        return sorted(alone or self.packed("runs")["run_id"].to_pylist())

    def run(self, run_id: str) -> dict[str, Any]:
        (row,) = self.rows("runs", run_id).to_dict("records")
        return row

    def steps(self, run_id: str) -> pd.DataFrame:
        return self.rows("steps", run_id)

    def turns(self, arm: str, *run_ids: str) -> pd.DataFrame:
        """Turns of one arm that ended well."""
        rows = self.rows("prompts", *run_ids)
        return rows[(rows["status"] == "ok") & (rows["arm"] == arm)]

    def timed(self, arm: str, *run_ids: str) -> pd.DataFrame:
        """Turns of one arm that have a time: of conversations in which no GPU was shared and no CPU stalled."""
        rows = self.rows("prompts", *run_ids)
        if "contaminated" not in rows:
            return self.turns(arm, *run_ids).dropna(subset="decode_s")
        spoilt = {(row.run_id, row.prompt_id) for row in rows.itertuples() if row.contaminated is True}
        turns = self.turns(arm, *run_ids).dropna(subset="decode_s")  # replayed turns have none
        pairs = zip(turns["run_id"], turns["prompt_id"], strict=True)
        return turns[pd.Series([pair not in spoilt for pair in pairs], turns.index, dtype=bool)]

    def seconds(self, arm: str, run_id: str, *, prefill: bool = False) -> pd.DataFrame:
        """Seconds and decoded tokens of the turns of an arm, with or without the seconds of the prefill.

        Without, those that decoded something.
        """
        turns = self.timed(arm, run_id).set_index(TURN)
        if prefill:
            return pd.DataFrame({"s": turns["prefill_s"] + turns["decode_s"], "t": turns["num_decoded_tokens"]})
        return pd.DataFrame({"s": turns["decode_s"], "t": turns["num_decoded_tokens"]}).query("t > 0")

    def speedup_sums(self, run_id: str, *, prefill: bool = False) -> pd.DataFrame:
        """Those of both arms by conversation, of turns that ended well in both."""
        own, plain = (self.seconds(arm, run_id, prefill=prefill) for arm in ("method", "autoregressive"))
        return own.join(plain.add_suffix("0"), how="inner").groupby("prompt_id").sum()


def _replayed(run: dict[str, Any]) -> bool:
    """On a recording, without times; older files have no such column."""
    return isinstance(run.get("recording"), str)


def _config(run: dict[str, Any]) -> str:
    """What a run is of, but for how many prompts, and how these were chosen where they are not all."""
    config = json.loads(run["config"])
    config.pop("limit", None)
    config.get("dataset", {}).pop("selection", None)
    return json.dumps(config, sort_keys=True)


def _setting(run: dict[str, Any]) -> tuple[str, ...]:
    """What it has in common with the runs that it is compared with."""
    config = json.loads(_config(run))
    kept = {name: part for name, part in config.items() if name not in ("drafter", "verifier")}
    machine = (run[name] for name in ("prompts_sha256", "device_name", "num_threads", "git_revision"))
    return json.dumps(kept, sort_keys=True), *map(str, machine)


def dataset(name: Any) -> str:
    """Of means over datasets, where each conversation is named after its own, which then has a variance of its own."""
    return str(name).partition("/")[0] if "/" in str(name) else ""


def interval(sums: pd.DataFrame, statistic: Callable[[Any], Any], *, c: float = 5, scale: str = "log") -> Numbers:
    """Value, low and high of a function of the column totals; on the plain scale where the other has no place."""
    sums = sums.astype(float).sort_index()
    sums = sums[(sums != 0).any(axis=1)]
    n = len(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(sums.sum()))
        if n < 6:
            each = [float(statistic(row)) for _, row in sums.iterrows()]
            known = [one for one in each if math.isfinite(one)]
            return value, *((min(known), max(known)) if len(known) > 1 else (math.nan, math.nan))
        without = np.array([float(statistic(sums.drop(index=name).sum())) for name in sums.index])
    if scale == "log" and (sums < 0).any(axis=None):
        scale = "plain"
    least, most = {"log": (0, math.inf), "logit": (0, 1), "plain": (-math.inf, math.inf)}[scale]
    if not all(least < one < most for one in (value, *without)):
        scale = "plain"
    there, back = {"log": (np.log, np.exp), "logit": (special.logit, special.expit), "plain": (float, float)}[scale]
    parts = pd.Series([there(one) for one in without]).groupby([dataset(name) for name in sums.index])
    variances, freedoms = (parts.size() - 1) ** 2 / parts.size() * parts.var(), parts.size() - 1
    error = math.sqrt(variances.sum(skipna=False))
    freedom = error**4 / (variances**2 / freedoms).sum() if error and len(variances) > 1 else n - 1
    reach = stats.t.ppf(0.975, freedom) * error * (1 + c / (freedom + 1))
    low, high = (float(back(there(value) + side * reach)) for side in (-1, 1))
    return value, low if low > least or math.isnan(low) else least, high if high < most or math.isnan(high) else most


def ratio(above: pd.Series, below: pd.Series, *, c: float = 5) -> Numbers:
    """Of sums by conversation."""
    return interval(pd.DataFrame({"above": above, "below": below}), lambda total: total["above"] / total["below"], c=c)


def of_columns(sums: np.ndarray, statistic: Callable[..., Any], *, c: float = 5, scale: str = "log") -> Numbers:
    """The same of [conversations, columns]; the function has an argument for each column."""
    return interval(pd.DataFrame(sums), lambda total: statistic(*total), c=c, scale=scale)


def written(numbers: Numbers, digits: int = 2) -> str:
    """As tables print it."""
    value, low, high = (f"{number:.{digits}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def mean(rows: pd.DataFrame, values: pd.Series, *, c: float = 5) -> Numbers:
    """Over rows that have a value."""
    by = values.dropna().astype(float).groupby(rows["prompt_id"])
    return ratio(by.sum(), by.size(), c=c)


def at_least_one(numbers: Numbers) -> Numbers:
    """A length counts the bonus token of its step: its interval ends at 1."""
    value, low, high = numbers
    return value, max(low, 1), high


def at_most_one(numbers: Numbers) -> Numbers:
    """A share's."""
    value, low, high = numbers
    return value, low, min(high, 1)


def mal(steps: pd.DataFrame) -> Numbers:
    """New tokens / decoding steps, the bonus token counted: at most those of a whole path of the deepest tree.

    A tree that starts from the target's distribution has no bonus token in any step.
    """
    value, low, high = at_least_one(mean(steps, steps["acceptance_length"]))
    bonus = bool((steps["acceptance_length"] > steps["num_accepted"]).any())
    return value, low, min(high, bonus + steps["depth"].max())


def mal_as_published(steps: pd.DataFrame) -> Numbers:
    """The same tokens / the steps of every turn but one."""
    by = steps.groupby("prompt_id")
    return at_least_one(ratio(by["acceptance_length"].sum(), by.size() - by["turn"].nunique()))


def gain(total: Any, end: str = "") -> Any:
    """Speedup: seconds per token without the method / with it; `end` is behind the names of the columns."""
    s, t, s0, t0 = (total[f"{name}{end}"] for name in ("s", "t", "s0", "t0"))
    return (s0 / t0) / (s / t)


def speedup(files: Files, run_id: str, *, prefill: bool = False) -> Numbers:
    return interval(files.speedup_sums(run_id, prefill=prefill), gain)


def of_two(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The `speedup_sums` of two runs over the conversations of both; the other's columns end in `_`."""
    return first.join(other.add_suffix("_"), how="inner")


def mean_speedup(first: pd.DataFrame, other: pd.DataFrame) -> Numbers:
    return interval(of_two(first, other), lambda total: (gain(total) + gain(total, "_")) / 2)


def speedup_ratio(first: pd.DataFrame, other: pd.DataFrame) -> Numbers:
    return interval(of_two(first, other), lambda total: gain(total) / gain(total, "_"), c=1)


def seconds_per_token(files: Files, arm: str, *run_ids: str) -> Numbers:
    by = files.timed(arm, *run_ids).groupby("prompt_id")
    return ratio(by["decode_s"].sum(), by["num_decoded_tokens"].sum())


def tokens_per_s(files: Files, run_id: str, arm: str = "method", *, prefill: bool = False) -> Numbers:
    by = files.seconds(arm, run_id, prefill=prefill).groupby("prompt_id")
    return ratio(by["t"].sum(), by["s"].sum())


def mal_ratio(first: pd.DataFrame, other: pd.DataFrame) -> Numbers:
    """One run's MAL / another's, of their steps, over the conversations of both."""
    by = [steps.groupby("prompt_id")["acceptance_length"] for steps in (first, other)]
    parts = pd.DataFrame({"a": by[0].sum(), "n": by[0].size(), "b": by[1].sum(), "m": by[1].size()})
    return interval(parts.dropna(), lambda total: (total["a"] / total["n"]) / (total["b"] / total["m"]), c=1)


def reached(steps: pd.DataFrame, depth: int) -> float:
    """Share of the steps that accepted `depth` tokens or more, of those whose tree is so deep; nan if none is."""
    deep = steps[steps["depth"] >= depth]
    return float((deep["num_accepted"] >= depth).mean()) if len(deep) else math.nan


def gsd_samples(files: Files, run_id: str) -> pd.DataFrame:
    """A row per sample, counts for 512 generated tokens: nodes that go on or end for their probability and a root a
    step are `drafted`; `created` has those ended beside a sibling too, and no root."""
    steps = files.steps(run_id)
    by = steps.groupby(TURN)
    counts = by[["num_live", "num_prob_leaf", "num_sib_leaf", "num_alias", "num_drafted"]].sum()
    counts["drafted"] = counts["num_live"] + counts["num_prob_leaf"] + by.size()
    counts["created"] = counts["num_live"] + counts["num_prob_leaf"] + counts["num_sib_leaf"]
    generated = files.turns("method", run_id).set_index(TURN)["num_new_tokens"]
    scaled = counts.mul(512 / generated, axis=0)
    scaled["rate"] = by["num_accepted"].sum() / by["draft_forwards"].sum()
    return scaled.reset_index()


def mcsd_tree(method: str, configuration: str) -> tuple[int, int]:
    """Of a printed configuration: the levels that the draft may add, and how many first tokens are the target's own."""
    if match := re.fullmatch(r"D = (\d+), W = (\d+)", configuration):
        return int(match[1]), int(match[2])
    if match := re.fullmatch(r"gamma = (\d+)", configuration):
        return int(match[1]), 0
    widths = [int(width) for width in configuration.split("x")]
    return (len(widths) - 1, widths[0]) if method.startswith("TI-") else (len(widths), 0)


def assert_printed(cell: str, expected: Numbers | float, *, least: int = 1) -> None:
    """The first numbers of a cell are these, to the digits that it prints, at least so many behind the point."""
    wanted = expected if isinstance(expected, tuple) else (expected,)
    found = re.findall(r"[-+]?\d+(?:\.\d+)?|–", cell)[: len(wanted)]
    assert len(found) == len(wanted), f"{cell!r} has not the numbers {wanted}"
    for text, value in zip(found, wanted, strict=True):
        digits = len(text.partition(".")[2])
        precise = digits >= least or text == "100"  # of a percentage at its end
        same = math.isnan(value) if text == "–" else precise and abs(float(text) - value) <= unit(digits)
        assert same, f"{cell!r} should be {wanted}"


def unit(digits: int) -> float:
    """Half of the last digit, and what binary numbers need."""
    return 0.5 * 10**-digits + 1e-9


def percents(*shares: float) -> Numbers:
    """As percentages, of which 100 is printed for all alone."""
    return tuple(100 * share if share == 1 else min(100 * share, 99.9) for share in shares)
