"""How long one forward takes against its number of tokens: the premise of every tree method (OPT-Tree, Figure 3)."""

import logging
from collections.abc import Iterator
from dataclasses import asdict

import torch
from tqdm import tqdm

from bench import pairs
from bench.cell import LatencyGrid, PairSpec, Runtime
from bench.provenance import collect
from bench.records import LatencyRow
from bench.store import Store, run_id
from specdec_core.models import CausalLM, Pair
from specdec_core.timing import Clock

log = logging.getLogger(__name__)
SLOW_S, REPEATS_IF_SLOW = 0.5, 20


def measure(spec: PairSpec, grid: LatencyGrid, runtime: Runtime, store: Store) -> str:
    """Time forwards of target and draft over the grid, unless that was done here before; the id of the rows."""
    pair = pairs.loaded(spec, runtime)
    facts = collect(str(pair.target.device), str(pair.target.dtype).removeprefix("torch."), runtime.attention)
    origin = {"device_name": str(facts["device_name"]), "dtype": str(facts["dtype"])}
    identity = {"latency": asdict(grid), "pair": asdict(spec), "attention": runtime.attention, "runtime": origin}
    name = run_id(identity | {"num_threads": torch.get_num_threads()})
    if runtime.force or not store.has("latency", name):
        store.write("latency", name, list(_rows(name, spec, pair, grid, runtime.progress, origin)))
        log.info("%s: forward times written as %s", spec.name, name)
    return name


def _rows(
    name: str, spec: PairSpec, pair: Pair, grid: LatencyGrid, progress: bool, origin: dict[str, str]
) -> Iterator[LatencyRow]:
    for role, model, model_spec in (("target", pair.target, spec.target), ("draft", pair.draft, spec.draft)):
        if model is None or model_spec is None:
            continue
        sizes = [tokens for tokens in grid.num_tokens if _fits(model, grid.num_prefix + tokens)]
        for tokens in tqdm(sizes, desc=f"{spec.name} {role}", unit="size", disable=not progress):
            for repeat, seconds in enumerate(forward_times(model, tokens, grid)):
                yield LatencyRow(
                    run_id=name,
                    pair=spec.name,
                    role=role,
                    model_id=model_spec.id,
                    **origin,
                    num_tokens=tokens,
                    num_prefix=grid.num_prefix,
                    repeat=repeat,
                    forward_s=seconds,
                )


def forward_times(model: CausalLM, num_tokens: int, grid: LatencyGrid) -> list[float]:
    """Seconds of forwards over `num_tokens` tokens behind `grid.num_prefix` cached ones, after a warm-up.

    At most REPEATS_IF_SLOW of them where one takes more than SLOW_S.
    """
    rng = torch.Generator().manual_seed(0)
    prefix, tokens = (
        torch.randint(model.vocab_size, (size,), generator=rng).to(model.device)
        for size in (grid.num_prefix, num_tokens)
    )
    model.reset(grid.num_prefix + num_tokens)
    model.prefill(prefix)

    def times(repeats: int) -> list[float]:
        clock = Clock(model.device)
        for _ in range(repeats):
            with clock.span("forward"):
                model.extend(tokens)
            model.cache.truncate(grid.num_prefix)
            if model.device.type == "cuda":  # one at a time, as in decoding: launches must not overlap the last forward
                torch.cuda.synchronize(model.device)
        clock.read()
        return [span.seconds() for span in clock.spans]

    slow = max(times(grid.warmup), default=0.0) > SLOW_S
    return times(min(grid.repeats, REPEATS_IF_SLOW) if slow else grid.repeats)


def _fits(model: CausalLM, tokens: int) -> bool:
    return model.max_positions is None or tokens <= model.max_positions
