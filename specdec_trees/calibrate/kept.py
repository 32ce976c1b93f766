"""Acceptance vectors and forward times: measured once, kept in `<results_dir>/calibration`, shown where used."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.ranks import agreed
from specdec_core.sampling import Sampling
from specdec_core.search import growth
from specdec_core.verifiers import Verifier
from specdec_trees.calibrate import acceptance, attention_times, forward_times
from specdec_trees.calibrate.acceptance import AcceptanceRequest, AcceptanceVector
from specdec_trees.calibrate.attention_times import AttentionGrid
from specdec_trees.measure import pairs, weights
from specdec_trees.measure.cell import CalibrationPlan, PairSpec, Runtime
from specdec_trees.measure.fingerprints import fingerprint_selection
from specdec_trees.measure.measurement import first_prompts
from specdec_trees.measure.once import once
from specdec_trees.measure.provenance import collect
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import DatasetSpec
from specdec_trees.results.kept_rows import FOLDER, AttentionRow, GrowthRow, LatencyRow
from specdec_trees.results.store import Store, run_id

log = logging.getLogger(__name__)
GROWTH_SIZES = tuple(2**power - 1 for power in range(1, 11))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a cell is calibrated for."""

    experiment: str
    pair: PairSpec
    dataset: DatasetSpec
    sampling: Sampling
    """The cell's."""
    rule: str
    """Class of the cell's rule."""
    max_new_tokens: int
    draft_temperature: float
    draft_top_p: float
    seed: int
    limit: int | None
    runtime: Runtime
    plan: CalibrationPlan
    results_dir: Path
    identity: Mapping[str, Any]
    """What an acceptance vector depends on beside its request: models, calibration prompts, dtype."""


def acceptance_vector(setting: Setting, request: AcceptanceRequest, rule: Verifier) -> AcceptanceVector:
    """The vector of a rule, measured unless it was; its rows go with the experiment that uses it."""
    prompts = min(setting.plan.acceptance.prompts, setting.limit or setting.plan.acceptance.prompts)
    switches = {key: value for key, value in vars(rule).items() if isinstance(value, bool | int | float | str)}
    chosen = fingerprint_selection(_calibration(setting), setting.runtime.data_dir, prompts)
    key = run_id({"acceptance": asdict(request), "rule": switches, "prompts": prompts, **_models(setting), **chosen})
    store = Store(setting.results_dir, FOLDER)

    def measure() -> None:
        found = _measure(setting, rule, request, prompts)
        store.write("acceptance", key, acceptance.rows(found, key))
        log.info("%s: acceptance vector written as %s", setting.pair.name, key)

    once(store, key, lambda: store.has("acceptance", key), measure, force=setting.runtime.force)
    vector = agreed(lambda: AcceptanceVector.from_rows(request, store.read("acceptance", [key])))
    experiment = Store(setting.results_dir, setting.experiment)
    if setting.runtime.force or not experiment.has("growth", key):
        experiment.write("acceptance", key, acceptance.rows(vector, key))
        experiment.write("growth", key, growth_rows(vector, key))
    return vector


def latency(setting: Setting) -> dict[str, dict[int, float]]:
    """Median seconds of a forward on this device, by role and number of tokens, measured unless they were.

    The rows go to the experiment too.
    """
    store, experiment = Store(setting.results_dir, FOLDER), Store(setting.results_dir, setting.experiment)
    pair, grid, runtime = pairs.loaded(setting.pair, setting.runtime), setting.plan.latency, setting.runtime
    key = forward_times.key(setting.pair, pair, grid, runtime)

    def measure() -> None:
        store.write("latency", key, forward_times.rows(key, setting.pair, pair, grid, runtime))
        log.info("%s: forward times written as %s", setting.pair.name, key)

    once(store, key, lambda: store.has("latency", key), measure, force=runtime.force)
    rows = agreed(lambda: store.read("latency", [key]))
    if runtime.force or not experiment.has("latency", key):
        records: Any = rows.to_dict("records")
        experiment.write("latency", key, [LatencyRow(**row) for row in records])
    medians = rows.groupby(["role", "num_tokens"])["forward_s"].median()
    return {role: medians[role].to_dict() for role in rows["role"].unique()}


def attention(grid: AttentionGrid, runtime: Runtime, results_dir: Path, experiment: str) -> list[AttentionRow]:
    """Times of attention over random trees on this device, measured unless they were; the rows go to the experiment."""
    device = torch.device(resolve_device(runtime.device))
    dtype = resolve_dtype(runtime.dtype, device)
    store, key = Store(results_dir, FOLDER), attention_times.key(grid, device, dtype)

    def measure() -> None:
        rows = attention_times.rows(key, grid, device, dtype, progress=runtime.progress)
        store.write("attention", key, rows)

    once(store, key, lambda: store.has("attention", key), measure, force=runtime.force)
    records: Any = agreed(lambda: store.read("attention", [key])).to_dict("records")
    rows = [AttentionRow(**row) for row in records]
    Store(results_dir, experiment).write("attention", key, rows)
    return rows


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
            target_revision=facts.get("target_revision"),
            draft_revision=facts.get("draft_revision"),
            **asdict(row),
        )
        for row in growth(vector.vector, GROWTH_SIZES)
    ]


def _models(setting: Setting) -> dict[str, Any]:
    """What a vector depends on beside its request, the commits of hub ids among it."""
    return {**setting.identity, **weights.commits(setting.pair)}


def _calibration(setting: Setting) -> DatasetSpec:
    """On which conversations vectors are measured."""
    return setting.plan.acceptance.dataset or replace(setting.dataset, part="calibration")


def _measure(setting: Setting, rule: Verifier, request: AcceptanceRequest, prompts: int) -> AcceptanceVector:
    dataset = _calibration(setting)
    conversations = datasets.load(dataset, data_dir=setting.runtime.data_dir, limit=prompts)
    num_prompt = dataset.prompt_tokens
    if request.estimator == "text":
        if num_prompt is None:
            raise ValueError(f"estimator text follows a dataset's own text; {dataset.name} has questions, take c4")
        dataset = replace(dataset, prompt_tokens=num_prompt + request.new_tokens)
    pair = pairs.loaded(setting.pair, setting.runtime)
    runtime = setting.runtime
    device = collect(str(pair.target.device), runtime.dtype, runtime.attention, runtime.placement)["device_name"]
    return acceptance.measure(
        pair,
        first_prompts(pair, setting.pair.template, dataset, conversations),
        rule,
        request,
        eos_token_ids=pair.eos_token_ids,
        num_prompt=num_prompt,
        progress=setting.runtime.progress,
        facts={"pair": setting.pair.name, "dataset": dataset.name, "device_name": str(device)}
        | weights.revisions(setting.pair),
    )
