"""Synthetic results of GSD's figures and of its Table 5."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
from gsd_fills import add

from specdec_trees.results.rows import StepRow

KL = {0: 0.6, 1: 0.4, 2: 0.05}
"""Mean divergence by tau, in nats."""


def rewritten(cells, run_id: str, column: str, values) -> None:
    """The steps of a run with other values of one column: `values(rng)` of every step."""
    rng, names = np.random.default_rng(0), [field.name for field in fields(StepRow)]
    rows = cells.store.read("steps", [run_id]).to_dict("records")
    rows = [{name: row[name] for name in names} | {column: values(rng)} for row in rows]
    cells.store.write("steps", run_id, [StepRow(**row) for row in rows])


def fill_fig3(cells, **given: Any) -> str:
    """Shares that differ from graph to graph; no path of some has 5 tokens, and some are 10 levels deep."""
    run_id = add(cells, "tsd_sib", **given)
    for column, none in (("recurring", math.nan), ("in_recurring", 0.0)):  # a graph has tokens, though no such path
        rewritten(
            cells,
            run_id,
            column,
            lambda rng, none=none: [*sorted(rng.uniform(size=4), reverse=True), rng.choice([none, 0.1, 0.3])],
        )
    rewritten(cells, run_id, "draft_forwards", lambda rng: int(rng.choice([9, 10])))
    return run_id


def fill_fig5a(cells, **given: Any) -> dict[tuple[str, int], str]:
    return {
        (method, k): add(cells, method, params={"k": k, "tau": tau}, live=10 * k**power, **{"mal": 3 + k / 4} | given)
        for method, tau, power in (("tsd", None, 3), ("gsd", 2, 1))
        for k in (1, 2, 4)
    }


def sweep(cells, name: str, values: tuple[float, ...], **given: Any) -> dict[float, str]:
    """Runs of GSD along one of its parameters."""
    params = {"k": 4, "tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}
    return {
        value: add(cells, "gsd", params=params | {name: value}, live=30 - place, **given)
        for place, value in enumerate(values)
    }


def fill_fig5b(cells) -> None:
    sweep(cells, "tau", (1, 2, 3, 4))


def fill_fig5c(cells) -> None:
    sweep(cells, "theta_prob", (0.0, 0.1, 0.5))


def fill_fig5d(cells) -> None:
    sweep(cells, "theta_sib", (0.0, 0.1, 0.5))


def fill_fig7(cells, **given: Any) -> dict[str, str]:
    params = {"ssd": {"k": 1}, "tsd": {"k": 4}, "gsd": {"k": 4, "tau": 1}}
    return {method: add(cells, method, params=own, **given) for method, own in params.items()}


def fill_fig8(cells, **given: Any) -> dict[float, str]:
    return sweep(cells, "theta_sib", (0.3, 0.1, 0.2), **given)


def probe(cells, k: int, tau: int, kl: float, **given: Any) -> str:
    params = {"k": k, "tau": tau, "tau_as_context": True}
    return add(cells, "gsd_probe", "gsd", **{"params": params, "kl": kl} | given)


def fill_table5(cells) -> dict[tuple[int, int], str]:
    return {(k, tau): probe(cells, k, tau, kl * k) for k in (3, 32) for tau, kl in KL.items()}


FILLS = {
    "gsd/table5": fill_table5,
    "gsd/fig3": fill_fig3,
    "gsd/fig5a": fill_fig5a,
    "gsd/fig5b": fill_fig5b,
    "gsd/fig5c": fill_fig5c,
    "gsd/fig5d": fill_fig5d,
    "gsd/fig7": fill_fig7,
    "gsd/fig8": fill_fig8,
}
