"""What an experiment would run, from its configs alone: cells, and what they are calibrated with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from specdec_core.models.decision import KINDS
from specdec_core.sampling import Sampling
from specdec_trees.calibrate.decision.prompts import most
from specdec_trees.calibrate.drafters import HARDWARE, MEASURED
from specdec_trees.configs.cells import calibration_dataset_of, dataset_of
from specdec_trees.measure.cell import SHARED, DecisionPlan
from specdec_trees.measure.group import BASELINES
from specdec_trees.names import unknown
from specdec_trees.plan import prompts
from specdec_trees.plan.trees import size, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A cell, or what cells are calibrated with. Numbers of tokens are upper bounds."""

    measure: str
    """cells | acceptance | latency | attention | decision"""
    method: str
    what: str
    """The dataset, for the eye."""
    dataset: str
    temperature: float
    top_p: float
    nodes: int
    """Drafted nodes of the largest tree."""
    depth: int
    """Draft forwards of a step."""
    prompts: str
    """How many of which length, in words."""
    tokens: int
    """New tokens of one arm, of all conversations together."""
    context: int | None
    """Prompt and answer; None: as many as the model has positions."""
    baseline: int = 0
    """New tokens of the autoregressive arm; 0 where it is not decoded."""
    lent: int = 0
    """Of these, those that as many cells of the setting as `decoders` decode for all."""
    decoders: int = 0
    passes: int = 1
    """Of the method's arm: a second one if an instrument records what happens in it."""
    forwards: tuple[int, ...] = ()
    """Tokens of every timed forward."""


def sweep(arguments: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The pairs that an experiment is for, and the overrides of every job, as Hydra's own sweeper makes them."""
    parser = OverridesParser.create()
    single = [given for given in arguments if not parser.parse_override(given).is_sweep_override()]
    listed = compose("config", single, return_hydra_config=True)
    given = [f"{key}={value}" for key, value in (listed.hydra.sweeper.params or {}).items()] + list(arguments)
    (batch,) = BasicSweeper.split_arguments(parser.parse_overrides(given), None)
    return list(listed.get("pairs") or [listed.pair.name]), [list(job) for job in batch]


def jobs_of(cfg: DictConfig) -> list[Job]:
    """The job of one composed config, behind the calibrations that a cell needs first."""
    plain: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    if cfg.measure == "latency":
        return [_timing(plain)]
    if cfg.measure == "acceptance":
        return [_vector(cfg, plain, plain["verifier"]["name"])]
    if cfg.measure == "attention":
        return [_attention(plain)]
    if cfg.measure == "decision":
        return [_decision(cfg, plain)]
    if cfg.measure != "cells":
        raise ValueError(unknown("measure", cfg.measure, ("cells", "latency", "acceptance", "decision", "attention")))
    found = words(plain["drafter"])
    drawn = plain["drafter"].get("draws") == "without_replacement"
    greedy = Sampling(plain["decoding"]["temperature"]).greedy
    rule = "target_sample" if greedy and not drawn else "without_replacement"
    vectors = [_vector(cfg, plain, rule)] if MEASURED in found else []
    priced = plain["calibration"]["prices"] is not None
    times = [_timing(plain)] if HARDWARE in found and not priced else []
    models = [_decision(cfg, plain)] if plain["drafter"].get("decision") in KINDS else []
    return [*vectors, *times, *models, _cell(cfg, plain)]


def _cell(cfg: DictConfig, plain: Mapping[str, Any]) -> Job:
    drafter, spec, new = plain["drafter"], dataset_of(cfg), plain["decoding"]["max_new_tokens"]
    nodes, depth = size(drafter, plain["calibration"])
    sentence, tokens, first = prompts.answers(spec, new, plain)
    baseline = tokens if plain["runtime"]["baseline"] else 0
    decoders, alike = _lent(plain)
    return Job(
        measure="cells",
        method=drafter["method"],
        what=spec.name,
        dataset=spec.name,
        temperature=plain["decoding"]["temperature"],
        top_p=plain["decoding"]["top_p"],
        nodes=nodes,
        depth=depth,
        prompts=sentence,
        tokens=tokens,
        context=prompts.context(spec, new),
        baseline=baseline,
        lent=min(baseline, (tokens if alike else first) if decoders else 0),
        decoders=decoders,
        passes=1 + any(plain[f"record_{table}"] for table in ("nodes", "masks", "variation", "rules")),
    )


def _lent(plain: Mapping[str, Any]) -> tuple[int, bool]:
    """How many cells decode the baseline for all (0: each its own), and whether later turns are lent like the first.

    They follow a cell's own answers, which are the same for all in lossless greedy decoding.
    """
    runtime, greedy = plain["runtime"], Sampling(plain["decoding"]["temperature"]).greedy
    grouped, shared = runtime["grouped"] and not runtime["tensor_parallel"], runtime["baseline"] == SHARED
    alike = grouped and greedy and not plain["verifier"].get("allow_lossy")
    return 1 if shared else BASELINES if grouped else 0, alike


def _vector(cfg: DictConfig, plain: Mapping[str, Any], rule: str) -> Job:
    """A step of the target and one of the draft at each new token (`specdec_trees.calibrate.estimators`)."""
    plan, decoding = plain["calibration"]["acceptance"], plain["decoding"]
    new = min(plan["new_tokens"], decoding["max_new_tokens"])
    source = calibration_dataset_of(cfg, "acceptance") or dataset_of(cfg)
    spec, count = prompts.calibration(source, plain, plan["prompts"])
    return Job(
        measure="acceptance",
        method=rule,
        what=f"vectors on {spec.name}",
        dataset=spec.name,
        temperature=decoding["temperature"] if plan["temperature"] is None else plan["temperature"],
        top_p=decoding["top_p"] if plan["top_p"] is None else plan["top_p"],
        nodes=plan["width"] if plan["estimator"] == "counts" else 0,
        depth=1,
        prompts=f"{count} prompts x {new} new tokens",
        tokens=count * new,
        context=prompts.context(spec, new),
    )


def _decision(cfg: DictConfig, plain: Mapping[str, Any]) -> Job:
    """Both kinds from one pass over the prompts, in trees of one draft level; their own training is left out."""
    other = calibration_dataset_of(cfg, "decision")
    plan = DecisionPlan(**plain["calibration"]["decision"] | {"dataset": other})
    new, wanted = min(plan.new_tokens, plain["decoding"]["max_new_tokens"]), most(plan, plain["limit"])
    spec, count = prompts.calibration(other or dataset_of(cfg), plain, wanted)
    count = wanted if other else count  # of another dataset more than its calibration part
    return Job(
        measure="decision",
        method="",
        what=f"models on {spec.name}",
        dataset=spec.name,
        temperature=plan.temperature,
        top_p=1.0,
        nodes=2 * plan.width,
        depth=1,
        prompts=f"at most {count} prompts x {new} new tokens, to train both kinds of decision model",
        tokens=count * new,
        context=prompts.context(spec, new),
    )


def _timing(plain: Mapping[str, Any]) -> Job:
    grid = plain["calibration"]["latency"]
    rounds, sizes = grid["warmup"] + grid["repeats"], grid["num_tokens"]
    return Job(
        measure="latency",
        method="",
        what="forward times",
        dataset="",
        temperature=0.0,
        top_p=1.0,
        nodes=max(sizes) - 1,
        depth=0,
        prompts=f"{len(sizes)} sizes up to {max(sizes)} tokens x {rounds} forwards of target and draft",
        tokens=0,
        context=grid["num_prefix"],
        forwards=tuple(sizes) * rounds,
    )


def _attention(plain: Mapping[str, Any]) -> Job:
    """Of no model: it counts for nothing in hours."""
    grid = plain["attention"]
    sentence = f"{grid['trees']} random trees of each of {len(grid['num_tokens'])} sizes; no model is loaded"
    return replace(_timing(plain), measure="attention", what="attention alone", prompts=sentence, nodes=0, forwards=())
