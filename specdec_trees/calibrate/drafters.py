"""What a drafter's config leaves to be measured becomes numbers, what it leaves to be trained becomes a model.

`acceptance: measured`, `n: hardware`, `delta: hardware` are measured, `decision: hidden` and `decision: topk` trained.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec_core import TreeShape
from specdec_core.models.decision import KINDS, DecisionModel
from specdec_core.sampling import Sampling
from specdec_core.search import choose_tree, expected_tokens
from specdec_core.verifiers import TargetSample, Verifier, WithoutReplacement
from specdec_trees.calibrate import kept, prices
from specdec_trees.calibrate.acceptance import AcceptanceRequest, AcceptanceVector
from specdec_trees.calibrate.decision import kept as kept_models
from specdec_trees.calibrate.decision.training import digest
from specdec_trees.calibrate.kept import Setting
from specdec_trees.calibrate.prices import Prices
from specdec_trees.names import unknown

log = logging.getLogger(__name__)
MEASURED, HARDWARE = "measured", "hardware"
PRICED = "sequoia"
"""The method of a tree that was chosen for another machine: not the hardware-aware tree of this one."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A drafter's parameters with numbers in place of words, and what they predict of the cell.

    Nothing is predicted where the vector is not one of the cell's own rule, draws and sampling; no speedup where the
    tree was chosen by the prices of a named machine.
    """

    drafter: dict[str, Any]
    decision: DecisionModel | None = None
    """Stands in the drafter's parameters by kind and weights, as what the cell is known by."""
    mal: float | None = None
    speedup: float | None = None


def is_open(drafter: Mapping[str, Any]) -> bool:
    """Whether a drafter's config asks for a vector, a decision model or a choice by measured times."""
    shape = drafter.get("shape")
    vector = "acceptance" in drafter or (isinstance(shape, Mapping) and "acceptance" in shape)
    return vector or drafter.get("decision") is not None or HARDWARE in drafter.values()


def calibrate(
    drafter: Mapping[str, Any], setting: Setting, shape_of: Callable[[Mapping[str, Any]], TreeShape]
) -> Calibrated:
    """Measure what a drafter's config leaves to be measured; `shape_of` builds the tree of a finished config."""
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in drafter.items()}
    model = decision_model(found.get("decision"), setting)
    if model is not None:
        found["decision"] = {"kind": model.kind, "sha256": digest(model)}
    places = [place for place in (found, found.get("shape")) if isinstance(place, dict) and "acceptance" in place]
    for place in places:
        _check_words(place)
    wanted = any(place["acceptance"] == MEASURED for place in places)
    measured = sequoias_vector(setting, str(found.get("draws", "topk"))) if wanted else None
    if measured is not None:
        if setting.dataset.part != "evaluation" and setting.plan.acceptance.dataset is None:
            log.warning("%s: acceptance is measured on prompts that are decoded too", setting.dataset.name)
        for place in places:
            place["acceptance"] = measured.vector
    speedup = None
    if HARDWARE in (found.get("n"), found.get("depth")):
        tree, speedup = hardware_choice(found, setting)
        found |= {"n": tree.num_drafted, "depth": tree.depth}
        if setting.plan.prices:  # here it is a tree like any other
            found, speedup = found | {"method": PRICED}, None
    if found.get("delta") == HARDWARE:
        # a layer of EAGLE-2 reads its beam, one of OPT-Tree up to n nodes; of a threshold's any width, at least one
        width = 1 if "threshold" in drafter else drafter.get("k", drafter.get("n"))
        found["delta"] = cost_ratio(width, setting)
    if measured is None or not _of_the_cell(measured, found, setting):
        return Calibrated(drafter=found, decision=model)
    mal = expected_tokens(shape_of(found), measured.vector)
    return Calibrated(drafter=found, decision=model, mal=mal, speedup=speedup)


def decision_model(word: Any, setting: Setting) -> DecisionModel | None:
    """The model that a drafter's `decision` names: a kind, trained unless it was, a file, or none.

    None of the cell's prompts may be what it learnt from (DatasetError).
    """
    if word is None:
        return None
    if word in KINDS:
        model = kept_models.models(setting)[word]
    elif str(word).endswith(".safetensors"):
        model, draft = kept_models.read(Path(word).expanduser()), setting.pair.draft
        if draft is not None and model.facts.get("draft", draft.name) != draft.name:
            log.warning("the decision model %s was trained for %s, not %s", word, model.facts["draft"], draft.name)
    else:
        raise ValueError(f"{unknown('drafter.decision', str(word), KINDS)} A .safetensors file may be given too.")
    kept_models.check_disjoint(model.facts, setting)
    return model


def sequoias_vector(setting: Setting, draws: str) -> AcceptanceVector:
    """Of Sequoia's rule and draws; at temperature 0 of greedy decoding, and of top-k children unless the cell draws."""
    drawn = setting.sampling.greedy and draws == "without_replacement"
    if _sampling(setting).greedy and not drawn:
        return measure_acceptance(setting, "target_sample", TargetSample(), "topk")
    return measure_acceptance(setting, "without_replacement", WithoutReplacement(), "without_replacement")


def measure_acceptance(setting: Setting, name: str, rule: Verifier, draws: str) -> AcceptanceVector:
    """The vector of a rule as the setting's plan says."""
    plan, sampling = setting.plan.acceptance, _sampling(setting)
    request = AcceptanceRequest(
        verifier=name,
        draws=draws,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        draft_temperature=setting.draft_temperature,
        draft_top_p=setting.draft_top_p,
        width=plan.width,
        new_tokens=min(plan.new_tokens, setting.max_new_tokens),
        repeats=plan.repeats,
        estimator=plan.estimator,
        smooth=plan.smooth,
        seed=setting.seed,
    )
    return kept.acceptance_vector(setting, request, rule)


def hardware_choice(drafter: Mapping[str, Any], setting: Setting) -> tuple[TreeShape, float]:
    """The tree that is predicted to be fastest, and its predicted speedup (section 3.3).

    Numbers that the drafter's config gives bound it: n its size, depth and max_children.
    """
    plan, size, depth = setting.plan, drafter["n"], drafter.get("depth")
    needed, machine = {1} if size == HARDWARE else {1, size + 1}, _prices(setting)
    times = machine.by_size({*plan.latency.num_tokens, *(needed if plan.prices else ())})
    if "draft" not in times:
        raise ValueError(
            f"no forward of a draft of {setting.pair.name} is known on {machine.machine}: no tree is chosen"
        )
    forward_s = times["target"]
    if lacking := needed - forward_s.keys() | {1} - times["draft"].keys():
        where = f"forward times on {machine.machine} lack" if plan.prices else "calibration.latency.num_tokens lacks"
        raise ValueError(f"{where} {min(lacking)} tokens; 1 is needed, and a given n + 1")
    choice = choose_tree(
        drafter["acceptance"],
        forward_s if size == HARDWARE else {tokens: forward_s[tokens] for tokens in needed},
        times["draft"][1],
        range(1, (min(plan.depths, depth) if isinstance(depth, int) else plan.depths) + 1),
        levels=plan.draft_passes == "levels",
        plain=False,
        max_children=drafter.get("max_children"),
    )
    log.info(
        "hardware-aware on %s: n=%d, depth %d, predicted %.2f tokens per step and %.2fx",
        machine.machine,
        choice.shape.num_drafted,
        choice.shape.depth,
        choice.expected_tokens,
        choice.speedup,
    )
    return choice.shape, choice.speedup


def cost_ratio(tokens: int, setting: Setting) -> float:
    """OPT-Tree's mu (section 4.5): the draft's forward over a layer's tokens, in autoregressive steps of the target.

    A layer that raises E(A) by less costs more than it gives. Of three digits, so that a cell keeps its name.
    """
    machine = _prices(setting)
    if machine.draft is None:
        raise ValueError(f"no forward of a draft of {setting.pair.name} is known on {machine.machine}")
    ratio = float(machine.draft(np.array([tokens]))[0] / machine.target(np.ones(1))[0])
    if math.isnan(ratio):
        raise ValueError(f"forward times on {machine.machine} lack 1 token of the target, or {tokens} of the draft")
    return round(ratio, 3)


def _prices(setting: Setting) -> Prices:
    """Of this machine, measured unless they were, or of the one that the plan names."""
    if setting.plan.prices is None:
        return Prices.of_times("this machine", kept.latency(setting))
    return prices.named(setting.plan.prices, setting.pair, setting.results_dir)


def _sampling(setting: Setting) -> Sampling:
    """The sampling that vectors are measured with: the plan's, else the cell's."""
    plan, own = setting.plan.acceptance, setting.sampling
    temperature = own.temperature if plan.temperature is None else plan.temperature
    return Sampling(temperature, own.top_p if plan.top_p is None else plan.top_p)


def _of_the_cell(vector: AcceptanceVector, drafter: Mapping[str, Any], setting: Setting) -> bool:
    """Whether children are drawn and judged in this cell as they were when the vector was measured."""
    request, own = vector.request, setting.sampling
    rules = {"without_replacement": "WithoutReplacement", "target_sample": "TargetSample"}
    return (
        setting.plan.acceptance.dataset is None
        and (request.temperature, request.top_p) == (own.temperature, own.top_p)
        and (own.greedy or rules[request.verifier] == setting.rule)
        and drafter.get("draws", request.draws) == request.draws
        and drafter.get("draft_temperature", request.draft_temperature) == request.draft_temperature
        and drafter.get("draft_top_p", 1.0) == request.draft_top_p
    )


def _check_words(params: Mapping[str, Any]) -> None:
    """ValueError for a word where a number belongs, other than the one that has it measured."""
    for key, word in {"acceptance": MEASURED, "n": HARDWARE, "depth": HARDWARE, "delta": HARDWARE}.items():
        if isinstance(value := params.get(key), str) and value != word:
            raise ValueError(unknown(f"drafter.{key}", value, [word]))
