"""What a way of growing trees must offer, and what it is given."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree, Verdict


@dataclass(slots=True)
class Context:
    """Where decoding stands before a step."""

    tokens: list[int]
    """All committed tokens, prompt included; the last one is the root."""
    rng: Generator
    clock: Clock
    """Draft forwards are measured under the name `draft`."""
    next_probs: Float[Tensor, " vocab"] | None = None
    """Virtual root: the law of the token after it (`Sampling.open_law`). None for a pending root."""
    root_hidden: Float[Tensor, " hidden"] | None = None
    """The target's features of the last node of the accepted path, if it keeps them."""
    draft_rng: Generator | None = None
    """For a draft on another device than the target: a stream of that device. None: draws are from `rng`."""
    eos_token_ids: frozenset[int] = frozenset()
    greedy: bool = False
    """Whether the target's temperature is 0, so that `next_probs` ranks the tokens and is not drawn from."""

    @property
    def virtual(self) -> bool:
        """Whether the target has the root in its cache already."""
        return self.next_probs is not None

    def advance(self, verdict: Verdict, hidden: Tensor | None = None) -> tuple[int, ...]:
        """Commit a verdict's tokens, and return them. `hidden` has the target's features of the tree's nodes."""
        new = verdict.tokens if verdict.next_token is None else (*verdict.tokens, verdict.next_token)
        self.tokens.extend(new)
        self.next_probs = verdict.next_probs
        self.root_hidden = None if hidden is None else hidden[verdict.path[-1]]
        return new


@runtime_checkable
class Drafter(Protocol):
    """A way of growing trees. Holds the state of one sequence at a time.

    One without a draft model has no q: its trees have no `edge_probs`, and rules that compare p with q refuse them.
    """

    draws: str
    """How children are picked: `topk`, `iid` or `without_replacement`; `none` if its trees are bare roots.

    It decides which rules are lossless (`checks.check_lossless`). Children that are found without a draft model are no
    draws from a law: they are `topk`.
    """
    virtual_root: bool
    """Whether the first level of its trees is drawn from the target's own law (`Context.next_probs`)."""

    @property
    def needs_hidden(self) -> bool:
        """Whether it reads the target's hidden states: at `reset` of the prompt, at `observe` of the tree."""

    @property
    def draft_model(self) -> "DraftModel | None":
        """The model it drafts with, to be checked against the target; None if it has none."""

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence: read the prompt. `target` is what the target made of it, with hidden states if kept."""

    def grow(self, context: Context) -> TokenTree:
        """Draft a tree whose root is the last committed token."""

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Learn what became of the tree; `target` has a row per node."""


@runtime_checkable
class DraftModel(Protocol):
    """A model that proposes tokens for the nodes of a growing tree; drafters know no more of it.

    Between `begin` and `commit` it numbers the nodes it was given in the order given: their *slots*.
    """

    vocab_size: int
    max_positions: int | None
    needs_hidden: bool
    """Whether it reads the target's hidden states, at `reset` those of the prompt, at `commit` those of the tree."""

    @property
    def device(self) -> torch.device:
        """Where it takes tokens and gives logits."""

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Read the prompt; `target` is what the target made of it."""

    def begin(self, context: Context) -> ModelOutput:
        """Read the committed tokens that are still unread, the root last; one row, of the root."""

    def begin_below(self, context: Context, tokens: Int[Tensor, " first"]) -> ModelOutput:
        """Read the unread committed tokens and the first level below the root, which is given; a row for each of it.

        The slots of that level are the first ones, as after `begin` and `expand`.
        """

    def expand(self, tokens: Int[Tensor, " new"], parents: Int[Tensor, " new"]) -> ModelOutput:
        """Read one layer of nodes, each below the slot `parents[i]` (-1: the root); a row for each."""

    def commit(self, slots: Int[Tensor, " kept"], verdict: Verdict, target: ModelOutput) -> None:
        """Keep the nodes in these slots (on the host), accepted one below another; forget the others.

        `target` has the target's row for every node of the tree, `verdict.path` those that were accepted.
        """
