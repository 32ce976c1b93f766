"""Rules for target-initialised trees, whose first level is the target's own: the longest accepted path wins.

They leave the distribution of the next token in place of a token, for the next tree to start from. With several first
tokens none of them keeps the target's distribution: a first token is the more likely to win the better the draft goes
on behind it.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import deepest
from specdec_core.verifiers.multi_candidate import MultiCandidate
from specdec_core.verifiers.rounds import ChildByChild, check_sound, family, no_q, probs_after, sound, target_probs
from specdec_core.verifiers.target_sample import TargetSample


class IndependentLongest:
    """Accept every drafted node on its own with min(1, p/q); the longest path wins (Lu et al., 2024, section 3).

    q is the draft's distribution as it was before any sibling was drawn. The next distribution is p after a whole path
    and after a bare first token, else norm(max(p - q, 0)) once, however many siblings were rejected. Lossy with one
    first token too: siblings drawn without replacement are tested as if each were the only one.
    """

    lossless_for = frozenset[str]()
    virtual_root = True

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Judge all nodes at once. NonFiniteLogitsError where the target returned nonsense."""
        _check(target)
        check_sound(bool(sound(target)))
        chances = _chances(tree, target, sampling)
        uniform = torch.rand(tree.num_nodes, dtype=torch.float64, device=chances.device, generator=rng)
        path = deepest(tree, uniform < chances)
        probs = probs_after(target, int(path[-1]), sampling)
        if len(path) > 2 and bool((tree.parents == path[-1]).any()) and not sampling.greedy:
            if (q := tree.q_after(int(path[-1]))) is None:
                raise PairError(no_q(self))
            probs = _residual(probs, q)
        return _left(tree.tokens.tolist(), path.tolist(), probs, target, sampling)

    def first_token_probs(self, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Float[Tensor, " vocab"]:
        """Distribution of the step's first token for this tree, summed exactly over the rule's draws; float64, host."""
        _check(target)
        chances, (tokens, children) = _chances(tree, target, sampling).tolist(), family(tree)

        def lengths(node: int) -> Float[Tensor, " lengths"]:
            """How probable it is that at least 0, 1, ... nodes are accepted below this one."""
            none = torch.ones(int(tree.depths.max()), dtype=torch.float64)
            for child in children.get(node, []):
                none[1:] *= 1 - chances[child] * lengths(child)[:-1]
            return torch.cat((torch.ones_like(none[:1]), 1 - none[1:]))

        return _winner(tokens, children[0], lengths, target)


class LongestSubtree:
    """Judge what is drafted below every first token by a rule of its own; the longest path wins, the first of equals.

    With one first token the process is the rule's, the bonus token drawn at the start of the next step: lossless where
    the rule is (`target_` and its draws). Without a rule it is MCSD's, without replacement.
    """

    virtual_root = True

    def __init__(self, *, rule: ChildByChild | None = None) -> None:
        self.rule = rule or MultiCandidate()
        self.lossless_for = frozenset(f"target_{draws}" for draws in self.rule.lossless_for)

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Walk below every first token. NonFiniteLogitsError where the target returned nonsense."""
        _check(target)
        rule = TargetSample() if sampling.greedy else self.rule
        walker = rule.walker(tree, target, sampling, rng)
        walks = [walker.walk(first) for first in walker.children[0]]
        # behind a stop token there is no answer
        *counts, finite = torch.cat((tree.required_edge_probs > 0, sound(target))).tolist()
        check_sound(finite)
        path, probs = max(walks, key=lambda walk: sum(counts[node] for node in walk[0]))
        return _left(walker.tokens, [0, *path], probs, target, sampling)

    def first_token_probs(self, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Float[Tensor, " vocab"]:
        """Distribution of the step's first token for this tree, summed exactly over the rule's draws; float64, host."""
        _check(target)
        tokens, children = family(tree)
        rule, counts = TargetSample() if sampling.greedy else self.rule, (tree.required_edge_probs > 0).tolist()

        def lengths(node: int) -> Float[Tensor, " lengths"]:
            """How probable it is that at least 0, 1, ... nodes that count are accepted below this one."""
            found, left = torch.zeros(int(tree.depths.max()), dtype=torch.float64), 1.0
            found[0] = 1
            if below := children.get(node, []):
                p, q = target_probs(target, node, sampling), tree.q_after(node)
                drawn = torch.tensor([tokens[child] for child in below], device=p.device)
                chances = rule.rounds(p, p if q is None else q, drawn).accept.tolist()
                for child, chance in zip(below, chances, strict=True):
                    found[1:] += left * chance * (lengths(child)[:-1] if counts[child] else lengths(child)[1:])
                    left *= 1 - chance
            return found

        return _winner(tokens, children[0], lengths, target)


def _chances(tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Float[Tensor, " nodes"]:
    """min(1, p/q) of every node on its own, with the original q; 1 for the root and the first level.

    Behind the support of q children are no draws from it, and behind a stop token none of the answer: q is 0 there.
    """
    wanted, drawn = sampling.probs(target.logits)[tree.parents, tree.tokens].double(), tree.required_edge_probs.double()
    chances = torch.where(drawn > 0, wanted / drawn, 0.0).clamp(max=1)
    return torch.where(tree.parents <= 0, 1.0, chances)


def _winner(
    tokens: Sequence[int], first: Sequence[int], lengths: Callable[[int], Tensor], target: ModelOutput
) -> Float[Tensor, " vocab"]:
    """The distribution of the first token that wins: accepted below it is the longest path, the first of equals.

    `lengths(node)` are the probabilities that at least 0, 1, ... nodes are accepted below; those of different first
    tokens are independent.
    """
    at_least = torch.stack([torch.cat((lengths(node), torch.zeros(1, dtype=torch.float64))) for node in first])
    exactly, at_most, less = -at_least.diff(dim=1), 1 - at_least[:, 1:], 1 - at_least[:, :-1]
    probs = torch.zeros(target.logits.shape[-1], dtype=torch.float64)
    for place, node in enumerate(first):
        probs[tokens[node]] += (exactly[place] * less[:place].prod(0) * at_most[place + 1 :].prod(0)).sum()
    return probs


def _left(
    tokens: Sequence[int], path: Sequence[int], probs: Tensor, target: ModelOutput, sampling: Sampling
) -> Verdict:
    """A verdict that leaves a distribution; at temperature 0 one that ranks all tokens. `tokens` are the tree's."""
    probs = sampling.open_probs(target.logits[path[-1]]) if sampling.greedy else probs.float()
    return Verdict(torch.tensor(path), tuple(tokens[node] for node in path[1:]), None, probs)


def _residual(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
    """norm(max(p - q, 0)); p where that is nothing but rounding."""
    rest = (p.double() - q.double()).clamp(min=0)
    return rest / rest.sum() if float(rest.sum()) > 0 else p


def _check(target: ModelOutput) -> None:
    if target.root_probs is None:
        raise PairError("this rule judges trees that start from the target's distribution; draft with TargetInit")
