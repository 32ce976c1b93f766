"""What became of the answers of one method in one block: grades of a judge, and what is measured without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run, per_row
from bench.papers.improving_mcsd.methods import Method
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

_TURN = ["prompt_id", "turn"]


@dataclass(frozen=True, slots=True)
class Judge:
    """A model and the wording that it was asked in."""

    model: str
    prompts: str

    def __str__(self) -> str:
        return f"{self.model} (prompts {self.prompts})"


def judges(results: Results) -> list[Judge]:
    """Those that graded answers, the one with the most grades first."""
    graded = results.judgements.dropna(subset=["score"])
    counts = graded.groupby(["judge", "prompt_version"]).size().sort_values(ascending=False, kind="stable")
    return [Judge(str(model), str(prompts)) for model, prompts in counts.index]


@dataclass(frozen=True)
class Graded:
    """One row of a block: the answers of a method's run, or without a method those of the target alone."""

    method: Method | None
    block: Block | None
    judge: Judge | None

    @cached_property
    def run(self) -> Run | None:
        """The method's run, however it ended; None for the target alone and where there is none."""
        return self.method.chosen(self.block) if self.method and self.block is not None else None

    @property
    def failure(self) -> str:
        """How the run ended if it did not end well."""
        return "" if self.run is None or self.run.ok else str(self.run["status"])

    @cached_property
    def run_ids(self) -> list[str]:
        """The runs whose rows count: the method's own; for the target alone all of the block, whose answers are its."""
        if self.block is None or self.failure:
            return []
        if self.method is None:
            return [run.run_id for run in self.block.ok]
        return [] if self.run is None else [str(self.run["run_id"])]

    @property
    def arm(self) -> str:
        """Of the rows that count."""
        return AUTOREGRESSIVE if self.method is None else METHOD

    @cached_property
    def score(self) -> Interval | None:
        """Mean grade over turns, conversations resampled."""
        return _mean(_per_turn(self._grades(self.arm), "score"), "score")

    @property
    def score_sample(self) -> Sample | None:
        """The grades by conversation."""
        return per_row(_per_turn(self._grades(self.arm), "score"), "score")

    @cached_property
    def score_difference(self) -> Interval | None:
        """Its grade less that of the target alone in the same turn, over the turns that are graded in both arms."""
        return None if self.method is None else _difference(self._grades(METHOD), self._grades(AUTOREGRESSIVE), "score")

    @cached_property
    def compared(self) -> int:
        """Turns that are graded in both arms."""
        return 0 if self.method is None else len(_paired(self._grades(METHOD), self._grades(AUTOREGRESSIVE)))

    @cached_property
    def judged(self) -> tuple[int, int]:
        """Turns with a grade, of all whose answers were recorded."""
        answers = _of(self.block.results.answers, self.run_ids, self.arm) if self.block is not None else pd.DataFrame()
        return len(_per_turn(self._grades(self.arm), "score")), len(_per_turn(answers, None))

    def quality(self, column: str, arm: str | None = None) -> Interval | None:
        """Mean over turns of a column of `quality`, of this row's arm or of another's of its run."""
        return _mean(_per_turn(self._quality(arm or self.arm), column), column)

    def difference(self, column: str) -> Interval | None:
        """A column of `quality` less that of the target alone for the same prompt."""
        return (
            None if self.method is None else _difference(self._quality(METHOD), self._quality(AUTOREGRESSIVE), column)
        )

    def variation(self, column: str = "total_variation") -> Interval | None:
        """Mean over rows of a column of `variation`."""
        if self.block is None or self.method is None:
            return None
        rows = self.block.results.variation
        return _mean(rows[rows["run_id"].isin(self.run_ids)], column)

    def _grades(self, arm: str) -> pd.DataFrame:
        if self.block is None or self.judge is None:
            return pd.DataFrame()
        rows = _of(self.block.results.judgements, self.run_ids, arm).dropna(subset=["score"])
        return rows[(rows["judge"] == self.judge.model) & (rows["prompt_version"] == self.judge.prompts)]

    def _quality(self, arm: str) -> pd.DataFrame:
        return pd.DataFrame() if self.block is None else _of(self.block.results.quality, self.run_ids, arm)


def _of(rows: pd.DataFrame, run_ids: Sequence[str], arm: str) -> pd.DataFrame:
    return rows[rows["run_id"].isin(list(run_ids)) & (rows["arm"] == arm)]


def _per_turn(rows: pd.DataFrame, column: str | None) -> pd.DataFrame:
    """A row per turn: several runs have the same answers of the target alone, or as good ones."""
    if rows.empty:
        return pd.DataFrame()
    if column is None:
        return rows.drop_duplicates(_TURN)
    return rows.dropna(subset=[column]).groupby(_TURN)[[column]].mean().reset_index()


def _mean(rows: pd.DataFrame, column: str) -> Interval | None:
    known = rows.dropna(subset=[column]) if len(rows) else rows
    return intervals.ratio_of_sums(known, column) if len(known) else None


def _difference(mine: pd.DataFrame, plain: pd.DataFrame, column: str) -> Interval | None:
    both = _paired(mine, plain)
    if both.empty:
        return None
    return _mean(both.assign(difference=both[column] - both[f"{column}_plain"]), "difference")


def _paired(mine: pd.DataFrame, plain: pd.DataFrame) -> pd.DataFrame:
    """The rows of both arms of a run side by side, of the turns that have both."""
    if mine.empty or plain.empty:
        return pd.DataFrame()
    return mine.merge(plain, on=["run_id", *_TURN], suffixes=("", "_plain"), validate="one_to_one")
