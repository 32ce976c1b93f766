"""Which of torch's attention kernels run: torch chooses one for every forward, by card, dtype, mask and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_CHOOSES = torch.ops.aten.scaled_dot_product_attention.default
_KERNEL = re.compile(r"aten::_scaled_dot_product_(?:attention_)?(flash|efficient|cudnn|math|fused)")


class AttentionKernels(TorchDispatchMode):
    """Notes the kernels of all attention that is computed inside; a forward takes longer there."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        """flash | efficient | cudnn | math | fused (a backend's own)"""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _CHOOSES:
            with self:
                return func.decompose(*args, **(kwargs or {}))
        if kernel := _KERNEL.match(func._schema.name):
            self.names.add(kernel[1])
        return func(*args, **(kwargs or {}))
