"""From a target's features to its logits, as its own forward has it: some models scale or cap logits, or the features.

Granite divides by `logits_scaling`, Cohere multiplies by `logit_scale`, Gemma 2 caps, MiniCPM divides the features.
"""

import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.modeling_outputs import MoeModelOutputWithPast

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import FINAL, CausalLM
from specdec_core.models.shells import with_parts

_LARGER = 100.0
"""Features are tried as they are and so many times as large, where a cap on logits shows."""
_PROMPT = 4


class _Given(nn.Module):
    """In place of a decoder: what it is given is what the decoder would have made of its tokens."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> MoeModelOutputWithPast:
        return MoeModelOutputWithPast(last_hidden_state=inputs_embeds)


class TargetOutput(nn.Module):
    """All that a model's forward does behind its decoder, with its output matrix or one made of it."""

    def __init__(self, model: Any, matrix: nn.Module | None = None) -> None:
        """`model` is a stock language model, of which the output matrix alone is a part of this module."""
        super().__init__()
        own = model.get_output_embeddings()
        self.matrix = own if matrix is None else matrix
        whole = with_parts(model, {model.get_decoder(): _Given(), own: self.matrix})
        # in tuples they are no parts of this module: they are not moved, counted or copied with it
        self._model, self._whole = (model,), (whole,)

    def forward(self, hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
        """Logits of features behind the final norm."""
        logits: Tensor = self._whole[0](inputs_embeds=hidden.reshape(1, -1, hidden.shape[-1]), use_cache=False).logits
        return logits.view(*hidden.shape[:-1], -1)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TargetOutput":
        """With a matrix of its own; nothing else of the model is copied."""
        return TargetOutput(*self._model, copy.deepcopy(self.matrix, memo))


def output_of(target: CausalLM, ids: Int[Tensor, " known"] | None = None) -> nn.Module:
    """The target's own way from features to logits, of all tokens or of `ids`; its output matrix where that is all.

    LoadError where neither the matrix nor what stands around it gives the logits of the target's forward.
    """
    model: Any = target.model
    matrix: Any = model.get_output_embeddings()
    features, logits = _tried(target)
    with torch.inference_mode():
        own = _own_way(model, features)
        read = features.shape[-1] == matrix.weight.shape[-1]  # some models call another part of them their decoder
        alone = read and (own is None or all(_same(own(each), matrix(each)) for each in (features, features * _LARGER)))
        way = matrix if alone else own
        if way is None or not _same(way(features), logits):
            raise LoadError(
                f"how {type(model).__name__} makes logits of its features cannot be told apart from the rest of its "
                "forward, so that a head's logits would not be the target's; draft with a model of its own or EAGLE-3"
            )
    part: nn.Module = matrix if ids is None else _rows(matrix, ids)
    return part if alone else TargetOutput(model, part)


def _own_way(model: Any, features: Tensor) -> TargetOutput | None:
    """None where the model's forward does not run without its decoder."""
    try:
        own = TargetOutput(model)
        own(features)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return None
    return own


def _rows(matrix: Any, ids: Int[Tensor, " known"]) -> nn.Linear:
    """An output matrix for these tokens alone."""
    weight, bias = (_whole(each) for each in (matrix.weight, getattr(matrix, "bias", None)))
    assert weight is not None
    with torch.device("meta"):
        made = nn.Linear(weight.shape[1], len(ids), bias=bias is not None)
    made.weight = nn.Parameter(weight[ids.to(weight.device)], requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias[ids.to(bias.device)], requires_grad=False)
    return made


def _whole(parameter: Tensor | None) -> Tensor | None:
    found = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return None if found is None else found.detach()


def _tried(target: CausalLM) -> tuple[Tensor, Tensor]:
    """Features and logits of some tokens, by the target's own forward."""
    target.reset(_PROMPT)
    with target.keeping(FINAL):
        found = target.extend(torch.arange(_PROMPT, device=target.device) % target.vocab_size)
    target.cache.truncate(0)
    assert found.hidden is not None
    return found.hidden, found.logits


def _same(ours: Tensor, theirs: Tensor) -> bool:
    """Equal but for rounding, of sums that are made in another order."""
    if ours.shape != theirs.shape:
        return False
    dtype = ours.dtype
    ours, theirs = ours.float(), theirs.to(ours.device).float()
    near = max(1e-5, 4 * torch.finfo(dtype).eps) * theirs.abs().max()
    return bool((ours - theirs).abs().max() <= near)
