"""Answers judged by the dataset's references: ROUGE, as `rouge-score` computes it."""

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from bench.conversations import Conversation, DatasetError
from bench.datasets import DatasetSpec
from bench.instrument_records import QualityRow

LISTS = ("mt_bench", "triviaqa")
"""Adapters whose references are no one answer: one per turn as JSON, or all spellings of a word."""
_SCORES = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Columns by the names that `rouge-score` gives them."""


def check_references(spec: DatasetSpec, conversations: list[Conversation]) -> None:
    """DatasetError unless some conversation has a reference that an answer can be scored against."""
    if not any(_reference(spec, conversation) for conversation in conversations):
        raise DatasetError(
            f"record_quality=true needs answers to compare with, and dataset {spec.name} has none among its "
            f"{len(conversations)} conversations; take one whose references are answers, such as xsum or cnn_dm"
        )


def quality_rows(
    run_id: str, conversation: Conversation, turn: int, answers: Mapping[str, str], spec: DatasetSpec
) -> Iterator[QualityRow]:
    """A row per arm and its answer. References belong to first turns, so that later ones have no scores."""
    reference = None if turn else _reference(spec, conversation)
    for arm, answer in answers.items():
        scores = rouge(reference, answer) if reference else {}
        yield QualityRow(
            run_id=run_id, prompt_id=conversation.id, turn=turn, arm=arm, num_words=len(answer.split()), **scores
        )


def rouge(reference: str, answer: str) -> dict[str, float]:
    """F1 of ROUGE-1, ROUGE-2 and ROUGE-L over lower-cased words, stemmed by Porter's rules; columns of `QualityRow`."""
    scores = _scorer().score(reference, answer)
    return {column: float(scores[name].fmeasure) for column, name in _SCORES.items()}


def _reference(spec: DatasetSpec, conversation: Conversation) -> str | None:
    return None if spec.adapter in LISTS else conversation.reference


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # a second to import, and seldom needed

    logging.getLogger("absl").setLevel(logging.WARNING)  # it tells which tokenizer it has by default
    return RougeScorer(list(_SCORES.values()), use_stemmer=True)
