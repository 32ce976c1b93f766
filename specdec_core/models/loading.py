"""Loading pairs onto a device: what does not fit is refused before any weight is read."""

import contextlib
import importlib.util
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from specdec_core.errors import LoadError, PairError
from specdec_core.models.architectures import check_architecture, loader_of, text_config
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.fetch import fetch, fetch_config, fetch_tokenizer, fetch_weights, quantisation
from specdec_core.models.fitting import check_map, check_memory
from specdec_core.models.graphs import EAGER, PACKED, usable
from specdec_core.models.kinds import TARGET, kind_of
from specdec_core.models.offload import Offload
from specdec_core.models.placement import DeviceMap, Placement, leave_out_cudnn_attention, placed, resolve_dtype
from specdec_core.models.spec import ModelSpec, Pair
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
    graphs: str = "eager",
    target_weights: bool = True,
) -> Pair:
    """Load target and draft onto one device; of an offloaded target, all but the layers that are to be streamed.

    `device` auto is a GPU if there is one; `dtype` auto is bfloat16 there and float32 on a CPU. `device_map` (auto, or
    module names to devices) spreads the target's layers over devices, `tensor_parallel` every layer over the processes
    that torchrun started; the draft is whole, on `draft_device` or where token ids go in. `graphs` (eager, packed or
    compile) is how forwards over trees run. LoadError where a model is missing, gated, offline, too large, or placed as
    it cannot be, before any weights are read; PairError where the tokenizers differ.

    Without `target_weights` the target's are left out unless the draft reads them: such a target knows its sizes and
    decodes nothing, as `specdec_core.replay` needs it.
    """
    where = placed(device, device_map=device_map, tensor_parallel=tensor_parallel, draft_device=draft_device)
    precision = resolve_dtype(dtype, where.device)
    specs = [ModelSpec(id=spec) if isinstance(spec, str) else spec for spec in (target, draft) if spec is not None]
    _check_kinds(where, *specs)
    _check_placement(where, *specs)
    specs_read = [spec for spec in specs if kind_of(spec).own_weights]
    configs = [fetch_config(specs[0])]
    check_architecture(configs[0])
    text = text_config(configs[0])
    configs += [kind_of(spec).config(spec, text) for spec in specs_read[1:]]
    whole = [spec for spec in specs if kind_of(spec).whole]
    tokenizers = [fetch_tokenizer(spec) for spec in whole]
    if len(whole) == 2:
        check_vocabularies(*tokenizers, *(text_config(config).vocab_size for config in configs))
        check_architecture(configs[1])
    drafts = [(kind_of(spec), spec, kind_of(spec).read(spec, configs[-1], text)) for spec in specs[1:]]
    check_map(where.device_map, configs[0])
    check_attention(attention, filter(None, (where.device, where.draft)), configs)
    on_one = where.ranks == 1 and where.device_map is None and not any(spec.offload or spec.bits for spec in specs)
    how = usable(graphs, attention, where.device, configs, whole=on_one)
    bare = not target_weights and all(kind.alone for kind, _, _ in drafts)
    check_memory(specs_read[bare:], configs[bare:], where, precision, copies=2 if how == PACKED else 1)
    leave_out_cudnn_attention()
    # sdpa is transformers' own default, which falls back to eager for models that have no other (BLOOM)
    options = {"dtype": precision, "attn_implementation": None if attention == "sdpa" else attention}
    model, offload = (
        (_bare(specs[0], configs[0], where, **options), None) if bare else _target(specs[0], where, **options)
    )
    loaded = [kind.load(spec, read, model, where, **options) for kind, spec, read in drafts]
    for (kind, spec, read), draft_model in zip(drafts, loaded, strict=True):
        kind.settle(spec, draft_model, read, model, tokenizers[0])
    pair = Pair(model, next(iter(loaded), None), tokenizers[0], offload)
    model.eos_token_ids = pair.eos_token_ids
    pair.compile(EAGER if bare else how)
    return pair


def check_vocabularies(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, target_size: int, draft_size: int
) -> None:
    """PairError unless every token id means the same to both models; tokens added for later use may be renamed.

    Sizes are the models' rows, which may differ: what one of them lacks means nothing to it.
    """
    ours, theirs = _tokens_by_id(target, target_size), _tokens_by_id(draft, draft_size)
    differing = {number for number in ours.keys() & theirs.keys() if ours[number] != theirs[number]}
    differing -= {*target.get_added_vocab().values()} & {*draft.get_added_vocab().values()}  # renamed
    places = {token: number for number, token in theirs.items()}
    differing |= {number for number, token in ours.items() if places.get(token, number) != number}
    if differing:
        said = [
            f"{number} is {ours[number]!r} for the target and {theirs.get(number, 'no token')!r} for the draft"
            for number in sorted(differing)[:3]
        ]
        raise PairError(
            f"target and draft give {len(differing)} token ids different meanings (such as "
            f"{', '.join(said)}); choose a draft that was trained with the target's tokenizer"
        )


def _tokens_by_id(tokenizer: PreTrainedTokenizerBase, rows: int) -> dict[int, str]:
    return {number: token for token, number in tokenizer.get_vocab().items() if number < rows}


def _check_kinds(where: Placement, target: ModelSpec, draft: ModelSpec | None = None) -> None:
    """LoadError unless the target is a model of its own and the draft of a kind that goes with it."""
    if target.kind != TARGET:
        raise LoadError(f"{target.id}: a target is of kind {TARGET}, not {target.kind!r}")
    if draft is None:
        return
    kind_of(draft).check(draft, target, where)
    if draft.offload:
        raise LoadError(f"{draft.id}: a draft stays on the device; offload the target alone")


def _check_placement(where: Placement, target: ModelSpec, draft: ModelSpec | None = None) -> None:
    """LoadError for what cannot be asked of one model at once."""
    spread = where.ranks > 1 or where.device_map is not None
    if target.offload and spread:
        raise LoadError(f"{target.id}: offload streams layers to one device; leave out device_map and tensor_parallel")
    if target.bits and (target.offload or where.ranks > 1):
        raise LoadError(f"{target.id}: bits={target.bits} goes with device_map, not with offload or tensor_parallel")
    if target.dtype:
        raise LoadError(f"{target.id}: dtype is for drafts that differ; the target's is the dtype of the run")
    if draft and draft.dtype and not kind_of(draft).own_dtype:
        raise LoadError(f"{draft.id}: dtype is for drafts of their own; one of kind {draft.kind} has the target's")
    for spec in filter(None, (target, draft)):
        _check_bits(spec)


def _check_bits(spec: ModelSpec) -> None:
    if spec.bits is None:
        return
    if spec.bits not in (4, 8):
        raise LoadError(f"{spec.id}: bits is 4, 8 or null (not quantised), not {spec.bits}")
    if not kind_of(spec).whole:
        raise LoadError(f"{spec.id}: bits is for models of their own, not for a draft of kind {spec.kind}")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise LoadError(f"{spec.id}: bits={spec.bits} needs bitsandbytes and a CUDA device: pip install bitsandbytes")


def _target(spec: ModelSpec, where: Placement, **options: Any) -> tuple[CausalLM, Offload | None]:
    if spec.offload:
        model = fetch_weights(spec, **options)
        offload = Offload(model, where.device, spec.resident_layers)
        return CausalLM(model.to(where.device)), offload
    return CausalLM(
        fetch_weights(spec, **options, **quantisation(spec, options["dtype"]), **where.target_options())
    ), None


def _bare(spec: ModelSpec, config: Any, where: Placement, **options: Any) -> CausalLM:
    """The target's sizes, and which tokens end its answers, without its weights, on no device."""
    with torch.device("meta"):
        model = loader_of(config).from_config(config, **options)
    with contextlib.suppress(LoadError):  # without one, that of its config holds
        model.generation_config = fetch(GenerationConfig.from_pretrained, spec)
    return CausalLM(model, tried=True, device=where.device)
