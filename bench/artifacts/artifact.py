"""What an artifact is: how the rows behind it are read, and what builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.artifacts import case_study
from bench.artifacts.outputs import NoResultsError, Output
from bench.results import progress, store

Builder = Callable[[Any], list[Output]]


def read_results(folder: Path, pair: str | None) -> store.Results:
    """The tables in an experiment's folder, first what its plan asks for; NoResultsError if nothing was measured."""
    if not folder.is_dir():
        raise NoResultsError(f"there are none in {folder}")
    results = store.load(folder.parent, folder.name, pair, first=progress.planned_runs(folder))
    measured = (results.runs, results.latency, results.acceptance, results.attention, results.decisions)
    if all(table.empty for table in measured):
        raise NoResultsError(f"there are none in {folder}")
    return results


def read_case_study(folder: Path, pair: str | None) -> case_study.CaseStudy:
    """The case study in an experiment's folder."""
    return case_study.read(folder)


@dataclass(frozen=True, slots=True)
class Artifact:
    """`build` makes outputs of what `read(folder, pair)` finds."""

    build: Builder
    read: Callable[[Path, str | None], Any] = read_results
