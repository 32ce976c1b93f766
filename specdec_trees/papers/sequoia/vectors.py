"""Sequoia's acceptance vectors, which belong to no run, and Figure 3: the rejection rate against the children.

A vector has the rates of one setting and rule; growth rows, which are computed from it, have the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import definitions, style, tables
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.tables import Table
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals
from specdec_trees.statistics.intervals import Interval

SETTING = ("pair", "dataset", "temperature", "top_p", "verifier", "draws", "device_name")
"""Columns that acceptance and growth rows share."""
SETTING_COLUMNS = ("pair", "dataset", "temperature", "top_p", "rule")
_MEASURED = ("draft_temperature", "draft_top_p", "estimator", "width", "num_prompts", "num_positions", "run_id")
_RULES = {"without_replacement": "Sequoia", "spec_infer": "SpecInfer", "k_seq": "SpecTr", "target_sample": "top-k"}


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
        """The rejection rate r_k = 1 - P_k with its interval."""
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


def rule_look(verifier: str) -> dict[str, Any]:
    """How it is drawn in all figures: as the method whose rule it is."""
    return style.of_method({"without_replacement": "sequoia"}.get(verifier, verifier))


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


def table_of(
    name: str,
    title: str,
    known: Sequence[Vector],
    cells: Callable[[Vector], Iterable[dict[str, str]]],
    headers: Mapping[str, str],
    legend: Mapping[str, str],
    said: Iterable[str] = (),
) -> Table:
    """The settings of vectors, and what `cells` has of each in one row or several, under `headers` by key.

    Notes say how they were measured.
    """
    rows = [(vector.setting | row, vector.run_id) for vector in known for row in cells(vector)]
    frame = tables.frame([row for row, _ in rows], (*SETTING_COLUMNS, *headers)).fillna(tables.ABSENT)
    all_rows = pd.concat([vector.rows for vector in known])
    notes, ids = (*map(scale, known), *said), tuple(run_id for _, run_id in rows)
    return Table(name, f"{title} ({words(all_rows)})", frame, notes, legend, ids, definitions.ROWS | dict(headers))


def _order(vector: Vector) -> tuple[object, ...]:
    first = vector.first
    return (*first[["pair", "dataset", "temperature", "top_p"]], rule_index(first["verifier"]))


def _several(column: str, values: pd.Series) -> str:
    distinct = [f"{value:g}" if isinstance(value, float) else str(value) for value in values.unique()]
    return {"temperature": "temperature ", "top_p": "top-p "}.get(column, "") + " / ".join(distinct)


def _number(value: float | None) -> str:
    return tables.ABSENT if pd.isna(value) else f"{value:g}"


TITLE = "Sequoia Figure 3: rejection rate against the number of children"
_PANEL = ["pair", "dataset", "temperature", "top_p", "device_name"]
_ROUNDING = 1e-12  # a smaller rate is none
_APART = ("draws", "estimator", "draft_temperature", "draft_top_p", "width", "num_prompts")
_FLOOR = (
    "With one child the rules that draw are the same, 1 - sum of min(p, q): how far their r_1 lie apart is what the "
    "drawn children add. The exponent b tells how fast a rate falls, not how high it begins."
)
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
BRACKETS = (
    f"in brackets the 95% interval over prompts that was kept with the vector, by {intervals.METHOD}; of vectors from "
    "before that by bootstrap, which is too short"
)
LEGEND = {
    "r_1": f"r_k: probability that k children of an accepted node are all rejected; {BRACKETS}",
    "b": "of the fit r_k ~ k^-b, least squares of logarithms over all k",
}


def rejection_rates(name: str, results: Results) -> list[Output]:
    """One panel per pair, dataset and temperature, one line per rule; and a table of rates at powers of two."""
    known = vectors(results)
    panels: dict[tuple[object, ...], list[Vector]] = {}
    for vector in known:
        if len(_curve(vector)):
            panels.setdefault(tuple(vector.first[_PANEL]), []).append(vector)
    if not panels:
        raise NoResultsError("no vector has a rejection rate: SpecTr's is measured by the estimator counts alone")
    rows = pd.concat([vector.rows for vector in known])
    named = [column for column in _PANEL if column in _PANEL[:3] or rows[column].nunique() > 1]
    shown = [(words(pd.concat([vector.rows for vector in lines]), named), lines) for lines in panels.values()]
    drawn = [vector.run_id for lines in panels.values() for vector in lines]
    aside = "; 95% interval shaded; b of the fit r_k ~ k^-b"
    figure = style.drawn(name, TITLE, words(rows), _draw, shown, drawn, aside=aside, columns=3)
    widths = [k for k in WIDTHS if any(k <= len(vector.rows) for vector in known)]
    headers = {column: column for column in ("b", *(f"r_{k}" for k in widths))}
    return [figure, table_of(name, TITLE, known, lambda vector: [_rates(vector, widths)], headers, LEGEND, (_FLOOR,))]


def _curve(vector: Vector) -> pd.DataFrame:
    """The rows whose rejection rate was measured and is not just rounding."""
    return vector.rows[vector.rows["rejection"] > _ROUNDING]


def _draw(axes: Axes, title: str, lines: Sequence[Vector]) -> None:
    for vector in lines:
        same = [other for other in lines if other.first["verifier"] == vector.first["verifier"]]
        k = list(_curve(vector)["k"])
        look = rule_look(vector.first["verifier"]) | {"label": _label(vector, same), "markersize": 3}
        look |= {} if vector is same[0] else {"linestyle": "--", "markerfacecolor": "white"}
        style.band(axes, k, map(vector.rejection, k), 0, **look)
    axes.set(title=title, xlabel="children k", ylabel="rejection rate r_k", yscale="log")
    drawn = pd.concat([_curve(vector) for vector in lines])
    style.powers_of_two(axes, drawn["k"])
    floor = drawn["rejection"].min() / 20
    axes.set_ylim(0.8 * drawn["rejection_low"].fillna(drawn["rejection"]).clip(lower=floor).min(), 1.1)
    style.legend_below(axes, columns=2 if len({vector.first["verifier"] for vector in lines}) == len(lines) else 1)


def _label(vector: Vector, same: Sequence[Vector]) -> str:
    """The rule and its exponent, and what tells it from others of the same rule."""
    apart = [column for column in _APART if any(other.first[column] != vector.first[column] for other in same)]
    words_ = [f"{column.replace('_', ' ')} {vector.first[column]}" for column in apart]
    fit = "no fit" if vector.exponent is None else f"b = {vector.exponent:.2f}"
    return f"{rule_label(vector.first['verifier'])} ({', '.join([fit, *words_])})"


def _rates(vector: Vector, widths: Sequence[int]) -> dict[str, str]:
    rates = {k: vector.rejection(k) for k in widths if k <= len(vector.rows)}
    cells = {"b": tables.number(vector.exponent)}
    return cells | {f"r_{k}": tables.interval(rate, 4) for k, rate in rates.items() if not pd.isna(rate.value)}
