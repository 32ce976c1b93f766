"""GSD's rule for non-deterministic decoding, which does not keep the target's distribution."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, draw_tokens
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import deepest
from specdec_core.verifiers.rounds import check_sound, probs_after, sound, target_probs


class GsdNondeterministic:
    """Accept every child of an accepted node on its own with min(1, p/q); the longest accepted path wins.

    From the public code of Gong et al. (2024); section 3 has speculative sampling, which is for sequences. Of equally
    long paths the first in depth first order wins, then comes one token from p after its last node. Children are no
    draws from q, the choice depends on what is accepted below, and no residual makes up for rejections: the output
    distribution is not the target's. At temperature 0 the rule comes to greedy verification.

    With `untempered`, as that code runs it: p is of temperature 1 whatever the decoding's is (q is the drafter's own,
    which the papers' pairs have at 1), and the token after the path is the arg max. No temperature makes it greedy.
    """

    lossless_for = frozenset[str]()

    def __init__(self, *, untempered: bool = False) -> None:
        self.untempered = untempered

    @property
    def draws_next(self) -> bool:
        """Whether the token after the path is drawn from p."""
        return not self.untempered

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Judge all nodes at once. NonFiniteLogitsError where the target returned nonsense."""
        check_sound(bool(sound(target)))
        sampling = self._sampling(sampling)
        chances = _chances(tree, target, sampling)
        uniform = torch.rand(tree.num_nodes, dtype=torch.float64, device=chances.device, generator=rng)
        path = deepest(tree, uniform < chances)
        token = int(draw_tokens(self._last(probs_after(target, int(path[-1]), sampling)), 1, rng))
        return Verdict(path, tuple(tree.tokens[path[1:].to(tree.tokens.device)].tolist()), token)

    def first_token_probs(self, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Float[Tensor, " vocab"]:
        """The distribution of the step's first token for this tree, summed exactly over all draws of the rule; float64.

        For instruments: a loop over nodes, on the host.
        """
        sampling = self._sampling(sampling)
        p = self._last(target_probs(target, 0, sampling)).double().cpu()
        chances, parents = _chances(tree, target, sampling).tolist(), tree.parents.tolist()
        below: list[list[int]] = [[] for _ in parents]
        # reach[node][l]: how probable it is that at most l nodes are accepted from this one downwards
        reach = torch.ones(len(parents), int(tree.depths.max()) + 1, dtype=torch.float64)
        for node in range(len(parents) - 1, 0, -1):
            longest = reach[below[node]].prod(0)
            reach[node, 0], reach[node, 1:] = 1 - chances[node], 1 - chances[node] + chances[node] * longest[:-1]
            below[parents[node]].insert(0, node)
        exactly, children = reach.diff(dim=1), below[0]
        won = p * reach[children, 0].prod()  # nothing was accepted
        for place, child in enumerate(children):
            earlier, later = reach[children[:place], :-1].prod(0), reach[children[place + 1 :], 1:].prod(0)
            won[tree.tokens[child]] += (exactly[child] * earlier * later).sum()
        return won

    def _sampling(self, sampling: Sampling) -> Sampling:
        return Sampling(temperature=1.0) if self.untempered else sampling

    def _last(self, probs: Float[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
        """What the token after the path is drawn from."""
        return Sampling().probs(probs) if self.untempered else probs


def _chances(tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Float[Tensor, " nodes"]:
    """min(1, p/q) of every node on its own; 1 for the root."""
    p = sampling.probs(target.logits)
    if target.root_probs is not None:
        p[0] = sampling.closed(target.root_probs)
    wanted = p[tree.parents, tree.tokens].double()
    drawn = tree.required_edge_probs.double()  # q may have underflowed
    chances = torch.where(wanted > 0, wanted / drawn, 0.0).clamp(max=1)
    chances[:1] = 1
    return chances
