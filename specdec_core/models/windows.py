"""Layers that see a window or a chunk of the text: their masks, read off the tree's own."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

ALL = "all"
"""In place of a layer type, where one mask serves all layers."""
_FULL = "full_attention"
Mask = Float[Tensor, "1 1 new slots"]


class Span(NamedTuple):
    """How much of the text a layer sees."""

    size: int
    chunked: bool
    """The tokens of its own chunk; else so many of the last ones, itself among them."""


def spans(config: Any) -> dict[str, Span]:
    """By layer type, of those that do not see the whole text."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    types = getattr(config, "layer_types", None)
    if not types:
        return {ALL: Span(window, chunked=False)} if window else {}
    chunk = getattr(config, "attention_chunk_size", None)
    sizes = {"sliding_attention": (window, False), "chunked_attention": (chunk, True)}
    return {name: Span(size, chunked) for name, (size, chunked) in sizes.items() if size and name in types}


def within(mask: Mask, span: Span) -> Mask:
    """What of a mask's slots lies in the span. A slot's position is the number of slots before it that a row sees."""
    positions = (mask == 0).cumsum(-1) - 1
    last = positions[..., -1:]
    near = positions // span.size == last // span.size if span.chunked else last - positions < span.size
    return mask.masked_fill(~near, -torch.inf)


def by_layer(narrow: Mapping[str, Span], mask: Mask | None, slots: int, like: Tensor) -> Any:
    """What a stock model is given as its mask: one for all layers, or one for each type of them.

    `slots` are as many as the mask has columns. None is a token that sees them all; `like` has device and dtype.
    """
    if all(slots <= span.size for span in narrow.values()):
        return mask
    mask = like.new_zeros(1, 1, 1, slots) if mask is None else mask
    if ALL in narrow:
        return within(mask, narrow[ALL])
    return {_FULL: mask} | {name: within(mask, span) for name, span in narrow.items()}
