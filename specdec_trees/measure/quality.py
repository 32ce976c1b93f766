"""Answers judged without a judge: ROUGE (as `rouge-score` computes it), and log-likelihood under the target."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from specdec_core.models import CausalLM
from specdec_core.sampling import Sampling
from specdec_trees.prompts.conversations import Conversation
from specdec_trees.prompts.datasets import DatasetSpec
from specdec_trees.results.instrument_rows import AnswerRow, QualityRow

PER_TURN, SPELLINGS = "mt_bench", "triviaqa"
"""Adapters whose references are no one answer: one per turn as JSON, or all spellings of a word."""
_SCORES = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Columns by the names that `rouge-score` gives them."""


def quality_rows(
    run_id: str,
    conversation: Conversation,
    turn: int,
    answers: Mapping[str, str],
    spec: DatasetSpec,
    *,
    greedy: str = "",
    log_likelihoods: Mapping[str, float | None] | None = None,
) -> Iterator[QualityRow]:
    """A row per arm and its answer, set against the dataset's reference and the target's own `greedy` answer.

    References belong to first turns, so that later ones have no scores against them; nor has an empty text.
    """
    reference = None if turn or spec.adapter in (PER_TURN, SPELLINGS) else conversation.reference
    for arm, answer in answers.items():
        scores = rouge(reference, answer) if reference else {}
        near = rouge(greedy, answer) if greedy else {}
        yield QualityRow(
            run_id=run_id,
            prompt_id=conversation.id,
            turn=turn,
            arm=arm,
            num_words=len(answer.split()),
            **scores,
            **{f"greedy_{column}": score for column, score in near.items()},
            log_likelihood=(log_likelihoods or {}).get(arm),
        )


def answer_rows(
    run_id: str, conversation: Conversation, turn: int, answers: Mapping[str, str], spec: DatasetSpec
) -> Iterator[AnswerRow]:
    """A row per arm: the texts, and what the dataset says would have been right."""
    reference = reference_of(conversation, turn, spec)
    for arm, answer in answers.items():
        yield AnswerRow(
            run_id=run_id,
            prompt_id=conversation.id,
            turn=turn,
            arm=arm,
            question=conversation.turns[turn],
            answer=answer,
            reference=reference,
        )


def reference_of(conversation: Conversation, turn: int, spec: DatasetSpec) -> str | None:
    """The reference of a turn, for whoever reads the answers; MT-Bench has one per turn, others of the first alone."""
    if spec.adapter != PER_TURN or conversation.reference is None:
        return None if turn else conversation.reference
    try:
        found = json.loads(conversation.reference)
    except ValueError:  # a folder's own file may hold a plain text
        return None if turn else conversation.reference
    own = found[turn] if isinstance(found, list) and turn < len(found) else None
    return own if isinstance(own, str) and own.strip() else None


def rouge(reference: str, answer: str) -> dict[str, float]:
    """F1 of ROUGE-1, ROUGE-2 and ROUGE-L over lower-cased words, stemmed by Porter's rules; columns of `QualityRow`."""
    scores = _scorer().score(reference, answer)
    return {column: float(scores[name].fmeasure) for column, name in _SCORES.items()}


@torch.inference_mode()
def log_likelihoods(
    target: CausalLM, prompt: Sequence[int], outputs: Mapping[str, Sequence[int]], sampling: Sampling
) -> dict[str, float | None]:
    """By arm the mean over its tokens of log p(token | all before it), in nats; None of an output without tokens.

    p is the target's distribution at the temperature of `sampling` (untempered at 0), without top-p and top-k, so that
    every token has one. One forward per output behind one of the prompt.
    """
    temperature = 1.0 if sampling.greedy else sampling.temperature
    target.reset(len(prompt) + max(map(len, outputs.values()), default=0))
    first = target.prefill(torch.tensor(prompt, device=target.device)).logits
    found: dict[str, float | None] = {}
    for arm, output in outputs.items():
        target.cache.truncate(len(prompt))
        tokens = torch.tensor(list(output), dtype=torch.long, device=target.device)
        logits = first[-1:] if len(tokens) < 2 else torch.cat((first[-1:], target.extend(tokens[:-1]).logits))
        log_probs = (logits.float() / temperature).log_softmax(-1)
        found[arm] = float(log_probs.gather(-1, tokens[:, None]).double().mean()) if len(tokens) else None
    return found


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # a second to import, and seldom needed

    logging.getLogger("absl").setLevel(logging.WARNING)  # it tells which tokenizer it has by default
    return RougeScorer(list(_SCORES.values()), use_stemmer=True)
