"""Whether a pair fits: weights, keys and values, and a tree, from the configs alone, against what is free."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from specdec_core.cache import ROOM_FOR_TREES
from specdec_core.errors import LoadError
from specdec_core.models.kinds import kind_of
from specdec_core.models.memory import (
    free_bytes,
    kv_bytes,
    offloaded_bytes,
    outline,
    tree_bytes,
    weight_bytes,
)
from specdec_core.models.placement import DeviceMap, Placement
from specdec_core.models.spec import ModelSpec

CONTEXT, NODES = 2048, 64
"""Tokens of prompt and answer, and nodes of a tree, that there has to be room for; a model may have fewer positions."""
_Places = tuple[torch.device, ...]


class Need(NamedTuple):
    """Bytes on one device, or on several together."""

    weights: int = 0
    rest: int = 0
    """Keys and values of CONTEXT tokens with the cache's room for trees, and of scoring a tree of NODES nodes."""

    def plus(self, other: "Need") -> "Need":
        """Both on the same devices."""
        return Need(self.weights + other.weights, self.rest + other.rest)

    def share(self, ranks: int) -> "Need":
        """What one of so many ranks holds; the tree is whole in each, and small."""
        return Need(-(-self.weights // ranks), -(-self.rest // ranks))


def check_map(device_map: DeviceMap | None, config: Any) -> None:
    """LoadError where a map names a part that the model has not, or shares a parameter between two GPUs.

    Of the one accelerate would only warn; the other would fail in the first forward.
    """
    if device_map is None or isinstance(device_map, str):
        return
    model = outline(config, torch.float32)
    names = {name for name, _ in [*model.named_modules(), *model.named_parameters()]}
    for part in device_map:
        if part not in names:
            layers = [name for name in names if name.endswith(".0")]
            raise LoadError(
                f"device_map names {part!r}, which {type(model).__name__} has not; its parts have names such as "
                f"{', '.join(sorted(layers)[:1])} and those above it"
            )
    sharing: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        sharing[id(parameter)].append(name)
    for alike in sharing.values():
        if len({_gpu(name, device_map) for name in alike} - {None}) > 1:
            raise LoadError(f"device_map parts {' and '.join(alike)}, which are one parameter; give them one GPU")


def _gpu(name: str, device_map: Mapping[str, Any]) -> int | None:
    """The number of the GPU of a parameter, by the longest name in the map that it lies in; None: on no GPU."""
    inside = [part for part in device_map if part == "" or name == part or name.startswith(f"{part}.")]
    place = device_map[max(inside, key=len)] if inside else "cpu"
    if isinstance(place, int):
        return place
    device = torch.device("meta" if place == "disk" else place)
    return (device.index or 0) if device.type == "cuda" else None


def check_memory(
    specs: list[ModelSpec], configs: list[Any], where: Placement, dtype: torch.dtype, copies: int = 1
) -> None:
    """LoadError unless target and draft fit on their devices, which are taken together where there are several.

    There are so many `copies` of their weights.
    """
    for places, (weights, rest) in needed(specs, configs, where, dtype).items():
        free = [free_bytes(place) for place in places if place.type != "meta"]
        if len(free) < len(places) or None in free:
            continue  # the disk, or a system that does not say
        total, name = sum(filter(None, free)), " and ".join(map(str, places))
        if copies * weights + rest > total:
            names = " and ".join(spec.id for spec in specs)
            raise LoadError(
                f"{names} need {_gib(copies * weights)} for weights and {_gib(rest)} for keys and values of "
                f"{CONTEXT:,} tokens and a tree of {NODES} nodes, but {name} has {_gib(total)} free; use a smaller "
                "pair, a 16-bit dtype, bits=8 or 4, more GPUs (device_map=auto) or offload=true"
            )


def needed(specs: list[ModelSpec], configs: list[Any], where: Placement, dtype: torch.dtype) -> Mapping[_Places, Need]:
    """By devices. A draft beside a target that is spread counts among the target's devices, and on its own."""
    found: defaultdict[_Places, Need] = defaultdict(Need)
    host = (torch.device("cpu"),)
    target, *drafts = [_need(spec, config, dtype) for spec, config in zip(specs, configs, strict=True)]
    found[where.pool] = target.share(where.ranks)
    if specs[0].offload:
        streamed = offloaded_bytes(configs[0], dtype, specs[0].resident_layers)[1]
        whole = 0 if where.pool == host else weight_bytes(configs[0], dtype)  # it is read there before layers move
        found[host] = found[host].plus(Need(max(streamed, whole)))
    home = where.draft or where.device
    for draft in drafts:
        beside = home in where.pool
        if beside:
            found[where.pool] = found[where.pool].plus(draft)
        if not beside or len(where.pool) > 1:
            found[home,] = found[home,].plus(draft)
    if where.ranks > 1 and where.device.type == "cpu":  # ranks without GPUs share one memory
        found[host] = Need(*(where.ranks * part for part in found[host]))
    return found


def _need(spec: ModelSpec, config: Any, dtype: torch.dtype) -> Need:
    text = config.get_text_config()
    tokens = min(CONTEXT, getattr(text, "max_position_embeddings", None) or CONTEXT)
    rest = kv_bytes(text, dtype, tokens + ROOM_FOR_TREES) + tree_bytes(text, dtype, NODES, tokens)
    if spec.offload:
        return Need(offloaded_bytes(config, dtype, spec.resident_layers)[0], rest)
    return Need(kind_of(spec).weight_bytes(spec, config, dtype), rest)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
