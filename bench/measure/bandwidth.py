"""How fast a device's memory is, and how much of it a token reads: the limit of every autoregressive decoder."""

import statistics
import time
from collections.abc import Callable

import torch

from specdec_core.models import Pair
from specdec_core.models.memory import kv_bytes

BYTES = {"cuda": 1 << 32, "cpu": 1 << 28}
"""Of what is read or copied: far more than caches hold."""


def copy_bytes_per_s(device: torch.device, repeats: int = 20) -> float:
    """Bytes read and written per second by copies from device memory to device memory: the median of `repeats`."""
    source = _memory(device)
    there = torch.empty_like(source)
    return 2 * source.nbytes / _seconds(lambda: there.copy_(source), device, repeats)


def read_bytes_per_s(device: torch.device, repeats: int = 20) -> float:
    """Bytes read per second by a sum over device memory: the median of `repeats`."""
    source = _memory(device).view(torch.float32)
    return source.nbytes / _seconds(source.sum, device, repeats)


def bytes_per_token(pair: Pair, context: int) -> int:
    """Bytes read for a token: every weight once, of the embedding one row, keys and values of `context` tokens."""
    model = pair.target.model
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    weights = sum(parameter.nbytes for parameter in model.parameters())
    unread = 0 if embedding is output else embedding.nbytes - embedding[0].nbytes
    return weights - unread + kv_bytes(pair.target.config, pair.target.dtype, context)


def _memory(device: torch.device) -> torch.Tensor:
    return torch.zeros(BYTES.get(device.type, BYTES["cpu"]), dtype=torch.uint8, device=device)


def _seconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    seconds = []
    for _ in range(repeats + 3):
        _synchronise(device)
        start = time.perf_counter()
        work()
        _synchronise(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:])


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
