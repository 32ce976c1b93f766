"""The cells of a paper's experiments in the words of its published rows: which config gives which printed number.

`specdec_trees.published.join` holds rows against these cells. Pairs and datasets are axes of their own: what a sweep
holds besides is composed for the first pair and dataset alone, but for trees that a paper prints for each of them.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.frame import tree_budget, tree_size
from specdec_trees.papers.gsd.merging import UNLIMITED
from specdec_trees.papers.gsd.methods import CODE, DATASETS
from specdec_trees.papers.improving_mcsd.methods import draft_levels
from specdec_trees.plan.composing import composer
from specdec_trees.plan.jobs import sweep
from specdec_trees.plan.trees import size
from specdec_trees.published.join import NOBODY, PLAIN, STEPS, Cell

FLAGS = {
    "record_quality": "quality",
    "record_answers": "answers",
    "record_masks": "blocks",
    "case_study": "answer by token",
}
NAMES = {**DATASETS, "gsd_case_study": "case_study"}
KERNELS = {"tree_triton": "custom", "manual": "manual"}
ORDERS = {"creation": "false", "dfs": "true"}
ROOTED = {"sequoia"}
"""Papers that count the root in sizes, and levels for depths."""
AGAINST = {
    "selection=fixed": ["fixed_size"],
    "reorder=false": ["no_reorder"],
    "k_sequences": ["k_independent_sequences"],
    "sixteen_sequences": ["16_independent_sequences"],
}
"""What the papers call a baseline, by the param or the method that it is of."""
Compose = Callable[..., dict[str, Any]]


@cache
def cells_of(experiment: str) -> tuple[Cell, ...]:
    """Every cell of an experiment for its own pairs, or what is measured in place of cells."""
    with composer() as composed:

        def compose(*overrides: str) -> dict[str, Any]:
            return OmegaConf.to_container(composed(overrides), resolve=True)  # type: ignore[return-value]

        pairs = compose(f"experiment={experiment}").get("pairs") or [None]
        configs = list(_configs(experiment, pairs, compose))
        models = {pair: _models(experiment, pair, compose) for pair in pairs}
    found = [
        (cell | {"params": cell.get("params", {}) | models[pair][1]}, models[pair][0])
        for config, datasets, of in configs
        for cell in _cells(experiment, config, datasets)
        for pair in of
    ]
    beside = frozenset(name for cell, _ in found for name in _names(cell))
    beside |= {name for names, _ in models.values() for name in names}
    return tuple(Cell(**cell, target=target, draft=draft, beside=beside) for cell, (target, draft) in found)


def _configs(
    experiment: str, pairs: Sequence[str | None], compose: Compose
) -> Iterator[tuple[dict[str, Any], list[str], Sequence[str | None]]]:
    """What a sweep varies but pair and dataset, composed; the datasets and the pairs that each is run on."""
    choices: dict[tuple[str, ...], list[str]] = {}
    _, batch = sweep([f"experiment={experiment}", *([f"pair={pairs[0]}"] if pairs[0] else [])])
    for job in batch:
        rest = tuple(item for item in job if not item.startswith("dataset="))
        choices.setdefault(rest, []).extend(item for item in job if item.startswith("dataset="))
    for rest, datasets in choices.items():
        if "drafter=sequoia_printed" in rest:
            unpaired = [item for item in rest if not item.startswith("pair=")]
            for dataset, pair in itertools.product(datasets, pairs):
                config = compose(*unpaired, dataset, f"pair={pair}")
                yield config, [config["dataset"]["name"]], [pair]
            continue
        config = compose(*rest, *datasets[:1])
        names = [compose(choice)["dataset"]["name"] for choice in datasets] or [config["dataset"]["name"]]
        yield config, [NAMES.get(name, name) for name in names], pairs


def _models(experiment: str, pair: str | None, compose: Compose) -> tuple[tuple[str, str], dict[str, frozenset[str]]]:
    """A pair's names, and what a row may state of where its target is kept."""
    if pair is None:
        return (NOBODY, NOBODY), {}
    chosen = compose(f"experiment={experiment}", f"pair={pair}")["pair"]
    away = {"overlap": "true", "system": "sequoia_offload"}  # copies run beside a layer; the engine, without a tree
    kept = {"offload": "true", **away} if chosen["target"]["offload"] else {"offload": "false"}
    names = chosen["published"]["target"], chosen["published"]["draft"]
    return names, {key: frozenset({value}) for key, value in kept.items()}


def _cells(experiment: str, config: Mapping[str, Any], datasets: Sequence[str]) -> Iterator[dict[str, Any]]:
    common = {"experiment": experiment, "temperature": config["decoding"]["temperature"], "dataset": NOBODY}
    if config["measure"] == "attention":
        kept = {"methods": {"tree_attention": {}}, "gives": frozenset({"attention", "blocks"})}
        yield common | kept | {"dataset": "random_tree", "params": _attention(config["attention"])}
    elif config["measure"] == "latency":
        yield common | {"methods": {"verification": {}}, "gives": frozenset({"latency"})}
    elif config["measure"] == "cells":
        gives = {STEPS, *(name for flag, name in FLAGS.items() if config[flag])}
        gives |= {"baseline"} if config["runtime"]["baseline"] else set()
        gives |= {"distributions"} if config["drafter"]["_target_"].endswith(".MergeProbe") else set()
        run = row_of(config)
        methods = _methods(experiment, run) | ({PLAIN: {}} if "baseline" in gives else {})
        methods |= {"tree_attention": {}} if "blocks" in gives else {}
        found = common | {"methods": methods, "gives": frozenset(gives), "params": _params(experiment, config, run)}
        yield from (found | {"dataset": dataset} for dataset in datasets)


def _methods(experiment: str, run: Any) -> dict[str, Mapping[str, str]]:
    """The paper's names of a cell's method, and what the params of its rows must hold, as its report has them.

    Those are the arms of the artifact, which the paper's package offers; without any a cell has the names that other
    artifacts give its method, or its own.
    """
    paper, artifact = experiment.split("/")
    arms: Mapping[str, Sequence[Arm]] = getattr(import_module(f"specdec_trees.papers.{paper}"), "ARMS", {})
    if artifact in arms:
        return {arm.paper: arm.params for arm in arms[artifact] if arm.paper and arm.chosen([run]) is not None}
    named: dict[str, Mapping[str, str]] = {
        arm.paper: {} for of in arms.values() for arm in of if arm.paper and {run.drafter, run.method} & set(arm.ours)
    }
    return named or {run.method.removesuffix("_sib"): {}}


def row_of(config: Mapping[str, Any]) -> SimpleNamespace:
    """A row of a config's run that ended well, as far as arms know a method by it."""
    drafter = config["drafter"]
    params = {key: value for key, value in drafter.items() if key not in ("name", "method", "_target_")}
    nodes = tree_size(params)
    return SimpleNamespace(
        ok=True,
        drafter=drafter["name"],
        method=drafter["method"],
        verifier=config["verifier"]["name"],
        params=params,
        draws="",
        nodes=nodes and nodes + 1,
        budget=tree_budget(params, nodes),
        temperature=config["decoding"]["temperature"],
        top_p=config["decoding"]["top_p"],
    )


def _params(experiment: str, config: Mapping[str, Any], run: Any) -> dict[str, frozenset[str]]:
    """What a row may state of a cell; of a mask the root is a row."""
    drafter, root = config["drafter"], experiment.partition("/")[0] in ROOTED
    shape, (nodes, depth) = drafter.get("shape") or {}, size(drafter, config["calibration"])
    widths, levels = drafter.get("widths", shape.get("widths")), draft_levels(run)
    calibrated = drafter["_target_"].endswith(".Sequoia")
    selection = "hardware_aware" if "hardware" in (drafter.get("n"), drafter.get("depth")) else "fixed"
    found: dict[str, object] = {
        **{key: drafter.get(key) for key in ("tau", "theta_prob", "theta_sib", "delta", "threshold", "width")},
        "k": "inf" if drafter.get("k") == UNLIMITED else drafter.get("k"),
        "max_depth": drafter.get("max_steps"),
        "nodes": nodes,
        "size": nodes + (root or config["record_masks"]),
        "size_max": nodes + root,
        "depth": depth + 1 if root else levels,
        "gamma": levels,
        "k_config": "-".join(map(str, widths)) if widths else None,
        "target_init_width": drafter["widths"][0] if "widths" in drafter else None,
        "shape": f"{shape['num_sequences']}x{shape['depth']}" if {"num_sequences", "depth"} <= shape.keys() else None,
        "selection": selection if calibrated else None,
        "tree": "sequoia" if calibrated else drafter["method"],
        "top_p": config["decoding"]["top_p"],
        "verify": "nondeterministic" if config["verifier"]["name"] in CODE else "deterministic",
    }
    words = {key: frozenset({str(value)}) for key, value in found.items() if value is not None}
    return words | ({"reorder": frozenset(ORDERS.values())} if config["record_masks"] else {})


def _attention(grid: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    found = {
        "size": grid["num_tokens"],
        "reorder": [ORDERS[order] for order in grid["orders"]],
        "kernel": [KERNELS[kernel] for kernel in grid["kernels"] if kernel in KERNELS],
        **{key: [grid[key]] for key in ("block", "heads", "head_dim")},
    }
    return {key: frozenset(map(str, values)) for key, values in found.items()}


def _names(cell: Mapping[str, Any]) -> Iterator[str]:
    """What a cell is called where something is set against it."""
    yield from cell["methods"]
    stated = [f"{key}={value}" for key, values in cell.get("params", {}).items() for value in values]
    for name in (*cell["methods"], *stated):
        yield from AGAINST.get(name, [])
