"""Trees of fixed shape, replayed by lookup: one forward of the draft along an answer ranks every token of it.

Where a node's children are the draft's k best tokens, the rank of each true token says which path is accepted, whatever
the shape. What needs nodes off the path, E(A), is not known.
"""

import math
from collections.abc import Collection, Mapping
from typing import TypeGuard

import torch

from specdec_core.checks import check_request
from specdec_core.drafters import Drafter, StaticTree
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.engine import Generation, Step
from specdec_core.errors import PairError
from specdec_core.generation import Output
from specdec_core.models import LayerSkip
from specdec_core.replay import RecordedTarget, Recording, too_short
from specdec_core.sampling import top_k

_NAN = math.nan


def goes_by_ranks(drafter: Drafter) -> TypeGuard[StaticTree]:
    """Whether a drafter's accepted paths follow from ranks: a fixed shape of the best tokens of a draft of its own."""
    return (
        isinstance(drafter, StaticTree)
        and (drafter.picks, drafter.stop, drafter.virtual_root) == ("topk", None, False)
        and isinstance(drafter.draft, CausalDraft)
        and not isinstance(drafter.draft.model, LayerSkip)
    )


@torch.inference_mode()
def ranks_of(recording: Recording, drafter: StaticTree) -> list[int]:
    """The rank of each token of the answer among the draft's best, from 0; -1 for the first and those beyond them."""
    draft, width = drafter.draft, max(drafter.shape.num_children)
    if not isinstance(draft, CausalDraft):
        raise PairError("ranks are of a draft model of its own, which reads nothing of the target")
    answer = torch.tensor(recording.answer, device=draft.device)
    draft.model.reset(len(recording.prompt) + len(answer))
    draft.model.prefill(torch.tensor(recording.prompt, device=draft.device))
    best = top_k(drafter.draft_sampling.probs(draft.model.extend(answer[:-1]).logits), width)[1]
    hits = best == answer[1:, None]
    return [-1, *torch.where(hits.any(1), hits.int().argmax(1), -1).tolist()]


def replay_by_ranks(
    recording: Recording, drafter: StaticTree, *, max_new_tokens: int, eos_token_ids: Collection[int] = ()
) -> Generation:
    """The steps of `replay`, without E(A) and without times; ties of the draft's logits may be broken otherwise.

    PairError where a tree is accepted to the end of the recording.
    """
    target = RecordedTarget(recording, drafter.draft.device)
    check_request(target, drafter, recording.prompt, max_new_tokens, eos_token_ids)
    ranks, answer, shape = ranks_of(recording, drafter), recording.answer, drafter.shape
    child = {(shape.parents[node], shape.ranks[node]): node for node in range(1, shape.num_drafted + 1)}
    inner = sum(count > 0 for count in shape.num_children)
    output, steps, at, unread = Output(max_new_tokens, eos_token_ids), [], 1, 1
    output.extend(answer[:1])
    while not output.finished:
        path = _path(child, ranks[at:])
        if at + len(path) >= len(answer) and not recording.ended:
            raise too_short(shape.depth)
        length, kept = output.extend(answer[at : at + len(path) + 1])
        accepted = min(len(path), length)
        steps.append(_step(drafter, unread + inner - 1, ranks[at : at + accepted], length, kept))
        unread = 1 + bool(path and not shape.num_children[path[-1]])  # the draft has not read a leaf
        at += length
    return Generation(output.tokens, output.finish, steps, _NAN, _NAN, _NAN)


def _path(child: Mapping[tuple[int, int], int], ranks: list[int]) -> list[int]:
    """The nodes below the root that stand for tokens of these ranks."""
    nodes, node = [], 0
    for rank in ranks:
        if (node := child.get((node, rank), 0)) == 0:
            break
        nodes.append(node)
    return nodes


def _step(drafter: StaticTree, draft_tokens: int, ranks: list[int], length: int, kept: int) -> Step:
    return Step(
        num_drafted=drafter.shape.num_drafted,
        depth=drafter.shape.depth,
        draft_forwards=drafter.shape.depth,
        draft_tokens=draft_tokens,
        expected_acceptance=None,
        num_accepted=len(ranks),
        acceptance_length=length,
        kept=kept,
        draft_s=_NAN,
        tree_s=_NAN,
        score_s=_NAN,
        judge_s=_NAN,
        commit_s=_NAN,
        accepted_ranks=ranks,
    )
