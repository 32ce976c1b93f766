"""The distributions of a pair's models along a known text, each kind of draft reading what it reads while it drafts."""

import torch
from jaxtyping import Float
from torch import Tensor

from specdec_core.errors import NonFiniteLogitsError, PromptError
from specdec_core.layout import tree_layout
from specdec_core.models import CausalLM, Head, LayerSkip


def logits_along(model: CausalLM, prompt: list[int], text: list[int]) -> Float[Tensor, "new vocab"]:
    """The model's logits before each token of `text`. NonFiniteLogitsError if they are no numbers."""
    tokens = torch.tensor(prompt + text[:-1], device=model.device)
    model.reset(tokens.shape[0])
    if len(prompt) > 1:
        model.prefill(tokens[: len(prompt) - 1])
    return _finite(model.extend(tokens[len(prompt) - 1 :]).logits)


def draft_logits_along(
    draft: CausalLM | Head, target: CausalLM, prompt: list[int], text: list[int]
) -> Float[Tensor, "new vocab"]:
    """The draft's logits before each token of `text`, as they are at a root."""
    if isinstance(draft, Head):
        return _head_logits(draft, target, prompt, text)
    if isinstance(draft, LayerSkip):
        return _skipping_logits(draft, target, prompt, text)
    return logits_along(draft, prompt, text)


def _head_logits(head: Head, target: CausalLM, prompt: list[int], text: list[int]) -> Float[Tensor, "new vocab"]:
    """With the target's own features. PromptError for a single token, which has no feature before it."""
    if len(prompt) < 2:
        raise PromptError("a head says nothing of the token after a prompt of one token; give a longer prompt")
    tokens = torch.tensor(prompt + text[:-1], device=target.device)
    target.keep_hidden = head.layers
    target.reset(tokens.shape[0])
    features = target.prefill(tokens).hidden
    target.keep_hidden = ()
    assert features is not None
    return _finite(head.along(tokens, features)[len(prompt) - 2 :])


def _skipping_logits(
    draft: LayerSkip, target: CausalLM, prompt: list[int], text: list[int]
) -> Float[Tensor, "new vocab"]:
    """On the target's keys and values of all earlier tokens: row i sees them and itself, behind all of the target's."""
    tokens = torch.tensor(prompt + text[:-1], device=target.device)
    count = tokens.shape[0]
    target.reset(2 * count)
    target.prefill(tokens)
    rows = torch.arange(len(prompt) - 1, count, device=target.device)
    behind = torch.eye(rows.shape[0], dtype=torch.bool, device=target.device)
    earlier = torch.arange(count, device=target.device)[None] < rows[:, None]
    visible = torch.cat((earlier, behind), 1)
    layout = tree_layout(visible, rows, prefix=0, max_positions=draft.max_positions, dtype=draft.dtype)
    output = draft(tokens[rows], layout)
    target.cache.truncate(0)
    return _finite(output.logits)


def _finite(logits: Float[Tensor, "new vocab"]) -> Float[Tensor, "new vocab"]:
    if not bool(logits.amax(-1).isfinite().all()):
        raise NonFiniteLogitsError("a model returned NaN or infinite logits along the target's text")
    return logits
