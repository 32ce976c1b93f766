"""The answers of results folders as questions to a judge, and the books of what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from specdec_trees.judge import prompts
from specdec_trees.judge.prompts import Turn
from specdec_trees.results.judgements import known
from specdec_trees.results.rows import JudgementRow
from specdec_trees.results.store import Store

Key = tuple[str, str, int, str]
"""Run, prompt, turn and arm of an answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """One answer and the chat that asks for its grade."""

    key: Key
    messages: list[dict[str, str]]

    @property
    def digest(self) -> str:
        """Equal exactly if the judge is asked the same: runs on the same target share its own answers."""
        return hashlib.sha256(json.dumps(self.messages).encode()).hexdigest()


@dataclass
class Book:
    """The judgements of one run, on disk and since."""

    store: Store
    run_id: str
    rows: list[JudgementRow]
    changed: bool = False

    def add(self, row: JudgementRow) -> None:
        """Keep a row in place of the one for the same answer, judge and prompts."""
        self.rows, self.changed = replaced(self.rows, [row]), True

    def write(self) -> None:
        """Bring the file up to date."""
        if self.changed:
            self.store.write("judgements", self.run_id, self.rows)
            self.changed = False


def questions(answers: pd.DataFrame) -> Iterator[Question]:
    """A question per row of `answers`; that of a later turn shows the turns before it in the same arm."""
    for (run_id, prompt_id, arm), rows in answers.groupby(["run_id", "prompt_id", "arm"], sort=False):
        so_far: list[Turn] = []
        for row in rows.sort_values("turn").to_dict("records"):
            so_far.append(Turn(row["question"], row["answer"], known(row["reference"])))
            yield Question((str(run_id), str(prompt_id), int(row["turn"]), str(arm)), prompts.messages(so_far))


def key_of(row: JudgementRow) -> Key:
    """The answer that a row is about."""
    return row.run_id, row.prompt_id, row.turn, row.arm


def replaced(old: Iterable[JudgementRow], new: Iterable[JudgementRow]) -> list[JudgementRow]:
    """Old rows and new ones; of the same answer, judge and prompts the newest."""
    return list({(*key_of(row), row.judge, row.prompt_version): row for row in (*old, *new)}.values())
