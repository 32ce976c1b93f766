"""The rule that lets the target sample and looks whether the draft had guessed it."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, tokens_at
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import ALL_DRAWS, follow, target_choices
from specdec_core.verifiers.rounds import (
    ChildByChild,
    Judged,
    State,
    Walker,
    family,
    one_for_each,
    probs_after_all,
    target_probs,
)


class TargetSample(ChildByChild):
    """Draw one token from p; accept the child that has it (OPT-Tree, section 4.1; "naive sampling").

    The token is drawn without looking at the children, so the output distribution is p for any draft. At temperature 0
    this is greedy verification.
    """

    lossless_for = ALL_DRAWS
    reads_q = False

    def begin(self, p: Float[Tensor, "*batch vocab"], q: Float[Tensor, "*batch vocab"], num_children: int) -> State:
        """The same rule child by child."""
        return _Remaining(p)

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Follow what the target draws at every node.

        On a CPU the draws that the walk does not meet are left out, which changes nothing else.
        """
        if sampling.greedy or target.logits.device.type != "cpu" or target.root_probs is not None:
            return follow(tree, target_choices(target, sampling, rng))
        uniform = torch.rand(tree.num_nodes, 1, dtype=torch.float64, generator=rng)
        (tokens, children), path = family(tree), [0]
        while True:
            token = int(tokens_at(target_probs(target, path[-1], sampling), uniform[path[-1]]))
            node = next((node for node in children.get(path[-1], ()) if tokens[node] == token), None)
            if node is None:
                return Verdict(torch.tensor(path), tuple(tokens[node] for node in path[1:]), token)
            path.append(node)

    def walker(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Walker:
        """On a GPU tokens are drawn for all nodes at once."""
        if target.logits.device.type != "cuda":
            return super().walker(tree, target, sampling, rng)
        nodes = torch.arange(tree.num_nodes, device=tree.tokens.device)
        first = nodes.scatter_reduce(0, tree.parents[1:], nodes[1:], "amin", include_self=False)  # child, else itself
        p, uniform = probs_after_all(target, sampling), one_for_each(tree, rng)[first]
        tokens = tokens_at(p, uniform[:, None])[:, 0]

        def left(node: int, drawn: Sequence[int]) -> Tensor:
            return torch.zeros_like(p[node]).index_fill_(0, tokens[node], 1.0) if drawn else p[node]

        return Judged(tree, tokens[tree.parents] == tree.tokens, left)

    def choose(
        self,
        p: Float[Tensor, " vocab"],
        q: Float[Tensor, " vocab"] | None,
        children: Int[Tensor, " children"],
        uniform: Float[Tensor, " children"],
    ) -> int | Float[Tensor, " vocab"]:
        """One draw from p: the first child that has it, else the token itself as a one-hot distribution."""
        token = tokens_at(p, uniform[:1])
        found = (children == token).tolist()
        return found.index(True) if True in found else torch.zeros_like(p).index_fill_(0, token, 1.0)


class _Remaining:
    """Accept x with what p has left for it; a repeated token has nothing left."""

    def __init__(self, p: Float[Tensor, "*batch vocab"]) -> None:
        self._left = p.double() / p.double().sum(-1, keepdim=True)

    def accept(self, child: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self._left.gather(-1, child[..., None])[..., 0].clamp(max=1)

    def reject(self, child: Int[Tensor, "*batch"]) -> None:
        left = self._left.scatter(-1, child[..., None], 0.0)
        total = left.sum(-1, keepdim=True)
        self._left = torch.where(total > 0, left / total, self._left)

    def residual(self) -> Float[Tensor, "*batch vocab"]:
        return self._left
