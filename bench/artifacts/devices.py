"""Whether our device is the one that a paper's numbers are from: by model and count, by memory where both state it.

Names are those of `torch.cuda.get_device_name`, with what `bench.measure.provenance` says of the placement behind them,
or what papers call their hardware. The form of a card (SXM, PCIe) is no part of its model, since papers do not
state it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAKER = {"nvidia", "geforce", "tesla"}
_FORM = re.compile(r"sxm\d*|pcie|hbm\d*e?")
_COUNT, _MEMORY = re.compile(r"(\d+)x\s+"), re.compile(r"\b(\d+) ?gb\b")
_UNNAMED = {"", "none", "unspecified"}
_ELSEWHERE = "draft on cuda"
_OFFLOADED = "offload"
"""Said by papers of targets that stream their layers from the host: the device is the same."""


@dataclass(frozen=True, slots=True)
class Device:
    """A model, such as `rtx 4090`, how many of it, and the GB of each; None where a name does not state them."""

    model: str
    count: int = 1
    memory: int | None = None


def parse(name: str) -> Device | None:
    """The device that a name or a paper's words stand for; None where they name none."""
    first, *placed = name.lower().split(", ")
    count = _COUNT.match(first)
    words = first[count.end() :] if count else first
    memory = _MEMORY.search(words.replace("-", " "))
    words = _MEMORY.sub(" ", words.replace("-", " "), count=1)
    kept = [word for word in words.split() if word not in {*_MAKER, _OFFLOADED} and not _FORM.fullmatch(word)]
    model = " ".join(kept)
    if model in _UNNAMED:
        return None
    apart = any(word.startswith(_ELSEWHERE) for word in placed)  # of several devices the draft's may be one
    return Device(model, int(count[1]) if count else 1 + apart, int(memory[1]) if memory else None)


def same_device(device_name: str, hardware: str) -> bool:
    """Whether our device is the paper's: `NVIDIA GeForce RTX 4090` is `1x RTX 4090`, and `2x RTX 4090` is neither."""
    ours, theirs = parse(device_name), parse(hardware)
    if ours is None or theirs is None or (ours.model, ours.count) != (theirs.model, theirs.count):
        return False
    return None in (ours.memory, theirs.memory) or ours.memory == theirs.memory
