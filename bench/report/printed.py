"""What a paper prints, as a table: a row per setting and method, a column per metric, remarks numbered below."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from bench import published
from bench.artifacts.tables import ABSENT, Table, named_rows

_SETTING = ("target", "draft", "dataset", "temperature", "method", "params", "hardware")
_REMARKS = "remarks"
_SEPARATOR = "; "


def printed(paper: str, artifact: str, **keys: str | float | list[str]) -> Table:
    """The published numbers of a table, figure or section, of the rows whose columns equal `keys` if any are given.

    Columns that are the same in all rows stand in the title. ValueError with the names there are for one that has no
    numbers.
    """
    rows = published.find(paper, artifact, **keys)
    shared, rows["params"] = _split(rows["params"])
    if rows.empty:
        names = ", ".join(dict.fromkeys(published.load(paper)["artifact"]))
        chosen = f" of {', '.join(f'{key}={value}' for key, value in keys.items())}" if keys else ""
        raise ValueError(f"no published numbers{chosen} under {artifact!r} of {paper}; there are some under {names}")
    varying = [column for column in _SETTING if rows[column].nunique(dropna=False) > 1]
    same = {column: _text(rows[column].iloc[0]) for column in _SETTING if column not in varying}
    same["params"] = "; ".join(shared) or same.get("params", ABSENT)
    setting = ", ".join(f"{column} {value}" for column, value in same.items() if value not in ("none", ABSENT))
    remarks = list(dict.fromkeys(remark for note in rows["notes"] for remark in _remarks(note)))
    frame = pd.DataFrame(_records(rows, varying, remarks)).fillna(ABSENT)
    columns = [*varying, *dict.fromkeys(_metrics(rows)), *([_REMARKS] if remarks else [])]
    title = f"As printed: {paper}/{artifact}" + (f" ({setting})" if setting else "")
    notes = tuple(f"{number}: {remark}." for number, remark in enumerate(remarks, 1))
    legend = dict(zip(_metrics(rows), rows["definition"], strict=True))
    return Table(artifact, title, frame[columns], notes, {name: text.rstrip(".") for name, text in legend.items()})


def _records(rows: pd.DataFrame, varying: Sequence[str], remarks: Sequence[str]) -> list[dict[str, str]]:
    """One for each setting, in the order of the rows; values of the same metric and setting stand side by side."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    numbers: dict[tuple[str, ...], set[int]] = {}
    for row, metric in zip(named_rows(rows), _metrics(rows), strict=True):
        key = tuple(_text(getattr(row, column)) for column in varying)
        record = found.setdefault(key, dict(zip(varying, key, strict=True)))
        record[metric] = f"{record[metric]} / {row.value:g}" if metric in record else f"{row.value:g}"
        numbers.setdefault(key, set()).update(remarks.index(remark) + 1 for remark in _remarks(row.notes))
    if remarks:
        for key, record in found.items():
            record[_REMARKS] = ", ".join(map(str, sorted(numbers[key]))) or ABSENT
    return list(found.values())


def _split(params: pd.Series) -> tuple[list[str], pd.Series]:
    """The `key=value` that all rows have, and what is left of each row's."""
    parts = [text.split(";") if text else [] for text in params]
    shared = [part for part in parts[0] if all(part in others for others in parts)] if parts else []
    left = [";".join(part for part in others if part not in shared) for others in parts]
    return shared, pd.Series(left, index=params.index, dtype=object)


def _metrics(rows: pd.DataFrame) -> list[str]:
    """The metric of every row, with its unit where the name does not say it."""
    return [
        metric if not unit or unit in ("unspecified", *metric.split("_")) else f"{metric} ({unit})"
        for metric, unit in zip(rows["metric"], rows["unit"], strict=True)
    ]


def _remarks(note: str) -> list[str]:
    return [remark.strip().rstrip(".") for remark in note.split(_SEPARATOR) if remark.strip()]


def _text(value: object) -> str:
    """A cell; `key=value;key=value` gets room to wrap."""
    if isinstance(value, float):
        return ABSENT if pd.isna(value) else f"{value:g}"
    return str(value).replace(";", "; ") or ABSENT
