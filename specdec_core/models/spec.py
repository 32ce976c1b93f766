"""Which weights, and the pair that they make."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from specdec_core.cache import KVCache
from specdec_core.models.causal_lm import CausalLM, Layers
from specdec_core.models.eagle import EagleHead
from specdec_core.models.graphs import COMPILE, EAGER, PACKED, Graphs, together
from specdec_core.models.head import Head
from specdec_core.models.offload import Offload
from specdec_core.models.packed import Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which weights: a hub id or a folder, and the revision."""

    id: str
    revision: str | None = None
    gated: bool = False
    licence: str | None = None
    """Of the weights, as their page says."""
    kind: str = "causal_lm"
    """causal_lm | reduced_lm (one that knows some of the target's tokens) | layer_skip (the target without some
    layers), or a head that reads the target's features: eagle | eagle3 | speculators (a folder in that format) | medusa
    | dflash | mtp (the target's own layer for the token after next, in its files)"""
    folder: str | None = None
    """Where the files are, if not in the hub's cache or in a folder of that name."""
    offload: bool = False
    """Targets only: layers stay in host memory and are streamed through two buffers on the device."""
    resident_layers: int = 0
    """With `offload`, so many of the first layers stay on the device all the same."""
    bits: int | None = None
    """4 or 8: linear layers are quantised by bitsandbytes when they are loaded."""
    dtype: str | None = None
    """Drafts that are models of their own: what they compute in, if not in the pair's dtype."""
    feature_layers: Layers | None = None
    """EAGLE-3 heads: the layers whose features they read (0: the embedding), where their config is silent or wrong."""
    skipped_layers: tuple[int, ...] = ()
    """With `layer_skip`, the target's layers that the draft leaves out, counted from 0."""
    skipped_attention: tuple[int, ...] = ()
    """With `layer_skip`, layers of which it leaves out the attention."""
    skipped_mlp: tuple[int, ...] = ()
    """With `layer_skip`, layers of which it leaves out the MLP."""

    @property
    def name(self) -> str:
        """The id, and what is done to the weights, for rows that tell such models apart."""
        bits = f"{self.bits} bits" if self.bits else None
        done = [word for word in (bits, "offloaded" if self.offload else None, self.dtype) if word]
        return f"{self.id} ({', '.join(done)})" if done else self.id

    @property
    def source(self) -> str:
        """What `from_pretrained` is given."""
        return self.folder or self.id


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with its draft (None: autoregressive decoding only) and their tokenizer."""

    target: CausalLM
    draft: CausalLM | Head | None
    tokenizer: PreTrainedTokenizerBase
    offload: Offload | None = None
    """Streams the target's layers, where that was asked for."""
    packed: list[Packed] = field(default_factory=list)
    """Weights in packed form, where that was asked for."""

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end an answer: the generation config's, else the tokenizer's."""
        generation = getattr(self.target.model, "generation_config", None)
        ends = getattr(generation, "eos_token_id", None)
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)

    def compile(self, how: str) -> None:
        """Run forwards over trees as graphs, or with packed weights, from now on; `eager` changes nothing.

        Weights are taken as they are. LoadError where there are none to pack.
        """
        if how == PACKED:
            self.packed.append(Packed(self.modules))
            self.packed[0].use(True)
        for model in self.models if how == COMPILE else ():
            model.graphs = Graphs(model)

    @property
    def models(self) -> list[CausalLM | EagleHead]:
        """Target and draft, where they may run in graphs: neither Medusa's heads, of three products, nor DFlash's."""
        return [model for model in (self.target, self.draft) if isinstance(model, CausalLM | EagleHead)]

    @property
    def graphs(self) -> list[Graphs]:
        """Of both models, where they are compiled."""
        return [model.graphs for model in self.models if model.graphs]

    @property
    def mode(self) -> str | None:
        """How forwards over trees ran since they were `sealed`, in a word of `models.graphs`; None if none ran."""
        if not self.graphs:
            return PACKED if self.packed else EAGER
        return together(mode for one in self.graphs for mode in one.modes)

    @property
    def halves(self) -> list[Tensor]:
        """Parameters and buffers of 16 bits, of target and draft, each object once; some may hold the same memory."""
        tensors = {id(tensor): tensor for part in self.modules for tensor in (*part.parameters(), *part.buffers())}
        return [tensor for tensor in tensors.values() if tensor.dtype in (torch.float16, torch.bfloat16)]

    @property
    def modules(self) -> list[nn.Module]:
        """Of target and draft; those of a draft may hold parts of the target's."""
        parts = [part for model in (self.target, self.draft) if model for part in vars(model).values()]
        return [part for part in parts if isinstance(part, nn.Module)]

    @contextlib.contextmanager
    def in_float32(self) -> Iterator[None]:
        """Weights of 16 bits are float32 inside, with caches of their own; afterwards all is bit for bit as it was.

        Forwards are eager inside, and what was captured of them is captured anew. For models that are neither
        quantised, offloaded, spread over devices nor compiled on a CPU, where graphs have weights of their own.
        """
        graphs = [(model, model.graphs) for model in self.models]
        models = [model for model in (self.target, self.draft) if model]
        caches = [model.cache for model in models]
        fresh = {id(cache): KVCache(len(cache.layers), capacity=0) for cache in caches}
        alike: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
        for tensor in self.halves:  # a head's embedding may be another name of its target's
            alike[tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()].append(tensor)
        try:
            for owner, _ in graphs:
                owner.graphs = None
            for model in models:
                model.cache = fresh[id(model.cache)]  # a draft may share its target's
            for tensors in alike.values():
                _share(tensors, tensors[0].data.float())
            yield
        finally:
            for model, cache in zip(models, caches, strict=True):
                model.cache = cache
            for (_, dtype, *_), tensors in alike.items():
                _share(tensors, tensors[0].data.to(dtype))
            for owner, one in graphs:
                owner.graphs = one
                if one:
                    one.forget()

    @contextlib.contextmanager
    def traced(self) -> Iterator[None]:
        """Compiled forwards run as they were traced inside, operator by operator; nothing is compiled."""
        compiled = [one.compiled for one in self.graphs]
        try:
            with self.sealed():
                for one in self.graphs:
                    one.compiled = one.forward
                yield
        finally:
            for one, before in zip(self.graphs, compiled, strict=True):
                one.compiled = before

    @contextlib.contextmanager
    def sealed(self) -> Iterator[None]:
        """Nothing is compiled inside; what ran eagerly instead is counted anew."""
        for one in self.graphs:
            one.sealed, one.ran, one.missed, one.uncaptured = True, 0, 0, 0
        try:
            yield
        finally:
            for one in self.graphs:
                one.sealed = False


def _share(tensors: Sequence[Tensor], data: Tensor) -> None:
    """Have all of them hold the same numbers, at the same place."""
    for tensor in tensors:
        tensor.data = data
