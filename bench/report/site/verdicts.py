"""The verdicts of a report's tables, counted: columns whose header starts with "verdict"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.verdict import DIFFERS, MATCHES, NOT_RESOLVED, NOT_RUN, ORDER_HOLDS, not_comparable

NOT_COMPARABLE = not_comparable("").partition(":")[0]
WORDS = (MATCHES, ORDER_HOLDS, DIFFERS, NOT_RESOLVED, NOT_COMPARABLE, NOT_RUN)
"""The verdicts without their reasons, in the order in which they are listed."""
TONES = dict(zip(WORDS, ("good", "fair", "bad", "unsure", "none", "none"), strict=True))


def is_verdict(header: str) -> bool:
    """Whether a column holds verdicts."""
    return header.lower().startswith("verdict")


def word(cell: str) -> str:
    """The verdict of a cell without what is said of it; a word that the rule does not have stands for itself."""
    return next((known for known in WORDS if cell.startswith(known)), cell)


def count(tables: Iterable[Table]) -> dict[str, int]:
    """How often each verdict was given, in the order of `WORDS`; cells without one do not count."""
    columns = [table.frame[header] for table in tables for header in table.frame if is_verdict(str(header))]
    found = Counter(word(str(cell)) for column in columns for cell in column)
    order = [*WORDS, *(other for other in found if other not in (*WORDS, ABSENT, ""))]
    return {verdict: found[verdict] for verdict in order if found[verdict]}
