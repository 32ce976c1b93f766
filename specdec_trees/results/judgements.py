"""Grades as rows, and which of them outlive a run that is run again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd

from specdec_trees.results.instrument_rows import AnswerRow, JudgementRow


def judgement_rows(frame: pd.DataFrame) -> list[JudgementRow]:
    """Rows as they were written."""
    rows: list[dict[str, Any]] = [
        {str(name): known(value) for name, value in row.items()} for row in frame.to_dict("records")
    ]
    return [JudgementRow(**row) for row in rows]


def known(value: Any) -> Any:
    """None for what a frame has as a missing value."""
    return None if value is None or pd.isna(value) else value


def still_valid(judged: pd.DataFrame, before: pd.DataFrame, after: Iterable[AnswerRow]) -> list[JudgementRow]:
    """The grades of conversations that are word for word what they were: a turn's answer rests on those before it."""
    old, new = _conversations(before), _conversations(pd.DataFrame(list(after), columns=list(before.columns)))
    same = {place for place, turns in old.items() if turns == new.get(place)}
    return [row for row in judgement_rows(judged) if (row.prompt_id, row.arm) in same]


def _conversations(answers: pd.DataFrame) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Turns, questions and answers by prompt and arm."""
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for row in answers.sort_values("turn").to_dict("records"):
        found[row["prompt_id"], row["arm"]].append((row["turn"], row["question"], row["answer"]))
    return found
