"""Sequoia, Figure 3: the rejection rate against the number of children, by rule of acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from bench.artifacts import style, tables
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.papers.sequoia.vectors import SETTING_COLUMNS, Vector, rule_index, rule_label, scale, vectors, words
from bench.results.store import Results

TITLE = "Sequoia Figure 3: rejection rate against the number of children"
_PANEL = ["pair", "dataset", "temperature", "top_p", "device_name"]
_ROUNDING = 1e-12  # a smaller rate is none
_APART = ("draws", "estimator", "draft_temperature", "draft_top_p", "width", "num_prompts")
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
LEGEND = {
    "r_1": "r_k: probability that k children of an accepted node are all rejected; in brackets the 95% interval "
    "(bootstrap over prompts)",
    "b": "of the fit r_k ~ k^-b, least squares of logarithms over all k",
}


@style.styled
def rejection_rates(name: str, results: Results) -> list[Output]:
    """One panel per pair, dataset and temperature, one line per rule; and a table of rates at powers of two."""
    found = vectors(results)
    panels: dict[tuple[object, ...], list[Vector]] = {}
    for vector in found:
        if len(_curve(vector)):
            panels.setdefault(tuple(vector.first[_PANEL]), []).append(vector)
    if not panels:
        raise NoResultsError("no vector has a rejection rate: SpecTr's is measured by the estimator counts alone")
    rows = pd.concat([vector.rows for vector in found])
    how = "95% interval shaded; b of the fit r_k ~ k^-b"
    canvas, axes = style.panels(TITLE, f"{words(rows)}; {how}", len(panels), columns=3)
    named = [column for column in _PANEL if column in _PANEL[:3] or rows[column].nunique() > 1]
    for axis, lines in zip(axes, panels.values(), strict=True):
        _draw(axis, words(pd.concat([vector.rows for vector in lines]), named), lines)
    drawn = tuple(vector.run_id for lines in panels.values() for vector in lines)
    widths = [k for k in WIDTHS if any(k <= len(vector.rows) for vector in found)]
    cells = [vector.setting | {"b": tables.number(vector.exponent)} | _rates(vector, widths) for vector in found]
    frame = tables.frame(cells, (*SETTING_COLUMNS, "b", *(f"r_{k}" for k in widths))).fillna(tables.ABSENT)
    title, ids = f"{TITLE} ({words(rows)})", tuple(vector.run_id for vector in found)
    table = Table(name, title, frame, tuple(map(scale, found)), LEGEND, ids)
    return [style.Figure(name, title, canvas, drawn), table]


def _curve(vector: Vector) -> pd.DataFrame:
    """The rows whose rejection rate was measured and is not just rounding."""
    return vector.rows[vector.rows["rejection"] > _ROUNDING]


def _draw(axes: Axes, title: str, lines: Sequence[Vector]) -> None:
    for vector in lines:
        same = [other for other in lines if other.first["verifier"] == vector.first["verifier"]]
        k = list(_curve(vector)["k"])
        look = {"label": _label(vector, same), "linestyle": "-" if vector is same[0] else "--", "markersize": 3}
        style.band(axes, k, map(vector.rejection, k), rule_index(vector.first["verifier"]), **look)
    axes.set(title=title, xlabel="children k", ylabel="rejection rate r_k", yscale="log")
    drawn = pd.concat([_curve(vector) for vector in lines])
    style.powers_of_two(axes, drawn["k"])
    floor = drawn["rejection"].min() / 4
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
    return {f"r_{k}": tables.interval(rate, 4) for k, rate in rates.items() if not pd.isna(rate.value)}
