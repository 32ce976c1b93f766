"""Rules that decide child by child: the walk they share, and the loop of rounds that most of them are made of."""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, draw_tokens
from specdec_core.sending import sent
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import follow, target_choices

EPS = 1e-12
"""A rejection less probable than this is rounding: no residual is divided by it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a rule makes of a node's children, along the path on which all of them are rejected."""

    accept: Float[Tensor, "*batch children"]
    """Probability that child i is accepted, given that all before it were rejected; float64."""
    residual: Float[Tensor, "*batch vocab"]
    """Distribution of the recovered token once all children were rejected; float64."""


@runtime_checkable
class State(Protocol):
    """A rule at one node (or at many at once: leading dimensions), after some children were rejected."""

    def accept(self, child: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Probability that the next child is accepted."""

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        """Go on without that child."""

    def residual(self) -> Float[Tensor, "*batch vocab"]:
        """Distribution of the recovered token if there are no more children."""


@runtime_checkable
class Told(State, Protocol):
    """A rule at a node of which is known what token it yields, a child's or the recovered one."""

    def hit(self, token: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Probability that the next child is that token and accepted, given the token and the children rejected."""

    def missed(self) -> Float[Tensor, "*batch vocab"]:
        """Distribution of the next child, given that it is rejected: not normalised, 0 where no child is."""


@runtime_checkable
class Independent(Protocol):
    """A rule that accepts each child on its own, with a chance that depends on how many there are."""

    def chance(
        self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int
    ) -> Float[Tensor, "*batch"]:
        """Probability that a draw from q is accepted as one of so many, whatever became of the others."""


class ChildByChild(ABC):
    """A rule that tests the children of a node one after another, in draft order.

    At temperature 0 every such rule is greedy verification.
    """

    lossless_for: frozenset[str]
    reads_q = True
    """Whether it compares p with q, so that there is nothing to judge where a drafter has no q."""

    @abstractmethod
    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """The rule before the first child; p and q as they were used for drawing. No randomness."""

    def rounds(
        self,
        p: Float[Tensor, "*batch vocab"],
        q: Float[Tensor, "*batch vocab"],
        children: Int[Tensor, "*batch children"],
    ) -> Rounds:
        """All children at once, for many nodes at once: no read from the device."""
        state, accept = self.begin(p, q, children.shape[-1]), []
        for child in children.unbind(-1):
            accept.append(state.accept(child))
            state.reject(child)
        return Rounds(torch.stack(accept, -1), state.residual())

    def source(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], token: int, num_children: int, rng: Generator
    ) -> int | None:
        """The child that a node's token comes from, drawn given the token; None: it was recovered.

        In law as if children were drawn from q, in a way that the rule is lossless for, judged, and drawn again until
        the node yields this token. PairError where the rule does not tell (`Told`).
        """
        state = self.begin(p, q, num_children)
        if not isinstance(state, Told):
            raise PairError(f"{type(self).__name__} does not tell which child a known token comes from")
        known = torch.tensor(token, device=p.device)
        for number, chance in enumerate(torch.rand(num_children, dtype=torch.float64, device=p.device, generator=rng)):
            if chance < state.hit(known):
                return number
            missed = state.missed()
            if not bool(missed.sum() > 0):  # q has no more tokens, and no later child is accepted
                return None
            state.reject(draw_tokens(missed, 1, rng)[0])
        return None

    def choose(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"] | None,
        children: Int[Tensor, " children"],
        uniform: Float[Tensor, " children"],
    ) -> int | Float[Tensor, " vocab"]:
        """Index of the accepted child, or the distribution of the recovered token if all are rejected.

        The first child whose number of [0, 1) in `uniform` is below its chance ends the rounds. A CPU is asked after
        each child, where a read costs nothing; another device after 1, 3, 7, ... of them.
        """
        if q is None:
            raise PairError(no_q(self))
        num_children, asked = children.shape[0], 0
        state, chances = self.begin(p, q, num_children), []
        for number, child in enumerate(children):
            chances.append(state.accept(child))
            if p.device.type == "cpu" or number + 1 in (2 * asked + 1, num_children):
                accepted = (uniform[asked : number + 1] < torch.stack(chances)).tolist()
                if True in accepted:
                    return asked + accepted.index(True)
                asked, chances = number + 1, []
            state.reject(child)
        return state.residual()

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Walk down from accepted child to accepted child, and draw the next token from what is left there."""
        if sampling.greedy:
            return follow(tree, target_choices(target, sampling, rng))
        if self.reads_q and tree.edge_probs is None:  # also where nothing was drafted: a run is refused as a whole
            raise PairError(no_q(self))
        walker = self.walker(tree, target, sampling, rng)
        path, probs = walker.walk()
        return ended(path, probs, walker.tokens, target, rng)

    def walker(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> "Walker":
        """What walks down this tree; all its random numbers are drawn now, one for each node."""
        return Walker(self, tree, target, sampling, rng)


class Walker:
    """Walks down a tree from accepted child to accepted child; p is computed at visited nodes only."""

    def __init__(
        self, rule: ChildByChild, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator
    ) -> None:
        self._rule, self._tree, self._target, self._sampling = rule, tree, target, sampling
        self._uniform = one_for_each(tree, rng)
        self.tokens, self.children = family(tree)

    def walk(self, start: int = 0) -> tuple[list[int], Float[Tensor, " vocab"]]:
        """The accepted path from a node on, and the next token's distribution.

        It ends where the target's logits are not finite: no chance of acceptance is a number there, nor what is left.
        """
        path, p = [start], probs_after(self._target, start, self._sampling)
        while below := self.children.get(path[-1]):
            drawn = sent(torch.tensor([self.tokens[node] for node in below]), p.device)
            chosen = self._rule.choose(p, self._tree.q_after(path[-1]), drawn, self._uniform[below])
            if isinstance(chosen, Tensor):
                return path, chosen
            path.append(below[chosen])
            p = probs_after(self._target, path[-1], self._sampling)
        return path, p


class Judged(Walker):
    """Walks down a tree of which every node was judged before: one read from the device."""

    def __init__(self, tree: TokenTree, accepted: Bool[Tensor, " nodes"], left: Callable[..., Tensor]) -> None:
        """`accepted` is each node's lot if the walk comes to it; `left(node, drawn)` what its children leave there."""
        parents, self.tokens, self._accepted = torch.stack((tree.parents, tree.tokens, accepted.long())).tolist()
        self.children, self._left = children_of(parents), left

    def walk(self, start: int = 0) -> tuple[list[int], Float[Tensor, " vocab"]]:
        """From accepted child to accepted child, the first of several."""
        path = [start]
        while child := next((node for node in self.children.get(path[-1], ()) if self._accepted[node]), None):
            path.append(child)
        return path, self._left(path[-1], [self.tokens[child] for child in self.children.get(path[-1], ())])


def ended(
    path: Sequence[int], probs: Float[Tensor, " vocab"], tokens: Sequence[int], target: ModelOutput, rng: Generator
) -> Verdict:
    """The verdict on a tree of these tokens: an accepted path, and a token drawn from what its end leaves.

    NonFiniteLogitsError where that is no distribution.
    """
    token, total = torch.stack((draw_tokens(probs, 1, rng)[0].double(), probs.sum().double())).tolist()
    if not math.isfinite(total):
        whose = "draft" if bool(target.logits[path[-1]].max().isfinite()) else "target"
        raise NonFiniteLogitsError(f"the {whose} returned NaN or infinite logits")
    return Verdict(torch.tensor(path), tuple(tokens[node] for node in path[1:]), int(token))


def one_for_each(tree: TokenTree, rng: Generator) -> Float[Tensor, " nodes"]:
    """A number of [0, 1) for each node, on the device of the generator and the tree."""
    return torch.rand(tree.num_nodes, dtype=torch.float64, device=tree.tokens.device, generator=rng)


def no_q(rule: object) -> str:
    """What to say of a tree without `draft_probs` to a rule that needs them."""
    return (
        f"{type(rule).__name__} compares p with q, but the tree has no draft_probs. A drafter that draws its children "
        "(iid, without_replacement) must give them to its trees; one whose children are no draws (topk) has none, and "
        "is for verifier=target_sample"
    )


def family(tree: TokenTree) -> tuple[list[int], dict[int, list[int]]]:
    """Tokens, and every node's children in draft order, on the host: one read from the device."""
    parents, tokens = torch.stack((tree.parents, tree.tokens)).tolist()
    return tokens, children_of(parents)


def children_of(parents: Sequence[int]) -> dict[int, list[int]]:
    """Every node's children in draft order; leaves have no entry."""
    children = defaultdict(list)
    for node, parent in enumerate(parents):
        children[parent].append(node)
    return dict(children)


def target_probs(target: ModelOutput, node: int, sampling: Sampling) -> Float[Tensor, " vocab"]:
    """P after a node, float32. NonFiniteLogitsError where the target returned nonsense."""
    if node or target.root_probs is None:
        check_sound(bool(target.logits[node].max().isfinite()))
    return probs_after(target, node, sampling)


def sound(target: ModelOutput) -> Bool[Tensor, " one"]:
    """Whether the target's logits are finite after every node, for rules in which the longest path wins.

    A node that loses may have lost by nonsense.
    """
    return target.logits.amax(-1).isfinite().all(0, keepdim=True)


def check_sound(sound: bool) -> None:
    """NonFiniteLogitsError if not."""
    if not sound:
        raise NonFiniteLogitsError("the target returned NaN or infinite logits")


def probs_after(target: ModelOutput, node: int, sampling: Sampling) -> Float[Tensor, " vocab"]:
    """P after a node, float32; no numbers where the target returned nonsense, unless the arg max is taken."""
    if node == 0 and target.root_probs is not None:
        return sampling.closed(target.root_probs)
    return sampling.probs(target.logits[node])


def probs_after_all(target: ModelOutput, sampling: Sampling) -> Float[Tensor, "nodes vocab"]:
    """P after every node, as `probs_after` gives it."""
    probs = sampling.probs(target.logits)
    if target.root_probs is not None:
        probs[:1] = sampling.closed(target.root_probs)
    return probs
