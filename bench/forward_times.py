"""How long one forward takes against its number of tokens: the premise of every tree method (OPT-Tree, Figure 3)."""

import logging
from collections.abc import Iterator
from dataclasses import asdict

import torch
from tqdm import tqdm

from bench.cell import LatencyGrid, PairSpec, Runtime
from bench.provenance import collect
from bench.records import LatencyRow
from bench.store import Store, run_id
from specdec_core.models import CausalLM, load_pair
from specdec_core.timing import Clock

log = logging.getLogger(__name__)


def measure(spec: PairSpec, grid: LatencyGrid, runtime: Runtime, store: Store) -> str:
    """Time forwards of target and draft over the grid and write `latency` rows; `ok`."""
    pair = load_pair(spec.target, spec.draft, device=runtime.device, dtype=runtime.dtype, attention=runtime.attention)
    dtype = str(pair.target.dtype).removeprefix("torch.")
    facts = collect(str(pair.target.device), dtype, runtime.attention)
    identity = {"latency": asdict(grid), "pair": asdict(spec), "attention": runtime.attention}
    cell = run_id(identity | {"device": facts["device_name"], "dtype": dtype})
    rows: list[LatencyRow] = []
    for role, model, name in (
        ("target", pair.target, spec.target.id),
        ("draft", pair.draft, getattr(spec.draft, "id", "")),
    ):
        if model is None:
            continue
        sizes = [tokens for tokens in grid.num_tokens if _fits(model, grid.num_prefix + tokens)]
        for tokens in tqdm(sizes, desc=f"{spec.name} {role}", unit="size", disable=not runtime.progress):
            for repeat, seconds in enumerate(forward_times(model, tokens, grid)):
                rows.append(
                    LatencyRow(
                        run_id=cell,
                        pair=spec.name,
                        role=role,
                        model_id=name,
                        device_name=str(facts["device_name"]),
                        dtype=dtype,
                        num_tokens=tokens,
                        num_prefix=grid.num_prefix,
                        repeat=repeat,
                        forward_s=seconds,
                    )
                )
    store.write("latency", cell, rows)
    log.info("%s: %d forward times written", spec.name, len(rows))
    return "ok"


def forward_times(model: CausalLM, num_tokens: int, grid: LatencyGrid) -> Iterator[float]:
    """Seconds of forwards over `num_tokens` tokens behind `grid.num_prefix` cached ones, after a warm-up."""
    rng = torch.Generator().manual_seed(0)
    prefix, tokens = (
        torch.randint(model.vocab_size, (size,), generator=rng).to(model.device)
        for size in (grid.num_prefix, num_tokens)
    )
    model.reset(grid.num_prefix + num_tokens)
    model.prefill(prefix)
    clock = Clock(model.device)
    for repeat in range(-grid.warmup, grid.repeats):
        if repeat == 0:
            clock.next_step()
        with clock.span("forward"):
            model.extend(tokens)
        model.cache.truncate(grid.num_prefix)
        if model.device.type == "cuda":  # one forward at a time, as in decoding: launches must not overlap the last
            torch.cuda.synchronize(model.device)
    clock.read()
    return (span.seconds() for span in clock.spans if span.step == 0)


def _fits(model: CausalLM, tokens: int) -> bool:
    return model.max_positions is None or tokens <= model.max_positions
