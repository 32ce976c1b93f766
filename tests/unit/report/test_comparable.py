"""Rows part where they differ in what must be equal, by every list that the roles of the columns give."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pandas as pd
import pytest
from report_rows import DEFAULTS, run_row

from specdec_trees.artifacts import frame as long_frame
from specdec_trees.measure import cell_run, resumed
from specdec_trees.measure.to_rows import Outcome
from specdec_trees.papers.sequoia import tokens
from specdec_trees.results.parquet import frame
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import PromptRow, RunRow, StepRow
from specdec_trees.results.store import CELL, Results

ROW = run_row("one", "here", DEFAULTS | {"drafter": "opt_tree", "method": "opt_tree", "created": 0})
FIELDS = [field.name for field in dataclasses.fields(RunRow)]
BEFORE = (Role.SETTING, Role.OPTIONS)


def role(name: str) -> Role:
    return next(one for one in Role if name in columns(RunRow, one))


def flipped(name: str) -> RunRow:
    """Another value of the column's type."""
    value, hint = getattr(ROW, name), typing.get_type_hints(RunRow)[name]
    if name in ("config", "drafter_params"):
        return dataclasses.replace(ROW, **{"run_id": "two", name: '{"n": 7}'})
    kind = next(iter([one for one in typing.get_args(hint) if one is not type(None)] or [hint]))
    other: Any = f"{value}x" if kind is str else not value if kind is bool else 7 + (value or 0)
    return dataclasses.replace(ROW, **{"run_id": "two"} | {name: other})


def blocks(*rows: RunRow) -> list[pd.DataFrame]:
    runs = frame([], RunRow)
    table = pd.concat([runs, pd.DataFrame([dataclasses.asdict(row) for row in rows])[list(runs.columns)]])
    empty = {field.name: pd.DataFrame() for field in dataclasses.fields(Results)}
    tables = {"runs": table, "steps": frame([], StepRow), "prompts": frame([], PromptRow)}
    return [block for _, block in long_frame.load(Results(**empty | tables)).groupby("block")]


def test_every_column_has_one_role_and_unsaid_ones_are_refused() -> None:
    assert sorted(columns(RunRow, *Role)) == sorted(FIELDS)
    with pytest.raises(TypeError, match="role"):
        columns(PromptRow, Role.SETTING)


@pytest.mark.parametrize("name", FIELDS)
def test_rows_of_a_block_agree_in_all_but_method_result_and_label(name: str) -> None:
    other = dataclasses.replace(flipped(name), status="ok")
    parts = role(name) in (*BEFORE, Role.LOADED, Role.MACHINE)
    both = blocks(ROW, other)
    assert len(both) == (2 if parts else 1)
    assert sum(map(len, both)) == 2
    if parts and name != "pair":
        assert all(block["variant"].all() for block in both), "and a reader is told what differs"


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_value_parts_from_a_value_and_not_from_itself(name: str) -> None:
    if type(None) not in typing.get_args(typing.get_type_hints(RunRow)[name]) or role(name) not in (
        *BEFORE,
        Role.LOADED,
        Role.MACHINE,
    ):
        return
    missing = dataclasses.replace(ROW, **{name: None})
    assert len(blocks(missing, dataclasses.replace(missing, run_id="two"))) == 1
    assert len(blocks(missing, flipped(name))) == 2
    failed = dataclasses.replace(missing, run_id="two", status="failed")
    assert len(blocks(missing, failed)) == 1, "and a failed run is beside those of its setting"


@pytest.mark.parametrize("name", FIELDS)
def test_every_list_asks_for_the_roles_that_it_is_about(name: str) -> None:
    own = role(name)
    assert (name in CELL) == (own in (*BEFORE, Role.METHOD))
    assert (name in long_frame.CELL) == (own in BEFORE)
    assert (name in long_frame.PLACE) == (own in (Role.LOADED, Role.MACHINE))
    assert (name in cell_run.MACHINE) == (own is Role.MACHINE)
    assert (name in resumed.LOADED) == (own is Role.LOADED)
    assert name not in tokens._SAME or own in (Role.SETTING, Role.LOADED)


def test_what_is_loaded_is_known_to_a_start() -> None:
    assert set(resumed.LOADED) <= {field.name for field in dataclasses.fields(Outcome)}


def test_vectors_are_drawn_with_runs_of_their_setting_and_weights() -> None:
    assert {"pair", "dataset", "temperature", "top_p", "target_revision", "draft_revision"} <= set(tokens._SAME)
