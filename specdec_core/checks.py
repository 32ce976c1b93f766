"""What can be decoded with what: refusals before the first forward, in a sentence."""

from collections.abc import Collection, Sequence

from specdec_core.drafters.base import Drafter
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.errors import PairError, PromptError
from specdec_core.models.target import Target
from specdec_core.sampling import NO_DRAWS, Sampling
from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.rounds import ChildByChild


def check_lossless(drafter: Drafter, verifier: Verifier, sampling: Sampling, *, allow_lossy: bool = False) -> bool:
    """Whether the output distribution is the target's for this pair; PairError if it is not and that was not asked for.

    At temperature 0 a rule that is lossless for some draws, or judges child by child, accepts the arg max alone,
    however the children were picked; for any other rule nothing vouches there either. A drafter that declares to draw
    nothing leaves the target's own token to every rule, which not every rule draws as the decoding has it.
    """
    rule_starts_there = getattr(verifier, "virtual_root", False)
    if drafter.virtual_root and not rule_starts_there:
        raise PairError(
            f"{type(drafter).__name__} starts from the target's distribution after the last token, which "
            f"{type(verifier).__name__} does not leave; use verifier=by_root (IndependentLongest or LongestSubtree)"
        )
    if rule_starts_there and not drafter.virtual_root:
        raise PairError(
            f"{type(verifier).__name__} judges trees that start from the target's distribution, and those of "
            f"{type(drafter).__name__} start from a token; use verifier=by_root or by_draws, or draft with TargetInit"
        )
    several = drafter.draws.startswith("targets_")  # of which the second best may win, at temperature 0 too
    lossless = (
        drafter.draws in verifier.lossless_for
        or (drafter.draws == NO_DRAWS and (sampling.greedy or getattr(verifier, "draws_next", True)))
        or (sampling.greedy and not several and (bool(verifier.lossless_for) or isinstance(verifier, ChildByChild)))
    )
    if not lossless and not allow_lossy:
        raise PairError(
            f"{type(verifier).__name__} does not keep the target's distribution for {drafter.draws} children of "
            f"{type(drafter).__name__}; {_lossless_rule(drafter)}, or allow_lossy=true to measure it as lossy"
        )
    return lossless


def _lossless_rule(drafter: Drafter) -> str:
    """Advice on which rule is lossless for a drafter's children."""
    if drafter.virtual_root:
        return "with one first token LongestSubtree keeps it"
    return "use verifier=target_sample, which keeps it for any children, or another rule"


def check_request(
    target: Target, drafter: Drafter, prompt_ids: Sequence[int], new: int, eos_token_ids: Collection[int]
) -> None:
    """Refuse what cannot be decoded, in a sentence."""
    draft = drafter.draft_model
    if isinstance(draft, CausalDraft) and draft.model is target:
        raise PairError("target and draft are the same object and would share a cache; wrap the model a second time")
    if draft is not None and draft.vocab_size != target.vocab_size:
        raise PairError(
            f"the draft has a vocabulary of {draft.vocab_size} tokens and the target one of {target.vocab_size}; "
            "a pair must share its tokenizer"
        )
    if not len(prompt_ids):
        raise PromptError("the prompt is empty; give at least one token")
    if not all(hasattr(token, "__index__") and not getattr(token, "shape", ()) for token in prompt_ids):
        raise PromptError(
            'a prompt is a list of token ids, such as tokenizer("a text")["input_ids"], and neither a text nor a batch'
        )
    if new < 1:
        raise PromptError(f"max_new_tokens must be at least 1, not {new}")
    if prompt_ids[-1] in eos_token_ids:
        raise PromptError(f"the prompt ends with the end-of-sequence token {prompt_ids[-1]}; remove it to decode on")
    for name, model in (("target", target), ("draft", draft)):
        room = model.max_positions if model is not None else None
        if room is not None and len(prompt_ids) + new > room:
            raise PromptError(
                f"the {name} has {room} positions, and the prompt has {len(prompt_ids)} tokens with {new} more asked "
                "for; shorten the prompt or lower max_new_tokens"
            )
