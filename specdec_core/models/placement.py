"""Where target and draft go: one device, several by transformers' device map, or a share per rank."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from accelerate.hooks import add_hook_to_module
from torch import Generator
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from specdec_core.errors import LoadError
from specdec_core.models import ranks
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.dflash_checkpoint import DFlashCheckpoint
from specdec_core.models.eagle_checkpoint import EMBEDDING, EagleCheckpoint
from specdec_core.models.mtp import MtpCheckpoint
from specdec_core.models.spec import ModelSpec

AnyCheckpoint = EagleCheckpoint | MtpCheckpoint | DFlashCheckpoint
Checkpoint = TypeVar("Checkpoint", bound=AnyCheckpoint)
DeviceMap = str | Mapping[str, str | int]
AUTO = {"auto": torch.bfloat16, "auto_fp16": torch.float16}
"""Words for a dtype that a GPU alone has; a CPU has float32."""
MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Device maps that transformers makes itself, from what is free."""
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Removed when the process ends: a model may read from them as long as it lives."""


@runtime_checkable
class OnDevice(Protocol):
    """A model of any kind, as far as its place goes."""

    @property
    def device(self) -> torch.device:
        """Where it takes tokens and gives logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Devices of a pair, before it is loaded."""

    device: torch.device
    """Of the target, and of the draft unless `draft` says otherwise; with a device map, that of the token ids."""
    device_map: DeviceMap | None = None
    """Whole layers of the target on each of several devices."""
    ranks: int = 1
    """Processes that hold a share of every layer of the target each (tensor parallelism); the draft is whole in all."""
    draft: torch.device | None = None

    @property
    def pool(self) -> tuple[torch.device, ...]:
        """Devices that hold the target, in this process."""
        if self.device_map is None:
            return (self.device,)
        if not isinstance(self.device_map, str):
            return tuple(dict.fromkeys(map(_device_of, self.device_map.values())))
        count = torch.cuda.device_count() if self.device.type == "cuda" else 0
        return tuple(torch.device("cuda", index) for index in range(count)) or (self.device,)

    def target_options(self) -> dict[str, Any]:
        """What `from_pretrained` is given. Weights go to their devices one by one, not by way of host memory."""
        if self.ranks > 1:
            ranks.join()
            return {"distributed_config": DistributedConfig(tp_plan="auto")}
        if self.device_map is None:
            return {"device_map": {"": self.device}}
        device_map = self.device_map if isinstance(self.device_map, str) else dict(self.device_map)
        _folders.append(tempfile.TemporaryDirectory(prefix="specdec-"))  # of what a map leaves on the disk
        return {"device_map": device_map, "offload_folder": _folders[-1].name}


def placed(
    device: str,
    *,
    device_map: DeviceMap | None = None,
    tensor_parallel: bool = False,
    draft_device: str | None = None,
) -> Placement:
    """The placement that is asked for; LoadError in a sentence where there is none."""
    if (device_map is not None or tensor_parallel) and device != "auto":
        raise LoadError(f"device_map and tensor_parallel choose the target's devices: use device=auto, not {device}")
    where = _numbered(resolve_device(device))
    draft = _numbered(resolve_device(draft_device, "draft_device")) if draft_device else None
    if tensor_parallel:
        if device_map is not None:
            raise LoadError(
                "device_map gives each GPU whole layers and tensor_parallel a share of every layer; choose one of them"
            )
        return _shared(where, draft)
    if device_map is None:
        return Placement(device=where, draft=draft)
    if isinstance(device_map, str):
        if device_map not in MAPS:
            raise LoadError(f"device_map is {', '.join(MAPS)} or maps module names to devices, not {device_map!r}")
        return Placement(device=where, device_map=device_map, draft=draft)
    devices = [_device_of(place) for place in device_map.values()]
    first = next((found for found in devices if found.type == "cuda"), torch.device("cpu"))
    return Placement(device=first, device_map=device_map, draft=draft)


def resolve_device(device: str, option: str = "device") -> str:
    """`auto` is the first GPU, else the CPU."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise LoadError(f"unknown runtime.{option}={device}; use auto, cpu, cuda or cuda:1") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise LoadError(f"runtime.{option}={device}, but this machine shows no CUDA device; use runtime.{option}=cpu")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise LoadError(f"runtime.{option}={device}, but this machine shows only {torch.cuda.device_count()} GPUs")
    return device


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on a GPU and `auto_fp16` float16; both are float32 on a CPU."""
    if dtype in AUTO:
        return AUTO[dtype] if device.type == "cuda" else torch.float32
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise LoadError(f"unknown dtype {dtype!r}; use auto, auto_fp16, float32, bfloat16 or float16")
    return found


def head_device(spec: ModelSpec, head: AnyCheckpoint, target: CausalLM, where: Placement) -> torch.device:
    """Where an EAGLE head goes. EAGLE-1's reads the target's output matrix, and goes where a device map has put that.

    LoadError where that matrix, or the embedding if the head has none of its own, stays on the host or the disk.
    """
    if where.device_map is None:
        return where.draft or target.device
    embedding, output = target.model.get_input_embeddings(), target.model.get_output_embeddings()
    if (output.weight.is_meta and not head.joins) or (EMBEDDING not in head.tensors and embedding.weight.is_meta):
        raise LoadError(
            f"{spec.id} reads the target's output matrix, and its embedding if it has none itself, which device_map "
            "leaves on the host or the disk; give them a device in device_map"
        )
    found: torch.device = target.device if output.weight.is_meta else output.weight.device
    if where.draft not in (None, found) and hasattr(output, "_hf_hook"):
        raise LoadError(f"{spec.id} runs where device_map puts the target's output matrix: use draft_device={found}")
    return found


def with_embedding(head: Checkpoint, target: CausalLM) -> Checkpoint:
    """The head with an embedding of its own where the target's is shared out among ranks."""
    weight = target.model.get_input_embeddings().weight
    if EMBEDDING in head.tensors or not isinstance(weight, DTensor):
        return head
    return replace(head, tensors=head.tensors | {EMBEDDING: weight.full_tensor().detach()})


def hook_again(model: Any) -> None:
    """Let the parts of a shallow copy run themselves: accelerate's `forward` is still bound to the original's parts."""
    for module in model.modules():
        own = vars(module)
        if "_hf_hook" in own and own["_old_forward"].__self__ is not module:
            hook = own.pop("_hf_hook")
            del own["_old_forward"], own["forward"]
            add_hook_to_module(module, hook)


def draft_stream(rng: Generator, target: torch.device, draft: OnDevice | None) -> Generator:
    """What drafts draw from: `rng`, or for a draft on another device a stream there, seeded by one draw."""
    if draft is None or draft.device == target:
        return rng
    return torch.Generator(draft.device).manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))


def wait_for(draft: torch.device, target: torch.device) -> None:
    """Let the target's stream wait for a draft on another GPU, so that a span there ends with the draft's work."""
    if draft != target and draft.type == target.type == "cuda":
        torch.cuda.current_stream(target).wait_stream(torch.cuda.current_stream(draft))


def _shared(device: torch.device, draft: torch.device | None) -> Placement:
    """Of one rank among those that torchrun started."""
    if not ranks.started():
        raise LoadError("tensor_parallel needs a process per GPU: start it with torchrun --nproc-per-node=<GPUs>")
    if draft is not None:
        raise LoadError("under tensor_parallel every rank has its own draft beside its share; leave draft_device out")
    here = torch.device("cuda", ranks.local_rank()) if device.type == "cuda" else device
    return Placement(device=here, ranks=ranks.world_size())


def _numbered(device: str) -> torch.device:
    """`cuda` is the first GPU, and equal to the one that a map or a tensor names."""
    found = torch.device(device)
    return torch.device("cuda", 0) if found.type == "cuda" and found.index is None else found


def _device_of(place: str | int) -> torch.device:
    """A value of a device map; "disk" is the meta device."""
    if place == "disk":
        return torch.device("meta")
    return _numbered(resolve_device(f"cuda:{place}" if isinstance(place, int) else place, "device_map"))


def leave_out_cudnn_attention() -> None:
    """Let torch choose among its other attention kernels, in this process, from now on.

    On cards of compute capability 9 and 10 it prefers cuDNN's, which plans anew for every shape. Decoding has a new
    shape in each step, and a method of many widths more of them than its baseline: plans would be timed, not methods.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
