"""The loop of rounds that SpecInfer's, multi-candidate decoding's, EAGLE-1's and Sequoia's rules are made of."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree
from specdec_core.verifiers.rounds import EPS, ChildByChild, Judged, State, Walker, one_for_each, probs_after_all
from specdec_core.verifiers.tree_rounds import Families, residual, tree_rounds, without_sure

_SMALL = 1e-100


class MultiRound:
    """Accept x with min(1, R(x) / D(x)), else go on with R = norm(max(R - D, 0)), for each child in turn.

    R begins as p and D as q. `remove` takes a rejected token out of D, as successive draws without replacement do; once
    q's support is exhausted D is uniform over what was not drawn (`uniform_fallback`), or no later child is accepted.
    min(R, D) + P(reject) norm(max(R - D, 0)) = R, so that the output has distribution p whatever D is (Sequoia,
    Algorithm 1). A child of D(x) = 0 is rejected and changes nothing. Where P(reject) < EPS a rejected child takes only
    itself out of R. Both distributions are kept in float64 and unnormalised; their sums are taken anew over what is
    left, never by subtraction, and R is normalised before it underflows.
    """

    def __init__(
        self,
        p: Float[Tensor, "*batch vocab"],
        q: Float[Tensor, "*batch vocab"],
        *,
        remove: bool,
        uniform_fallback: bool = False,
    ) -> None:
        self._wanted, self._drawn = p.double(), q.double().clone() if remove else q.double()
        self._wanted_sum, self._drawn_sum = (probs.sum(-1, keepdim=True) for probs in (self._wanted, self._drawn))
        self._remove = remove
        self._unseen = torch.ones_like(self._drawn) if remove and uniform_fallback else None

    def accept(self, child: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """min(1, R(x) / D(x)); 0 where D(x) = 0."""
        wanted, drawn = (probs.gather(-1, child[..., None]) for probs in (self._wanted, self._drawn))
        ratio = (wanted * self._drawn_sum) / (drawn * self._wanted_sum)
        return torch.where(drawn > 0, ratio, 0.0).clamp_(max=1)[..., 0]

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        """Subtract D from R, and the child from D."""
        index = child[..., None]
        usable = self._drawn.gather(-1, index) > 0
        scale = torch.where(usable, self._wanted_sum / self._drawn_sum, 0.0)
        rest = torch.addcmul(self._wanted, self._drawn, scale, value=-1).clamp_(min=0)
        left = rest.sum(-1, keepdim=True)
        enough = left >= EPS * self._wanted_sum  # also where nothing was subtracted
        if self._wanted.device.type != "cpu" or not bool((enough & (left > _SMALL)).all()):
            rest, left = self._without(index, rest, enough)
        self._wanted, self._wanted_sum = rest, left
        if self._remove:
            self._take_out(index)

    def _without(self, index: Tensor, rest: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
        """R without the child alone, where a rejection was mere rounding; R as it is if the child is all there is."""
        other = self._wanted.scatter(-1, index, 0.0)
        other = torch.where(other.sum(-1, keepdim=True) > 0, other, self._wanted)
        rest = torch.where(enough, rest, other)
        rest = rest / rest.sum(-1, keepdim=True)
        return rest, rest.sum(-1, keepdim=True)

    def _take_out(self, index: Tensor) -> None:
        self._drawn.scatter_(-1, index, 0.0)
        self._drawn_sum = self._drawn.sum(-1, keepdim=True)
        if self._unseen is None:
            return
        self._unseen.scatter_(-1, index, 0.0)
        exhausted = self._drawn_sum <= 0
        if self._drawn.device.type != "cpu" or bool(exhausted.any()):
            self._drawn = torch.where(exhausted, self._unseen, self._drawn)
            self._drawn_sum = self._drawn.sum(-1, keepdim=True)

    def residual(self) -> Float[Tensor, "*batch vocab"]:
        """R, normalised."""
        return self._wanted / self._wanted_sum

    def hit(self, token: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """min(1, D(x) / R(x)): of R(x), which the node yields from here on, min(R, D)(x) is this child's."""
        wanted, drawn = (probs.gather(-1, token[..., None]) for probs in (self._wanted, self._drawn))
        ratio = (drawn * self._wanted_sum) / (wanted * self._drawn_sum)
        return torch.where(drawn > 0, ratio, 0.0).clamp_(max=1)[..., 0]

    def missed(self) -> Float[Tensor, "*batch vocab"]:
        """max(D - R, 0); nothing once q's support is exhausted."""
        drawn = torch.where(self._drawn_sum > 0, self._drawn / self._drawn_sum, 0.0)
        return (drawn - self.residual()).clamp_(min=0)


class InRounds(ChildByChild):
    """A rule that `tree_rounds` knows: made of such rounds, or K-SEQ. On a GPU all nodes are judged at once."""

    uniform_fallback = k_seq = sure = False

    @property
    @abstractmethod
    def remove(self) -> bool:
        """Whether a rejected child leaves D, as for `MultiRound`."""

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """Each child meets the residual, and with `remove` the draft, that the rejected ones left."""
        return MultiRound(p, q, remove=self.remove, uniform_fallback=self.uniform_fallback)

    def walker(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Walker:
        """But for a GPU visited nodes alone are judged. For the same random numbers and drawn trees all go the same."""
        if target.logits.device.type != "cuda" or tree.draft_probs is None or tree.draft_rows is None:
            return super().walker(tree, target, sampling, rng)
        uniform, p, rows = one_for_each(tree, rng), probs_after_all(target, sampling), tree.draft_rows
        families = Families.of(tree.parents, tree.tokens)
        q = without_sure(tree.draft_probs, rows, tree.parents, tree.tokens, families) if self.sure else tree.draft_probs
        accept, shares = tree_rounds(p, q, rows, tree.tokens, uniform, families, **self.how)

        def left(node: int, drawn: Sequence[int]) -> Tensor:
            if not drawn:
                return p[node]
            return self.left(p[node], q.index_select(0, rows[node : node + 1])[0], shares[node], drawn)

        return Judged(tree, uniform < accept, left)

    @property
    def how(self) -> dict[str, bool]:
        """Options of `tree_rounds`."""
        return {
            "remove": self.remove,
            "uniform_fallback": self.uniform_fallback,
            "k_seq": self.k_seq,
            "sure": self.sure,
        }

    def left(
        self, p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], shares: Float[Tensor, " 3"], drawn: Sequence[int]
    ) -> Float[Tensor, " vocab"]:
        """What the children `drawn` leave of p at a node that `tree_rounds` found these `shares` for."""
        return residual(p, q, shares, drawn[1:] if self.sure else ())
