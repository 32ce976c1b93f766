"""A target that drafts for itself: its own weights with some layers or sublayers left out (GSD's Self-SSD).

Draft & Verify (Zhang et al., 2023) leaves out attention and MLP sublayers separately.
"""

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from specdec_core.errors import LoadError
from specdec_core.models.architectures import text_config
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.memory import layer_stack, outline, parameter_bytes
from specdec_core.models.shells import shell

_BRANCHES = (
    {"attention": ("input_layernorm", "self_attn"), "mlp": ("post_attention_layernorm", "mlp")},  # Llama and its like
    {"attention": ("ln_1", "attn"), "mlp": ("ln_2", "mlp")},  # GPT-2
)
"""Layers of two residual branches and nothing else, by the names of their parts: a norm, and what reads it."""


class LayerSkip(CausalLM):
    """The target without the decoder layers numbered in `skipped`, or their sublayers: the same weights and cache.

    Layers in `attention` lack that sublayer, layers in `mlp` the other one; the residual stream passes by. What it
    appends to the cache lacks the skipped attention, and holds for the others what it computed without them: it is to
    be truncated before the target goes on.
    """

    def __init__(
        self,
        target: CausalLM,
        skipped: Collection[int] = (),
        *,
        attention: Collection[int] = (),
        mlp: Collection[int] = (),
    ) -> None:
        """LoadError as for `without`."""
        super().__init__(without(target.model, skipped, attention, mlp), tried=True)
        self.cache = target.cache


def kept_bytes(
    config: Any,
    dtype: torch.dtype,
    skipped: Collection[int] = (),
    attention: Collection[int] = (),
    mlp: Collection[int] = (),
) -> int:
    """Bytes of the parameters that are left, from the config alone. LoadError as for `without`."""
    return parameter_bytes(without(outline(config, dtype), skipped, attention, mlp))


def without(model: Any, skipped: Collection[int], attention: Collection[int] = (), mlp: Collection[int] = ()) -> Any:
    """The model without these layers and sublayers: new modules on the way down to them, everything else is shared.

    A sublayer goes with the norm before it. LoadError where a number is no layer, none would be left, the model has no
    single list of layers, or a layer is not two residual branches.
    """
    count, decoder, stack = text_config(model.config).num_hidden_layers, model.get_decoder(), layer_stack(model)
    whole = set(skipped) | (set(attention) & set(mlp))
    _check(count, whole, skipped_layers=skipped, skipped_attention=attention, skipped_mlp=mlp)
    if stack is None:
        raise LoadError(f"{type(model).__name__} has no single list of {count} layers, so that none can be skipped")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = count - len(whole)
    path = next(name for name, module in model.named_modules() if module is decoder)
    made = part = shell(model, config)
    for name in path.split("."):
        setattr(part, name, shell(getattr(part, name), config))
        part = getattr(part, name)
    name, layers = stack
    kept = (
        _lacking(layer, attention=number in attention, mlp=number in mlp)
        for number, layer in enumerate(layers)
        if number not in whole
    )
    setattr(part, name, nn.ModuleList(kept))
    return made


def _check(count: int, whole: Collection[int], **given: Collection[int]) -> None:
    """LoadError for numbers that are no layers, and where no layer would be left."""
    if not set().union(*given.values()) <= set(range(count)) or len(whole) == count:
        words = ", ".join(f"{name}={sorted(numbers)}" for name, numbers in given.items() if numbers)
        raise LoadError(f"{words}: give numbers from 0 to {count - 1}, and leave at least one layer")


def _lacking(layer: nn.Module, **skipped: bool) -> nn.Module:
    """The layer without the sublayers that are skipped; the layer itself where there are none."""
    if not any(skipped.values()):
        return layer
    parts = {name for name, _ in layer.named_children()}
    known = (branches for branches in _BRANCHES if parts == {part for both in branches.values() for part in both})
    branches = next(known, None)
    if branches is None:
        raise LoadError(
            f"{type(layer).__name__} is not two residual branches, attention and MLP, each behind its own norm; "
            "give whole layers, skipped_layers, in place of skipped_attention and skipped_mlp"
        )
    made = shell(layer)
    for sublayer in (name for name, without_it in skipped.items() if without_it):
        norm, branch = branches[sublayer]
        setattr(made, norm, nn.Identity())
        setattr(made, branch, _NoAttention() if sublayer == "attention" else _Nothing())
    return made


class _Nothing(nn.Module):
    """In place of a sublayer: it adds 0 to the residual stream."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(hidden_states)


class _NoAttention(_Nothing):
    """In place of an attention, which also returns its weights, or None."""

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(hidden_states), None
