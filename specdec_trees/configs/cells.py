"""Composed configs become typed values here; beyond `run.py` and this file nothing knows OmegaConf."""

import copy
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import DictConfig

from specdec_core import TreeShape
from specdec_core.drafters import Drafter, StaticTree
from specdec_core.models import CausalLM, Head, ModelSpec
from specdec_core.models.decision import DecisionModel
from specdec_core.models.kinds import TARGET
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.planted.bigrams import Planting
from specdec_core.sampling import Sampling
from specdec_core.search import best_tree
from specdec_core.verifiers.rounds import ChildByChild
from specdec_trees.calibrate import drafters
from specdec_trees.calibrate.kept import Setting
from specdec_trees.configs import resolvers, stand_ins, variants
from specdec_trees.configs.options import Plain, check_values
from specdec_trees.locations import hint, root
from specdec_trees.measure.cell import (
    RANKS,
    AcceptancePlan,
    CalibrationPlan,
    Cell,
    DecisionPlan,
    LatencyGrid,
    PairSpec,
    Runtime,
    SkipPlan,
)
from specdec_trees.measure.fingerprints import SELECTION, fingerprint_data, fingerprint_folder, fingerprint_selection
from specdec_trees.prompts import templates
from specdec_trees.prompts.datasets import DatasetSpec
from specdec_trees.prompts.embedded import TINY
from specdec_trees.results.identity import LOCAL, canonical, identity
from specdec_trees.results.rows import RECORDED
from specdec_trees.results.store import run_id

resolvers.register()
variants.register()


Config = DictConfig | Plain
"""A composed config; whoever asks it for several things makes it `Plain` first, so that it is resolved once."""


def scientific_config(cfg: Config) -> dict[str, Any]:
    """What is measured, as plain values, with fingerprints of local files. No paths, launcher or device.

    ValueError for an option that is unknown or not of its type.
    """
    plain = Plain.of(cfg)
    check_values(plain)
    config = {axis: plain[axis] for axis in ("pair", "dataset", "drafter", "verifier", "decoding", "seed", "limit")}
    config = copy.deepcopy(config)
    pair, runtime = stand_ins.named(config["pair"]), plain["runtime"]
    config["pair"] = pair
    for role in ("target", "draft"):
        if pair[role] and (folder := Path((model := _model_of(pair[role])).source)).is_dir():
            place = {"id": model.id, "folder": None, LOCAL: True} if _is_local(pair[role], model) else {}
            pair[role] = pair[role] | place | {"files_sha256": fingerprint_folder(folder)}
    pair["template_sha256"] = templates.sha256(pair["template"])
    spec, data_dir = dataset_of(plain), _data_dir(plain)
    config["dataset"] = _dataset_config(spec, data_dir) | fingerprint_selection(spec, data_dir, config["limit"])
    device = torch.device(resolve_device(runtime["device"]))
    config["runtime"] = {
        "dtype": str(resolve_dtype(runtime["dtype"], device)).removeprefix("torch."),
        "attention": runtime["attention"],
    }
    if placement := runtime_of(plain).placement:
        config["runtime"]["placement"] = placement
    if drafters.HARDWARE in config["drafter"].values() and plain["calibration"]["prices"] is not None:
        config["prices"] = plain["calibration"]["prices"]
    if not config["decoding"]["ignore_eos"]:
        del config["decoding"]["ignore_eos"]
    asked = {"node_order": runtime["node_order"], "graphs": runtime_of(plain).graphs_of(pair_of(plain))}
    for key, default in (("node_order", "creation"), ("graphs", "eager")):
        if asked[key] != default:
            config["runtime"][key] = asked[key]
    return config


def cell_of(cfg: Config) -> Cell:
    """The typed cell of a config; what its tree depends on is measured first, unless it was.

    ValueError, DatasetError or SpecdecError say in a sentence what does not fit.
    """
    plain = Plain.of(cfg)
    config = scientific_config(plain)
    resolvers.check_printed(plain.cfg)
    tree = drafters.Calibrated(drafter=config["drafter"])
    if drafters.is_open(tree.drafter):
        tree = drafters.calibrate(tree.drafter, setting_of(plain, config), _shape_of)
    config["drafter"] = tree.drafter
    cell = of_config(
        config,
        run_id=run_id(identity(config)),
        experiment=plain["name"],
        pair=pair_of(plain),
        dataset=dataset_of(plain),
        decision=tree.decision,
    )
    return replace(cell, predicted_mal=tree.mal, predicted_speedup=tree.speedup)


def of_config(
    config: dict[str, Any],
    *,
    run_id: str,
    experiment: str,
    pair: PairSpec,
    dataset: DatasetSpec,
    decision: DecisionModel | None = None,
) -> Cell:
    """The typed cell of a scientific config in which nothing is left to be measured.

    KeyError, TypeError or ValueError for a config that is none.
    """
    drafter, verifier, decoding = (dict(config[axis]) for axis in ("drafter", "verifier", "decoding"))
    name, method = drafter.pop("name"), drafter.pop("method")
    rule, allow_lossy = verifier.pop("name"), verifier.pop("allow_lossy")
    return Cell(
        run_id=run_id,
        experiment=experiment,
        pair=pair,
        dataset=dataset,
        drafter=name,
        method=method,
        drafter_params={key: value for key, value in drafter.items() if key != "_target_"},
        build_drafter=drafter_builder(drafter, **({"decision": decision} if decision else {})),
        verifier=rule,
        rule=_made(canonical(verifier)),
        allow_lossy=allow_lossy,
        max_new_tokens=decoding.pop("max_new_tokens"),
        ignore_eos=decoding.pop("ignore_eos", False),
        sampling=Sampling(**decoding),
        seed=config["seed"],
        limit=config["limit"],
        config=config,
    )


def is_run(given: Config, pair: str | None = None) -> bool:
    """Whether a job of a sweep is run for its pair, or for another: `only` may name the choices that are.

    Its `others` are those of any pair that it does not name. A sweep of replays leaves to others what is seen while the
    target decodes, and what follows neither from its tokens nor from what they were drawn from.
    """
    cfg = Plain.of(given)
    if cfg["measure"] == "cells" and cfg["runtime"]["replay"] in (True, RANKS):
        instruments = [table for table in RECORDED if cfg[f"record_{table}"]]
        if cfg["case_study"] or instruments or not (_by_tokens(cfg) or _by_distributions(cfg)):
            return False
    chosen = cfg["only"].get(pair or cfg["pair"]["name"], cfg["only"].get("others", {}))
    return all(cfg[axis]["name"] in names for axis, names in chosen.items())


def _by_tokens(cfg: Plain) -> bool:
    """Whether the target alone chooses the tokens."""
    return Sampling(cfg["decoding"]["temperature"]).greedy or cfg["verifier"]["_target_"].endswith(".TargetSample")


def _by_distributions(cfg: Plain) -> bool:
    """Whether a rule judges child by child a tree of fixed shape that a draft model of its own draws."""
    rule, drafter = (hydra.utils.get_object(cfg[part]["_target_"]) for part in ("verifier", "drafter"))
    fixed = isinstance(drafter, type) and issubclass(drafter, StaticTree) and not cfg["drafter"].get("merged")
    draft = cfg["pair"]["draft"] and cfg["pair"]["draft"].get("kind", TARGET)
    return fixed and isinstance(rule, type) and issubclass(rule, ChildByChild) and draft in (TARGET, "reduced_lm")


def setting_of(given: Config, config: Mapping[str, Any]) -> Setting:
    """What acceptance vectors and forward times are measured for, and decision models trained."""
    cfg = Plain.of(given)
    plan = dict(cfg["calibration"])
    acceptance = AcceptancePlan(**plan.pop("acceptance") | {"dataset": calibration_dataset_of(cfg, "acceptance")})
    latency = LatencyGrid(**plan.pop("latency"))
    decision = DecisionPlan(**plan.pop("decision") | {"dataset": calibration_dataset_of(cfg, "decision")})
    skips = SkipPlan(**plan.pop("skips"))
    decoding, drafter, own = dict(config["decoding"]), config["drafter"], config["pair"]["draft_temperature"]
    new, planned = decoding.pop("max_new_tokens"), acceptance.temperature
    decoding.pop("ignore_eos", None)  # acceptance is measured up to EOS
    elsewhere = own if planned is None or Sampling(planned).greedy else planned
    return Setting(
        experiment=cfg["name"],
        pair=pair_of(cfg),
        dataset=dataset_of(cfg),
        sampling=Sampling(**decoding),
        rule=config["verifier"]["_target_"].rpartition(".")[2],
        max_new_tokens=new,
        draft_temperature=drafter.get("draft_temperature", own) if planned is None else elsewhere,
        draft_top_p=drafter.get("draft_top_p", 1.0),
        seed=config["seed"],
        limit=config["limit"],
        runtime=runtime_of(cfg),
        plan=CalibrationPlan(acceptance=acceptance, latency=latency, decision=decision, skips=skips, **plan),
        results_dir=Path(cfg["results_dir"]),
        identity=_calibration_identity(cfg, config),
    )


def _calibration_identity(cfg: Plain, config: Mapping[str, Any]) -> dict[str, Any]:
    """What acceptance depends on: models, dtype, and the prompts of the calibration part alone."""
    found = {axis: dict(identity(config)[axis]) for axis in ("pair", "dataset", "runtime")}
    for key in ("node_order", "graphs"):
        found["runtime"].pop(key, None)
    part = calibration_dataset_of(cfg, "acceptance") or replace(dataset_of(cfg), part="calibration")
    own = _dataset_config(part, _data_dir(cfg))
    if part.name != found["dataset"]["name"]:
        found["dataset"] = dict(own)
    for key in ("part", "limit", "prompts_sha256", *SELECTION):
        found["dataset"].pop(key, None)
    found["dataset"] |= {key: own[key] for key in ("prompts_sha256",) if key in own}
    return found


def _dataset_config(spec: DatasetSpec, data_dir: Path | None) -> dict[str, Any]:
    """A dataset's options; a file of one's own is known by its contents."""
    if not (data_dir or spec.file):
        return spec.to_config()
    return spec.to_config() | {"source": "folder", "prompts_sha256": fingerprint_data(spec, data_dir)}


def _data_dir(cfg: Plain) -> Path | None:
    return Path(cfg["data_dir"]) if cfg["data_dir"] else None


def _shape_of(drafter: Mapping[str, Any]) -> TreeShape:
    """The tree of a drafter's config."""
    if "shape" in drafter:
        shape: TreeShape = hydra.utils.instantiate(drafter["shape"], _convert_="all")
        return shape
    return best_tree(**{key: drafter[key] for key in ("acceptance", "n", "depth", "max_children") if key in drafter})


def dataset_of(cfg: Config) -> DatasetSpec:
    """A dataset's yaml."""
    return DatasetSpec.from_config(Plain.of(cfg)["dataset"])


def calibration_dataset_of(cfg: Config, kind: str) -> DatasetSpec | None:
    """On what `acceptance` is measured or a `decision` model trained, if not on the cell's own dataset."""
    plain = Plain.of(cfg)["calibration"][kind]
    return DatasetSpec.from_config(plain["dataset"] | {"part": "calibration"}) if plain.get("dataset") else None


def pair_config(cfg: Config) -> dict[str, Any]:
    """A pair's values, under a name of its own where models stand in for those of its yaml."""
    return stand_ins.named(Plain.of(cfg)["pair"])


def pair_of(cfg: Config) -> PairSpec:
    """Target and draft of a pair's yaml."""
    config = pair_config(cfg)
    target, draft = (_model_of(config[role]) if config[role] else None for role in ("target", "draft"))
    if target is None:
        raise ValueError(f"pair {config['name']} has no target")
    planted = Planting(**config["planted"]) if config.get("planted") else None
    return PairSpec(name=config["name"], target=target, draft=draft, template=config["template"], planted=planted)


def _model_of(config: Mapping[str, Any]) -> ModelSpec:
    """A model by hub id or folder; `tiny/...` are the embedded weights, `models/x` is what `make x` makes.

    ValueError where that is not made yet.
    """
    lists = {name: tuple(value) for name, value in config.items() if isinstance(value, list)}
    spec = ModelSpec(**{**config, **lists})
    if spec.folder:
        folder = root() / spec.folder
        if not folder.is_dir():
            command = hint(f"make {folder.name}", f"specdec {folder.name}")
            how = f" yet: run `{command}`" if folder.parent == root() / "models" else ""
            raise ValueError(f"{spec.id} is not in {folder}{how}")
        return replace(spec, folder=str(folder))
    if spec.id.startswith("tiny/"):
        return replace(spec, folder=str(TINY.parent / spec.id))
    here = Path(spec.id).expanduser()
    return replace(spec, id=here.resolve().name, folder=str(here.resolve())) if here.is_dir() else spec


def _is_local(config: Mapping[str, Any], model: ModelSpec) -> bool:
    """Whether a model is given by a path of this machine, in place of an id or a folder of the checkout."""
    return Path(config["folder"]).is_absolute() if config.get("folder") else model.id != config["id"]


def runtime_of(given: Config) -> Runtime:
    """How to run it."""
    cfg = Plain.of(given)
    if cfg["retry"] not in (None, "failed"):
        raise ValueError(f"retry is null or failed, not {cfg['retry']}")
    return replace(
        Runtime(**cfg["runtime"]),
        data_dir=_data_dir(cfg),
        retry_failed=cfg["retry"] == "failed",
        **{name: cfg[name] for name in ("force", "case_study", "allow_useless_draft")},
        **{f"record_{table}": cfg[f"record_{table}"] for table in RECORDED},
    )


@functools.lru_cache(maxsize=1024)
def _made(text: str) -> Any:
    """What a config in canonical JSON stands for; cells share it, since rules and shapes do not change."""
    return hydra.utils.instantiate(json.loads(text), _convert_="all")


def drafter_builder(params: dict[str, Any], **objects: Any) -> Callable[[CausalLM | Head | None], Drafter]:
    """A constructor that still lacks the draft model; unknown parameters fail here, not after loading weights.

    A drafter that drafts with a model has the parameter `draft`; any other is built without. `objects` are parameters
    that no config can hold; they take the place of what stands for them.
    """
    plain = {key: value for key, value in params.items() if key not in objects}
    partial: functools.partial[Drafter] = _made(canonical({**plain, "_partial_": True}))
    takes_draft = "draft" in inspect.signature(partial.func).parameters
    inspect.signature(partial.func).bind(**({"draft": None} if takes_draft else {}), **partial.keywords, **objects)

    def build(draft: CausalLM | Head | None) -> Drafter:
        if takes_draft and draft is None:
            raise ValueError(f"{partial.func.__name__} needs a draft model, and the pair has none")
        return partial(draft=draft, **objects) if takes_draft else partial(**objects)

    return build
