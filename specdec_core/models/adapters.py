"""What a stock model needs, beyond mask and position ids, to see a tree. Most need nothing, MPT is refused."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from specdec_core.errors import LoadError


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


def _refuse(model: Any) -> None:
    raise LoadError(f"{model.config.model_type} biases scores by slot, not by position: it would score trees wrongly")


ADAPTERS: dict[str, Callable[[Any], None]] = {"bloom": _adapt_bloom, "mpt": _refuse}
"""By `config.model_type`."""
