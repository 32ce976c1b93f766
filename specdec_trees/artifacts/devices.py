"""Whether our device is the one that a paper's numbers are from: by model and count, by memory where both state it.

Names are those of `torch.cuda.get_device_name`, with what `specdec_trees.measure.provenance` says of the placement
behind them, or what papers call their hardware. The form of a card (SXM, PCIe) is no part of its model, since few
papers state it; data sheets differ by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdec_trees import published

_COUNT, _MEMORY = re.compile(r"(\d+)x\s+"), re.compile(r"\b(\d+) ?gb?\b")
_FORM = re.compile(r"(sxm|pcie)\d*")
_LEFT_OUT = re.compile(r"nvidia|geforce|tesla|hbm\d*e?|offload")
"""Makers, kinds of memory, and what papers add of targets that stream their layers from the host: the device is the
same."""
_UNNAMED = {"", "none", "unspecified"}
_ELSEWHERE = "draft on cuda"
_CPU_MEMORY: dict[tuple[str, int | None], int | None] = {("gh200", 120): 96, ("gh200", 480): 96}
"""GB of the GPU of superchips whose names state those of the CPU."""


@dataclass(frozen=True, slots=True)
class Device:
    """A model, such as `rtx 4090`, how many, and GB and form (`sxm`, `pcie`) of each; None where a name states none."""

    model: str
    count: int = 1
    memory: int | None = None
    form: str | None = None

    @property
    def card(self) -> published.Card | None:
        """What the data sheet of one says; None where it is not known."""
        return published.card(self.model, self.memory, self.form)


def parse(name: str) -> Device | None:
    """The device that a name or a paper's words stand for; None where they name none."""
    first, *placed = name.lower().split(", ")
    count = _COUNT.match(first)
    words = (first[count.end() :] if count else first).replace("-", " ")
    stated = _MEMORY.search(words)
    rest = [word for word in _MEMORY.sub(" ", words, count=1).split() if not _LEFT_OUT.fullmatch(word)]
    model = " ".join(word for word in rest if not _FORM.fullmatch(word))
    if model in _UNNAMED:
        return None
    apart = any(word.startswith(_ELSEWHERE) for word in placed)  # of several devices the draft's may be one
    memory = int(stated[1]) if stated else None
    form = next((form[1] for word in rest if (form := _FORM.fullmatch(word))), None)
    return Device(model, int(count[1]) if count else 1 + apart, _CPU_MEMORY.get((model, memory), memory), form)


def same_device(device_name: str, hardware: str) -> bool:
    """Whether our device is the paper's: `NVIDIA GeForce RTX 4090` is `1x RTX 4090`, and `2x RTX 4090` is neither."""
    ours, theirs = parse(device_name), parse(hardware)
    if ours is None or theirs is None or (ours.model, ours.count) != (theirs.model, theirs.count):
        return False
    return None in (ours.memory, theirs.memory) or ours.memory == theirs.memory
