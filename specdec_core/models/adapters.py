"""What a stock model needs, beyond mask and position ids, to see a tree. Most need nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from specdec_core.models.windows import Span, within


def adapt(model: Any) -> None:
    """Give a loaded model what its architecture needs; twice is the same as once."""
    if adapter := ADAPTERS.get(model.config.model_type):
        adapter(model)


def path_alibi(
    attention_mask: Shaped[Tensor, "batch slots"] | Float[Tensor, "1 1 new slots"], num_heads: int, dtype: torch.dtype
) -> Float[Tensor, "rows 1 slots"]:
    """BLOOM's bias of each cache slot, also from a tree's mask; `rows` are batch times heads.

    ALiBi (Press et al., 2022) adds slope times position to a key's scores; transformers reads a position off a 2-D mask
    as the number of tokens before it. In a tree that is the number of slots before it that a row sees: the prefix and
    the node's ancestors. All rows that see a slot see the same path above it, so it has one position, which needs not
    be remembered from one layer of a growing tree to the next. What no row sees is masked, whatever its bias.
    Positions count from the first token and biases are the stock function's, so that they round as for plain text.
    """
    if attention_mask.dim() == 2:
        return build_alibi_tensor(attention_mask, num_heads, dtype)
    visible = attention_mask[0, 0] == 0
    positions = ((visible.cumsum(-1) - 1) * visible).amax(0)
    return build_alibi_tensor(torch.ones_like(positions)[None], num_heads, dtype)[..., positions]


def _adapt_bloom(model: Any) -> None:
    """A plain function in place of the method: copies of the model, deep or shallow, keep it."""
    model.get_decoder().build_alibi_tensor = path_alibi


def _adapt_gpt_neo(model: Any) -> None:
    """Its local layers have a window by slot in a buffer; theirs becomes one by position, in the mask."""
    for name, layer in model.named_modules():
        if getattr(layer, "attention_type", None) == "local" and name.endswith(".attention"):
            span = Span(layer.config.window_size, chunked=False)
            layer.bias.copy_(torch.ones_like(layer.bias).tril_())
            layer.register_forward_pre_hook(partial(_narrow, span), with_kwargs=True)
            layer.attention_type = "local, by position"


def _narrow(span: Span, module: Any, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if (mask := options["attention_mask"]) is not None:
        options = options | {"attention_mask": within(mask, span)}
    return args, options


ADAPTERS: dict[str, Callable[[Any], None]] = {"bloom": _adapt_bloom, "gpt_neo": _adapt_gpt_neo}
"""By `config.model_type`."""
