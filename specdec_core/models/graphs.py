"""A model's forward over a tree as a compiled graph: one per number of tokens, however long the text has become."""

import os
import shutil
import time
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch._inductor.config  # else there is none to patch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from specdec_core.cache import Window
from specdec_core.errors import LoadError
from specdec_core.layout import Layout
from specdec_core.models.packed import packs
from specdec_core.models.tree_attention import DENSE, has_interface

EAGER, PACKED, COMPILE, MIXED = "eager", "packed", "compile", "mixed"
"""Eager; eager with packed weights; compiled by inductor, on a GPU with CUDA graphs; compiled but for trees larger than
any that was compiled."""
GRAPHS = (EAGER, PACKED, COMPILE)
"""What may be asked for."""
_WIDTH = 64
"""On a CPU masks are as wide as a multiple of so many slots; on a GPU as the cache: each size is captured once."""
_TORCH = 2, 13
"""Its graphs of one function need not be shared among models (`isolate_recompiles`); older versions were not tried."""
_CALLS = {"cuda": 3}
"""Of a new size: one warms up, one is captured, one is replayed."""


class Graphs:
    """Compiled forwards of one model on its cache. The tokens of a tree are filled up to a power of two.

    Weights are constants: what is compiled does not see them replaced. Lengths enter as tensors and shapes of their
    own, so that nothing is compiled again as the text grows. Once `sealed`, a size that was not compiled is filled up
    to one that was; a tree larger than all of them runs eagerly.
    """

    def __init__(self, lm: Any) -> None:
        """`lm` is a `CausalLM` or an `EagleHead`."""
        self.sealed = False
        self.missed = 0
        """Forwards that ran eagerly since it was sealed."""
        self.seconds = 0.0
        """So long first forwards took, which compile."""
        self.lm = lm
        on_cpu, config = lm.device.type == "cpu", lm.config
        precise = lm.dtype == torch.float32  # in 16 bits SDPA is the more exact
        self._in_products = on_cpu and precise and config._attn_implementation == "sdpa" and has_interface(config)
        self._sizes: set[tuple[int, bool]] = set()
        self._capacity = 0
        torch._dynamo.config.recompile_limit = max(256, torch._dynamo.config.recompile_limit)
        options: dict[str, Any] = {"isolate_recompiles": True} | _options(lm.device)  # models of one class share code
        self._compiled = torch.compile(self._forward, fullgraph=True, dynamic=False, **options)

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size, _ in sorted(self._sizes))
        return f"graphs of {sizes or 'no'} tokens, compiled in {self.seconds:.0f} s"

    def size(self, count: int) -> int | None:
        """Tokens of the graph that reads so many; None where there is none and none is to be made."""
        if not self.sealed:
            return 1 << (count - 1).bit_length()
        hidden = self.lm.keep_hidden
        found = min((size for size, kept in self._sizes if size >= count and kept == hidden), default=None)
        self.missed += found is None
        return found

    def __call__(
        self, tokens: Int[Tensor, " new"], layout: Layout, size: int, *features: Float[Tensor, "new hidden"]
    ) -> tuple[Float[Tensor, "new vocab"], Float[Tensor, "new hidden"] | None]:
        """Logits and, if they are kept, hidden states of the tokens, which are appended to the cache.

        A head reads `features` beside its tokens. Call it only after a prompt was read. Masked slots must be finite,
        so padding rows see the first slot alone: their unused output is finite then.
        """
        cache, count, start = self.lm.cache, tokens.shape[0], self.lm.cache.length
        width = -(-(start + size) // _WIDTH) * _WIDTH
        cache.reserve(width + 1)  # a graph of a mask as wide as the cache would be for such masks alone
        if tokens.is_cuda:
            width = cache.capacity
        self._mark(cache)
        mask = torch.full((1, 1, size, width), -torch.inf, dtype=self.lm.dtype, device=tokens.device)
        mask[..., 0] = 0
        mask[..., :count, : start + count] = 0 if layout.mask is None else layout.mask
        torch._dynamo.maybe_mark_dynamic(mask, 3)
        slots = torch.arange(start, start + size, device=tokens.device)
        ids, positions = (F.pad(part, (0, size - count)) for part in (tokens[None], layout.positions))
        inputs = (ids, positions, mask, slots, *(F.pad(part[None], (0, 0, 0, size - count)) for part in features))
        if (size, self.lm.keep_hidden) not in self._sizes:
            began = time.perf_counter()
            with torch._inductor.config.patch(freezing=not tokens.is_cuda):  # dynamo asks for it while it traces
                for _ in range(_CALLS.get(tokens.device.type, 1)):
                    self._run(*inputs)
            self._sizes.add((size, self.lm.keep_hidden))
            self.seconds += time.perf_counter() - began
        logits, hidden = self._run(*inputs)
        return _kept(logits, count), None if hidden is None else _kept(hidden, count)

    def _run(self, *inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """On a CPU in products of the queries of a group: SDPA would copy its keys and values for each of them.

        Layers that a `LayerSkip` shares with its target have the target's config, and stay with SDPA.
        """
        config, before = self.lm.config, self.lm.config._attn_implementation
        config._attn_implementation = DENSE if self._in_products else before
        try:
            found: tuple[Tensor, Tensor | None] = self._compiled(*inputs)
        finally:
            config._attn_implementation = before
        return found

    def _forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, slots: Tensor, *features: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """What is compiled."""
        lm = self.lm
        lm.cache.window = Window(slots, mask.shape[-1])
        logits, hidden = lm.whole(tokens, *features, attention_mask=mask, position_ids=positions)
        lm.cache.window = None
        return logits, hidden

    def _mark(self, cache: Any) -> None:
        """Buffers that have grown are new tensors. Their capacity is none of a graph's constants."""
        if cache.capacity == self._capacity:
            return
        self._capacity = cache.capacity
        for layer in cache.layers:
            for buffer in (layer.keys, layer.values):
                torch._dynamo.maybe_mark_dynamic(buffer, 2)
                if buffer.is_cuda:
                    torch._dynamo.mark_static_address(buffer)


def usable(how: str, attention: str, device: torch.device, configs: Iterable[Any], *, whole: bool) -> str:
    """What runs where `how` is asked for: `eager`, with a warning, where a CPU has no C++ compiler or cannot pack.

    `whole` says that the models are on one device each, their weights as they are. LoadError for a word that is none of
    `GRAPHS`, and for models and attentions that graphs cannot hold.
    """
    if how not in GRAPHS:
        raise LoadError(f"runtime.graphs is {' or '.join(GRAPHS)}, not {how!r}")
    if how == EAGER:
        return EAGER
    if not whole:
        raise LoadError(
            f"runtime.graphs={how} is for models that are whole on one device: leave out device_map, tensor_parallel, "
            "offload and bits"
        )
    if how == PACKED:
        return _packed(device)
    if tuple(map(int, torch.__version__.split(".")[:2])) < _TORCH:
        raise LoadError(f"runtime.graphs={how} needs torch {_TORCH[0]}.{_TORCH[1]}, and this is {torch.__version__}")
    if attention not in ("sdpa", "eager"):
        raise LoadError(f"runtime.graphs={how} goes with runtime.attention=sdpa or eager, not with {attention}")
    for config in configs:
        rotary = str(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None))
        if "'dynamic'" in rotary or "'longrope'" in rotary:
            raise LoadError(f"runtime.graphs={how}: positions of {config.model_type} depend on the length of the text")
    if device.type == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        message = f"runtime.graphs={how} needs a C++ compiler, and there is no {compiler}; it runs eagerly"
        warnings.warn(message, stacklevel=2)
        return EAGER
    return how


def _packed(device: torch.device) -> str:
    if device.type != "cpu":
        raise LoadError(f"runtime.graphs={PACKED} is for a CPU; leave it out on {device.type}, or use {COMPILE}")
    if packs():
        return PACKED
    warnings.warn(f"this torch cannot pack weights (runtime.graphs={PACKED}); it runs eagerly", stacklevel=3)
    return EAGER


def _options(device: torch.device) -> dict[str, Any]:
    """Of `torch.compile`. On a CPU weights are packed for every number of tokens, as constants of its graph.

    Matrices that read the same input become one, and what calls the kernels is C++ too. Modules are as they were
    traced, so that nothing asks in every forward whether they are.
    """
    if device.type == "cuda":
        return {"mode": "reduce-overhead"}
    return {
        "options": {
            "freezing": True,
            "max_autotune": True,
            "max_autotune_gemm_backends": "CPP,ATEN",
            "cpp.enable_concat_linear": True,
            "cpp_wrapper": True,
            "guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe,
        }
    }


def _kept(rows: Tensor, count: int) -> Tensor:
    """The first rows; those of a captured graph are copied, for its next replay writes to the same place."""
    return rows[:count].clone() if rows.is_cuda else rows[:count]
