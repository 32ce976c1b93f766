"""What a rule of acceptance must offer, and the walk that follows the target's own choices."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from specdec_core.errors import NonFiniteLogitsError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.node_order import node_order
from specdec_core.sampling import DRAWS, Sampling, draw_tokens
from specdec_core.tree import TokenTree, Verdict

ALL_DRAWS = frozenset(DRAWS)


@runtime_checkable
class Verifier(Protocol):
    """A rule of acceptance."""

    lossless_for: frozenset[str]
    """The draws for which the output distribution is exactly the target's."""

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """Accept a path of the tree and add the target's token; `target` has a row per node."""


def target_choices(target: ModelOutput, sampling: Sampling, rng: Generator) -> Int[Tensor, " nodes"]:
    """The target's token after every node, -1 where its logits are not finite; a virtual root's from `root_probs`."""
    choices = sampling.draw(target.logits, rng)
    if target.root_probs is not None:
        choices[:1] = draw_tokens(sampling.closed(target.root_probs), 1, rng)
    return choices


def deepest(tree: TokenTree, alone: Bool[Tensor, " nodes"]) -> Int[Tensor, " path"]:
    """The longest path of nodes that are accepted on their own; of equally long ones the first in depth first order."""
    accepted = (alone | ~tree.ancestor_mask).all(-1)
    order = node_order(tree, "dfs")
    lengths = torch.where(accepted, tree.depths, -1)[order]
    end = order[(lengths == lengths.max()).int().argmax()]
    return tree.ancestor_mask[end].nonzero().flatten().cpu()


def follow(tree: TokenTree, choices: Int[Tensor, " nodes"]) -> Verdict:
    """Walk down while a child is what the target chose at its parent; the first such child where several are.

    `choices` are the target's tokens after each node, -1 where its logits are not finite. One read from the device.
    NonFiniteLogitsError if the walk comes to such a node.
    """
    parents, tokens, wanted = torch.stack((tree.parents, tree.tokens, choices)).tolist()
    path = [0]
    for node in range(1, len(parents)):  # below the path's end stand only nodes behind it
        if parents[node] == path[-1] and tokens[node] == wanted[path[-1]]:
            path.append(node)
    if wanted[path[-1]] < 0:
        raise NonFiniteLogitsError("the target returned NaN or infinite logits")
    return Verdict(torch.tensor(path), tuple(tokens[node] for node in path[1:]), wanted[path[-1]])
