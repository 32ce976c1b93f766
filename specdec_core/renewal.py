"""What a drawn tree of fixed shape is expected to do on a recorded answer, over all that draft and rule draw.

Given the answer, what a step accepts depends on the distributions at its own places alone. So the steps from a place to
the end are one and those from each place behind its tree, weighted by how likely the tree ends there: a renewal
recursion, backwards over the places.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from specdec_core.drafters import StaticTree
from specdec_core.errors import PairError
from specdec_core.rank_replay import along
from specdec_core.replay import Recording, check_end, too_short
from specdec_core.sampling import draw_tokens
from specdec_core.shapes import TreeShape
from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.rounds import ChildByChild, Independent, Told


@dataclass(frozen=True, slots=True)
class Expected:
    """Of the decoding of one answer, given its tokens."""

    steps: float
    length: float
    """The sum of the steps' acceptance lengths."""


Shares = Float[np.ndarray, "counts places ranks"]
"""How likely the token at each place of an answer, from 1 on, is from each of so many children of the node before."""
_AT_ONCE = 1 << 23
"""Entries of the vocabulary, of several places, that are judged together."""


def expected(
    recording: Recording,
    drafter: StaticTree,
    rule: Verifier,
    rng: Generator,
    *,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
) -> Expected:
    """Steps and acceptance lengths of an answer of `max_new_tokens`, or up to its end, without bias.

    The same however far the recording goes. PairError where a tree may be accepted to its end, where it has no
    distributions, and for a rule that does not tell (`Told`).
    """
    check_end(recording, eos_token_ids)
    answer, depth = recording.answer, drafter.shape.depth
    length = next((place + 1 for place, token in enumerate(answer) if token in eos_token_ids), None)
    last = min(max_new_tokens, length or len(answer))
    if not recording.complete and last - 1 + depth >= len(answer):
        raise too_short(depth)
    places = min(last + depth, len(answer)) - 1
    return renewed(shares(recording, drafter, rule, rng, places), drafter.shape, last, length)


@torch.inference_mode()
def shares(recording: Recording, drafter: StaticTree, rule: Verifier, rng: Generator, places: int) -> Shares:
    """Of so many places, estimates without bias, independent of each other; exact for a node's first child.

    The children that are rejected before another are drawn.
    """
    if recording.distributions is None or not isinstance(rule, ChildByChild):
        raise PairError(f"what {type(rule).__name__} accepts does not follow from this recording; record distributions")
    q, tokens = along(recording, drafter)[:places].to(rng.device), torch.tensor(recording.answer[1:])
    most, counts = max(drafter.shape.num_children), {*drafter.shape.num_children} - {0}
    found = np.zeros((most + 1, places, most))
    alike = not isinstance(rule, Independent)  # then it does not matter how many children follow
    for start in range(0, places, step := max(1, _AT_ONCE // recording.vocab_size)):
        some = slice(start, min(start + step, places))
        p = torch.stack([recording.distributions.of(place + 1) for place in range(some.start, some.stop)]).to(q)
        for count in {most} if alike else counts:
            found[count, some, :count] = _shares(rule, p, q[some], tokens[some].to(q.device), count, rng).cpu()
    return np.broadcast_to(found[most], found.shape) if alike else found


def _shares(
    rule: ChildByChild, p: Tensor, q: Tensor, tokens: Tensor, num_children: int, rng: Generator
) -> Float[Tensor, "places children"]:
    """By one history of rejected children each."""
    state, left, columns = rule.begin(p, q, num_children), torch.ones_like(p[:, 0], dtype=torch.float64), []
    if not isinstance(state, Told):
        raise PairError(f"{type(rule).__name__} does not tell which child a known token comes from")
    for _ in range(num_children):
        hit = torch.where(left > 0, state.hit(tokens), 0.0)
        columns.append(left * hit)
        left = left * (1 - hit)
        state.reject(draw_tokens(state.missed(), 1, rng)[:, 0])
    return torch.stack(columns, 1)


def renewed(shares: Shares, shape: TreeShape, last: int, length: int | None = None) -> Expected:
    """Of an output of `last` tokens, of an answer that ends with `length`. No product has two shares of one place."""
    steps, lengths = np.zeros(last + shape.depth + 1), np.zeros(last + shape.depth + 1)
    levels, news = _levels(shape), np.arange(1, shape.depth + 2)
    for at in range(last - 1, 0, -1):
        ends = _ends(levels, shares[:, at - 1 :])
        behind = slice(at + 1, at + 2 + shape.depth)
        steps[at] = 1 + ends @ steps[behind]
        lengths[at] = ends @ (news if length is None else news.clip(max=length - at)) + ends @ lengths[behind]
    return Expected(float(steps[1]), float(lengths[1])) if last > 1 else Expected(0.0, 0.0)


def _levels(shape: TreeShape) -> list[tuple[NDArray[np.int64], ...]]:
    """Of each level's nodes the parents, by their number in the level above, their siblings' count and their ranks."""
    return [
        (
            np.array([shape.parents[node] - above.start for node in level]),
            np.array([shape.num_children[shape.parents[node]] for node in level]),
            np.array([shape.ranks[node] for node in level]),
        )
        for above, level in pairwise(shape.levels)
    ]


def _ends(levels: Sequence[tuple[NDArray[np.int64], ...]], shares: Shares) -> NDArray[np.float64]:
    """How likely a tree is accepted to depth 0, 1, ...; its first level is for the first place of the shares."""
    ends, on_path = np.zeros(len(levels) + 1), np.ones(1)
    for depth, (parents, counts, ranks) in enumerate(levels):
        if depth >= shares.shape[1]:  # behind the answer's end nothing counts
            break
        below = on_path[parents] * shares[counts, depth, ranks]
        ends[depth] = on_path.sum() - below.sum()
        on_path = below
    else:
        depth = len(levels)
    ends[depth] += on_path.sum()
    return ends
