"""`python -m bench.run`: the Hydra entry. The only file that knows OmegaConf; beyond it there are typed values.

python -m bench.run drafter=opt_tree drafter.n=50             # one cell
python -m bench.run -m experiment=opt_tree/table1 pair=tiny   # a sweep, one cell after another
"""

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from bench import calibration, resolvers, runner, templates
from bench.cell import AcceptancePlan, CalibrationPlan, Cell, LatencyGrid, PairSpec, Runtime
from bench.datasets import DatasetSpec
from bench.embedded import TINY
from bench.identity import fingerprint_data, fingerprint_folder, identity
from bench.names import unknown
from bench.store import Store, run_id
from specdec_core import TreeShape
from specdec_core.drafters import Drafter
from specdec_core.models import CausalLM, ModelSpec
from specdec_core.models.loading import resolve_device, resolve_dtype
from specdec_core.sampling import Sampling
from specdec_core.search import best_tree

CONF = Path(__file__).resolve().parents[1] / "conf"

log = logging.getLogger(__name__)
resolvers.register()


def scientific_config(cfg: DictConfig) -> dict[str, Any]:
    """What is measured, as plain values, with fingerprints of local files. No paths, launcher or device."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    config = {axis: plain[axis] for axis in ("pair", "dataset", "drafter", "verifier", "decoding", "seed", "limit")}
    pair, runtime = config["pair"], plain["runtime"]
    for role in ("target", "draft"):
        if pair[role] and (folder := Path(_model_of(pair[role]).source)).is_dir():
            pair[role]["files_sha256"] = fingerprint_folder(folder)
    pair["template_sha256"] = templates.sha256(pair["template"])
    if plain["data_dir"]:
        prompts = fingerprint_data(dataset_of(cfg), Path(plain["data_dir"]))
        config["dataset"] |= {"source": "folder", "prompts_sha256": prompts}
    device = torch.device(resolve_device(runtime["device"]))
    config["runtime"] = {
        "dtype": str(resolve_dtype(runtime["dtype"], device)).removeprefix("torch."),
        "attention": runtime["attention"],
    }
    return config


def cell_of(cfg: DictConfig) -> Cell:
    """The typed cell of a config; what its tree depends on is measured first, unless it was.

    ValueError, DatasetError or SpecdecError say in a sentence what does not fit.
    """
    config = scientific_config(cfg)
    tree = calibration.calibrate(config["drafter"], _setting(cfg, config), _shape_of)
    config["drafter"] = tree.drafter
    drafter, verifier, decoding = (dict(config[axis]) for axis in ("drafter", "verifier", "decoding"))
    name, method = drafter.pop("name"), drafter.pop("method")
    rule, allow_lossy = verifier.pop("name"), verifier.pop("allow_lossy")
    return Cell(
        run_id=run_id(identity(config)),
        experiment=cfg.name,
        pair=pair_of(cfg),
        dataset=dataset_of(cfg),
        drafter=name,
        method=method,
        drafter_params={key: value for key, value in drafter.items() if key != "_target_"},
        build_drafter=_builder(drafter),
        verifier=rule,
        rule=hydra.utils.instantiate(verifier),
        allow_lossy=allow_lossy,
        max_new_tokens=decoding.pop("max_new_tokens"),
        sampling=Sampling(**decoding),
        seed=config["seed"],
        limit=config["limit"],
        config=config,
        predicted_mal=tree.mal,
        predicted_speedup=tree.speedup,
    )


def _setting(cfg: DictConfig, config: Mapping[str, Any]) -> calibration.Setting:
    """What an acceptance vector and forward times are measured for."""
    plan: Any = OmegaConf.to_container(cfg.calibration, resolve=True)
    acceptance, latency = AcceptancePlan(**plan.pop("acceptance")), LatencyGrid(**plan.pop("latency"))
    decoding = dict(config["decoding"])
    new, sampling = decoding.pop("max_new_tokens"), Sampling(**decoding)
    temperature = sampling.temperature if acceptance.temperature is None else acceptance.temperature
    return calibration.Setting(
        experiment=cfg.name,
        pair=pair_of(cfg),
        dataset=dataset_of(cfg),
        sampling=sampling,
        max_new_tokens=new,
        draft_temperature=config["pair"]["draft_temperature"] if Sampling(temperature).greedy else temperature,
        seed=config["seed"],
        limit=config["limit"],
        runtime=runtime_of(cfg),
        plan=CalibrationPlan(acceptance=acceptance, latency=latency, **plan),
        results_dir=Path(cfg.results_dir),
        identity={axis: identity(config)[axis] for axis in ("pair", "dataset", "runtime")},
    )


def _shape_of(drafter: Mapping[str, Any]) -> TreeShape:
    """The tree of a drafter's config."""
    if "shape" in drafter:
        shape: TreeShape = hydra.utils.instantiate(drafter["shape"], _convert_="all")
        return shape
    return best_tree(**{key: drafter[key] for key in ("acceptance", "n", "depth", "max_children") if key in drafter})


def dataset_of(cfg: DictConfig) -> DatasetSpec:
    """A dataset's yaml."""
    plain: Any = OmegaConf.to_container(cfg.dataset, resolve=True)
    return DatasetSpec.from_config(plain)


def pair_of(cfg: DictConfig) -> PairSpec:
    """Target and draft of a pair's yaml."""
    config: Any = OmegaConf.to_container(cfg.pair, resolve=True)
    target, draft = (_model_of(config[role]) if config[role] else None for role in ("target", "draft"))
    if target is None:
        raise ValueError(f"pair {config['name']} has no target")
    return PairSpec(name=config["name"], target=target, draft=draft, template=config["template"])


def _model_of(config: Mapping[str, Any]) -> ModelSpec:
    """A model by hub id or folder; `tiny/...` are the embedded weights."""
    spec = ModelSpec(**config)
    return replace(spec, folder=str(TINY.parent / spec.id)) if spec.id.startswith("tiny/") else spec


def runtime_of(cfg: DictConfig) -> Runtime:
    """How to run it."""
    if cfg.retry not in (None, "failed"):
        raise ValueError(f"retry is null or failed, not {cfg.retry}")
    runtime = Runtime(**OmegaConf.to_container(cfg.runtime, resolve=True))  # type: ignore[arg-type]
    return replace(
        runtime,
        data_dir=Path(cfg.data_dir) if cfg.data_dir else None,
        retry_failed=cfg.retry == "failed",
        force=cfg.force,
        record_nodes=cfg.record_nodes,
        case_study=cfg.case_study,
    )


def _builder(params: dict[str, Any]) -> Callable[[CausalLM | None], Drafter]:
    """A constructor that still lacks the draft model; unknown parameters fail here, not after loading weights."""
    partial: functools.partial[Drafter] = hydra.utils.instantiate(params, _partial_=True, _convert_="all")
    takes_draft = "draft" in inspect.signature(partial.func).parameters
    inspect.signature(partial.func).bind(**({"draft": None} if takes_draft else {}), **partial.keywords)

    def build(draft: CausalLM | None) -> Drafter:
        if takes_draft and draft is None:
            raise ValueError(f"{partial.func.__name__} needs a draft model, and the pair has none")
        return partial(draft=draft) if takes_draft else partial()

    return build


def _elsewhere(shard: str | None, job: int) -> bool:
    """Whether this job of a sweep belongs to another shard: `shard=i/n` takes every n-th job from the i-th on."""
    if shard is None:
        return False
    part, _, parts = str(shard).partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise ValueError(f"shard is i/n with i from 0 to n - 1, such as 0/4, not {shard}")
    return job % int(parts) != int(part)


def _execute(cfg: DictConfig, job: int) -> str:
    if _elsewhere(cfg.shard, job):
        return runner.SKIPPED
    runtime, store = runtime_of(cfg), Store(Path(cfg.results_dir), cfg.name)
    if runtime.num_threads:
        torch.set_num_threads(runtime.num_threads)
    if cfg.measure == "cells":
        return runner.run_cell(cell_of(cfg), runtime, store)
    config = scientific_config(cfg)
    setting = _setting(cfg, config)
    if cfg.measure == "latency":
        calibration.measure_latency(setting)
    elif cfg.measure == "acceptance":
        rule = {key: value for key, value in config["verifier"].items() if key not in ("name", "allow_lossy")}
        draws = resolvers.draws_for_rule(_root_=cfg)
        calibration.measure_acceptance(setting, config["verifier"]["name"], hydra.utils.instantiate(rule), draws)
    else:
        raise ValueError(unknown("measure", cfg.measure, ("cells", "latency", "acceptance")))
    return runner.OK


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def main(cfg: DictConfig) -> str:
    """One cell, or one job of a sweep. A cell that fails in a sweep is a row; alone it ends with exit status 1."""
    context = HydraConfig.get()
    sweep = context.mode == RunMode.MULTIRUN
    try:
        status = _execute(cfg, context.job.num if sweep else 0)
    except (TypeError, OSError, hydra.errors.HydraException, *runner.SENTENCES) as error:
        log.error("%s", error)
        status = runner.FAILED
    except (torch.OutOfMemoryError, MemoryError) as error:
        log.error("out of memory: %s", error)
        status = runner.OOM
    if not sweep and status in (runner.FAILED, runner.OOM):
        sys.exit(1)
    return status


def check_choices(arguments: list[str]) -> None:
    """Exit with the nearest names where `pair=`, `dataset=`, ... name no yaml; Hydra would list all of them."""
    for argument in arguments:
        axis, equals, choices = argument.lstrip("+").partition("=")
        folder = CONF / axis
        if not equals or not axis.isidentifier() or not folder.is_dir():
            continue
        names = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")]
        for choice in choices.split(","):
            nothing = choice == "null" and axis == "experiment"
            if choice.strip() not in names and not nothing and "(" not in choices:
                sys.exit(unknown(axis, choice.strip(), names))


def command(*defaults: str) -> None:
    """The command line, behind defaults that it overrides."""
    check_choices(sys.argv[1:])
    given = {argument.partition("=")[0] for argument in sys.argv[1:]}
    sys.argv[1:1] = [default for default in defaults if default.partition("=")[0] not in given]
    main()


if __name__ == "__main__":
    command()
