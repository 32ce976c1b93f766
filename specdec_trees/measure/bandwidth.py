"""How fast a device's memory is, and how much of it a token reads: the limit of every autoregressive decoder."""

import statistics
import time
from collections.abc import Callable

import torch

from specdec_core.models import Pair
from specdec_core.models.memory import kv_bytes

BYTES = {"cuda": 1 << 31, "cpu": 1 << 30}
"""Of what is read or copied: more than most caches hold."""
CACHED_BYTES = 200e6
"""Weights of fewer bytes may stay in a cache, whose bandwidth is not the memory's."""


def copy_bytes_per_s(device: torch.device, repeats: int = 20) -> float:
    """Bytes read and written per second by copies from device memory to device memory: the median of `repeats`."""
    source = _memory(device)
    there = torch.empty_like(source)
    return 2 * source.nbytes / statistics.median(_seconds(lambda: there.copy_(source), device, repeats))


def read_bytes_per_s(device: torch.device, repeats: int = 10) -> float:
    """Bytes read per second by a sum over device memory, with torch's threads: the best of `repeats`."""
    source = _memory(device).view(torch.float32)
    return source.nbytes / min(_seconds(source.sum, device, repeats))


def bytes_per_token(pair: Pair, context: int) -> int:
    """Bytes read for a token: every weight once, keys and values of `context` tokens.

    Of an embedding that is not the output matrix too one row is read. Of a mixture of experts all experts count.
    """
    model = pair.target.model
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    weights = sum(parameter.nbytes for parameter in model.parameters())
    unread = 0 if embedding is output else embedding.nbytes - embedding[0].nbytes
    return weights - unread + kv_bytes(pair.target.config, pair.target.dtype, context)


def limit_tokens_per_s(pair: Pair, context: int) -> float | None:
    """Tokens/s of plain decoding that does nothing but read what it must; None where that may stay in a cache."""
    size = bytes_per_token(pair, context)
    return read_bytes_per_s(torch.device(pair.target.device)) / size if size > CACHED_BYTES else None


def _memory(device: torch.device) -> torch.Tensor:
    return torch.zeros(BYTES.get(device.type, BYTES["cpu"]), dtype=torch.uint8, device=device)


def _seconds(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats + 3):
        synchronise(device)
        start = time.perf_counter()
        work()
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    return seconds[3:]


def synchronise(device: torch.device) -> None:
    """Wait for what a GPU was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
