"""Attention over a tree by name, such as `runtime.attention=tree_split`, for models with transformers' interface."""

import importlib.util
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from specdec_core.errors import LoadError
from specdec_core.layout import tree_slots
from specdec_core.models.architectures import loader_of
from specdec_core.models.tree_attention.blocks import block_mask
from specdec_core.models.tree_attention.dense import dense_attention
from specdec_core.models.tree_attention.split import split_attention

SDPA = "sdpa"
"""transformers' name for PyTorch's fused attention."""
TRITON, DENSE, SPLIT = "tree_triton", "tree_dense", "tree_split"
"""The kernel, the same in plain tensor operations, and prefix and tree apart."""
LARGEST_HEAD = 128
"""Dimensions of a head for which the tiles fit onto a multiprocessor of any GPU, in any dtype."""


def tree_triton(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """What a layer calls: queries, keys and values are [batch, heads, tokens, dim], the output [batch, new, heads, dim]
    and no weights. Without a mask (a prefill, or one token that sees all), or with what the kernel does not know, it is
    SDPA.
    """
    narrow = query.shape[-1] <= LARGEST_HEAD
    if attention_mask is None or not (narrow and _known(query, key, value, attention_mask, options)):
        return _sdpa(module, query, key, value, attention_mask, **options)
    from specdec_core.models.tree_attention.kernel import block_attention

    return block_attention(query, key, value, block_mask(attention_mask), _scale(query, options)), None


def tree_dense(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The same in plain tensor operations, on any device."""
    if attention_mask is None or not _known(query, key, value, attention_mask, options):
        return _sdpa(module, query, key, value, attention_mask, **options)
    mixed = dense_attention(query, key, value, attention_mask, _scale(query, options))
    return mixed.transpose(1, 2).contiguous(), None


def tree_split(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The cached prefix without a mask, then the tree; SDPA where it is not known which slots are the tree's."""
    own = None if attention_mask is None else tree_slots(attention_mask)
    if attention_mask is None or own in (None, key.shape[2]) or not _known(query, key, value, attention_mask, options):
        return _sdpa(module, query, key, value, attention_mask, **options)
    scale, prefix = _scale(query, options), key.shape[2] - own
    mixed = split_attention(query, key, value, attention_mask, scale, prefix=prefix)
    return mixed.transpose(1, 2).contiguous(), None


def grouped_sdpa(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Fused attention as transformers calls it, but that grouped keys and values are not copied under a mask on a GPU.

    Each group is a row of the batch, whose heads see the same keys by a stride of 0. Tensors are as for `tree_triton`.
    """
    grouped = query.is_cuda and query.shape[0] == 1 and query.shape[1] > key.shape[1]
    if attention_mask is None or not (grouped and _known(query, key, value, attention_mask, options)):
        return _sdpa(module, query, key, value, attention_mask, **options)
    return by_group(query, key, value, attention_mask, _scale(query, options)), None


def by_group(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one sequence, [1, heads, new, dim] and [1, kv_heads, slots, dim] to [1, new, heads, dim]."""
    queries = query[0].unflatten(0, (key.shape[1], -1))
    keys, values = (part[0, :, None].expand(-1, queries.shape[1], -1, -1) for part in (key, value))
    mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    return mixed.flatten(0, 1).transpose(0, 1).contiguous()[None]


def check_attention(name: str, devices: Iterable[torch.device], configs: Iterable[Any]) -> None:
    """LoadError in a sentence where models of these configs cannot run the attention of that name on these devices.

    Other names than ours are left to transformers.
    """
    if name not in (TRITON, DENSE, SPLIT):
        return
    for config in configs:
        if not has_interface(config):
            raise LoadError(
                f"runtime.attention={name} is for models with transformers' attention interface, and "
                f"{config.model_type} has one of its own; use runtime.attention=sdpa, which runs that"
            )
        if name == TRITON and (wide := _head_dim(config)) > LARGEST_HEAD:
            raise LoadError(
                f"runtime.attention={name} is for heads of at most {LARGEST_HEAD} dimensions, and those of "
                f"{config.model_type} have {wide}; use runtime.attention=sdpa"
            )
    if name != TRITON:
        return
    if importlib.util.find_spec("triton") is None:
        raise LoadError(f"runtime.attention={name} needs Triton: pip install triton, or use runtime.attention=sdpa")
    import triton

    elsewhere = [device for device in devices if device.type != "cuda"]
    if elsewhere and not triton.knobs.runtime.interpret:
        raise LoadError(
            f"runtime.attention={name} needs a GPU, and the pair would run on {elsewhere[0]}; use "
            "runtime.attention=sdpa, or set TRITON_INTERPRET=1 to try the kernel in Triton's slow interpreter"
        )


def has_interface(config: Any) -> bool:
    """Whether the architecture computes attention by the function that its config names, as SDPA would."""
    kind = loader_of(config)._model_mapping.get(type(config), None)
    return kind is None or bool(kind._supports_sdpa and kind._can_set_attn_implementation())


def _head_dim(config: Any) -> int:
    given: int | None = getattr(config, "head_dim", None)
    return given or config.hidden_size // config.num_attention_heads


def _known(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: dict[str, Any]) -> bool:
    """Whether it is attention under one mask and nothing else."""
    besides = ("softcap", "position_bias", "s_aux")
    return (
        mask.shape == (1, 1, query.shape[2], key.shape[2])
        and key.shape == value.shape
        and not (options.get("dropout") or options.get("output_attentions"))
        and all(options.get(name) is None for name in besides)
    )


def _sdpa(*arguments: Any, **options: Any) -> tuple[Tensor, None]:
    found: tuple[Tensor, None] = sdpa_attention_forward(*arguments, **options)
    return found


def _scale(query: Tensor, options: dict[str, Any]) -> float:
    scaling: float | None = options.get("scaling")
    return query.shape[-1] ** -0.5 if scaling is None else scaling


for _name, _function in ((TRITON, tree_triton), (DENSE, tree_dense), (SPLIT, tree_split)):
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, sdpa_mask)
AttentionInterface.register(SDPA, grouped_sdpa)
