"""What changed from one run to another: the ratio of a metric over the turns that both decoded, and a word for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from specdec_trees.compare.sides import Run
from specdec_trees.results.rows import METHOD
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.metrics import untimed
from specdec_trees.statistics.samples import Sample

FASTER, SLOWER, LONGER, SHORTER = "faster", "slower", "longer", "shorter"
TIED, NO_INTERVAL = "tied", "no interval"
METRICS = {"mal": "MAL", "tokens_per_s": "tokens/s", "speedup": "speedup"}
"""Their headers."""
JUDGED = ("mal", "speedup")
"""Metrics in which a run can be worse: tokens/s changes with the machine."""
_OF_TIMES = {1: FASTER, -1: SLOWER, 0: TIED, None: NO_INTERVAL}
_OF_LENGTHS = _OF_TIMES | {1: LONGER, -1: SHORTER}
_TURN = ["prompt_id", "turn", "arm"]
_OF_PROMPTS = ["run_id", *_TURN, "status", "output_sha256", "num_decoded_tokens", "decode_s", "contaminated"]
_OF_STEPS = ["prompt_id", "turn", "acceptance_length", "num_accepted", "depth"]
"""What metrics and notes read of a turn and of a step."""
_PROMPTS = ("prompts_sha256", "prompt_ids_sha256")


@dataclass(frozen=True, slots=True)
class Change:
    """A metric of both runs over what both decoded, and the second's over the first's."""

    first: float
    second: float
    ratio: Interval
    word: str


@dataclass(frozen=True, slots=True)
class _Rows:
    prompts: pd.DataFrame
    steps: pd.DataFrame
    timed: pd.DataFrame
    """The prompts whose times count in both runs."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """What is said of two runs: numbers, of rows that need not be kept for thousands of cells."""

    changes: dict[str, Change]
    control: Interval
    identical: float
    num_timed: int


@dataclass(frozen=True)
class Couple:
    """Two runs; `first` is what the other is set against."""

    first: Run
    second: Run

    @property
    def ok(self) -> bool:
        """Whether both ended well."""
        return self.first.ok and self.second.ok

    @property
    def broken(self) -> list[str]:
        """What was well in the first run and is not in the second, whatever the metrics say."""
        before, after = self.first.row, self.second.row
        if not self.first.ok:
            return []
        if not self.second.ok:
            return [f"ended {after['status']}"]
        own, others = int(before["num_failed"]), int(after["num_failed"])
        words = [f"failed in {others} conversations (A: in {own})"] if others > own else []
        return words + (["is lossless no more"] if before["lossless"] and not after["lossless"] else [])

    @property
    def measured(self) -> bool:
        """Whether there is anything that both decoded."""
        return self.ok and self.num_conversations > 0

    @cached_property
    def num_conversations(self) -> int:
        """Those of which both decoded a turn."""
        return int(_of_method(self._shared())["prompt_id"].nunique())

    @property
    def num_timed(self) -> int:
        """Those of which a turn of both has times that count."""
        return self._figures.num_timed

    @property
    def changes(self) -> dict[str, Change]:
        """By metric."""
        return self._figures.changes

    @property
    def control(self) -> Interval:
        """Tokens/s of autoregressive decoding, the second run's over the first's: what the machine did to both."""
        return self._figures.control

    @property
    def identical(self) -> float:
        """Share of the turns for which both methods gave the same tokens; nan if they share none."""
        return self._figures.identical

    def worse(self, metric: str) -> bool:
        """Whether the metric fell, beyond its interval."""
        return self.ok and self.changes[metric].word in (SLOWER, SHORTER)

    @property
    def same_prompts(self) -> bool:
        """Whether both runs were given the same conversations; runs that failed early do not know."""
        prints = [[run.row[name] for run in (self.first, self.second)] for name in _PROMPTS]
        return all(first == second or not (_known(first) and _known(second)) for first, second in prints)

    @cached_property
    def other_prompts(self) -> set[str]:
        """Conversations that both runs know by the same id and whose first prompts are not the same tokens.

        Of rows that do not know their tokens the lengths are compared.
        """
        if self.same_prompts:
            return set()
        first, second = map(_first_turns, (self.first, self.second))
        return {
            prompt_id
            for prompt_id in first.keys() & second.keys()
            for own, others in [zip(first[prompt_id], second[prompt_id], strict=True)]
            if len(set(own)) > 1 or (all(map(_known, others)) and len(set(others)) > 1)
        }

    def _shared(self) -> pd.DataFrame:
        """The turns, by arm, that ended well in both runs, of conversations that are the same in both."""
        ok = [run.prompts.loc[run.prompts["status"] == "ok", _TURN] for run in (self.first, self.second)]
        turns = ok[0].merge(ok[1], on=_TURN, validate="one_to_one")
        return turns[~turns["prompt_id"].isin(self.other_prompts)]

    @cached_property
    def _figures(self) -> _Figures:
        shared = self._shared()
        both = self._rows(shared)
        speeds = [samples.tokens_per_s(rows.timed) for rows in both]
        changes = {
            "mal": _change([samples.mal(rows.steps) for rows in both], _OF_LENGTHS),
            "tokens_per_s": _change(speeds),
            "speedup": _change([samples.speedup(rows.timed) for rows in both]),
        }
        first, second = (speed.controls[0] for speed in speeds)
        return _Figures(
            changes,
            samples.paired_ratio(second, first),
            _identical(_of_method(shared), *(rows.prompts for rows in both)),
            int(both[0].timed["prompt_id"].nunique()),
        )

    def _rows(self, shared: pd.DataFrame) -> tuple[_Rows, _Rows]:
        """Of either run the rows of the turns that both have."""
        turns = _of_method(shared)[["prompt_id", "turn"]]
        prompts = [run.prompts[_OF_PROMPTS].merge(shared, on=_TURN) for run in (self.first, self.second)]
        left_out = pd.concat([rows.loc[untimed(rows), "prompt_id"] for rows in prompts])
        clean = shared[~shared["prompt_id"].isin(left_out)]
        first, second = (
            _Rows(rows, run.steps[_OF_STEPS].merge(turns, on=["prompt_id", "turn"]), rows.merge(clean, on=_TURN))
            for run, rows in zip((self.first, self.second), prompts, strict=True)
        )
        return first, second


def _of_method(turns: pd.DataFrame) -> pd.DataFrame:
    return turns[turns["arm"] == METHOD]


def _identical(turns: pd.DataFrame, first: pd.DataFrame, second: pd.DataFrame) -> float:
    """Share of these turns whose outputs are equal."""
    places = pd.MultiIndex.from_frame(turns)
    one, other = (prompts.set_index(_TURN)["output_sha256"].loc[places] for prompts in (first, second))
    return float((one == other).mean()) if len(turns) else math.nan


def _change(metrics: Sequence[Sample], words: Mapping[int | None, str] = _OF_TIMES) -> Change:
    """Of a metric of the first run and of the second."""
    first, second = metrics
    one, other = (samples.interval(sample).value for sample in (first, second))
    return Change(one, other, samples.paired_ratio(second, first), words[samples.ahead(second, first)])


def _first_turns(run: Run) -> dict[str, tuple[int, object]]:
    """By conversation how many tokens the first prompt has, and their digest."""
    rows = run.decoded[run.decoded["turn"] == 0]
    tokens = zip(rows["num_prompt_tokens"], rows["prompt_ids_sha256"], strict=True)
    return dict(zip(rows["prompt_id"], tokens, strict=True))


def _known(value: object) -> bool:
    """Whether a run knows its prompts: one that failed early, or an older one, need not."""
    return isinstance(value, str) and bool(value)
