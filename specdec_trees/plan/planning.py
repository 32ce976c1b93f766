"""A plan as a value: an experiment's jobs, its pairs, and what they take."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from specdec_core.errors import LoadError
from specdec_core.models.placement import AUTO, resolve_device, resolve_dtype
from specdec_trees.configs.cells import is_run, pair_config, pair_of, runtime_of
from specdec_trees.configs.options import check_values
from specdec_trees.measure.cell import PairSpec
from specdec_trees.measure.provenance import collect
from specdec_trees.plan.composing import composer
from specdec_trees.plan.estimates import Memory, mal_of, memory_of
from specdec_trees.plan.jobs import Job, jobs_of, sweep
from specdec_trees.plan.times import Machine, Times, of_machine, seconds

PAPERS = "papers"
"""In place of a pair: those that an experiment is for."""
ALL_PAPERS = (PAPERS, "own")
"""The same with its older name."""
KINDS = {
    "cells": "cell",
    "acceptance": "acceptance vector",
    "latency": "forward-time table",
    "attention": "attention table",
    "decision": "decision-model training",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """A pair, what it takes, and how the papers' tables call it."""

    spec: PairSpec
    labels: dict[str, Any]
    jobs: list[Job]
    memory: Memory

    def of_kind(self, measure: str) -> list[Job]:
        """Its cells, acceptance vectors or tables of forward times."""
        return [job for job in self.jobs if job.measure == measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment; its jobs are those of every pair, unless the experiment says `only`."""

    name: str
    results_dir: Path
    axes: dict[str, list[str]]
    """What is swept, beside pairs."""
    jobs: list[Job]
    pairs: list[PlannedPair]
    dtype: torch.dtype
    machine: Machine

    def of_kind(self, measure: str) -> list[Job]:
        """The cells, acceptance vectors or tables of forward times of a pair that has them all."""
        return [job for job in self.jobs if job.measure == measure]

    @property
    def cells(self) -> int:
        """Of all pairs."""
        return sum(len(pair.of_kind("cells")) for pair in self.pairs)


def make(arguments: Sequence[str]) -> Plan:
    """The plan of a command line. Errors of configs, datasets and models are sentences, as in `specdec_trees.run`."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    if "," in given.get("experiment", ","):
        raise ValueError("give one experiment, such as experiment=opt_tree/table1")
    with composer() as compose:
        own, batch = sweep([argument for argument in arguments if argument.partition("=")[0] != "pair"])
        names = own if given.get("pair", PAPERS) in ALL_PAPERS else given["pair"].split(",")
        cells = [compose([*job, f"pair={names[0]}"]) for job in batch]
        bases = [cells[0], *(compose([*batch[0], f"pair={name}"]) for name in names[1:])]
    for cfg in (*cells, *bases):
        check_values(cfg)
    found, cfg = [(cfg, jobs_of(cfg)) for cfg in cells], cells[0]
    dtype = AUTO.get(cfg.runtime.dtype) or resolve_dtype(cfg.runtime.dtype, torch.device("cpu"))
    pairs = [
        _planned(base, _shared(job for cfg, jobs in found if is_run(cfg, base.pair.name) for job in jobs), dtype)
        for base in bases
    ]
    return Plan(
        name=cfg.name,
        results_dir=Path(cfg.results_dir),
        axes=_axes(batch),
        jobs=_shared(job for _, jobs in found for job in jobs),
        pairs=pairs,
        dtype=dtype,
        machine=_machine(cfg),
    )


def _machine(cfg: DictConfig) -> Machine:
    """What runs would run on here, as their rows would have it; one that lacks the planned device has no name."""
    runtime = runtime_of(cfg)
    try:
        device = torch.device(resolve_device(runtime.device))
    except LoadError:
        return Machine(device_name="", dtype="", gpu=False)
    dtype = str(resolve_dtype(runtime.dtype, device)).removeprefix("torch.")
    graphs = runtime.graphs_of(pair_of(cfg))
    name = str(collect(str(device), dtype, runtime.attention, runtime.placement)["device_name"])
    return Machine(device_name=name, dtype=dtype, gpu=device.type == "cuda", graphs=graphs)


def _shared(jobs: Iterable[Job]) -> list[Job]:
    """The cells, then what they are calibrated with, which they share; so do those of a setting a shared baseline."""
    found, decoded = list[Job](), Counter[tuple[object, ...]]()
    for job in jobs:
        setting = (job.measure, job.dataset, job.temperature, job.top_p, job.prompts, job.tokens)
        lent = job.lent if decoded[setting] >= job.decoders else 0
        found.append(replace(job, baseline=job.baseline - lent))
        decoded[setting] += 1
    others = (job for kind in tuple(KINDS)[1:] for job in found if job.measure == kind)
    return [*(job for job in found if job.measure == "cells"), *dict.fromkeys(others)]


def _planned(base: DictConfig, jobs: list[Job], dtype: torch.dtype) -> PlannedPair:
    spec, labels = pair_of(base), dict(pair_config(base).get("published") or {})
    return PlannedPair(spec=spec, labels=labels, jobs=jobs, memory=memory_of(spec, jobs, dtype))


def _axes(batch: list[list[str]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for override in (override for job in batch for override in job):
        key, _, value = override.partition("=")
        found.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in found.items() if len(values) > 1}


def times_here(plan: Plan, pair: PlannedPair) -> Times | None:
    """Forward times of a pair on this machine; None where they are not known."""
    return of_machine(plan.results_dir, pair.spec, pair.memory, plan.machine)


def hours(plan: Plan, pair: PlannedPair, times: Times) -> float:
    """Hours of all jobs of a pair at these forward times."""
    return sum(seconds(job, times, mal_of(plan.name, pair.labels, job)) for job in pair.jobs) / 3600


def number(hours: float) -> str:
    """Hours for the eye."""
    return f"{hours:.2f}" if hours >= 0.01 else "< 0.01"
