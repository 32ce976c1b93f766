"""Improved MCSD's runs that failed before their models were loaded: they know neither dtype nor device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from mcsd_figure_fills import LLAMA
from mcsd_table_fills import VICUNA, fill_static, run

from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table
from bench.papers.registry import ARTIFACTS
from bench.results.store import Results

pytestmark = pytest.mark.long


FACTS = [("auto", "Login CPU"), ("auto", "Test CPU"), ("", "")]
"""Dtype and device of a run that failed: as asked for, and what the machine that failed has."""


def load(cells, facts: tuple[str, str]) -> Results:
    """All results, those that failed with this dtype and device."""
    results = cells.load()
    runs = results.runs.copy()
    runs.loc[runs["status"] != "ok", ["dtype", "device_name"]] = facts
    return replace(results, runs=runs)


def figure(results: Results) -> tuple[list[Axes], Table]:
    found, table, _ = ARTIFACTS["improving_mcsd/fig3"].build("fig3", results)
    assert isinstance(found, Figure)
    assert isinstance(table, Table)
    return found.canvas.axes, table


@pytest.mark.parametrize("facts", FACTS)
def test_a_dataset_that_failed_stands_in_the_panel_of_its_pair(facts: tuple[str, str], cells) -> None:
    fill_static(cells, **LLAMA)
    run(cells, "ti", dataset="triviaqa", status="failed", draws="", **LLAMA)
    axes, table = figure(load(cells, facts))
    assert [one.get_title() for one in axes] == [LLAMA["pair"]]
    assert table.title.endswith(f"({LLAMA['pair']}, temperature 0.7, Test CPU, float32)")
    failed = table.frame[table.frame["Dataset"] == "triviaqa"]
    assert failed[["Pair", "speedup"]].to_numpy().tolist() == [[LLAMA["pair"], "failed"]]
    assert not any(
        "dtype" in note or "auto" in note.replace("autoregressive", "") or "Login" in note for note in table.notes
    )


@pytest.mark.parametrize("facts", FACTS)
def test_what_failed_alone_has_no_panel_but_rows(facts: tuple[str, str], cells) -> None:
    run(cells, "ti", **LLAMA)
    run(cells, "ti", seed=1, status="oom", draws="", **LLAMA)
    axes, table = figure(load(cells, facts))
    assert [one.get_title() for one in axes] == [f"{LLAMA['pair']}, seed 0"]
    assert table.frame["Pair"].tolist() == [f"{LLAMA['pair']}, seed {seed}" for seed in (0, 1)]


def test_panels_are_told_by_the_device_that_differs(cells) -> None:
    for device, dataset in (("Test CPU", "mt_bench"), ("Test GPU", "alpaca")):
        run(cells, "ti", device=device, dataset=dataset, **LLAMA)
    axes, _ = figure(cells.load())
    assert [one.get_title() for one in axes] == [f"{LLAMA['pair']}, device name Test {kind}" for kind in ("CPU", "GPU")]


@pytest.mark.parametrize("facts", FACTS)
def test_what_failed_stands_in_the_block_of_its_setting(facts: tuple[str, str], cells) -> None:
    """Where another run of it ended well; a title of failures alone names no place."""
    run(cells, "sd4", **LLAMA)
    for name in ("mcsd4221", "ti"):
        run(cells, name, status="failed", draws="", **LLAMA)
    run(cells, "ti", status="failed", draws="", **VICUNA)
    (table,) = ARTIFACTS["improving_mcsd/table2"].build("table2", load(cells, facts))
    assert isinstance(table, Table)
    rows = table.frame[table.frame["Dataset"] == "mt_bench"].set_index(["Target", "Method"])["alpha"]
    assert rows.index.is_unique
    assert [rows["llama2_7b_chat", method] for method in ("MCSD", "TI-MCSD (lossy)")] == ["failed", "failed"]
    assert rows["vicuna_7b"].tolist() == [ABSENT, ABSENT, "failed"]
    assert table.title.endswith(f"({LLAMA['pair']}, temperature 0.7, Test CPU, float32)")
