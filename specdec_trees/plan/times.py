"""Seconds of forwards, for hours: measured on this machine where they were, else estimated for known GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pandas as pd

from specdec_core.models import ModelSpec
from specdec_core.models.graphs import EAGER
from specdec_trees.artifacts.devices import parse
from specdec_trees.calibrate.prices import LAUNCH_S, launches_of, least_s, shape_of
from specdec_trees.measure.cell import PairSpec
from specdec_trees.plan.estimates import Memory
from specdec_trees.plan.jobs import Job
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Store, experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the planned cells would run on here: the name that their rows would have, dtype, and how forwards run."""

    device_name: str
    dtype: str
    gpu: bool
    graphs: str = EAGER
    """eager, packed or compile, as `runtime.graphs` asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of a forward of target and draft over so many tokens."""

    target: Callable[[int], float]
    draft: Callable[[int], float]
    origin: str
    estimate: bool = False

    @classmethod
    def of_card(cls, pair: PairSpec, memory: Memory, machine: Machine) -> Self | None:
        """Times by a card's data sheet: of reading the weights or launching the kernels, whichever is longer.

        They are the same for all numbers of tokens. In graphs a forward is launched at once, and reading alone counts.
        None for a card that is not in `cards.csv`.
        """
        device = parse(machine.device_name)
        if device is None or (card := device.card) is None:
            return None
        eager, config = machine.graphs == EAGER, shape_of(pair.target)

        def forward_s(spec: ModelSpec, config: Any, device_bytes: int, host_bytes: int = 0) -> float:
            return least_s(card, device_bytes, host_bytes, launches_of(spec, config) if eager else 0)

        target = forward_s(pair.target, config, memory.target, memory.host)
        draft = forward_s(pair.draft, shape_of(pair.draft, config), memory.draft_reads) if pair.draft else 0.0
        launches = f"or kernels launched in {LAUNCH_S * 1e6:g} us each" if eager else "launches of graphs left out"
        origin = f"an estimate: weights read at {card.bytes_per_s / 1e12:g} TB/s, {launches}"
        return cls(target=lambda _: target, draft=lambda _: draft, origin=origin, estimate=True)


def of_machine(results_dir: Path, pair: PairSpec, memory: Memory, machine: Machine) -> Times | None:
    """Forward times kept of a pair here, else of its runs here, else an estimate for a known GPU; None: unknown."""
    kept = (times for times in measured_times(results_dir, pair) if times.origin == _origin(machine))
    if found := next(kept, None) or of_runs(results_dir, pair, machine):
        return found
    return Times.of_card(pair, memory, machine) if machine.gpu else None


def measured_times(results_dir: Path, pair: PairSpec) -> list[Times]:
    """The forward times kept of a pair, one for every device and dtype.

    A size that was not measured takes as long as the next larger one.
    """
    rows = Store(results_dir, FOLDER).read("latency")
    names = [model.name for model in (pair.target, pair.draft) if model is not None]
    rows = rows[(rows["pair"] == pair.name) & rows["model_id"].isin(names)]
    found = []
    for (device, dtype), group in rows.groupby(["device_name", "dtype"]):
        by_role = {str(role): _by_size(times) for role, times in group.groupby("role")}
        if "target" in by_role:
            draft = by_role.get("draft", lambda _: 0.0)
            found.append(Times(target=by_role["target"], draft=draft, origin=f"{device}, {dtype}"))
    return found


@lru_cache(maxsize=64)
def of_runs(results_dir: Path, pair: PairSpec, machine: Machine) -> Times | None:
    """Of the newest run of each drafter of a pair on this machine; None where they say nothing of target or draft.

    A target's forward is an autoregressive step, or a step without its draft forwards over its tree and root.
    """
    like = {"pair": pair.name, "target_id": pair.target.id, "draft_id": pair.draft.id if pair.draft else ""}
    like |= {"device_name": machine.device_name, "dtype": machine.dtype}
    runs = _runs(results_dir).fillna({"draft_id": ""})
    runs = runs[(runs[list(like)] == pd.Series(like)).all(axis=1)].drop_duplicates("drafter", keep="last")
    steps, prompts = (_rows(results_dir, table, runs) for table in ("steps", "prompts"))
    plain = prompts[(prompts["arm"] == AUTOREGRESSIVE) & (prompts["num_steps"] > 0)]
    if plain.empty or (pair.draft and not steps["draft_forwards"].sum()):
        return None
    phases = steps[["tree_s", "score_s", "judge_s", "commit_s"]].sum(axis=1)
    own = pd.DataFrame({"num_tokens": steps["num_drafted"] + 1, "forward_s": phases})
    alone = pd.DataFrame({"num_tokens": 1, "forward_s": plain["decode_s"] / plain["num_steps"]})
    draft = float(steps["draft_s"].sum() / steps["draft_forwards"].sum()) if pair.draft else 0.0
    times = _by_size(pd.concat([own, alone]))
    return Times(target=times, draft=lambda _: draft, origin=f"runs on {_origin(machine)}")


def seconds(job: Job, times: Times, mal: float) -> float:
    """Of a job without prefills: every new token of the baseline is a forward, every step of a method 1 + depth."""
    if job.measure == "latency":
        return sum(times.target(size) + times.draft(size) for size in job.forwards)
    step = times.target(job.nodes + 1) + job.depth * times.draft(1)
    return job.tokens * job.passes * step / mal + job.baseline * times.target(1)


def _origin(machine: Machine) -> str:
    return f"{machine.device_name}, {machine.dtype}"


@lru_cache(maxsize=4)
def _runs(results_dir: Path) -> pd.DataFrame:
    """The `runs` rows of all experiments in a folder that ended well and have times, the oldest first."""
    found = [Store(results_dir, FOLDER).read("runs", [])]
    for store in experiments(results_dir, "runs"):
        rows = store.read("runs")
        found.append(rows[rows["experiment"] == store.experiment])  # other results below these go by other names
    runs = pd.concat(found, ignore_index=True)
    return runs[(runs["status"] == "ok") & runs["recording"].isna()].sort_values("created_utc", kind="stable")


def _rows(results_dir: Path, table: str, runs: pd.DataFrame) -> pd.DataFrame:
    found = [Store(results_dir, FOLDER).read(table, [])]
    pairs = zip(runs["experiment"], runs["run_id"], strict=True)
    return pd.concat([*found, *(Store(results_dir, name).read(table, [run_id]) for name, run_id in pairs)])


def _by_size(rows: pd.DataFrame) -> Callable[[int], float]:
    medians = rows.groupby("num_tokens")["forward_s"].median().sort_index()

    def seconds(tokens: int) -> float:
        at = min(int(medians.index.searchsorted(tokens)), len(medians) - 1)
        return float(medians.iloc[at])

    return seconds
