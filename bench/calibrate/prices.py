"""What forwards of a pair cost on a machine, by its name: times that are kept of it, or what a card's data sheet gives.

A card is not measured. Its forward takes as long as reading the weights once, as its arithmetic, or as its launches,
whichever is longest; caches, attention and what overlaps badly are left out, so that it is told too fast.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import AutoConfig

from bench import published
from bench.artifacts.devices import parse
from bench.measure import hub_configs
from bench.measure.cell import PairSpec
from bench.names import unknown
from bench.results.kept_rows import FOLDER
from bench.results.store import Store
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.kinds import kind_of
from specdec_core.models.memory import offloaded_bytes

HOST_BPS = 25e9
"""Bytes per second from the host: PCIe 4.0 x16."""
LAUNCH_S = 4.5e-6
"""Assumed of a kernel's launch in eager mode; no GPU was timed."""
LAUNCHES, LAUNCHES_PER_LAYER = 20, 40
"""Kernels of a forward of a Llama in bfloat16 without graphs, counted on a CPU that stands in for a GPU."""
Floats = NDArray[np.float64]
Forward = Callable[[Floats], Floats]
"""Seconds of forwards over so many tokens; NaN where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What forwards of a pair cost on a machine; `draft` is None where the pair has no draft model."""

    machine: str
    target: Forward
    draft: Forward | None
    measured: bool = True

    @classmethod
    def kept(cls, rows: pd.DataFrame) -> list[Self]:
        """Of each device and dtype with forward times of the pair: the medians by size, and lines between these."""
        lists = []
        for (device, dtype), group in rows.groupby(["device_name", "dtype"]):
            roles = {str(role): _between(times) for role, times in group.groupby("role")}
            if "target" in roles:
                lists.append(cls(machine=f"{device}, {dtype}", target=roles["target"], draft=roles.get("draft")))
        return lists

    @classmethod
    def of_card(cls, pair: PairSpec, card: str) -> Self:
        """Of a card of `cards.csv`, in bfloat16. ValueError for another one."""
        device = parse(card)
        known = None if device is None or device.count > 1 else published.card(device.model, device.memory)
        if known is None:
            raise ValueError(f"bench/published/cards.csv does not say how fast one card {card!r} is")
        config, dtype = shape_of(pair.target), torch.bfloat16
        own = kind_of(pair.target).weight_bytes(pair.target, config, dtype)
        target, host = offloaded_bytes(config, dtype, pair.target.resident_layers) if pair.target.offload else (own, 0)
        draft = None
        if pair.draft is not None:
            small = shape_of(pair.draft, config)
            draft = _least(kind_of(pair.draft).forward_bytes(pair.draft, small, dtype), 0, small, known)
        return cls(
            machine=f"{card}, bfloat16, estimated",
            target=_least(target, host, config, known),
            draft=draft,
            measured=False,
        )

    def by_size(self, sizes: Iterable[int]) -> dict[str, dict[int, float]]:
        """Seconds by role and number of tokens, as far as they are known."""
        asked, roles = list(sizes), {"target": self.target, "draft": self.draft}
        times = {role: of(np.array(asked, float)) for role, of in roles.items() if of is not None}
        return {
            role: {size: float(one) for size, one in zip(asked, seconds, strict=True) if not np.isnan(one)}
            for role, seconds in times.items()
        }


def named(name: str, pair: PairSpec, results_dir: Path) -> Prices:
    """The prices of a machine whose forward times of the pair are kept, else of a card; ValueError for another name."""
    rows = Store(results_dir, FOLDER).read("latency")
    kept = {one.machine: one for one in Prices.kept(rows[rows["pair"] == pair.name])}
    if name in kept:
        return kept[name]
    try:
        return Prices.of_card(pair, name)
    except ValueError as error:
        raise ValueError(f"{error}; {unknown('machine with forward times', name, kept)}") from error


def shape_of(spec: ModelSpec, target: Any = None) -> Any:
    """The config of a model: from its folder, the published table, or the hub's cache on this machine.

    `target` is the target's, of which heads have some sizes.
    """
    folder, kind = Path(spec.source).is_dir(), kind_of(spec)
    if not folder and hub_configs.known(spec.id):
        return hub_configs.config_of(spec.id)
    if folder:
        return kind.config(spec, target)
    try:
        options = {"local_files_only": True, "trust_remote_code": False}
        return AutoConfig.from_pretrained(spec.source, revision=spec.revision or "main", **options)
    except (OSError, ValueError) as error:
        known = unknown("published shape", spec.id, hub_configs.names())
        raise LoadError(f"no readable config.json of {spec.source} is on this machine; {known}") from error


def _between(times: pd.DataFrame) -> Forward:
    medians = times.groupby("num_tokens")["forward_s"].median().sort_index()
    sizes, seconds = medians.index.to_numpy(float), medians.to_numpy(float)
    return lambda asked: np.interp(asked, sizes, seconds, left=seconds[0], right=np.nan)


def _least(on_device: int, on_host: int, config: Any, card: published.Card) -> Forward:
    """The least time of a forward: of reading bytes, two operations per weight and token, or the launches."""
    read_s = on_device / card.bytes_per_s + on_host / HOST_BPS
    launched_s = LAUNCH_S * (LAUNCHES + LAUNCHES_PER_LAYER * getattr(config, "num_hidden_layers", 1))
    token_s = (on_device + on_host) / torch.bfloat16.itemsize * 2 / card.flops
    return lambda sizes: np.maximum(max(read_s, launched_s), token_s * sizes)
