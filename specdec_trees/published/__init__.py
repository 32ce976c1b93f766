"""The numbers the papers print: one CSV per paper, one row per value, and nothing measured by us.

Columns: paper, artifact, target, draft, dataset, temperature, method, params, metric, value, unit, hardware, notes.
Names of models and methods are short labels (`llama2_7b`, `jf68m`, `opt_tree`); text columns are empty, and temperature
is NaN, where the paper does not state them. `params` is `key=value;key=value`. What a number means exactly is in
`definitions.csv`, every table and figure in `artifacts.csv`, whose experiments give what a text says in `sources.csv`,
and what no experiment gives in `unjoined.csv`. `cards.csv` has what cards can do, `models.csv` sizes of targets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pandas as pd

COLUMNS = (
    *("paper", "artifact", "target", "draft", "dataset", "temperature", "method", "params"),
    *("metric", "value", "unit", "hardware", "notes"),
)
CATALOGUE = ("artifacts", "cards", "definitions", "models", "sources", "unjoined")
"""The CSVs that are of no single paper."""
WHOLE_PAPER = "*"
"""The artifact of a definition that holds for all of a paper."""
_NUMBERS = ("temperature", "value")
_RECOVERED = r"recovered from ([^;]+)"


@cache
def papers() -> list[str]:
    """The papers whose numbers are stored, by short name: one CSV each."""
    stored = (Path(file.name) for file in files(__name__).iterdir())
    return sorted(name.stem for name in stored if name.suffix == ".csv" and name.stem not in CATALOGUE)


def load(paper: str) -> pd.DataFrame:
    """All published rows of a paper, with the `definition` of each; raises ValueError for a paper that is not stored.

    A definition of the row's own artifact goes before one for the whole paper; "" where there is none.
    """
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


def params_of(text: str) -> dict[str, str]:
    """The `params` of a published row: `key=value;key=value`."""
    return dict(item.split("=", 1) for item in text.split(";") if "=" in item)


def recovered(paper: str, artifact: str) -> list[str]:
    """A sentence for every other text that an artifact's numbers had to be taken from, and how many were."""
    notes = find(paper, artifact)["notes"]
    phrases = notes.str.extract(_RECOVERED, flags=re.IGNORECASE)[0].dropna()
    counted = phrases.value_counts().items()
    return [f"Published numbers: {count} of {len(notes)} were recovered from {phrase}." for phrase, count in counted]


def artifacts() -> pd.DataFrame:
    """Every table and figure of the papers: paper, artifact, place, title, absent.

    `place` is the section in which it stands, or that first reports it where the layout set it apart; `title` says in
    our words what it shows; `absent` is why it is not reproduced, "" if it is.
    """
    return _table("artifacts.csv").copy()


def definitions() -> pd.DataFrame:
    """What the papers' metrics mean: paper, artifact (`WHOLE_PAPER` for all of it), metric, definition."""
    return _table("definitions.csv").copy()


def unjoined() -> pd.DataFrame:
    """Why published rows have no cell of an experiment: paper, artifact, keys of the rows ("": any), reason.

    `specdec_trees.published.join` says which rows a reason covers.
    """
    rows = _table("unjoined.csv").copy()
    rows["temperature"] = pd.to_numeric(rows["temperature"].replace("", None))
    return rows


@cache
def sources() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The experiments from which a number of a paper's text follows, by paper and metric."""
    rows = _table("sources.csv")
    keys = zip(rows["paper"], rows["metric"], strict=True)
    return dict(zip(keys, map(tuple, rows["experiments"].str.split()), strict=True))


@cache
def parameters() -> Mapping[str, tuple[int, int]]:
    """The parameters of targets, and those of their input embedding among them, by the names that papers' rows have."""
    rows = _table("models.csv")
    sizes = zip(rows["parameters"].astype(int), rows["embedding"].astype(int), strict=True)
    return dict(zip(rows["target"], sizes, strict=True))


@dataclass(frozen=True, slots=True)
class Card:
    """What a card can do by its data sheet: bytes of its memory per second, dense half-precision operations."""

    bytes_per_s: float
    flops: float


@cache
def card(name: str, memory_gb: int | None = None, form: str | None = None) -> Card | None:
    """A card, or a link, which does no arithmetic (nan); None where it is not known, or of which memory not.

    What a row leaves empty it does not tell apart. A name that states no form (`sxm`, `pcie`) is of its first row.
    """
    rows = _table("cards.csv").query("card == @name")
    for column, stated in {"memory_gb": memory_gb, "form": form}.items():
        if stated is not None:
            rows = rows[rows[column].isin(["", str(stated)])]
    numbers = rows[["bytes_per_s", "flops"]].replace("", "nan").astype(float)
    return Card(*numbers.iloc[0]) if rows["memory_gb"].nunique() == 1 else None


def cards() -> list[str]:
    """The names of all cards, with their memory and form where they are told apart by these."""
    rows = _table("cards.csv").query("flops != ''")
    memories = rows["memory_gb"].where(rows["memory_gb"] == "", rows["memory_gb"] + "gb")
    return [" ".join(filter(None, words)) for words in zip(rows["card"], memories, rows["form"], strict=True)]


@cache
def _read(paper: str) -> pd.DataFrame:
    if paper not in papers():
        near = difflib.get_close_matches(paper, papers(), cutoff=0.0)
        raise ValueError(f"there is no specdec_trees/published/{paper}.csv; the nearest names are {', '.join(near)}")
    rows = _table(f"{paper}.csv").copy()
    for column in _NUMBERS:
        rows[column] = pd.to_numeric(rows[column].replace("", None))
    known = definitions().set_index(["paper", "artifact", "metric"])["definition"].to_dict()
    keys = zip(rows["artifact"], rows["metric"], strict=True)
    rows["definition"] = [
        known.get((paper, artifact, metric)) or known.get((paper, WHOLE_PAPER, metric), "") for artifact, metric in keys
    ]
    return rows


@cache
def _table(name: str) -> pd.DataFrame:
    with files(__name__).joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False, dtype=str)
