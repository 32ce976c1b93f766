"""`python -m specdec_trees.run`: the Hydra entry. Typed cells are made in `specdec_trees/configs/cells.py`.

python -m specdec_trees.run drafter=opt_tree drafter.n=50             # one cell
python -m specdec_trees.run -m experiment=opt_tree/table1 pair=tiny   # a sweep
"""

import logging
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import configure_log
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from specdec_core.models import ranks
from specdec_trees.artifacts import findings, frame
from specdec_trees.calibrate import attention_times, drafters, kept, skip_search
from specdec_trees.calibrate.decision import kept as kept_models
from specdec_trees.configs import resolvers, variants
from specdec_trees.configs.cells import cell_of, is_run, runtime_of, scientific_config, setting_of
from specdec_trees.configs.options import Plain, check_names, check_values, sentence
from specdec_trees.locations import CONF, hint, own_conf
from specdec_trees.measure import pairs, record, runner, threads
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.cell_run import CellRun, is_over
from specdec_trees.measure.group import grouped
from specdec_trees.measure.preemption import Preempted
from specdec_trees.names import shard_of, unknown
from specdec_trees.results.store import Store, one_run

log = logging.getLogger(__name__)
STOPPED = 130
"""Exit status after Ctrl-C, as shells have it."""
_refused: list[str] = []
"""Why jobs of this process's sweep are no cells: Hydra drops what jobs return."""
_busy: list[str] = []
"""The same for cells that other processes ran at that moment."""
_waiting: list[CellRun] = []
"""Cells of this process's sweep, which are measured when all are known: those of one setting together."""
_hydra: list[DictConfig] = []
"""Hydra's settings of the last of these jobs, whose log theirs goes to."""
WAITING = "waiting"
"""The status of a job whose cell is among these."""
_NO_SHARD = "shard is i/n with i from 0 to n - 1, such as 0/4, not {}"


def _elsewhere(shard: str | None, job: int) -> bool:
    """Whether this job of a sweep belongs to another shard: `shard=i/n` takes every n-th job from the i-th on."""
    if shard is None:
        return False
    if (place := shard_of(shard)) is None:
        raise ValueError(_NO_SHARD.format(shard))
    return job % place[1] != place[0]


def _joined(plain: Plain) -> tuple[Plain, Runtime]:
    """What to run and how; where torchrun started several processes, the first alone shows progress and keeps rows."""
    runtime = runtime_of(plain)
    if ranks.world_size() > 1 and not runtime.tensor_parallel:
        raise ValueError(
            "torchrun is for runtime.tensor_parallel=true; start other runs with python -m specdec_trees.run"
        )
    if runtime.tensor_parallel:
        ranks.join()
    if ranks.rank():
        logging.disable(logging.WARNING)
        plain.cfg.results_dir = ranks.discarded()
        return Plain(plain.cfg), replace(runtime, progress=False)
    return plain, runtime


def _execute(cfg: DictConfig, job: int | None) -> str:
    """`job` is its place in a sweep, None for a cell alone: what an experiment runs of a pair holds for sweeps."""
    if _elsewhere(cfg.shard, job or 0):
        return runner.SKIPPED
    plain = Plain.of(cfg)
    check_values(plain)
    if job is not None and not is_run(plain):
        return runner.SKIPPED
    plain, runtime = _joined(plain)
    store = Store(Path(cfg.results_dir), cfg.name)
    threads.use(runtime.num_threads)
    if cfg.measure == "cells":
        return _cell(CellRun(cell_of(plain), runtime, store), sweep=job is not None)
    if cfg.measure == "attention":
        grid = hydra.utils.instantiate(cfg.attention, _convert_="all")
        print(attention_times.summary(kept.attention(grid, runtime, Path(cfg.results_dir), cfg.name), grid))
        return runner.OK
    if cfg.measure == "recording":
        print(record.summary(record.of_cell(CellRun(cell_of(plain), runtime, store))))
        return runner.OK
    config = scientific_config(plain)
    setting = setting_of(plain, config)
    if cfg.measure == "latency":
        kept.latency(setting)
    elif cfg.measure == "decision":
        print(kept_models.summary(setting))
    elif cfg.measure == "skips":
        print(skip_search.summary(setting))
    elif cfg.measure == "acceptance":
        rule = {key: value for key, value in config["verifier"].items() if key not in ("name", "allow_lossy")}
        draws = resolvers.draws_for_rule(_root_=cfg)
        drafters.measure_acceptance(setting, config["verifier"]["name"], hydra.utils.instantiate(rule), draws)
    else:
        known = ("cells", "latency", "acceptance", "decision", "skips", "attention", "recording")
        raise ValueError(unknown("measure", cfg.measure, known))
    return runner.OK


def _waits(run: CellRun) -> bool:
    """Whether a cell of a sweep waits for those that it can be decoded with; other launchers start a process a job."""
    launcher = HydraConfig.get().launcher if HydraConfig.initialized() else {}
    alone = run.runtime.replay or run.runtime.tensor_parallel or not run.runtime.grouped
    return not alone and launcher.get("_target_", "").endswith(".BasicLauncher")


def _run_waiting() -> None:
    """Run the cells of a sweep that wait, those of one setting together."""
    if _waiting:  # when jobs have ended, Hydra's own log goes on
        configure_log(_hydra[-1].hydra.job_logging, _hydra[-1].hydra.verbose)
    groups, began, done, measured = list(grouped(_waiting)), time.monotonic(), 0, 0
    total = sum(map(len, groups))
    for runs in groups:
        threads.use(runs[0].runtime.num_threads)
        pace = (time.monotonic() - began) / measured if measured else None
        ended = runner.run_cells(runs, _place(done, len(runs), total, pace)).values()
        done, measured = done + len(runs), measured + sum(status in runner.MEASURED for status in ended)
        for status in ended:
            if isinstance(status, runner.MEMORY):
                log.error("out of memory: %s", status)
            elif isinstance(status, Exception):
                _refuse(status)
            elif status == runner.BUSY:
                _busy.append(status)


def _place(done: int, count: int, total: int, pace: float | None) -> str:
    """`cells 4 to 6 of 12, about 8 min left`; the time from the second group on, at `pace` seconds a cell."""
    where = f"cell {done + 1}" if count == 1 else f"cells {done + 1} to {done + count}"
    left_s = pace * (total - done) if pace else 0.0
    left = f"{left_s / 3600:.1f} h" if left_s > 5400 else f"{math.ceil(left_s / 60)} min"
    return f"{where} of {total}" + f", about {left} left" * bool(pace)


def _cell(run: CellRun, *, sweep: bool) -> str:
    """Run a cell, or let it wait; its status. What one alone found is printed, were it found before."""
    if sweep and _waits(run):
        if is_over(run):
            return runner.skipped(run)
        _waiting.append(run)
        _hydra[:] = [OmegaConf.create({"hydra": HydraConfig.get()})]
        return WAITING
    status = runner.run_cell(run.cell, run.runtime, run.store)
    if not sweep and status in (runner.OK, runner.SKIPPED) and not ranks.rank():
        print("\n".join(_told(run.store, run.run_id)))
    return status


def _refuse(error: Exception) -> None:
    """Say why a job is no cell."""
    _refused.append(sentence(error))
    log.error("%s", _refused[-1])


def _told(store: Store, run_id: str) -> Iterator[str]:
    """What a cell that was run alone has found, where its rows are, and what shows them."""
    yield from findings.facts(frame.load(one_run(store, run_id)))
    default = store.root == Path("results")
    make = "make report" if default else f"make report RESULTS={store.root}"
    command = hint(make, "specdec report" if default else f"specdec report --results {store.root}")
    yield f"Files: {store.folder}/{{runs,prompts,steps}}/run_id={run_id}.parquet; `{command}` shows them."


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def main(cfg: DictConfig) -> str:
    """One cell, or one job of a sweep. A cell that fails in a sweep is a row; alone it ends with exit status 1.

    One whose config or calibration fails is no cell yet: the log says why, the sweep goes on and ends with exit status
    1, and the next run tries again.
    """
    context = HydraConfig.get()
    sweep = context.mode == RunMode.MULTIRUN
    try:
        status = _execute(cfg, context.job.num if sweep else None)
    except BrokenPipeError:
        raise
    except (TypeError, OSError, hydra.errors.HydraException, *runner.SENTENCES) as error:
        _refuse(error)
        status = runner.REFUSED
    except runner.MEMORY as error:
        log.error("out of memory: %s", error)
        pairs.release()
        status = runner.OOM
    if status == runner.BUSY and not ranks.rank():
        _busy.append(status)
    if not sweep and status in (runner.FAILED, runner.REFUSED, runner.OOM):
        sys.exit(1)
    return status


def check_choices(arguments: list[str]) -> None:
    """Exit with the nearest names where `pair=`, `dataset=`, ... name no yaml, and where an option is none.

    Before that with how to quote a value that Hydra cannot read.
    """
    for argument in arguments:
        _check_readable(argument)
        axis, equals, choices = argument.lstrip("+").partition("=")
        if axis in _REFUSALS and (refusal := _REFUSALS[axis](choices)):
            sys.exit(refusal)
        folders = (CONF / axis, own_conf() / axis)
        if not equals or not axis.isidentifier() or not any(folder.is_dir() for folder in folders):
            _check_option(argument)
            continue
        names = variants.choices(axis)
        for choice in choices.split(","):
            nothing = choice == "null" and axis == "experiment"
            if choice.strip() not in names and not nothing and "(" not in choices:
                sys.exit(unknown(axis, choice.strip(), names))


def _of_shard(given: str) -> str | None:
    return None if given == "null" or shard_of(given) else _NO_SHARD.format(given)


def _of_launcher(given: str) -> str | None:
    if given not in ("slurm_gpu", "submitit_slurm") or shutil.which("sbatch"):
        return None
    return f"hydra/launcher={given}: there is no sbatch here; it is for the login node of a Slurm cluster"


def _of_experiment(given: str) -> str | None:
    if "," not in given:
        return None
    names = given.split(",")
    return f"give one experiment a sweep; for {len(names)}: specdec reproduce {' '.join(names)}"


_REFUSALS = {"shard": _of_shard, "hydra/launcher": _of_launcher, "experiment": _of_experiment}
"""What is wrong with the value of an option, in a sentence; None where nothing is."""


def _check_readable(argument: str) -> None:
    """Exit with a sentence where Hydra's grammar of overrides has no place for an argument."""
    key, equals, value = argument.partition("=")
    if not equals or key.startswith("-"):
        return
    if not key:
        sys.exit(f"{argument}: the name of an option is missing")
    try:
        OverridesParser.create().parse_override(f"key={value}")
    except hydra.errors.HydraException:
        text = value.replace('"', '\\"')
        quoted = shlex.quote(f'{key}="{text}"')
        sys.exit(f"{argument}: what this value means cannot be read; as text it is {quoted}")


def _check_option(argument: str) -> None:
    """Exit with a sentence for `key=value` of an unknown key; what is added with + is known by what takes it."""
    key, equals, _ = argument.partition("=")
    if equals and key[0:1].isalpha() and not set(key) & {"/", "@"} and not key.startswith("hydra"):
        try:
            check_names(key)
        except ValueError as error:
            sys.exit(str(error))


def _run_all() -> None:
    """Run the jobs, then the cells that wait; these also where a job broke off the others."""
    try:
        main()
    except Exception:
        _run_waiting()
        raise
    _run_waiting()


def command(*defaults: str) -> None:
    """The command line, behind defaults that it overrides."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra prints what it cannot compose, and ends the process
    logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # what cannot be made is told in our words
    check_choices(sys.argv[1:])
    given = {argument.partition("=")[0] for argument in sys.argv[1:]}
    sys.argv[1:1] = [default for default in defaults if default.partition("=")[0] not in given]
    try:
        _run_all()
    except (hydra.errors.HydraException, OmegaConfBaseException) as error:
        sys.exit(sentence(error))
    except RuntimeError as error:
        if type(error).__name__ != "FailedJobError":  # of submitit, which not every installation has
            raise
        sys.exit(f"the jobs were not submitted: {str(error).strip().splitlines()[-1]}")
    except KeyboardInterrupt:
        print("stopped; what was finished is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(STOPPED)
    except Preempted:
        print(
            "asked to end; every decoded prompt is kept, and the same command goes on inside the cell", file=sys.stderr
        )
        raise
    if _busy:
        print(runner.left_to_others(len(_busy)), file=sys.stderr)
    if _refused:
        sys.exit(1)


if __name__ == "__main__":
    command()
