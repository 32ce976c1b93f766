"""Shallow copies of modules, in which some parts are others; all else is shared with the original."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn


def shell(module: Any, config: Any = None) -> Any:
    """The module with the same parts, which can be exchanged without touching the original, and without its hooks."""
    made = copy.copy(module)
    made._modules = dict(module._modules)
    made._forward_hooks, made._forward_pre_hooks = type(module._forward_hooks)(), type(module._forward_pre_hooks)()
    if config is not None:
        made.config = config
    return made


def with_parts(model: nn.Module, parts: Mapping[nn.Module, nn.Module]) -> Any:
    """The model with some of its modules replaced; it runs without what accelerate has hooked to it."""
    made = shell(model)
    if "_hf_hook" in vars(made):  # its `forward` is bound to the original
        for name in ("_hf_hook", "_old_forward", "forward"):
            vars(made).pop(name)
    for name, child in model._modules.items():
        if child is None:
            continue
        if child in parts:
            made._modules[name] = parts[child]
        elif any(part in parts for part in child.modules()):
            made._modules[name] = with_parts(child, parts)
    return made
