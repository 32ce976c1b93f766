"""How long one forward takes against its number of tokens: the premise of every tree method (OPT-Tree, Figure 3)."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from specdec_core.models import CausalLM, Head, ModelOutput, ModelSpec, Pair
from specdec_core.models.graphs import COMPILE, PACKED
from specdec_core.models.ranks import agreed
from specdec_core.timing import Clock
from specdec_trees.measure.cell import LatencyGrid, PairSpec, Runtime
from specdec_trees.measure.fingerprints import fingerprint_folder
from specdec_trees.measure.provenance import collect
from specdec_trees.measure.weights import commits
from specdec_trees.results.kept_rows import LatencyRow
from specdec_trees.results.store import run_id

SLOW_S, REPEATS_IF_SLOW = 0.5, 20


def key(spec: PairSpec, pair: Pair, grid: LatencyGrid, runtime: Runtime) -> str:
    """What tells these forward times from others: models and their files, device, dtype, threads, grid."""
    folders = [Path(model.source) for model in (spec.target, spec.draft) if model]
    files = [fingerprint_folder(folder) for folder in folders if folder.is_dir()]
    origin: dict[str, Any] = {**_origin(pair, runtime), "num_threads": torch.get_num_threads()}
    origin |= {"attention": pair.target.attention, "placement": runtime.placement}
    origin |= {"graphs": COMPILE if pair.graphs else PACKED} if pair.graphs or pair.packed else {}
    models = {role: _told(model) for role, model in (("target", spec.target), ("draft", spec.draft))}
    return run_id(
        {"latency": asdict(grid), "pair": asdict(spec) | models, "files": files, "runtime": origin, **commits(spec)}
    )


def _told(spec: ModelSpec | None) -> dict[str, Any] | None:
    """A model's options; those that came later make no other key where they are not used."""
    if spec is None:
        return None
    later = ("skipped_attention", "skipped_mlp", "dtype", "feature_layers")
    return {name: value for name, value in asdict(spec).items() if name != "licence" and (value or name not in later)}


def rows(run_id: str, spec: PairSpec, pair: Pair, grid: LatencyGrid, runtime: Runtime) -> list[LatencyRow]:
    """Times of forwards of target and draft over the grid; sizes beyond a model's positions are left out.

    Sizes are timed upwards, then downwards, half the repeats each way: a machine that drifts widens the quartiles.
    """
    found, origin = [], _origin(pair, runtime)
    half = replace(grid, repeats=-(-grid.repeats // 2))
    for role, model, model_spec in (("target", pair.target, spec.target), ("draft", pair.draft, spec.draft)):
        if model is None or model_spec is None:
            continue
        sizes = [tokens for tokens in grid.num_tokens if _fits(model, grid.num_prefix + tokens)]
        both_ways, counts = [*sizes, *reversed(sizes)], Counter[int]()
        for tokens in tqdm(both_ways, desc=f"{spec.name} {role}", unit="size", disable=not runtime.progress):
            for seconds in forward_times(model, tokens, half):
                row = LatencyRow(
                    run_id=run_id,
                    pair=spec.name,
                    role=role,
                    model_id=model_spec.name,
                    **origin,
                    num_tokens=tokens,
                    num_prefix=grid.num_prefix,
                    repeat=counts[tokens],
                    forward_s=seconds,
                )
                counts[tokens] += 1
                found.append(row)
    return found


def _origin(pair: Pair, runtime: Runtime) -> dict[str, str]:
    kind = str(pair.target.dtype).removeprefix("torch.")
    facts = collect(str(pair.target.device), kind, pair.target.attention, runtime.placement)
    return {"device_name": str(facts["device_name"]), "dtype": str(facts["dtype"])}


def forward_times(model: CausalLM | Head, num_tokens: int, grid: LatencyGrid) -> list[float]:
    """Seconds of forwards over `num_tokens` tokens behind `grid.num_prefix` cached ones, after a warm-up.

    At most REPEATS_IF_SLOW of them where one takes more than SLOW_S.
    """
    rng = torch.Generator().manual_seed(0)
    prefix, tokens = (
        torch.randint(model.vocab_size, (size,), generator=rng).to(model.device)
        for size in (grid.num_prefix, num_tokens)
    )
    model.reset(grid.num_prefix + num_tokens)
    _forward(model, prefix)

    def times(repeats: int) -> list[float]:
        clock = Clock(model.device)
        for _ in range(repeats):
            with clock.span("forward"):
                _forward(model, tokens)
            model.cache.truncate(grid.num_prefix)
            if model.device.type == "cuda":  # one at a time, as in decoding: launches must not overlap the last forward
                torch.cuda.synchronize(model.device)
        clock.read()
        return [span.seconds() for span in clock.spans]

    warm = times(grid.warmup)
    slow = agreed(lambda: min(warm, default=0.0) > SLOW_S)  # the first of a graph compiles it
    return times(min(grid.repeats, REPEATS_IF_SLOW) if slow else grid.repeats)


def _forward(model: CausalLM | Head, tokens: Tensor) -> ModelOutput:
    """Plain successive tokens; a head reads them with features of zero."""
    return model.blank(tokens) if isinstance(model, Head) else model.extend(tokens)


def _fits(model: CausalLM | Head, tokens: int) -> bool:
    return model.max_positions is None or tokens <= model.max_positions
