"""What forwards of a pair cost on a machine, by its name: times that are kept of it, or what a card's data sheet gives.

A card is not measured. Its forward takes as long as reading the weights once, as its arithmetic in half precision, or
as its launches, whichever is longest. Caches and attention are left out; all rows of the embedding are counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import AutoConfig

from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.architectures import text_config
from specdec_core.models.kinds import Kind, kind_of
from specdec_core.models.memory import offloaded_bytes
from specdec_trees import published
from specdec_trees.artifacts.devices import Device, parse
from specdec_trees.measure import hub_configs
from specdec_trees.measure.cell import PairSpec
from specdec_trees.names import unknown
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.store import Store

HOST_BPS = 25e9
"""Bytes per second from the host: PCIe 4.0 x16."""
LAUNCH_S = 5e-6
"""Assumed of a kernel's launch in eager mode; no GPU was timed."""
LAUNCHES_PER_LAYER = Kind.launches_per_layer
"""Kernels of a layer of a Llama in 16 bits without graphs, counted on a CPU that stands in for a GPU."""
Floats = NDArray[np.float64]
Forward = Callable[[Floats], Floats]
"""Seconds of forwards over so many tokens; NaN where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What forwards of a pair cost on a machine; `draft` is None where they are not known."""

    machine: str
    target: Forward
    draft: Forward | None
    measured: bool = True

    @classmethod
    def of_times(cls, machine: str, times: Mapping[str, Mapping[int, float]]) -> Self:
        """Of seconds by role and number of tokens, and lines between these."""
        draft = _between(times["draft"]) if "draft" in times else None
        return cls(machine=machine, target=_between(times["target"]), draft=draft)

    @classmethod
    def kept(cls, rows: pd.DataFrame) -> list[Self]:
        """Of each device and dtype with forward times of the target: the medians by size, and lines between these."""
        lists = []
        for (device, dtype), own in rows.groupby(["device_name", "dtype"]):
            medians = own.groupby(["role", "num_tokens"])["forward_s"].median()
            times: Any = {role: medians[role].to_dict() for role in medians.index.unique("role")}
            if "target" in times:
                lists.append(cls.of_times(f"{device} in {dtype}", times))
        return lists

    @classmethod
    def of_card(cls, pair: PairSpec, name: str) -> Self:
        """Of a card of `cards.csv`; ValueError for another one, or one whose memory is too small for the weights."""
        device = None if "," in name else parse(name)
        card = None if device is None or device.count > 1 else device.card
        if device is None or card is None or np.isnan(card.flops):
            raise ValueError(
                f"{name!r} is no card of specdec_trees/published/cards.csv (such as {', '.join(published.cards())})"
            )
        config = shape_of(pair.target)
        small = None if pair.draft is None else shape_of(pair.draft, config)
        _check_memory(pair, config, small, device, name)
        draft = None if pair.draft is None else _least(pair.draft, small, card)
        return cls(
            machine=f"{name} in half precision, estimated",
            target=_least(pair.target, config, card),
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
    """Forward times that are kept of the pair's models, by machine or by their id, else those of a card of this name.

    ValueError for another name, and for a machine of which there are several measurements.
    """
    rows = Store(results_dir, FOLDER).read("latency")
    models = [model.name for model in (pair.target, pair.draft) if model is not None]
    rows = rows[(rows["pair"] == pair.name) & rows["model_id"].isin(models)]
    kept = {str(run_id): one for run_id, own in rows.groupby("run_id") for one in Prices.kept(own)}
    alike = [run_id for run_id, one in kept.items() if name in (run_id, one.machine)]
    if len(alike) == 1:
        return kept[alike[0]]
    machines = {one.machine for one in kept.values()}
    if len(alike) > 1:
        raise ValueError(
            f"forward times of {pair.name} on {name} were measured {len(alike)} times: name one by its id, "
            f"{' or '.join(alike)}"
        )
    if name and any(machine.startswith(name) for machine in machines):
        raise ValueError(unknown("machine with forward times", name, machines))
    try:
        return Prices.of_card(pair, name)
    except ValueError as error:
        raise ValueError(f"{error}; {unknown(f'machine with forward times of {pair.name}', name, machines)}") from error


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


def launches_of(spec: ModelSpec, config: Any) -> float:
    """Kernels of a forward without graphs: those of its layers, and those of its kind beside them."""
    layers = text_config(config).num_hidden_layers
    skipped = len(spec.skipped_layers) + (len(spec.skipped_attention) + len(spec.skipped_mlp)) / 2
    kind = kind_of(spec)
    return kind.launches + kind.launches_per_layer * (layers - skipped)


def least_s(card: published.Card, device_bytes: float, host_bytes: float, launches: float) -> float:
    """Seconds of reading the weights of a forward from device and host, or of its launches, whichever is longer."""
    return max(device_bytes / card.bytes_per_s + host_bytes / HOST_BPS, launches * LAUNCH_S)


def _between(times: Mapping[int, float]) -> Forward:
    sizes, seconds = zip(*sorted(times.items()), strict=True)
    return lambda asked: np.interp(asked, sizes, seconds, left=np.nan, right=np.nan)


def _least(spec: ModelSpec, config: Any, card: published.Card) -> Forward:
    """The least time of a forward: of reading bytes, two operations per weight and token, or the launches."""
    kind, dtype = kind_of(spec), torch.bfloat16
    whole = kind.forward_bytes(replace(spec, bits=None, dtype=None), config, dtype)
    on_device, on_host = kind.forward_bytes(spec, config, dtype), 0
    if spec.offload:
        on_device, on_host = offloaded_bytes(config, dtype, spec.resident_layers)
    at_least_s = least_s(card, on_device, on_host, launches_of(spec, config))
    token_s = 2 * whole / dtype.itemsize / card.flops
    return lambda sizes: np.maximum(at_least_s, token_s * sizes)


def _check_memory(pair: PairSpec, config: Any, small: Any, device: Device, name: str) -> None:
    """ValueError where the weights alone are more than the memory that the card's name states."""
    dtype = torch.bfloat16
    if pair.target.offload:
        weights, _ = offloaded_bytes(config, dtype, pair.target.resident_layers)
    else:
        weights = kind_of(pair.target).weight_bytes(pair.target, config, dtype)
    weights += 0 if pair.draft is None else kind_of(pair.draft).weight_bytes(pair.draft, small, dtype)
    if device.memory is not None and weights > device.memory * 1e9:
        raise ValueError(f"the weights of {pair.name} are {weights / 1e9:.0f} GB, more than a {name} has")
