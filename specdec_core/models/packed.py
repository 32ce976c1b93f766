"""Products of few rows with weights that were packed once, on a CPU: MKL packs a float32 matrix anew in every call."""

import platform
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdec_core.errors import LoadError

_MOST = 64
"""Rows. Behind them packing anew costs little beside the product."""
_CPUINFO = Path("/proc/cpuinfo")


def packs() -> bool:
    """Whether this torch has oneDNN's operators; they are private to it."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
    )


class Packed:
    """The float32 matrices of all linear layers, packed; the matrices themselves stay beside them.

    One row is a product of a matrix and a vector, for which nothing is packed: plain decoding stays as it is. Weights
    that are replaced later are not seen.
    """

    def __init__(self, models: Iterable[nn.Module]) -> None:
        """LoadError where no layer is linear and float32."""
        layers = {part for model in models for part in model.modules() if type(part) is nn.Linear}
        least = least_rows()
        self._products = {layer: _Product(layer, least) for layer in layers if layer.weight.dtype == torch.float32}
        if not self._products:
            raise LoadError("runtime.graphs=packed packs linear layers of float32, and these models have none")

    def use(self, wanted: bool) -> None:
        """Whether the layers use them from now on."""
        for layer, product in self._products.items():
            vars(layer).pop("forward", None)
            if wanted:
                vars(layer)["forward"] = product


def least_rows() -> int:
    """Rows from which packed weights are the faster: MKL has kernels for two and three on the CPUs of its own maker."""
    known = _CPUINFO.read_text() if _CPUINFO.exists() else platform.processor()
    return 4 if "GenuineIntel" in known else 2


class _Product:
    """The forward of a linear layer."""

    def __init__(self, layer: nn.Linear, least: int) -> None:
        self.layer, self.least = layer, least
        self.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), 8)

    def __call__(self, inputs: Tensor) -> Tensor:
        layer = self.layer
        if not self.least <= inputs.numel() // layer.in_features <= _MOST:
            return F.linear(inputs, layer.weight, layer.bias)
        made: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.packed, layer.bias, "none", [], "")
        return made
