"""The cells of two sides, joined: which runs are set against each other, and which have no counterpart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specdec_trees.compare.changes import METRICS, NO_INTERVAL, Couple
from specdec_trees.compare.sides import ComparisonError, Run, Side
from specdec_trees.results.store import CELL
from specdec_trees.statistics.intervals import FEWEST


@dataclass(frozen=True, slots=True)
class Joined:
    """The two sides, the couples in the first side's order, and the runs of either side without a counterpart."""

    sides: tuple[Side, Side]
    couples: tuple[Couple, ...]
    alone: tuple[tuple[Run, ...], tuple[Run, ...]] = ((), ())


def join(first: Side, second: Side) -> Joined:
    """Two runs as they are, two folders cell by cell; ComparisonError if nothing can be compared."""
    if "run" in (first.kind, second.kind):
        if first.kind != second.kind:
            raise ComparisonError("one side is a run and the other a folder; give two runs or two folders")
        return _measured(Joined((first, second), (Couple(first.runs[0], second.runs[0]),)))
    named = first.kind == second.kind == "root"
    if not named:
        _single(first, second)
        _single(second, first)
    own, others = ({_key(run, named): run for run in side.runs} for side in (first, second))
    couples = tuple(Couple(run, others[key]) for key, run in own.items() if key in others)
    alone = (_without(own, others), _without(others, own))
    if not couples:
        raise ComparisonError(f"{first.name} and {second.name} have no cell in common; {_examples(*alone)}")
    return _measured(Joined((first, second), couples, alone))


def check(joined: Joined, judged: Sequence[str]) -> None:
    """ComparisonError if no metric that is judged has an interval in any cell, and nothing is broken either."""
    words = {couple.changes[metric].word for couple in joined.couples if couple.ok for metric in judged}
    if words <= {NO_INTERVAL} and not any(couple.broken for couple in joined.couples):
        raise ComparisonError(
            f"no cell has an interval of {' or '.join(METRICS[metric] for metric in judged)}: both sides must have "
            f"decoded {FEWEST} conversations of it; nothing can be judged"
        )


def counterpart(run: Run, others: Iterable[Run]) -> str:
    """The run of the same cell but for the arguments of its drafter; "" if there is none."""
    rest = [column for column in CELL if column != "drafter_params"]
    same = (one for one in others if [*map(_plain, one.row[rest])] == [*map(_plain, run.row[rest])])
    return next((one.run_id for one in same if one.experiment == run.experiment), "")


def cell_words(run: Run) -> str:
    """`opt_tree on mt_bench at temperature 0 (tiny)`."""
    row = run.row
    place = f"{run.experiment}: " if run.experiment else ""
    return f"{place}{row['drafter']} on {row['dataset']} at temperature {row['temperature']:g} ({row['pair']})"


def _single(one: Side, other: Side) -> None:
    if len(one.experiments) > 1:
        names = ", ".join(one.experiments)
        raise ComparisonError(
            f"{other.name} is one experiment's folder and {one.name} holds several ({names}); give the folder of one"
        )


def _measured(joined: Joined) -> Joined:
    """As it is, if anything was measured on both sides, or no longer is on the second."""
    if any(couple.broken or couple.measured for couple in joined.couples):
        return joined
    if any(couple.other_prompts for couple in joined.couples if couple.ok):
        raise ComparisonError("the prompts are not the same: no conversation has its id and first prompt on both sides")
    states = {run.row["status"] for couple in joined.couples for run in (couple.first, couple.second)}
    what = "no conversation was decoded on both sides" if states == {"ok"} else "no cell ended well on both sides"
    raise ComparisonError(f"{what}: there is nothing to compare")


def _key(run: Run, named: bool) -> tuple[Any, ...]:
    return (run.experiment if named else "", *map(_plain, run.row[list(CELL)]))


def _plain(value: Any) -> Any:
    """A missing value equals a missing value."""
    return None if pd.isna(value) else value


def _without(own: dict[tuple[Any, ...], Run], others: dict[tuple[Any, ...], Run]) -> tuple[Run, ...]:
    return tuple(run for key, run in own.items() if key not in others)


def _examples(first: tuple[Run, ...], second: tuple[Run, ...]) -> str:
    return f"the first has {cell_words(first[0])}, the second {cell_words(second[0])}"
