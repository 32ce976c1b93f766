"""Acceptance vectors and growth curves: the rows that belong to no run, by setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from bench.artifacts.outputs import NoResultsError
from bench.results.store import Results
from bench.statistics.intervals import Interval

SETTING = ("pair", "dataset", "temperature", "top_p", "verifier", "draws", "device_name")
"""Columns that acceptance and growth rows share."""
SETTING_COLUMNS = ("Pair", "Dataset", "temperature", "top-p", "Rule")
_MEASURED = ("draft_temperature", "draft_top_p", "estimator", "width", "num_prompts", "num_positions", "run_id")
_RULES = {
    "without_replacement": "Sequoia",
    "spec_infer": "SpecInfer",
    "k_seq": "SpecTr",
    "target_sample": "top-k",
}


@dataclass(frozen=True)
class Vector:
    """One measured acceptance vector: its rows in the order of k."""

    rows: pd.DataFrame

    @cached_property
    def first(self) -> pd.Series:
        """A row that stands for what all of them share."""
        return self.rows.iloc[0]

    @property
    def run_id(self) -> str:
        """The measurement that it is of."""
        return str(self.first["run_id"])

    @property
    def setting(self) -> dict[str, str]:
        """What stands in a row under `SETTING_COLUMNS`."""
        first = self.first
        numbers = (f"{first['temperature']:g}", f"{first['top_p']:g}")
        cells = (str(first["pair"]), str(first["dataset"]), *numbers, rule_label(first["verifier"]))
        return dict(zip(SETTING_COLUMNS, cells, strict=True))

    @cached_property
    def accepted(self) -> list[float]:
        """P_1, P_2, ...: 1 - rejection, or the sum of p_1 to p_k where the rejection was not measured."""
        return [float(value) for value in (1 - self.rows["rejection"]).fillna(self.rows["p"].cumsum())]

    def rejection(self, k: int) -> Interval:
        """The rejection rate r_k = 1 - P_k with its bootstrap interval."""
        row = self.rows.iloc[k - 1]
        return Interval(row["rejection"], row["rejection_low"], row["rejection_high"], int(row["num_prompts"]))

    @property
    def exponent(self) -> float | None:
        """The b of the fit r_k ~ k^-b; None if there is none."""
        value = self.first["exponent"]
        return None if pd.isna(value) else float(value)


def vectors(results: Results) -> list[Vector]:
    """All measured vectors by pair, dataset, temperature, top-p and rule; NoResultsError where there are none."""
    rows = results.acceptance
    if rows.empty:
        raise NoResultsError("no acceptance vector was measured")
    groups = rows.groupby([*SETTING, *_MEASURED], sort=False, dropna=False)
    return sorted((Vector(group.sort_values("k").reset_index(drop=True)) for _, group in groups), key=_order)


def rule_label(verifier: str) -> str:
    """The rule as the paper's figures call it; a name it does not know stands as it is."""
    return _RULES.get(verifier, verifier)


def rule_index(verifier: str) -> int:
    """A number of its own for each rule, so that it has the same colour in every panel."""
    return list(_RULES).index(verifier) if verifier in _RULES else len(_RULES)


def words(rows: pd.DataFrame, columns: Sequence[str] = ("pair", "dataset", "temperature", "device_name")) -> str:
    """The words of a title: what the rows have in each column."""
    return ", ".join(_several(column, rows[column]) for column in columns)


def scale(vector: Vector) -> str:
    """One sentence of how a vector was measured."""
    row = vector.first
    return (
        f"{row['pair']}, {row['dataset']}, temperature {row['temperature']:g}, top-p {row['top_p']:g}, "
        f"{rule_label(row['verifier'])} ({row['verifier']}, draws {row['draws']}): {row['num_prompts']} prompts, "
        f"{row['num_positions']} positions, {row['width']} children, estimator {row['estimator']}, "
        f"draft temperature {_number(row['draft_temperature'])}, draft top-p {_number(row['draft_top_p'])}, "
        f"on {row['device_name']}."
    )


def _order(vector: Vector) -> tuple[object, ...]:
    first = vector.first
    return (*first[["pair", "dataset", "temperature", "top_p"]], rule_index(first["verifier"]))


def _several(column: str, values: pd.Series) -> str:
    distinct = [f"{value:g}" if isinstance(value, float) else str(value) for value in values.unique()]
    prefix = f"{column.replace('_', '-') if column == 'top_p' else column} "
    return (prefix if column in {"temperature", "top_p"} else "") + " / ".join(distinct)


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:g}"
