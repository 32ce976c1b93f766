"""Loading pairs by hub id or from a folder, and saying in a sentence why one cannot be had."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from specdec_core.errors import LoadError, PairError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.memory import free_bytes, offloaded_bytes, weight_bytes
from specdec_core.models.offload import Offload


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which weights: a hub id or a folder, and the revision."""

    id: str
    revision: str | None = None
    gated: bool = False
    kind: str = "causal_lm"
    folder: str | None = None
    """Where the files are, if not in the hub's cache or in a folder of that name."""
    offload: bool = False
    """Targets only: layers stay in host memory and are streamed through two buffers on the device."""
    resident_layers: int = 0
    """With `offload`, so many of the first layers stay on the device all the same."""

    @property
    def source(self) -> str:
        """What `from_pretrained` is given."""
        return self.folder or self.id


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its draft (None: autoregressive decoding only) and their tokenizer."""

    target: CausalLM
    draft: CausalLM | None
    tokenizer: PreTrainedTokenizerBase
    offload: Offload | None = None
    """Streams the target's layers, where that was asked for."""


def load_pair(
    target: ModelSpec | str,
    draft: ModelSpec | str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "sdpa",
) -> Pair:
    """Load target and draft onto one device; of an offloaded target, all but the layers that are to be streamed.

    `device` auto is a GPU if there is one; `dtype` auto is bfloat16 there and float32 on a CPU. LoadError where a model
    is missing, gated, offline or too large, or a draft is to be offloaded, before any weights are read; PairError where
    the tokenizers differ.
    """
    where = torch.device(resolve_device(device))
    kind = resolve_dtype(dtype, where)
    specs = [ModelSpec(id=spec) if isinstance(spec, str) else spec for spec in (target, draft) if spec is not None]
    if any(spec.offload for spec in specs[1:]):
        raise LoadError(f"{specs[1].id}: a draft stays on the device; offload the target alone")
    configs = [_config(spec) for spec in specs]
    tokenizers = [_fetch(AutoTokenizer, spec) for spec in specs]
    if draft is not None:
        check_vocabularies(*tokenizers, *(config.vocab_size for config in configs))
    _check_memory(specs, configs, where, kind)
    options = {"dtype": kind, "attn_implementation": attention}
    (model, offload), *drafts = (_placed(spec, where, **options) for spec in specs)
    return Pair(model, drafts[0][0] if drafts else None, tokenizers[0], offload)


def resolve_device(device: str) -> str:
    """`auto` is the first GPU, else the CPU."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise LoadError(f"unknown runtime.device={device}; use auto, cpu, cuda or cuda:1") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise LoadError(f"runtime.device={device}, but this machine shows no CUDA device; use runtime.device=cpu")
    return device


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on a GPU and float32 on a CPU."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise LoadError(f"unknown dtype {dtype!r}; use auto, float32, bfloat16 or float16")
    return found


def check_vocabularies(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, target_size: int, draft_size: int
) -> None:
    """PairError unless every token id means the same to both models; tokens added for later use may be renamed."""
    if target_size != draft_size:
        raise PairError(
            f"the target has a vocabulary of {target_size} tokens and the draft one of {draft_size}; "
            "choose a draft that was trained with the target's tokenizer"
        )
    ours, theirs, added = target.get_vocab(), draft.get_vocab(), target.get_added_vocab()
    names = {number: token for token, number in theirs.items()}
    differing = [
        token
        for token, number in ours.items()
        if number < target_size
        and (theirs.get(token, number) != number or (token not in added and names.get(number, token) != token))
    ]
    if differing:
        raise PairError(
            f"target and draft give {len(differing)} tokens different ids (such as {differing[0]!r}); "
            "choose a draft that was trained with the target's tokenizer"
        )


def _config(spec: ModelSpec) -> Any:
    if spec.kind != "causal_lm":
        raise LoadError(f"{spec.id}: drafts of kind {spec.kind!r} are not supported; use a pair with a causal_lm draft")
    return _fetch(AutoConfig, spec)


def _placed(spec: ModelSpec, device: torch.device, **options: Any) -> tuple[CausalLM, Offload | None]:
    model = _weights(spec, **options)
    offload = Offload(model, device, spec.resident_layers) if spec.offload else None
    return CausalLM(model.to(device)), offload


def _weights(spec: ModelSpec, **options: Any) -> Any:
    """The model, all of it: transformers would fill what a checkpoint lacks with random numbers and only log that."""
    model, info = _fetch(AutoModelForCausalLM, spec, output_loading_info=True, **options)
    if missing := sorted(info["missing_keys"]):
        raise LoadError(
            f"the weights of {spec.id} lack {len(missing)} tensors that its config.json asks for (such as "
            f"{missing[0]}); fetch the model again, or correct the config"
        )
    return model


def _fetch(factory: Any, spec: ModelSpec, **options: Any) -> Any:
    """`factory.from_pretrained`, with one sentence for what may be wrong."""
    try:
        return factory.from_pretrained(spec.source, revision=spec.revision or "main", **options)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # broken files raise errors of many libraries, without a common class
        raise LoadError(_reason(spec, error)) from error


def _reason(spec: ModelSpec, error: Exception) -> str:
    text = " ".join(str(error).split())
    if Path(spec.source).is_file():
        return f"{spec.source} is a file; give the folder that holds it"
    if Path(spec.source).exists():
        return f"the folder {spec.source} does not hold a loadable model: {text[:200]}"
    if re.search(r"gated repo|40[13] Client Error", text):
        return f"{spec.id} is gated: accept its licence on its hub page and log in with `hf auth login`"
    hint = " (it is gated: its licence must be accepted first)" if spec.gated else ""
    return (
        f"{spec.id}{hint} is not on this machine and cannot be fetched; download it where there is a network, or give "
        f"a folder with its files as the model's id ({type(error).__name__})"
    )


def _check_memory(specs: list[ModelSpec], configs: list[Any], device: torch.device, dtype: torch.dtype) -> None:
    needed: Counter[torch.device] = Counter()
    for spec, config in zip(specs, configs, strict=True):
        if spec.offload:
            on_device, on_host = offloaded_bytes(config, dtype, spec.resident_layers)
        else:
            on_device, on_host = weight_bytes(config, dtype), 0
        needed.update({device: on_device})
        needed.update({torch.device("cpu"): on_host})
    for place, size in needed.items():
        free = free_bytes(place)
        if free is not None and size > free:
            raise LoadError(
                f"{' and '.join(spec.id for spec in specs)} need {size / 2**30:.1f} GiB for weights, but {place} has "
                f"{free / 2**30:.1f} GiB free; use a smaller pair, a 16-bit dtype or a larger device"
            )
