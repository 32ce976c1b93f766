"""A claim of a paper, and how it is answered on one pair."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_trees.artifacts import tables, verdict
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.papers.beyond.answers import Answer
from specdec_trees.statistics.corrections import LEVEL
from specdec_trees.statistics.intervals import Interval

Where = tuple[str, str, str]
"""`embedded` or `real`, the pair, and how it decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """In a paper's table the first method is ahead of the second, by this metric."""

    artifact: str
    metric: Metric
    ahead: Arm
    behind: Arm

    @property
    def words(self) -> str:
        """`OPT-Tree > binary`."""
        return f"{self.ahead.header} > {self.behind.header}"


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A claim on one pair in one decoding, over datasets."""

    claim: Claim
    where: Where
    lead: float
    """The paper's ratio of the two."""
    ahead: str
    ratio: Interval
    answer: Answer
    """Over all datasets together."""
    counts: tuple[int, ...]
    """Conversations that both methods decoded, of each of these datasets."""
    by_dataset: str
    delta: float | None
    """What one more level must add to E(A), of a method that has such a threshold."""
    values: tuple[Interval | None, Interval | None]
    """Of the first method and of the second."""
    borrowed: tuple[str, ...]
    """Whose published value stands in place of one that the paper does not have."""
    run_ids: str

    @property
    def comparable(self) -> bool:
        """Whether there is an answer, on any dataset."""
        return not self.answer.words.startswith(verdict.NOT_COMPARABLE)

    def _ours(self) -> str:
        """The ratio, of which values it is one, and the threshold behind the first."""
        first, other = (tables.number(one.value) if one else tables.ABSENT for one in self.values)
        delta = "" if self.delta is None else f", delta {self.delta:g}"
        return f"{tables.ratio(self.ratio)} ({first} / {other}{delta})"

    def row(self, corrected: float | None) -> dict[str, str]:
        """As the table has it; `corrected` is p after the correction, None where nothing was judged."""
        kind, pair, decoding = self.where
        words = [*self.borrowed, *["tie"] * verdict.tied(self.lead, 1)]
        return {
            "table": self.claim.artifact,
            "claim": self.claim.words,
            "measure": self.claim.metric.header,
            "pair": f"{pair} ({kind})",
            "temperature": decoding,
            "published": tables.number(self.lead) + (f" ({', '.join(words)})" if words else ""),
            "published_ahead": self.ahead,
            "ours": self._ours(),
            "n": " + ".join(map(str, self.counts)),
            "pooled": self.answer.words,
            "after_correction": tables.ABSENT if corrected is None else _after(corrected),
            "by_dataset": self.by_dataset,
        }


def _after(corrected: float) -> str:
    """`yes (p = 0.003)`."""
    if corrected == 1:
        return "no"
    size = "< 0.001" if corrected < 0.001 else f"= {corrected:.2g}"
    return f"{'yes' if corrected <= LEVEL else 'no'} (p {size})"
