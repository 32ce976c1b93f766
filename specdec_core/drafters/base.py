"""What a way of growing trees must offer, and what it is given."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from specdec_core.models.causal_lm import Layers, ModelOutput
from specdec_core.roots import Pending, Root, root_after
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree, Verdict


@dataclass(slots=True)
class Context:
    """Where decoding stands before a step."""

    tokens: list[int]
    """All committed tokens, prompt included; the last one is the root."""
    rng: Generator
    """What drafters draw from, on the draft's device: the target's own stream unless the draft is elsewhere."""
    clock: Clock
    """Draft forwards are measured under the name `draft`."""
    root: Root = field(default_factory=Pending)
    """Whether the target has read the last token, and what it then knows of it."""
    eos_token_ids: frozenset[int] = frozenset()
    greedy: bool = False
    """Whether the target's temperature is 0: a virtual root's distribution then ranks tokens and is not drawn from."""

    def advance(self, verdict: Verdict, hidden: Tensor | None = None) -> tuple[int, ...]:
        """Commit a verdict's tokens, and return them. `hidden` has the target's features of the tree's nodes."""
        self.tokens.extend(verdict.new_tokens)
        self.root = root_after(verdict, hidden)
        return verdict.new_tokens


@runtime_checkable
class Drafter(Protocol):
    """A way of growing trees, with the state of one sequence at a time; `draws` and `grow` are all that it needs.

    One without a draft model has no q: its trees have no `edge_probs`, and rules that compare p with q refuse them.
    """

    draws: str
    """How children are picked (`sampling.DRAWS`); `none` if its trees are bare roots.

    It decides which rules are lossless (`checks.check_lossless`). Children that are found without a draft model are no
    draws from a distribution: they are `topk`.
    """
    virtual_root: bool = False
    """Whether the first level of its trees is drawn from the target's own distribution (`Virtual.probs`)."""

    @property
    def needs_hidden(self) -> Layers:
        """The target's layers whose features it reads: at `reset` those of the prompt, at `observe` of the tree."""
        return ()

    @property
    def draft_model(self) -> "DraftModel | None":
        """The model it drafts with, to be checked against the target; None if it has none."""
        return None

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Begin a sequence: read the prompt. `target` is what the target made of it, with hidden states if kept."""
        return

    def prepare(self, room: int, device: torch.device, dtype: torch.dtype) -> None:
        """Make what the target's forwards can share, for up to `room` cached tokens and its device and dtype."""
        return

    @abstractmethod
    def grow(self, context: Context) -> TokenTree:
        """Draft a tree whose root is the last committed token."""

    def observe(self, verdict: Verdict, target: ModelOutput) -> None:
        """Learn what became of the tree; `target` has a row per node."""
        return


@runtime_checkable
class DraftModel(Protocol):
    """A model that proposes tokens for the nodes of a growing tree; drafters know no more of it.

    Between `begin` and `commit` it numbers the nodes it was given in the order given: their *slots*.
    """

    vocab_size: int
    max_positions: int | None
    needs_hidden: Layers
    """The target's layers whose features it reads, at `reset` those of the prompt, at `commit` those of the tree."""
    max_depth: int | None
    """Levels below a pending root that it can propose; None: any number, each by a forward.

    Where there is a number, the distributions of all depths come from one forward (`DepthDraft`). A node's row is
    then that of its depth, whatever its path; `expand` costs no forward, and rows beyond the number are uniform.
    """

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
