"""Rules that decide child by child: the walk they share, and the loop of rounds that most of them are made of."""

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, draw_tokens
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import follow, target_choices

EPS = 1e-12
"""A rejection less probable than this is rounding: no residual is divided by it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a rule makes of one node's children, along the path on which all of them are rejected."""

    accept: Float[Tensor, " children"]
    """Probability that child i is accepted, given that all before it were rejected; float64."""
    residual: Float[Tensor, " vocab"]
    """Law of the recovered token once all children were rejected; float64."""


class ChildByChild(ABC):
    """A rule that tests the children of a node one after another, in draft order.

    At temperature 0 every such rule is greedy verification.
    """

    lossless_for: frozenset[str]

    @abstractmethod
    def rounds(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], children: Int[Tensor, " children"]
    ) -> Rounds:
        """Acceptance of every child and the residual; p and q as they were used for drawing, no randomness."""

    def choose(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"] | None,
        children: Int[Tensor, " children"],
        rng: Generator,
    ) -> tuple[int | None, Float[Tensor, " vocab"]]:
        """Index of the accepted child (None: all are rejected), and the law of the recovered token."""
        if q is None:
            raise PairError(
                f"{type(self).__name__} compares p with q, but the drafter kept no q: its children are no draws from "
                "the draft (topk); use draws=iid or without_replacement, or verifier=target_sample"
            )
        rounds = self.rounds(p, q, children)
        uniform = torch.rand(children.shape[0], dtype=torch.float64, device=p.device, generator=rng)
        accepted = (uniform < rounds.accept).tolist()
        return (accepted.index(True) if True in accepted else None), rounds.residual

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Walk down from accepted child to accepted child; p is computed at visited nodes only."""
        if sampling.greedy:
            return follow(tree, target_choices(target, sampling, rng))
        parents, tokens = torch.stack((tree.parents, tree.tokens)).tolist()
        children = defaultdict(list)
        for node, parent in enumerate(parents):
            children[parent].append(node)
        path, law = [0], target_law(target, 0, sampling)
        while below := children.get(path[-1]):
            drawn = torch.tensor([tokens[node] for node in below], device=law.device)
            accepted, residual = self.choose(law, tree.law_after(path[-1]), drawn, rng)
            if accepted is None:
                law = residual
                break
            path.append(below[accepted])
            law = target_law(target, path[-1], sampling)
        token = int(draw_tokens(law, 1, rng))
        return Verdict(torch.tensor(path), tuple(tokens[node] for node in path[1:]), token)


def target_law(target: ModelOutput, node: int, sampling: Sampling) -> Float[Tensor, " vocab"]:
    """P after a node, float32. NonFiniteLogitsError where the target returned nonsense."""
    if node == 0 and target.root_probs is not None:
        return target.root_probs
    logits = target.logits[node]
    if not bool(logits.max().isfinite()):
        raise NonFiniteLogitsError("the target returned NaN or infinite logits")
    return sampling.probs(logits)


def multi_round(
    p: Float[Tensor, " vocab"],
    q: Float[Tensor, " vocab"],
    children: Int[Tensor, " children"],
    *,
    remove: bool,
    uniform_fallback: bool = False,
) -> Rounds:
    """Accept x with min(1, R(x) / D(x)), else go on with R = norm(max(R - D, 0)), for each child in turn.

    R begins as p and D as q. `remove` takes a rejected token out of D, as successive draws without replacement do; once
    q's support is exhausted D is uniform over what was not drawn (`uniform_fallback`), or no later child is accepted.
    min(R, D) + P(reject) norm(max(R - D, 0)) = R, so that the law is p whatever D is (Sequoia, Algorithm 1). A child of
    D(x) = 0 is rejected and changes nothing. Where P(reject) < EPS, a child with R(x) > 0 is accepted, another one
    loses nothing but itself. In float64, without a read from the device.
    """
    residual, draft, unseen = _normalised(p), _normalised(q), torch.ones_like(q, dtype=torch.float64)
    accept = torch.zeros(children.shape[0], dtype=torch.float64, device=p.device)
    for number, child in enumerate(children.unbind()):
        wanted, drawn = residual[child].clone(), draft[child]
        rest = (residual - draft).clamp_(min=0)
        usable, sure = drawn > 0, rest.sum() < EPS
        accept[number] = torch.where(usable, torch.where(sure, (wanted > 0).double(), wanted / drawn), 0.0)
        residual = torch.where(usable & ~sure, rest, residual)
        residual[child] = torch.where(usable & sure & (wanted < 1), 0.0, residual[child])
        residual /= residual.sum()
        if remove:
            draft[child], unseen[child] = 0.0, 0.0
            total = draft.sum()  # of what survives: 0 only if nothing does
            if uniform_fallback:
                draft = torch.where(total > 0, draft, unseen)
                total = draft.sum()
            draft /= total.clamp(min=torch.finfo(torch.float64).tiny)
    return Rounds(accept.clamp_(max=1), residual)


def _normalised(probs: Float[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
    probs = probs.double()
    return probs / probs.sum()
