"""Trees of fixed shape, replayed by lookup: one forward of the draft along an answer is all that acceptance needs.

Where a node's children are the draft's k best tokens, the rank of each true token says which path is accepted, whatever
the shape. Where children are drawn, and the rule compares p with q, the child that a true token comes from is drawn,
given the token: in law a path of live decoding. What needs nodes off the path, E(A), is not known.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeGuard
from weakref import ReferenceType, ref

import torch
from torch import Generator, Tensor

from specdec_core.checks import check_request
from specdec_core.drafters import Drafter, StaticTree
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.engine import Generation, Step
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.generation import Output
from specdec_core.models import CausalLM, LayerSkip
from specdec_core.replay import RecordedTarget, Recording, check_end, too_short
from specdec_core.sampling import Sampling
from specdec_core.shapes import TreeShape
from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.rounds import ChildByChild, Told

_NAN = math.nan
Source = Callable[[int, int], int | None]
"""Which of so many children the answer's token at some place comes from; None: of none."""


def goes_by_ranks(drafter: Drafter) -> TypeGuard[StaticTree]:
    """Whether a drafter's accepted paths follow from ranks: a fixed shape of the best tokens of a draft of its own."""
    return _of_fixed_shape(drafter) and drafter.picks == "topk"


def goes_by_distributions(drafter: Drafter, rule: Verifier) -> TypeGuard[StaticTree]:
    """Whether accepted paths follow from p and q, in law: a fixed shape of draws that the rule is lossless for."""
    if not (_of_fixed_shape(drafter) and isinstance(rule, ChildByChild) and drafter.draws in rule.lossless_for):
        return False
    certain = torch.ones(1)
    return isinstance(rule.begin(certain, certain, 1), Told)


def _of_fixed_shape(drafter: Drafter) -> TypeGuard[StaticTree]:
    """And of a draft that reads nothing of the target."""
    return (
        isinstance(drafter, StaticTree)
        and (drafter.stop, drafter.virtual_root, drafter.merged) == (None, False, False)
        and isinstance(drafter.draft, CausalDraft)
        and not isinstance(drafter.draft.model, LayerSkip)
    )


def along(recording: Recording, drafter: StaticTree) -> Tensor:
    """The draft's q of each token of an answer but the first, as it is used for drawing: (tokens - 1, vocab)."""
    return _along(_model(drafter), recording.prompt, recording.answer, drafter.draft_sampling)


@torch.inference_mode()
def _along(model: CausalLM, prompt: Sequence[int], answer: Sequence[int], sampling: Sampling) -> Tensor:
    if len(answer) < 2:
        return torch.empty(0, model.vocab_size, device=model.device)
    model.reset(len(prompt) + len(answer))
    model.prefill(torch.tensor(prompt, device=model.device))
    return sampling.probs(model.extend(torch.tensor(answer[:-1], device=model.device)).logits)


@lru_cache(maxsize=1024)
def ranks_along(
    model: "ReferenceType[CausalLM]", prompt: tuple[int, ...], answer: tuple[int, ...], sampling: Sampling
) -> list[int]:
    """Place of each token of an answer but the first among the draft's own, best first; the smaller id where equal.

    They are those of every shape, so that trees share one forward, in one process and of the last 1,024 answers. The
    model is not kept alive. NonFiniteLogitsError where it returned nonsense.
    """
    draft = model()
    assert draft is not None
    q = _along(draft, prompt, answer, sampling)
    true = torch.tensor(answer[1:], device=q.device)[:, None]
    own = q.gather(1, true)
    if not bool(own.isfinite().all()):
        raise NonFiniteLogitsError("the draft returned NaN or infinite logits")
    before = torch.arange(q.shape[1], device=q.device) < true
    return ((q > own) | ((q == own) & before)).sum(1).tolist()


def _model(drafter: StaticTree) -> CausalLM:
    if not isinstance(drafter.draft, CausalDraft):
        raise PairError("ranks are of a draft model of its own, which reads nothing of the target")
    return drafter.draft.model


def by_rank(recording: Recording, drafter: StaticTree) -> Source:
    """Children are the draft's best tokens; ties of its logits may be broken otherwise than in a tree."""
    texts = tuple(recording.prompt), tuple(recording.answer)
    ranks = ranks_along(ref(_model(drafter)), *texts, drafter.draft_sampling)
    return lambda place, num_children: rank if (rank := ranks[place - 1]) < num_children else None


def by_distributions(recording: Recording, drafter: StaticTree, rule: Verifier, rng: Generator) -> Source:
    """Children are draws. PairError where p was not recorded, or the rule does not judge child by child."""
    if not isinstance(rule, ChildByChild):
        raise PairError(f"{type(rule).__name__} does not judge child by child")
    if recording.distributions is None:
        raise PairError(f"{type(rule).__name__} compares p with q, and the recording has no p; record it with them")
    p, q = recording.distributions, along(recording, drafter).to(rng.device)

    def source(place: int, num_children: int) -> int | None:
        return rule.source(p.of(place).to(rng.device), q[place - 1], recording.answer[place], num_children, rng)

    return source


def replay_by_ranks(
    recording: Recording,
    drafter: StaticTree,
    *,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
    source: Source | None = None,
) -> Generation:
    """The steps of `replay`, without E(A) and without times. `source` is `by_rank` unless given.

    PairError where a tree is accepted to the end of the recording.
    """
    check_end(recording, eos_token_ids)
    target = RecordedTarget(recording, drafter.draft.device)
    check_request(target, drafter, recording.prompt, max_new_tokens, eos_token_ids)
    source, answer, shape = source or by_rank(recording, drafter), recording.answer, drafter.shape
    inner, first = sum(count > 0 for count in shape.num_children), [*accumulate(shape.num_children, initial=1)]
    output, steps, at, unread = Output(max_new_tokens, eos_token_ids), [], 1, 1
    output.extend(answer[:1])
    while not output.finished:
        path = _path(shape, first, source, range(at, len(answer)))
        if at + len(path) >= len(answer) and not recording.complete:
            raise too_short(shape.depth)
        length, kept = output.extend(answer[at : at + len(path) + 1])
        accepted = path[: min(len(path), length)]
        ranks = [shape.ranks[node] for node in accepted]
        steps.append(_step(drafter, unread + inner - 1, ranks, length, kept))
        unread = 1 + bool(path and not shape.num_children[path[-1]])  # the draft has not read a leaf
        at += length
    return Generation(output.tokens, output.finish, steps, _NAN, _NAN, _NAN)


def _path(shape: TreeShape, first: Sequence[int], source: Source, places: Iterable[int]) -> list[int]:
    """The nodes below the root that stand for an answer's tokens; `first` is the first child of every node."""
    nodes, node = [], 0
    for place in places:
        children = shape.num_children[node]
        if not children or (rank := source(place, children)) is None:
            break
        node = first[node] + rank
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
