"""The numbers the papers print: one CSV per paper, one row per value, and nothing measured by us.

Columns: paper, artifact, target, draft, dataset, temperature, method, params, metric, value, unit, hardware, notes.
Names of models and methods are short labels (`llama2_7b`, `jf68m`, `opt_tree`); text columns are empty, and temperature
is NaN, where the paper does not state them. `params` is `key=value;key=value`.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files

import pandas as pd

_NUMBERS = ("temperature", "value")


def papers() -> list[str]:
    """The papers whose numbers are stored, by short name."""
    return sorted(entry.name.removesuffix(".csv") for entry in files(__name__).iterdir() if entry.name.endswith(".csv"))


def load(paper: str) -> pd.DataFrame:
    """All published rows of a paper; raises ValueError for a paper that is not stored."""
    return _read(paper).copy()


def find(paper: str, artifact: str, **keys: str | float | list[str]) -> pd.DataFrame:
    """The rows of one table or figure whose columns equal `keys`; a list matches any of its members."""
    rows = load(paper)
    keep = rows["artifact"] == artifact
    for column, wanted in keys.items():
        if column not in rows:
            raise ValueError(f"published numbers have no column {column!r}; there are {', '.join(rows.columns)}")
        keep &= rows[column].isin(wanted) if isinstance(wanted, list) else rows[column] == wanted
    return rows[keep].reset_index(drop=True)


@cache
def _read(paper: str) -> pd.DataFrame:
    if paper not in papers():
        near = difflib.get_close_matches(paper, papers(), cutoff=0.0)
        raise ValueError(f"no published numbers of {paper!r}; the nearest names are {', '.join(near)}")
    with files(__name__).joinpath(f"{paper}.csv").open(encoding="utf-8") as file:
        rows = pd.read_csv(file, keep_default_na=False, dtype=str)
    for column in _NUMBERS:
        rows[column] = pd.to_numeric(rows[column].replace("", None))
    return rows
