"""What a column or a curve shows of a run: its header, its meaning, its value, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bench.artifacts import definitions, tables
from bench.artifacts.runs import Counted, Run
from bench.artifacts.ties import Entry
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample


def written(value: Any, digits: int) -> str:
    """An interval, a number or words as they stand in a cell."""
    if isinstance(value, str):
        return value
    return tables.interval(value, digits) if isinstance(value, Interval) else tables.number(value, digits)


@dataclass(frozen=True, slots=True)
class Metric:
    """`of` gives an interval, a number or words of a run or what else has a row; `sample` the sums it is ranked by."""

    header: str
    of: Callable[[Any], Any]
    means: str = ""
    digits: int = 2
    sample: Callable[[Run], Sample | None] | None = None
    text: Callable[[Any, int], str] = written

    def cell(self, run: Any) -> str:
        """As it stands in a table; absent where there is no run."""
        return tables.ABSENT if run is None else self.text(self.of(run), self.digits)

    def entry(self, run: Run | None) -> Entry:
        """What is ranked."""
        if run is None or self.sample is None:
            return Entry(None, None)
        value = self.of(run)
        return Entry(value if isinstance(value, Interval) else None, self.sample(run), run.lossless)


def measured(header: str, counted: Counted, means: str = "", digits: int = 2) -> Metric:
    """A ratio of sums over a run's conversations, with its interval."""
    return Metric(header, lambda run: run.interval(counted), means, digits, lambda run: run.sample(counted))


def lossless_words(run: Run) -> str:
    """`yes, 98.0% identical`: whether its rule is lossless, and the share of outputs equal to the target's own."""
    word = "yes" if run.lossless else "no"
    return word if run.identical is None else f"{word}, {tables.percent(run.identical)} identical"


def _own_autoregressive(run: Run) -> float | None:
    own = run.interval("autoregressive_tokens_per_s")
    return own.value if own else None


MAL = measured("MAL", "mal", definitions.MAL)
SPEEDUP = measured("speedup", "speedup", definitions.SPEEDUP)
TOKENS_PER_S = measured("tokens/s", "tokens_per_s", definitions.TOKENS_PER_S, 1)
AUTOREGRESSIVE_TOKENS_PER_S = Metric("tokens/s autoregressive", _own_autoregressive, definitions.OWN_AUTOREGRESSIVE, 1)
SPEEDS = (TOKENS_PER_S, AUTOREGRESSIVE_TOKENS_PER_S)
"""They stand together: a speedup is of two speeds of one run, and other runs' are of other minutes."""
EXPECTED = Metric("E(A)", lambda run: run.expected.value, definitions.EXPECTED)
FORWARDS = Metric("draft forwards", lambda run: run.draft_forwards, "per decoding step", 1)
LOSSLESS = Metric("lossless", lossless_words, definitions.LOSSLESS)
DRAFTER = Metric("Drafter", lambda run: run.name)


def headers(columns: Iterable[Metric]) -> tuple[str, ...]:
    """What stands above them."""
    return tuple(column.header for column in columns)


def legend(columns: Iterable[Metric]) -> dict[str, str]:
    """What those mean that say so, by header."""
    return {column.header: column.means for column in columns if column.means}


def cells(columns: Iterable[Metric], run: Any) -> dict[str, str]:
    """The cells of a row, by header."""
    return {column.header: column.cell(run) for column in columns}
