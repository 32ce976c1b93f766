"""What the rows of an artifact were measured with, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bench.results.store import Store

_VERSIONS = {
    "package_version": "specdec-bench",
    "torch_version": "torch",
    "transformers_version": "transformers",
    "python_version": "Python",
    "cuda_version": "CUDA",
    "driver_version": "driver",
}
_MEASURED = ("latency", "attention", "decisions", "acceptance")
"""Tables of measurements that no run belongs to, which know their device."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Distinct values over runs, each in the order of first sight; `first` and `last` are times in UTC."""

    runs: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    revisions: tuple[str, ...] = ()
    first: str = ""
    last: str = ""

    @property
    def days(self) -> str:
        """The day of the runs, or the first and the last."""
        first, last = self.first[:10], self.last[:10]
        return first if first == last else f"{first} to {last}"


def read(root: Path, artifact: str, pair: str | None = None) -> Provenance:
    """Of all runs of an artifact, or of those of one pair; of what was measured without runs the device is known."""
    if not (root / artifact).is_dir():
        return Provenance()
    store = Store(root, artifact)
    runs = _of_pair(store.read("runs"), pair).sort_values("created_utc", kind="stable")
    if runs.empty:
        measured = [_of_pair(store.read(table), pair) for table in _MEASURED]
        return Provenance(
            runs=_distinct(table["run_id"] for table in measured),
            pairs=_distinct(table["pair"] for table in measured if "pair" in table),
            devices=_distinct(table["device_name"] for table in measured),
        )
    created = runs["created_utc"].astype(str)
    return Provenance(
        runs=_distinct([runs["run_id"]]),
        pairs=_distinct([runs["pair"]]),
        devices=_distinct([runs["device_name"]]),
        versions=_distinct(words + " " + runs[column].dropna() for column, words in _VERSIONS.items()),
        revisions=_distinct([_revisions(runs)]),
        first=created.min(),
        last=created.max(),
    )


def together(parts: Iterable[Provenance]) -> Provenance:
    """Of several artifacts at once."""
    every = list(parts)
    first, last = ([time for part in every if (time := getattr(part, side))] for side in ("first", "last"))
    lists = {
        name: tuple(dict.fromkeys(value for part in every for value in getattr(part, name)))
        for name in ("runs", "pairs", "devices", "versions", "revisions")
    }
    return Provenance(**lists, first=min(first, default=""), last=max(last, default=""))


def _revisions(runs: pd.DataFrame) -> pd.Series:
    known = runs[runs["git_revision"].notna()]
    changed = known["git_dirty"].fillna(False).astype(bool).map({True: " with changes", False: ""})
    return known["git_revision"].str[:10] + changed


def _of_pair(rows: pd.DataFrame, pair: str | None) -> pd.DataFrame:
    return rows if pair is None or "pair" not in rows else rows[rows["pair"] == pair]


def _distinct(columns: Iterable[pd.Series]) -> tuple[str, ...]:
    values = (str(value) for column in columns for value in column.dropna() if str(value))
    return tuple(dict.fromkeys(values))
