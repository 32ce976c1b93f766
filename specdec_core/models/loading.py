"""Loading pairs onto a device: what does not fit is refused before any weight is read."""

import importlib.util
from typing import Any

import torch
from transformers import AutoTokenizer, BitsAndBytesConfig, PreTrainedTokenizerBase

from specdec_core.errors import LoadError, PairError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.eagle import EagleHead
from specdec_core.models.eagle_checkpoint import EagleCheckpoint, read_eagle
from specdec_core.models.fetch import fetch, fetch_config, fetch_weights
from specdec_core.models.fitting import check_map, check_memory
from specdec_core.models.layer_skip import LayerSkip
from specdec_core.models.offload import Offload
from specdec_core.models.placement import (
    DeviceMap,
    Placement,
    head_device,
    hook_again,
    placed,
    resolve_dtype,
    with_embedding,
)
from specdec_core.models.spec import KINDS, ModelSpec, Pair
from specdec_core.models.tree_attention import check_attention


def load_pair(
    target: ModelSpec | str,
    draft: ModelSpec | str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "sdpa",
    device_map: DeviceMap | None = None,
    tensor_parallel: bool = False,
    draft_device: str | None = None,
) -> Pair:
    """Load target and draft onto one device; of an offloaded target, all but the layers that are to be streamed.

    `device` auto is a GPU if there is one; `dtype` auto is bfloat16 there and float32 on a CPU. `device_map` (auto, or
    module names to devices) spreads the target's layers over devices, `tensor_parallel` every layer over the processes
    that torchrun started; the draft is whole, on `draft_device` or where token ids go in. LoadError where a model is
    missing, gated, offline or too large, or placed as it cannot be, before any weights are read; PairError where the
    tokenizers differ.
    """
    where = placed(device, device_map=device_map, tensor_parallel=tensor_parallel, draft_device=draft_device)
    kind = resolve_dtype(dtype, where.device)
    specs = [ModelSpec(id=spec) if isinstance(spec, str) else spec for spec in (target, draft) if spec is not None]
    _check_kinds(*specs)
    _check_placement(where, *specs)
    specs_read = [spec for spec in specs if spec.kind != "layer_skip"]
    configs = [fetch_config(spec) for spec in specs_read]
    whole = [spec for spec in specs if spec.kind == "causal_lm"]
    tokenizers = [fetch(AutoTokenizer.from_pretrained, spec) for spec in whole]
    if len(whole) == 2:
        check_vocabularies(*tokenizers, *(config.vocab_size for config in configs))
    head = read_eagle(specs[1], configs[0]) if specs[-1].kind == "eagle" else None
    check_map(where.device_map, configs[0])
    check_attention(attention, filter(None, (where.device, where.draft)), configs)
    check_memory(specs_read, configs, where, kind)
    # sdpa is transformers' own default, which falls back to eager for models that have no other (BLOOM)
    options = {"dtype": kind, "attn_implementation": None if attention == "sdpa" else attention}
    model, offload = _target(specs[0], where, **options)
    return Pair(model, _draft(specs[1], model, head, where, **options) if draft else None, tokenizers[0], offload)


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


def _check_kinds(target: ModelSpec, draft: ModelSpec | None = None) -> None:
    """LoadError unless the target is a model of its own and the draft of a kind that there is."""
    if target.kind != "causal_lm":
        raise LoadError(f"{target.id}: a target is of kind causal_lm, not {target.kind!r}")
    if draft is None:
        return
    if draft.kind not in KINDS:
        raise LoadError(f"{draft.id}: a draft is of kind {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {draft.kind!r}")
    if draft.offload:
        raise LoadError(f"{draft.id}: a draft stays on the device; offload the target alone")
    if draft.kind == "layer_skip" and (draft.source != target.source or target.offload):
        raise LoadError(f"{draft.id}: a layer_skip draft is the target itself, by the same id and not offloaded")


def _check_placement(where: Placement, target: ModelSpec, draft: ModelSpec | None = None) -> None:
    """LoadError for what cannot be asked of one model at once."""
    spread = where.ranks > 1 or where.device_map is not None
    if target.offload and spread:
        raise LoadError(f"{target.id}: offload streams layers to one device; leave out device_map and tensor_parallel")
    if target.bits and (target.offload or where.ranks > 1):
        raise LoadError(f"{target.id}: bits={target.bits} goes with device_map, not with offload or tensor_parallel")
    for spec in filter(None, (target, draft)):
        _check_bits(spec)
    if draft is not None and draft.kind == "layer_skip" and where.draft is not None:
        raise LoadError(f"{draft.id}: a layer_skip draft is where the target is; leave draft_device out")


def _check_bits(spec: ModelSpec) -> None:
    if spec.bits is None:
        return
    if spec.bits not in (4, 8):
        raise LoadError(f"{spec.id}: bits is 4, 8 or null (not quantised), not {spec.bits}")
    if spec.kind != "causal_lm":
        raise LoadError(f"{spec.id}: bits is for models of their own, not for a draft of kind {spec.kind}")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise LoadError(f"{spec.id}: bits={spec.bits} needs bitsandbytes and a CUDA device: pip install bitsandbytes")


def _target(spec: ModelSpec, where: Placement, **options: Any) -> tuple[CausalLM, Offload | None]:
    if spec.offload:
        model = fetch_weights(spec, **options)
        offload = Offload(model, where.device, spec.resident_layers)
        return CausalLM(model.to(where.device)), offload
    return CausalLM(
        fetch_weights(spec, **options, **_quantisation(spec, options["dtype"]), **where.target_options())
    ), None


def _draft(
    spec: ModelSpec, target: CausalLM, head: EagleCheckpoint | None, where: Placement, **options: Any
) -> CausalLM | EagleHead:
    if spec.kind == "layer_skip":
        draft = LayerSkip(target, spec.skipped_layers)
        hook_again(draft.model)
        return draft
    if head is None:
        device = where.draft or target.device
        options |= _quantisation(spec, options["dtype"])
        return CausalLM(fetch_weights(spec, **options, device_map={"": device}))
    device, head = head_device(spec, head, target, where), with_embedding(head, target)
    return head.head(target, device=device, dtype=options["dtype"])


def _quantisation(spec: ModelSpec, dtype: torch.dtype) -> dict[str, Any]:
    """What `from_pretrained` is given for a model of few bits."""
    if spec.bits is None:
        return {}
    if spec.bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": config}
