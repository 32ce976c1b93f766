"""What a tree must know of pair, prompts and machine: measured once per setting, kept in the results."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench import acceptance, datasets, forward_times, pairs
from bench.acceptance import AcceptanceRequest, AcceptanceVector
from bench.cell import AcceptancePlan, CalibrationPlan, PairSpec, Runtime
from bench.datasets import DatasetSpec
from bench.measurement import eos_token_ids, first_prompts
from bench.names import unknown
from bench.parquet import hidden_name
from bench.provenance import collect
from bench.records import GrowthRow, LatencyRow
from bench.store import Store, run_id
from specdec_core import TreeShape
from specdec_core.sampling import Sampling
from specdec_core.search import choose_tree, expected_tokens, growth
from specdec_core.verifiers import TargetSample, Verifier, WithoutReplacement

log = logging.getLogger(__name__)
MEASURED, HARDWARE = "measured", "hardware"
FOLDER = "calibration"
GROWTH_SIZES = tuple(2**power - 1 for power in range(1, 11))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a cell is calibrated for."""

    experiment: str
    pair: PairSpec
    dataset: DatasetSpec
    sampling: Sampling
    max_new_tokens: int
    draft_temperature: float
    seed: int
    limit: int | None
    runtime: Runtime
    plan: CalibrationPlan
    results_dir: Path
    identity: Mapping[str, Any]
    """The parts of the scientific config on which an acceptance vector depends."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A drafter's parameters with numbers in place of `measured` and `hardware`, and what they predict."""

    drafter: dict[str, Any]
    mal: float | None = None
    speedup: float | None = None


def calibrate(
    drafter: Mapping[str, Any], setting: Setting, shape_of: Callable[[Mapping[str, Any]], TreeShape]
) -> Calibrated:
    """Measure what a drafter's config leaves to be measured; `shape_of` builds the tree of a finished config."""
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in drafter.items()}
    places = [place for place in (found, found.get("shape")) if isinstance(place, dict)]
    for place in places:
        _check_words(place)
    for place in places:
        if place.get("acceptance") == MEASURED:
            place["acceptance"] = sequoias_vector(setting).vector
    given = [place["acceptance"] for place in places if "acceptance" in place]
    if not given:
        return Calibrated(drafter=found)
    vector, speedup = given[0], None
    n = found.get("n")
    if HARDWARE in (n, found.get("depth")):
        tree, speedup = _hardware_choice(vector, setting, n if isinstance(n, int) else None)
        found |= {"n": tree.num_drafted, "depth": tree.depth}
    return Calibrated(drafter=found, mal=expected_tokens(shape_of(found), vector), speedup=speedup)


def _check_words(params: Mapping[str, Any]) -> None:
    """ValueError for a word where a number belongs, other than the one that has it measured."""
    for key, word in {"acceptance": MEASURED, "n": HARDWARE, "depth": HARDWARE}.items():
        if isinstance(value := params.get(key), str) and value != word:
            raise ValueError(unknown(f"drafter.{key}", value, [word]))


def sequoias_vector(setting: Setting) -> AcceptanceVector:
    """Of Sequoia's rule and draws; of greedy decoding and top-k children at temperature 0."""
    plan, sampling = setting.plan.acceptance, setting.sampling
    sampling = Sampling(
        sampling.temperature if plan.temperature is None else plan.temperature,
        sampling.top_p if plan.top_p is None else plan.top_p,
    )
    changed = replace(setting, sampling=sampling)
    if sampling.greedy:
        return measure_acceptance(changed, "target_sample", TargetSample(), "topk")
    return measure_acceptance(changed, "without_replacement", WithoutReplacement(), "without_replacement")


def measure_acceptance(setting: Setting, name: str, rule: Verifier, draws: str) -> AcceptanceVector:
    """The vector of a rule, measured unless it was; its rows go with the experiment that uses it."""
    request = _request(setting, name, draws)
    prompts = min(setting.plan.acceptance.prompts, setting.limit or setting.plan.acceptance.prompts)
    key = run_id({"acceptance": asdict(request), "prompts": prompts, **setting.identity})
    store = Store(setting.results_dir, FOLDER)
    path = store.folder / "acceptance" / f"{key}.json"
    if path.exists() and not setting.runtime.force:
        vector = AcceptanceVector.from_json(path.read_text(encoding="utf-8"))
    else:
        if setting.dataset.part == "all":
            log.warning("%s: acceptance is measured on prompts that are decoded too", setting.dataset.name)
        vector = _measure(setting, rule, request, prompts)
        store.write("acceptance", key, acceptance.rows(vector, key))
        _write_whole(path, vector.to_json())
        log.info("acceptance vector written to %s", path)
    experiment = Store(setting.results_dir, setting.experiment)
    if setting.runtime.force or not experiment.has("growth", key):
        experiment.write("acceptance", key, acceptance.rows(vector, key))
        experiment.write("growth", key, growth_rows(vector, key))
    return vector


def measure_latency(setting: Setting) -> str:
    """The id of the forward times on this device, measured unless they were; their rows go to the experiment too."""
    kept, experiment = Store(setting.results_dir, FOLDER), Store(setting.results_dir, setting.experiment)
    name = forward_times.measure(setting.pair, setting.plan.latency, setting.runtime, kept)
    if setting.runtime.force or not experiment.has("latency", name):
        rows: Any = kept.read("latency", [name]).to_dict("records")
        experiment.write("latency", name, [LatencyRow(**row) for row in rows])
    return name


def growth_rows(vector: AcceptanceVector, key: str) -> list[GrowthRow]:
    """What every structure would make of the vector, by size."""
    request, facts = vector.request, vector.facts
    return [
        GrowthRow(
            run_id=key,
            pair=facts["pair"],
            dataset=facts["dataset"],
            device_name=facts["device_name"],
            verifier=request.verifier,
            draws=request.draws,
            temperature=request.temperature,
            top_p=request.top_p,
            **asdict(row),
        )
        for row in growth(vector.vector, GROWTH_SIZES)
    ]


def _write_whole(path: Path, text: str) -> None:
    """Another process finds all of it, or nothing."""
    part = path.with_name(hidden_name(path.name))
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _request(setting: Setting, rule: str, draws: str) -> AcceptanceRequest:
    plan: AcceptancePlan = setting.plan.acceptance
    return AcceptanceRequest(
        verifier=rule,
        draws=draws,
        temperature=setting.sampling.temperature,
        top_p=setting.sampling.top_p,
        draft_temperature=setting.draft_temperature,
        width=plan.width,
        new_tokens=min(plan.new_tokens, setting.max_new_tokens),
        repeats=plan.repeats,
        estimator=plan.estimator,
        smooth=plan.smooth,
        seed=setting.seed,
    )


def _measure(setting: Setting, rule: Verifier, request: AcceptanceRequest, prompts: int) -> AcceptanceVector:
    dataset = replace(setting.dataset, part="calibration")
    conversations = datasets.load(dataset, data_dir=setting.runtime.data_dir, limit=prompts)
    pair = pairs.loaded(setting.pair, setting.runtime)
    facts = collect(str(pair.target.device), str(pair.target.dtype), setting.runtime.attention)
    return acceptance.measure(
        pair,
        first_prompts(pair, setting.pair.template, dataset, conversations),
        rule,
        request,
        eos_token_ids=eos_token_ids(pair),
        progress=setting.runtime.progress,
        facts={"pair": setting.pair.name, "dataset": dataset.name, "device_name": str(facts["device_name"])},
    )


def _hardware_choice(vector: list[float], setting: Setting, n: int | None) -> tuple[TreeShape, float]:
    """The tree that is predicted to be fastest, and its predicted speedup (section 3.3); of any size, or of n nodes."""
    store, plan = Store(setting.results_dir, FOLDER), setting.plan
    name = measure_latency(setting)
    medians = store.read("latency", [name]).groupby(["role", "num_tokens"])["forward_s"].median()
    forward_s = medians["target"].to_dict()
    if n is not None and n + 1 not in forward_s:
        raise ValueError(f"calibration.latency.num_tokens lacks {n + 1}, the size of the tree and its root")
    choice = choose_tree(
        vector,
        forward_s if n is None else {tokens: forward_s[tokens] for tokens in (1, n + 1)},
        float(medians["draft"][1]),
        range(1, plan.depths + 1),
        levels=plan.draft_passes == "levels",
        plain=False,
    )
    log.info(
        "hardware-aware: n=%d, depth %d, predicted %.2f tokens per step and %.2fx",
        choice.shape.num_drafted,
        choice.shape.depth,
        choice.expected_tokens,
        choice.speedup,
    )
    return choice.shape, choice.speedup
