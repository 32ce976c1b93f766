"""Drafts of other vocabularies than the target's: of its most frequent tokens, by a map of ids, or of padded rows.

Models of their own read and predict only these, heads predict only these (FR-Spec, Zhao et al., 2025).
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from specdec_core.errors import LoadError
from specdec_core.layout import Layout
from specdec_core.models.causal_lm import CausalLM, ModelOutput

FILE = "d2t.safetensors"
"""Beside the weights: offsets `d2t`, so that the draft's token i is the target's i + d2t[i]."""


class ReducedLM(CausalLM):
    """A causal language model that reads and predicts the target's ids; tokens it does not know have probability 0.

    Unknown tokens are read as its token 0.
    """

    def __init__(self, model: Any, d2t: Int[Tensor, " draft_vocab"], vocab_size: int) -> None:
        """`vocab_size` is the target's."""
        super().__init__(model)
        self._ids = ids = ids_of(d2t)
        self._own = ids.new_zeros(vocab_size)
        self._own[ids] = torch.arange(ids.shape[0], device=ids.device)
        self.vocab_size = vocab_size

    @torch.inference_mode()
    def _run(self, tokens: Tensor, layout: Layout | None, **options: Any) -> ModelOutput:
        found = super()._run(self._own[tokens], layout, **options)
        return replace(found, logits=_widened(found.logits, self._ids, self.vocab_size))


class ReducedOutput(nn.Module):
    """An output for some of the target's tokens; the logits of all others are -inf."""

    _ids: Tensor

    def __init__(self, known: nn.Module, d2t: Int[Tensor, " draft_vocab"], vocab_size: int) -> None:
        """`known` gives the logits of the tokens in `d2t`; `vocab_size` is the target's."""
        super().__init__()
        self.known, self._vocab_size = known, vocab_size
        self.register_buffer("_ids", ids_of(d2t).to(next(known.parameters()).device), persistent=False)

    def forward(self, hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
        """Logits in the target's vocabulary."""
        return _widened(self.known(hidden), self._ids, self._vocab_size)


class AlignedLM(CausalLM):
    """A language model of the target's tokenizer, whose embedding and logits have another number of rows.

    Rows are padded to sizes that suit the hardware: Qwen2.5 has 151,936 of them, and 152,064 from 7B on. Tokens behind
    the model's last row have probability 0 and are read as its token 0; those behind the target's last are left out.
    """

    def __init__(self, model: Any, vocab_size: int) -> None:
        """`vocab_size` is the target's."""
        super().__init__(model)
        self._read, self.vocab_size = int(model.get_input_embeddings().weight.shape[0]), vocab_size

    @torch.inference_mode()
    def _run(self, tokens: Tensor, layout: Layout | None, **options: Any) -> ModelOutput:
        found = super()._run(tokens.where(tokens < self._read, 0), layout, **options)
        logits = found.logits[..., : self.vocab_size]
        return replace(found, logits=F.pad(logits, (0, self.vocab_size - logits.shape[-1]), value=-torch.inf))


def of_vocabulary(model: Any, vocab_size: int) -> CausalLM:
    """A draft of the target's tokenizer, with logits for as many tokens as the target has."""
    made = CausalLM(model)
    return made if made.vocab_size == vocab_size else AlignedLM(model, vocab_size)


def ids_of(d2t: Int[Tensor, " draft_vocab"]) -> Int[Tensor, " draft_vocab"]:
    """The target's id of each of the draft's tokens."""
    return d2t + torch.arange(d2t.shape[0], device=d2t.device)


def _widened(logits: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    wide = logits.new_full((*logits.shape[:-1], vocab_size), -torch.inf)
    wide[..., ids] = logits
    return wide


def check_map(name: str, d2t: Tensor | None, draft_vocab: int, vocab_size: int) -> Int[Tensor, " draft_vocab"]:
    """The offsets; LoadError unless they give each of the draft's tokens an id of its own among the target's."""
    if d2t is None or d2t.shape != (draft_vocab,) or d2t.is_floating_point():
        raise LoadError(f"{name} must hold d2t, a whole offset for each of its {draft_vocab} tokens; fetch it again")
    ids = ids_of(d2t)
    if ids.min() < 0 or ids.max() >= vocab_size or ids.unique().shape != ids.shape:
        raise LoadError(
            f"d2t of {name} does not map its tokens to different ids below {vocab_size}, the target's vocabulary: "
            "it was made for another target"
        )
    return d2t
