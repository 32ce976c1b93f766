"""`python -m bench.reproduce [opt_tree/table1 ...] [key=value ...]`: run and report artifacts, all without a name.

What is to be run is written to `<results>/<artifact>/plan.json` first, so that `python -m bench.status` can tell how
far it is. Every artifact is a sweep in a process of its own: one that fails leaves the others alone, and what was
finished before, by whatever run, is not run again. `pair=own` takes the pairs that an experiment is for.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from bench import progress, runner
from bench.calibration import HARDWARE, MEASURED
from bench.configs import scientific_config
from bench.identity import identity
from bench.locks import lock
from bench.names import unknown
from bench.plan.jobs import sweep
from bench.progress import ANY, SWEEP, Planned
from bench.records import RECORDED
from bench.report.__main__ import main as report
from bench.report.artifacts import ARTIFACTS
from bench.run import CONF, check_choices

TABLES = {"latency": "latency", "acceptance": "acceptance", "attention": "attention", "decision": "decisions"}
"""The table that a measurement other than cells writes."""
KINDS = 2
"""Decision models that are trained at a time."""


def planned(artifact: str, overrides: Sequence[str]) -> Planned:
    """What an artifact's experiment will run for these overrides; sentences as in `bench.run` where it cannot."""
    given = dict(override.partition("=")[::2] for override in overrides)
    arguments = [f"experiment={artifact}", *(f"{key}={value}" for key, value in given.items() if key != "pair")]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        own, batch = sweep(arguments)
        pairs = own if given.get("pair", "own") == "own" else given["pair"].split(",")
        configs = [compose("config", [*job, f"pair={pair}"]) for pair in pairs for job in batch]
    cells = [_cell(cfg) for cfg in configs if cfg.measure == "cells"]
    kept = [f"{key}={value}" for key, value in given.items() if key != "pair"]
    return Planned(
        overrides=(*kept, f"pair={','.join(pairs)}"),
        pairs=tuple(pairs),
        cells=tuple({json.dumps(cell, sort_keys=True): cell for cell in cells}.values()),
        tables=tuple(table for table in RECORDED if configs[0][f"record_{table}"]),
        measures=_measures(configs),
        case_study=bool(configs[0].case_study),
    )


def _cell(cfg: DictConfig) -> dict[str, Any]:
    """What a cell's `run_id` will hash, but for what is measured first."""
    config = identity(scientific_config(cfg))
    drafter = dict(config["drafter"])
    for place in (drafter, shape := dict(drafter.get("shape") or {})):
        place.update({"acceptance": ANY} if place.get("acceptance") == MEASURED else {})
    drafter |= {"shape": shape} if shape else {}
    drafter |= {"n": ANY, "depth": ANY} if HARDWARE in (drafter.get("n"), drafter.get("depth")) else {}
    drafter |= {"decision": ANY} if drafter.get("decision") is not None else {}
    return {**config, "drafter": drafter}


def _measures(configs: Sequence[DictConfig]) -> dict[str, int]:
    """How many different measurements of a kind there are beside cells."""
    found: dict[str, set[str]] = {}
    for cfg in configs:
        if cfg.measure in TABLES:
            config = identity(scientific_config(cfg))
            used = ("pair",) if cfg.measure == "latency" else () if cfg.measure == "attention" else tuple(config)
            kept = [config[axis] for axis in used if axis != "drafter"]
            plan = OmegaConf.to_container(cfg.calibration, resolve=True)
            found.setdefault(cfg.measure, set()).add(json.dumps([kept, plan], sort_keys=True))
    return {TABLES[kind]: len(every) * (KINDS if kind == "decision" else 1) for kind, every in found.items()}


def reproduce(artifacts: Sequence[str], overrides: Sequence[str], root: Path) -> list[str]:
    """Plan all, then run one after another what is not done; the artifacts whose sweep could not be run."""
    plans = {name: planned(name, overrides) for name in tqdm(artifacts, desc="planning", disable=len(artifacts) < 2)}
    for name, plan in plans.items():
        plan.write(root / name)
    broken = []
    for number, (name, plan) in enumerate(plans.items(), start=1):
        state = progress.read(root, name)
        print(f"[{number}/{len(plans)}] {name}: {progress.words(state)}", flush=True)
        again = any(override in ("force=true", "retry=failed") for override in plan.overrides)
        if state.state == progress.DONE and not (plan.measures or plan.case_study or again):
            continue
        command = [sys.executable, "-m", "bench.run", "-m", f"experiment={name}", *plan.overrides]
        with lock(root / name, SWEEP, shared=True, wait=True):
            broken += [name] if subprocess.run(command, check=False).returncode else []
    return broken


def main(arguments: Sequence[str]) -> int:
    """Exit status: that of the report, or 1 if a sweep could not be run or cells of it failed."""
    names, overrides = ([text for text in arguments if ("=" in text) is pair] for pair in (False, True))
    for name in names:
        if name not in ARTIFACTS:
            sys.exit(unknown("artifact", name, list(ARTIFACTS)))
    check_choices([override for override in overrides if override != "pair=own"])
    given = dict(override.partition("=")[::2] for override in overrides)
    root, pair = Path(given.get("results_dir", "results")), given.get("pair", "own")
    chosen = names or list(ARTIFACTS)
    try:
        broken = reproduce(chosen, overrides, root)
    except (TypeError, OSError, HydraException, *runner.SENTENCES) as error:
        sys.exit(str(error))
    for name in broken:
        print(f"{name}: its sweep could not be run; the log above says why", file=sys.stderr)
    single = [] if pair == "own" or "," in pair else ["--pair", pair]
    where = ["--results", str(root), "--out", str(root / "report")]
    status = max(report([name, *where, *single]) for name in names) if names else report(where)
    failed = [name for name in chosen if progress.read(root, name).failed]
    for name in failed:
        print(f"{name}: {progress.words(progress.read(root, name))}", file=sys.stderr)
    return status or int(bool(broken or failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
