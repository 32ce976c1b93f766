"""Tensor parallelism's processes: the ranks that torchrun starts, and what they must agree on."""

import atexit
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")
_folders: list[tempfile.TemporaryDirectory[str]] = []


def started() -> bool:
    """Whether torchrun started this process."""
    return "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ


def world_size() -> int:
    """Processes that torchrun started, this one included; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def rank() -> int:
    """Number of this process among them; the first one writes results."""
    return int(os.environ["RANK"]) if started() else 0


def local_rank() -> int:
    """Number of this process among those of its machine, and of its GPU."""
    return int(os.environ["LOCAL_RANK"]) if started() else 0


def join() -> None:
    """Meet the other ranks, once. Objects go through gloo, tensors of a GPU through NCCL."""
    if world_size() == 1 or distributed.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
    # the first rank measures and writes where others wait, and large checkpoints load at different speeds
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(hours=2))
    atexit.register(_leave)


def agreed(decide: Callable[[], T]) -> T:
    """What the first rank decides, on every rank; where deciding raises, every rank raises the same.

    For whatever may differ between ranks (files, locks, times) and decides which forwards run: all run the same ones.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        return decide()
    box: list[Any] = [None, None]
    failure: Exception | None = None
    if rank() == 0:
        try:
            box[0] = decide()
        except Exception as error:
            box[1] = failure = error
    distributed.broadcast_object_list(box)
    if box[1] is not None:
        raise failure or box[1]
    return box[0]


def discarded() -> str:
    """A folder for what only the first rank keeps; removed with the process."""
    if not _folders:
        _folders.append(tempfile.TemporaryDirectory(prefix="specdec-"))
    return _folders[0].name


def _leave() -> None:
    """Destroy the group while the interpreter stands, and let go of it for a moment.

    gloo's threads free the tensors of their last collective after it has returned, for which they need the interpreter;
    one that asks when it is gone aborts the process ("terminate called without an active exception"). A rank was seen
    to end so once, on a busy machine; that this was the cause is not proved.
    """
    if distributed.is_initialized():
        distributed.destroy_process_group()
        time.sleep(0.2)
