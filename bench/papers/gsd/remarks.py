"""Notes on the runs of a table: which it does not show, and at what temperature drafts drafted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bench.artifacts.blocks import every_run
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.wording import draft_temperatures
from bench.papers.gsd.classes import off
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results


def of_runs(results: Results, arms: Sequence[Arm], shown: Iterable[str]) -> Iterator[str]:
    """All notes on the runs of a table; `shown` are the ids of its rows, several of a row apart by blanks."""
    ids = set(" ".join(shown).split())
    runs = [run for run in every_run(results) if run.method != AUTOREGRESSIVE]
    yield from draft_temperatures(run for run in runs if run.run_id in ids)
    yield from _left_out([run for run in runs if run.run_id not in ids], arms)


def _left_out(runs: Sequence[Run], arms: Sequence[Arm]) -> Iterator[str]:
    """Runs that no arm shows: they are not of the table, or another of the same setting is shown."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        groups.setdefault(_words(run, arms), []).append(run.run_id)
    listed = (f"{words} ({'run' if len(ids) == 1 else 'runs'} {', '.join(ids)})" for words, ids in groups.items())
    if groups:
        yield (
            f"Not in this table: {'; '.join(listed)}: other methods, rules, parameters or sampling settings than the "
            "paper's, or another run of the same is shown."
        )


def _words(run: Run, arms: Sequence[Arm]) -> str:
    """`gsd (k=2) at temperature 1, top-p 0.9`: what is not as in the arm of its method that is nearest."""
    differences = [off(arm, run) for arm in arms if arm.named(run)]
    params = min(differences, key=len, default={})
    inside = f" ({', '.join(f'{name}={_short(value)}' for name, value in params.items())})" if params else ""
    top_p = "" if run["top_p"] == 1 else f", top-p {run['top_p']:g}"
    return f"{run.drafter}{inside} by {run['verifier']} at temperature {run['temperature']:g}{top_p}"


def _short(value: object) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
