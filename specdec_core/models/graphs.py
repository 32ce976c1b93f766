"""A model's forward over a tree as a compiled graph: one per number of tokens, however long the text has become."""

import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch._inductor.config  # else there is none to patch
from jaxtyping import Float, Int
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch.nn import functional as F

from specdec_core.cache import Window
from specdec_core.errors import LoadError
from specdec_core.layout import Layout
from specdec_core.models.packed import packs
from specdec_core.models.tree_attention import DENSE, has_interface

EAGER, PACKED, COMPILE, MIXED, UNCAPTURED = "eager", "packed", "compile", "mixed", "uncaptured"
"""Eager; eager with packed weights; compiled by inductor, on a GPU as CUDA graphs; compiled but for trees larger than
any that was compiled; compiled, but inductor skipped the CUDA graphs of some forwards."""
AUTO = "auto"
GRAPHS = (AUTO, EAGER, PACKED, COMPILE)
"""What may be asked for; `auto` is compile on a GPU where models may be compiled, else eager."""
_WHOLE = " is for models that are whole on one device: leave out device_map, tensor_parallel, offload and bits"
_WIDTH = 64
"""On a CPU masks are as wide as a multiple of so many slots."""
_NARROW = 128
"""On a GPU widths are multiples of it: there a graph is captured for each."""
_TORCH = 2, 13
"""Its graphs of one function need not be shared among models (`isolate_recompiles`); older versions were not tried."""
_CALLS = {"cuda": 3}
"""Of a new size and width: one warms up, one is captured, one is replayed."""
_replay = torch.cuda.CUDAGraph.replay
_num_replays = 0


class Graphs:
    """Compiled forwards of one model on its cache. The tokens of a tree are filled up to a power of two.

    Weights are constants: what is compiled does not see them replaced. Lengths enter as tensors and shapes of their
    own, so that nothing is compiled again as the text grows. Once `sealed`, a size that was not compiled is filled up
    to one that was; a tree larger than all of them runs eagerly. Where nothing can be compiled all do, with a warning.

    On a GPU every width of the mask is captured beforehand: 8 up to 1,024 slots, and 4 for each doubling. A plain token
    has a mask there too, since the length of its text is no shape of a captured graph. Torch has one kernel that reads
    lengths from tensors, `varlen_attn`: flash attention, in 16 bits and from compute capability 8.0 on alone.
    """

    def __init__(self, lm: Any) -> None:
        """`lm` is a `CausalLM` or an `EagleHead`."""
        self.sealed = self.failed = False
        self.ran = self.missed = self.uncaptured = 0
        """Forwards since it was sealed: compiled, eager ones, and compiled ones that no CUDA graph was replayed for."""
        self.seconds = 0.0
        """So long first forwards took, which compile."""
        self.lm = lm
        on_cpu, config = lm.device.type == "cpu", lm.config
        precise = lm.dtype == torch.float32  # in 16 bits SDPA is the more exact
        self._in_products = on_cpu and precise and config._attn_implementation == "sdpa" and has_interface(config)
        self._sizes: dict[tuple[int, Any], tuple[Tensor, ...]] = {}
        """Of those that were compiled, with the layers that were kept, features of zeros."""
        self._capacity = 0
        torch._dynamo.config.recompile_limit = max(256, torch._dynamo.config.recompile_limit)
        options: dict[str, Any] = {"isolate_recompiles": True} | _options(lm.device)  # models of one class share code
        self.compiled = torch.compile(self.forward, fullgraph=True, dynamic=False, **options)
        torch.cuda.CUDAGraph.replay = _counted_replay  # type: ignore[method-assign, assignment]

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size, _ in sorted(self._sizes))
        return f"graphs of {sizes or 'no'} tokens, compiled in {self.seconds:.0f} s"

    @property
    def modes(self) -> set[str]:
        """In which its forwards ran since it was sealed: eager, compile, uncaptured."""
        counts = {EAGER: self.missed, COMPILE: self.ran - self.uncaptured, UNCAPTURED: self.uncaptured}
        return {mode for mode, count in counts.items() if count}

    def size(self, count: int) -> int | None:
        """Tokens of the graph that reads so many; None where there is none and none is to be made."""
        if self.failed:
            found = None
        elif not self.sealed:
            return 1 << (count - 1).bit_length()
        else:
            hidden = self.lm.keep_hidden
            found = min((size for size, kept in self._sizes if size >= count and kept == hidden), default=None)
        self.missed += found is None
        return found

    def restart(self, capacity: int) -> None:
        """Empty the cache, with room for `capacity` tokens. It grows seldom on a CPU, and little on a GPU.

        Slots that are masked are read all the same, and what is not finite there would spoil the rest: all are zeros.
        """
        cache = self.lm.cache
        cache.truncate(0)
        cache.wipe()
        cache.reserve(1 << (capacity - 1).bit_length() if self.lm.device.type == "cpu" else coarse(capacity) + 1)
        if cache.settled:
            self.fit()

    def __call__(
        self, tokens: Int[Tensor, " new"], layout: Layout, size: int, *features: Float[Tensor, "new hidden"]
    ) -> tuple[Float[Tensor, "new vocab"], Float[Tensor, "new hidden"] | None]:
        """Logits and, if they are kept, hidden states of the tokens, which are appended to the cache.

        A head reads `features` beside its tokens. Call it only after a prompt was read. Masked slots must be finite,
        so padding rows see the first slot alone: their unused output is finite then.
        """
        cache, count, start = self.lm.cache, tokens.shape[0], self.lm.cache.length
        slots = start + size
        width = coarse(slots) if tokens.is_cuda else -(-slots // _WIDTH) * _WIDTH
        cache.reserve(width + 1)  # a graph of a mask as wide as the cache would be for such masks alone
        self.fit()
        mask = self._mask(size, width)
        mask[..., :count, : start + count] = 0 if layout.mask is None else layout.mask
        ids, positions = (F.pad(part, (0, size - count)) for part in (tokens[None], layout.positions))
        padded = [F.pad(part[None], (0, 0, 0, size - count)) for part in features]
        inputs = (ids, positions, mask, torch.arange(start, slots, device=tokens.device), *padded)
        if (key := (size, self.lm.keep_hidden)) not in self._sizes and not self.failed:
            self._sizes[key] = tuple(torch.zeros_like(part) for part in padded)
            self._first(size, inputs)
        before = _num_replays
        logits, hidden = self._run(*inputs)
        self.ran += not self.failed
        self.missed += self.failed
        self.uncaptured += tokens.is_cuda and not self.failed and _num_replays == before
        return _kept(logits, count), None if hidden is None else _kept(hidden, count)

    def forget(self) -> None:
        """Capture all anew before the next text: weights are at other addresses."""
        self._capacity = 0

    def fit(self) -> None:
        """Make the graphs those of the cache's buffers, which are new tensors after it has grown.

        Their capacity is none of a graph's constants. Sizes known are captured anew on a GPU.
        """
        cache, lm = self.lm.cache, self.lm
        if cache.capacity == self._capacity:
            return
        self._capacity = cache.capacity
        for layer in cache.layers:
            for buffer in (layer.keys, layer.values):
                torch._dynamo.maybe_mark_dynamic(buffer, 2)
                if buffer.is_cuda:
                    torch._dynamo.mark_static_address(buffer)
        for size, kept in [*self._sizes] if lm.device.type == "cuda" else ():
            if not self.failed and cache.length + size <= cache.capacity:  # else it has to grow once more
                with lm.keeping(kept) if kept != lm.keep_hidden else nullcontext():
                    self._first(size)

    @torch.inference_mode()
    def _first(self, size: int, inputs: tuple[Tensor, ...] = ()) -> None:
        """The first forwards of a size: those of `inputs`, and on a GPU of every width, over tokens behind the text."""
        began, cuda, name = time.perf_counter(), self.lm.device.type == "cuda", self.lm.config.model_type
        limits = {"freezing": not cuda, "triton.cudagraph_dynamic_shape_warn_limit": None}  # of widths there are more
        several = [self._blank(size, width) for width in widths(self._capacity)] if cuda else [inputs]
        before = _num_replays
        try:
            with torch._inductor.config.patch(limits):  # dynamo asks for it while it traces
                for one in several:
                    for _ in range(_CALLS.get(self.lm.device.type, 1)):
                        self._run(*one)
        except TorchDynamoException as error:
            said = str(error).strip().partition("\n")[0]
            warnings.warn(f"{name} cannot be compiled, and runs eagerly: {said}", stacklevel=2)
            self.compiled, self.failed = self.forward, True
        else:
            if cuda and _num_replays == before:
                said = "inductor skipped CUDA graphs, and TORCH_LOGS=cudagraphs says why"
                warnings.warn(f"{name} is compiled, but {said}", stacklevel=2)
        self.seconds += time.perf_counter() - began

    def _blank(self, size: int, width: int) -> tuple[Tensor, ...]:
        """Inputs of no text, whose keys and values are written where the next forward writes its own."""
        start, device = self.lm.cache.length, self.lm.device
        ids, positions = torch.zeros(2, 1, size, dtype=torch.long, device=device)
        slots = torch.arange(start, start + size, device=device)
        return ids, positions, self._mask(size, width), slots, *self._sizes[size, self.lm.keep_hidden]

    def _mask(self, size: int, width: int) -> Tensor:
        """Rows that see the first slot alone."""
        mask = torch.full((1, 1, size, width), -torch.inf, dtype=self.lm.dtype, device=self.lm.device)
        mask[..., 0] = 0
        torch._dynamo.maybe_mark_dynamic(mask, 3)
        return mask

    def _run(self, *inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """On a CPU in products of the queries of a group: SDPA would copy its keys and values for each of them.

        Layers that a `LayerSkip` shares with its target have the target's config, and stay with SDPA.
        """
        config, before = self.lm.config, self.lm.config._attn_implementation
        config._attn_implementation = DENSE if self._in_products else before
        try:
            found: tuple[Tensor, Tensor | None] = self.compiled(*inputs)
        finally:
            config._attn_implementation = before
        return found

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, slots: Tensor, *features: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """What is compiled."""
        lm = self.lm
        lm.cache.window = Window(slots, mask.shape[-1])
        logits, hidden = lm.whole(tokens, *features, attention_mask=mask, position_ids=positions)
        lm.cache.window = None
        return logits, hidden


def coarse(slots: int) -> int:
    """The width of so many slots, less than a quarter more: a multiple of 128, of which each doubling has 4."""
    step = max(_NARROW, 1 << (slots - 1).bit_length() >> 3)
    return -(-slots // step) * step


def widths(capacity: int) -> Iterator[int]:
    """Those of masks on a GPU, in a cache of so many slots, ascending."""
    width = coarse(1)
    while width < capacity:
        yield width
        width = coarse(width + 1)


def together(modes: Iterable[str]) -> str | None:
    """The word of what ran in these modes; None where nothing ran."""
    found = {*modes}
    if len(found) > 1:
        return UNCAPTURED if UNCAPTURED in found else MIXED
    return found.pop() if found else None


def usable(how: str, attention: str, device: torch.device, configs: Iterable[Any], *, whole: bool) -> str:
    """What runs where `how` is asked for: eager, packed or compile.

    `auto` compiles on a GPU what graphs can hold. Where a CPU has no C++ compiler, or cannot pack, it is
    eager, with a warning.
    `whole` says that the models are on one device each, their weights as they are. LoadError for a word that is none of
    `GRAPHS`, and for models and attentions that graphs cannot hold.
    """
    if how not in GRAPHS:
        raise LoadError(f"runtime.graphs is {', '.join(GRAPHS[:-1])} or {GRAPHS[-1]}, not {how!r}")
    if how == EAGER or (how == AUTO and device.type != "cuda"):
        return EAGER
    if how == PACKED:
        return _packed(device, whole=whole)
    if refused := _refusal(attention, configs, whole=whole):
        if how == AUTO:
            return EAGER
        raise LoadError(f"runtime.graphs={how}{refused}")
    if device.type == "cpu" and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        message = f"runtime.graphs={how} needs a C++ compiler, and there is no {compiler}; it runs eagerly"
        warnings.warn(message, stacklevel=2)
        return EAGER
    return COMPILE


def _refusal(attention: str, configs: Iterable[Any], *, whole: bool) -> str | None:
    """How a sentence goes on that says why graphs cannot hold such models; None where they can."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < _TORCH:
        return f" needs torch {_TORCH[0]}.{_TORCH[1]}, and this is {torch.__version__}"
    if attention not in ("sdpa", "eager"):
        return f" goes with runtime.attention=sdpa or eager, not with {attention}"
    if not whole:
        return _WHOLE
    for config in configs:
        rotary = str(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None))
        if "'dynamic'" in rotary or "'longrope'" in rotary:
            return f": positions of {config.model_type} depend on the length of the text"
    return None


def _packed(device: torch.device, *, whole: bool) -> str:
    if not whole:
        raise LoadError(f"runtime.graphs={PACKED}{_WHOLE}")
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
    guards = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    if device.type == "cuda":
        return {"options": {"triton.cudagraphs": True, **guards}}
    return {
        "options": {
            "freezing": True,
            "max_autotune": True,
            "max_autotune_gemm_backends": "CPP,ATEN",
            "cpp.enable_concat_linear": True,
            "cpp_wrapper": True,
            **guards,
        }
    }


def _counted_replay(graph: torch.cuda.CUDAGraph) -> None:
    """In the place of torch's own, which tells nobody whether a captured graph is replayed or its kernels are run."""
    global _num_replays
    _num_replays += 1
    _replay(graph)


def _kept(rows: Tensor, count: int) -> Tensor:
    """The first rows; those of a captured graph are copied, for its next replay writes to the same place."""
    return rows[:count].clone() if rows.is_cuda else rows[:count]
