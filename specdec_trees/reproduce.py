"""`python -m specdec_trees.reproduce [opt_tree/table1 | opt_tree ...] [key=value ...]`: run and report artifacts.

A paper's name stands for all of its artifacts; without a name every artifact is run.

What is to be run is written to `<results>/<artifact>/plan.json` first, in place of what was planned of its pairs, so
that `make status` can tell how far it is. Every artifact is a sweep in a process of its own: one that fails leaves the
others alone, and what was finished before, by whatever run, is not run again. `pair=papers` takes the pairs that an
experiment is for. Exit status 1 means that something planned is not done, which `shard=` leaves to others; 130 that it
was stopped.
"""

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from specdec_trees.calibrate.drafters import HARDWARE, MEASURED, PRICED
from specdec_trees.configs.cells import is_run, pair_of, scientific_config
from specdec_trees.configs.options import sentence
from specdec_trees.measure import preemption, runner
from specdec_trees.names import unknown, without_paths
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.plan.composing import composer
from specdec_trees.plan.jobs import sweep
from specdec_trees.plan.planning import ALL_PAPERS, PAPERS
from specdec_trees.report.__main__ import main as report
from specdec_trees.results import progress
from specdec_trees.results.identity import identity
from specdec_trees.results.locks import lock
from specdec_trees.results.parquet import warned_once
from specdec_trees.results.progress import ANY, SWEEP, Planned
from specdec_trees.results.rows import RECORDED
from specdec_trees.results.store import Store
from specdec_trees.run import STOPPED, check_choices

TABLES = {"latency": "latency", "acceptance": "acceptance", "attention": "attention", "decision": "decisions"}
"""The table that a measurement other than cells writes."""
KINDS = 2
"""Decision models that are trained at a time."""
LOOK_S = 0.5
"""How often is looked whether the process was asked to end."""
PATIENCE_S = 60
"""What a sweep has to write down what it was doing, once it is stopped."""


def planned(artifact: str, overrides: Sequence[str]) -> Planned:
    """What an artifact's experiment will run for these overrides; sentences of `specdec_trees.run` where it cannot."""
    given = dict(override.partition("=")[::2] for override in overrides)
    arguments = [f"experiment={artifact}", *(f"{key}={value}" for key, value in given.items() if key != "pair")]
    with composer() as compose:
        own, batch = sweep(arguments)
        pairs = own if given.get("pair", PAPERS) in ALL_PAPERS else given["pair"].split(",")
        along = compose(batch[0]).along
        pairs = list(dict.fromkeys(name for pair in pairs for name in (pair, *along.get(pair, []))))
        every = (compose([*job, f"pair={pair}"]) for pair in pairs for job in batch)
        configs = [cfg for cfg in every if is_run(cfg)]
    cells = [{"pair": pair_of(cfg).name, "config": _cell(cfg)} for cfg in configs if cfg.measure == "cells"]
    once: dict[str, dict[str, Any]] = {}
    for cell in cells:
        once.setdefault(json.dumps(cell["config"], sort_keys=True), cell)
    kept = [f"{key}={value}" for key, value in given.items() if key != "pair"]
    return Planned(
        overrides=(*kept, f"pair={','.join(pairs)}"),
        pairs=tuple(dict.fromkeys(pair_of(cfg).name for cfg in configs)),
        cells=tuple(once.values()),
        tables=tuple(table for table in RECORDED if any(cfg[f"record_{table}"] for cfg in configs)),
        measures=_measures(configs),
        case_study=any(cfg.case_study for cfg in configs),
    )


def _cell(cfg: DictConfig) -> dict[str, Any]:
    """What a cell's `run_id` will hash, but for what is measured first."""
    config = identity(scientific_config(cfg))
    drafter = dict(config["drafter"])
    for place in (drafter, shape := dict(drafter.get("shape") or {})):
        place.update({"acceptance": ANY} if place.get("acceptance") == MEASURED else {})
    drafter |= {"shape": shape} if shape else {}
    if HARDWARE in (drafter.get("n"), drafter.get("depth")):
        drafter |= {"n": ANY, "depth": ANY} | ({"method": PRICED} if "prices" in config else {})
    drafter |= {"delta": ANY} if drafter.get("delta") == HARDWARE else {}
    drafter |= {"decision": ANY} if drafter.get("decision") is not None else {}
    return {**config, "drafter": drafter}


def _measures(configs: Sequence[DictConfig]) -> dict[str, dict[str, int]]:
    """How many different measurements of a kind there are beside cells, by pair."""
    found: dict[str, dict[str, str]] = {}
    for cfg in configs:
        if cfg.measure in TABLES:
            config = identity(scientific_config(cfg))
            used = ("pair",) if cfg.measure == "latency" else () if cfg.measure == "attention" else tuple(config)
            kept = [config[axis] for axis in used if axis != "drafter"]
            plan = OmegaConf.to_container(cfg.calibration, resolve=True)
            key = json.dumps([kept, plan], sort_keys=True)
            found.setdefault(cfg.measure, {}).setdefault(key, pair_of(cfg).name if used else "")
    each = {"decision": KINDS}
    return {
        TABLES[kind]: {pair: count * each.get(kind, 1) for pair, count in Counter(every.values()).items()}
        for kind, every in found.items()
    }


def write(plan: Planned, folder: Path) -> None:
    """Write a plan, whose options name no place on this machine."""
    replace(plan, overrides=tuple(map(without_paths, plan.overrides))).write(folder)


def check_overrides(overrides: Sequence[str]) -> None:
    """Exit with a sentence where an override cannot hold for artifacts, before minutes of planning."""
    parser = OverridesParser.create()
    for text in overrides:
        override = parser.parse_override(text)
        key, value = override.key_or_group, text if override.is_sweep_override() else override.value()
        if key in ("experiment", "name"):
            sys.exit(
                f"{text}: an artifact has a name and an experiment of its own; give the names of artifacts instead"
            )
        if key == "limit" and value is not None and not (type(value) is int and value >= 1):
            sys.exit(f"{text}: limit is a number of conversations, a whole one from 1 on")
        if key == "decoding.max_new_tokens" and value is not None and not (type(value) is int and value >= 1):
            sys.exit(f"{text}: an answer has a whole number of tokens, from 1 on")
        if key == "decoding.temperature" and isinstance(value, int | float) and value < 0:
            sys.exit(f"{text}: a temperature is 0 (greedy) or positive")
        if key == "data_dir" and value and not Path(str(value)).is_dir():
            sys.exit(f"{text}: there is no such folder")


def reproduce(artifacts: Sequence[str], overrides: Sequence[str], root: Path) -> tuple[dict[str, Planned], list[str]]:
    """Plan all, then run one after another what is not done; the plans by artifact, and those whose sweep broke.

    Where these overrides leave an artifact nothing to run, as replays do of sampled ones, the plan it had stays.
    """
    Store(root, "").check_writable()
    plans = {name: planned(name, overrides) for name in tqdm(artifacts, desc="planning", disable=len(artifacts) < 2)}
    if nothing := [name for name, plan in plans.items() if not (plan.cells or plan.measures)]:
        which = "cells without instruments whose tokens the target alone chooses"
        print(f"nothing to run of {', '.join(nothing)}; replays are of {which}")
    plans = {name: plan for name, plan in plans.items() if name not in nothing}
    for name, plan in plans.items():
        Store(root, name).check_writable()
        write(plan, root / name)
    broken = []
    for number, (name, plan) in enumerate(plans.items(), start=1):
        state = progress.read(root, name, *plan.pairs, whole=True)
        print(f"[{number}/{len(plans)}] {name}: {progress.words(state)}", flush=True)
        again = any(override in ("force=true", "retry=failed") for override in plan.overrides)
        if state.state == progress.DONE and not (plan.measures or plan.case_study or again):
            continue
        command = [sys.executable, "-m", "specdec_trees.run", "-m", f"experiment={name}", *plan.overrides]
        with lock(root / name, SWEEP, shared=True, wait=True):
            broken += [name] if _run(command) else []
    return plans, broken


def _run(command: Sequence[str]) -> int:
    """Its exit status. Ctrl-C reaches the command too, which is given time to end, and says that it was stopped.

    SIGTERM is passed on, and raises Preempted when the command has ended.
    """
    process = subprocess.Popen(command)
    try:
        with preemption.awaited() as stop:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(LOOK_S)
                if stop.asked:
                    process.terminate()
                    return process.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process.wait(PATIENCE_S) in (STOPPED, -signal.SIGINT):
                sys.exit(STOPPED)
        raise
    finally:
        process.kill()


def _outcome(names: Sequence[str], plans: Mapping[str, Planned], given: Mapping[str, str], root: Path) -> int:
    """Report the artifacts planned that are named, else all as pages, and name those that are not done.

    Where all that was asked for failed, the report of what was measured before stays.
    """
    where = ["--results", str(root), "--out", str(root / "report")]
    every = [] if names and all(name in ARTIFACTS for name in names) else [where]
    states = {name: progress.read(root, name, *plan.pairs) for name, plan in plans.items()}
    lost = [name for name, state in states.items() if state.failed and not state.done]
    single = [[name, *where, *_single(plans[name], given)] for name in names if name in plans and name not in lost]
    status = max((report(arguments) for arguments in (*single, *every)), default=0)
    undone = {name: state for name, state in states.items() if state.state != progress.DONE}
    if "shard" in given:
        undone = {name: state for name, state in undone.items() if state.failed}
    for name, state in undone.items():
        print(f"{name}: {progress.words(state)}", file=sys.stderr)
    return status or int(bool(undone))


def _single(plan: Planned, given: Mapping[str, str]) -> list[str]:
    """Where one pair was asked for, the report's option for it and those run along, by the names that rows have."""
    pair = given.get("pair", PAPERS)
    return [] if pair in ALL_PAPERS or "," in pair else ["--pair", ",".join(plan.pairs)]


def _artifacts(names: Sequence[str]) -> list[str]:
    """The artifacts of these names, each its own or that of a paper; all without names."""
    every = list(ARTIFACTS)
    return [one for name in names for one in every if name in (one, one.partition("/")[0])] if names else every


def _swept(names: Sequence[str], overrides: Sequence[str], root: Path) -> tuple[dict[str, Planned], list[str]]:
    """Run what is not done, as `reproduce` does. Exits with a sentence where nothing can be."""
    for name in names:
        if not _artifacts([name]):
            sys.exit(unknown("artifact", name, list(ARTIFACTS)))
    try:
        check_overrides(overrides)
        check_choices([override for override in overrides if override not in [f"pair={name}" for name in ALL_PAPERS]])
        return reproduce(_artifacts(names), overrides, root)
    except BrokenPipeError:
        raise
    except (TypeError, OSError, HydraException, *runner.SENTENCES) as error:
        sys.exit(sentence(error))


@warned_once()
def main(arguments: Sequence[str]) -> int:
    """Exit status: that of the report, or 1 if something planned is not done."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    names, overrides = ([text for text in arguments if ("=" in text) is pair] for pair in (False, True))
    given = dict(override.partition("=")[::2] for override in overrides)
    root = Path(given.get("results_dir", "results"))
    try:
        plans, broken = _swept(names, overrides, root)
        for name in broken:
            print(f"{name}: its sweep could not be run; the log above says why", file=sys.stderr)
        return _outcome(names, plans, given, root) or int(bool(broken))
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
