"""A target that drafts for itself: its own weights with some layers left out (Zhang et al., 2023; GSD's Self-SSD)."""

import copy
from collections.abc import Collection
from typing import Any

from torch import nn

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.memory import layer_stack


class LayerSkip(CausalLM):
    """The target without the decoder layers numbered in `skipped`: the same weights, and the same cache.

    What it appends to the cache lacks the skipped layers, and holds for the others what it computed without them: it
    is to be truncated before the target goes on.
    """

    def __init__(self, target: CausalLM, skipped: Collection[int]) -> None:
        """LoadError where a number is no layer, none would be left, or the model has no single list of layers."""
        count = target.config.num_hidden_layers
        if not set(skipped) < set(range(count)):
            raise LoadError(
                f"skipped_layers={sorted(skipped)}: give numbers from 0 to {count - 1}, and leave at least one layer"
            )
        super().__init__(_without(target.model, set(skipped)))
        self.cache = target.cache


def _without(model: Any, skipped: set[int]) -> Any:
    """New modules from the model down to its list of layers; everything else is shared."""
    count, decoder, stack = model.config.num_hidden_layers, model.get_decoder(), layer_stack(model)
    if stack is None:
        raise LoadError(f"{type(model).__name__} has no single list of {count} layers, so that none can be skipped")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = count - len(skipped)
    path = next(name for name, module in model.named_modules() if module is decoder)
    shell = part = _shell(model, config)
    for name in path.split("."):
        setattr(part, name, _shell(getattr(part, name), config))
        part = getattr(part, name)
    name, layers = stack
    setattr(part, name, nn.ModuleList(layer for number, layer in enumerate(layers) if number not in skipped))
    return shell


def _shell(module: Any, config: Any) -> Any:
    """The module with the same parts, which can be exchanged without touching the original, and without its hooks."""
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    shell._forward_hooks, shell._forward_pre_hooks = type(module._forward_hooks)(), type(module._forward_pre_hooks)()
    shell.config = config
    return shell
