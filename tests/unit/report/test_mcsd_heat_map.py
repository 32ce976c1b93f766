"""Improved MCSD's Figure 4: its numbers against plain numpy, what its cells show, and that they can be read."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import row_of
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_rgb
from matplotlib.patches import Rectangle
from mcsd_figure_fills import DRAWN, SETTING, add, fill_fig4

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import BUSY_NOTE, UNRANKED
from bench.papers.improving_mcsd.heat_map import readable
from bench.papers.registry import ARTIFACTS
from bench.results.store import Results

pytestmark = pytest.mark.long


def build(cells, results: Results | None = None) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS["improving_mcsd/fig4"].build("fig4", results or cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert figure.runs == table.runs
    return [axes for axes in figure.canvas.axes if axes.get_title()], table


def tree(cells, widths: tuple[int, ...], drafter: str = "ti_mcsd", **given) -> str:
    params = {"widths": list(widths)} | DRAWN | given.pop("params", {})
    options = SETTING | {"params": params, "spread": False} | given
    return add(cells, drafter, "target_init_mcsd", levels=len(widths) - 1, chance=0.5, **options)


def texts(axes: Axes) -> dict[tuple[str, str], str]:
    """What stands in every cell, by its labels a and b."""
    rows, columns = ([label.get_text() for label in of.get_ticklabels()] for of in (axes.yaxis, axes.xaxis))
    return {(rows[int(y)], columns[int(x)]): text.get_text() for text in axes.texts for x, y in [text.get_position()]}


def frames(axes: Axes, colour: str) -> set[tuple[int, int]]:
    """Row and column of the frames of this colour, from 0."""
    found = [one for one in axes.patches if isinstance(one, Rectangle) and same_color(one.get_edgecolor(), colour)]
    return {(int(patch.get_y()), int(patch.get_x())) for patch in found}


def contrast(one, other) -> float:
    """WCAG 2's contrast ratio, once more."""
    light = []
    for colour in (one, other):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        light.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_a_cell_has_the_numbers_of_its_run(cells, tmp_path: Path) -> None:
    runs = fill_fig4(cells)
    (speed, alpha), table = build(cells)
    results = cells.load()
    for (a, b), run_id in runs.items():
        steps, row = results.steps[results.steps["run_id"] == run_id], row_of(table, run_id)
        assert row["Tree"] == f"2-{a}-{b}-1-1"
        if (a, b) == (4, 3):
            assert row[["nodes", "tokens/s", "alpha", "against the best"]].tolist() == ["oom", "oom", "oom", ABSENT]
            assert texts(speed)["4", "3"] == texts(alpha)["4", "3"] == "oom"
            continue
        rate = (steps["num_accepted"] - 1).sum() / (4 * len(steps))
        turns = results.prompts[(results.prompts["run_id"] == run_id) & (results.prompts["arm"] == "method")]
        tokens = turns["num_decoded_tokens"].sum() / turns["decode_s"].sum()
        assert row["alpha"].startswith(f"{rate:.3f} [")
        assert row["tokens/s"].startswith(f"{tokens:.1f} [")
        assert (row["nodes"], row["lossless"]) == (f"{2 + 2 * a + 6 * a * b}.0", "no")
        assert texts(alpha)[str(a), str(b)] == f"{rate:.2f}\nn = {2 + 2 * a + 6 * a * b}"
        assert texts(speed)[str(a), str(b)] == f"{row['speedup'].split()[0]}\n{tokens:.0f}"
    assert texts(speed)["4", "1"] == texts(alpha)["4", "1"] == "not run"
    assert all("(2, a, b, 1, 1) (lossy)" in axes.get_title() for axes in (speed, alpha))
    assert all(
        path.stat().st_size > 100
        for path in write_all(ARTIFACTS["improving_mcsd/fig4"].build("fig4", results), tmp_path)
    )


def test_the_best_tree_and_the_papers_are_framed(cells) -> None:
    fill_fig4(cells)
    axes, table = build(cells)
    for panel in axes:
        assert frames(panel, style.COLOURS[1]) == {(1, 1)}
        assert frames(panel, "black") == {(2, 1)}
        assert [text.get_text() for text in panel.get_legend().get_texts()] == [
            "largest speedup",
            "the tree of the paper's Table 2",
        ]
    assert table.frame[["Tree", "against the best"]].to_numpy().tolist() == [
        *([tree, "behind"] for tree in ("2-1-1-1-1", "2-1-3-1-1", "2-2-1-1-1")),
        *(["2-2-3-1-1", "best"], ["2-4-3-1-1", ABSENT]),
    ]
    assert any("a = 2, b = 3: " in note and "0 are level with it, 0 ahead, 3 behind; 1" in note for note in table.notes)


def test_trees_that_are_as_fast_are_level(cells) -> None:
    fast = [tree(cells, (2, 1, b, 1), speedup=1.5, steps=40) for b in (1, 2, 3)]
    slow = tree(cells, (2, 2, 1, 1), speedup=1.2, steps=40)
    _, table = build(cells)
    assert sorted(row_of(table, run)["against the best"] for run in fast) == ["best", "level", "level"]
    assert row_of(table, slow)["against the best"] == "behind"


def test_times_that_are_too_noisy_give_no_standings(cells) -> None:
    for place, key in enumerate(((4, 3), (1, 1), (2, 2))):
        tree(cells, (2, *key, 1, 1), speedup=1.2 + place, steps=40, base_step_s=0.002 * 3**place)
    (speed, alpha), table = build(cells)
    assert set(table.frame["against the best"]) == {f"{ABSENT}{UNRANKED}"}
    notes = " ".join(table.notes)
    assert "(2, a, b, 1, 1) (lossy): times are too noisy to rank the trees (!)." in notes
    assert BUSY_NOTE in table.notes
    assert not any(word in notes for word in ("largest speedup", "level with", "takes place", "behind"))
    value = table.frame.set_index("Tree").loc["2-4-3-1-1", "speedup"]
    assert f"the paper's tree, 2-4-3-1-1, has a speedup of {value}; its place is not told." in notes
    for panel in (speed, alpha):
        assert frames(panel, style.COLOURS[1]) == set()
        assert frames(panel, "black") == {(2, 2)}


def test_what_drafts_otherwise_or_failed_takes_no_cell(cells) -> None:
    tree(cells, (2, 1, 1, 1))
    shown = tree(cells, (2, 1, 1, 1), drafter="again")
    others = [
        tree(cells, (2, 1, 1, 1), params={"draft_temperature": 0.3}),
        tree(cells, (2, 1, 1, 1), params={"draws": "topk"}, draws="targets_topk"),
        tree(cells, (2, 1, 1, 1), drafter="late", status="failed"),
    ]
    _, table = build(cells)
    assert table.runs == (shown,)
    assert not set(others) & set(table.runs)
    for what in ("draft_temperature 0.3", "draws topk"):
        assert any(f"(widths 2x1x1x1, {what}) by" in note for note in table.notes)


def test_the_papers_claim_stands_beside_its_trees_place(cells) -> None:
    speeds = {(4, 3): 1.5, (1, 1): 2.5, (2, 2): 1.2}
    runs = {key: tree(cells, (2, *key, 1, 1), speedup=speed, steps=40) for key, speed in speeds.items()}
    tree(cells, (3, 4, 3, 1, 1), speedup=3.0)
    _, table = build(cells)
    (said,) = [note for note in table.notes if "the paper's tree, 2-4-3-1-1" in note]
    one, best = (row_of(table, runs[key])["speedup"].split()[0] for key in ((4, 3), (1, 1)))
    start = "tiny, (2, a, b, 1, 1) (lossy), mt_bench: the paper's tree, 2-4-3-1-1, takes place "
    assert said.startswith(f"{start}2 of 3 by speedup, behind the best (")
    assert float(said.split("behind the best (")[1].split()[0]) == pytest.approx(float(one) / float(best), abs=0.01)


def test_where_the_papers_tree_has_no_number_the_note_says_so(cells) -> None:
    fill_fig4(cells)
    assert any(note.endswith("2-4-3-1-1, has no number (oom).") for note in build(cells)[1].notes)


def test_without_an_autoregressive_arm_nothing_is_compared(cells) -> None:
    for b in (1, 2):
        tree(cells, (2, 1, b, 1))
    results = cells.load()
    results = replace(results, prompts=results.prompts[results.prompts["arm"] == "method"])
    (speed, _), table = build(cells, results)
    assert set(table.frame["against the best"]) == {ABSENT}
    assert set(table.frame["speedup"]) == {ABSENT}
    assert all("x" not in text for text in texts(speed).values())


def test_other_shapes_and_rules_have_panels_of_their_own(cells) -> None:
    tree(cells, (2, 1, 1, 1))
    tree(cells, (3, 1, 1, 1))
    tree(cells, (2, 1, 1, 1), verifier="longest_subtree")
    tree(cells, (1, 1, 1, 1), verifier="longest_subtree", draws="target_without_replacement", lossless=True)
    axes, _ = build(cells)
    assert [panel.get_title() for panel in axes[::2]] == [
        "tiny, (2, a, b, 1), independent_longest (lossy)",
        "tiny, (3, a, b, 1), independent_longest (lossy)",
        "tiny, (2, a, b, 1), longest_subtree (lossy)",
        "tiny, (1, a, b, 1), longest_subtree",
    ]


def test_every_text_can_be_read_on_its_colour(cells) -> None:
    for a, b in itertools.product(range(1, 6), repeat=2):
        tree(cells, (2, a, b, 1, 1), speedup=1 + a * b / 10, steps=2, conversations=2)
    axes, _ = build(cells)
    for panel in axes:
        panel.figure.canvas.draw()
        (mesh,) = panel.collections
        for text, colour in zip(panel.texts, mesh.get_facecolors(), strict=True):
            assert contrast(text.get_color(), colour[:3]) >= 4.5
        light = [contrast(mesh.cmap(share)[:3], "black") for share in np.linspace(0, 1, 64)]
        assert light == sorted(light), "a darker colour is a smaller number"


def test_black_or_white_stands_out_from_any_colour() -> None:
    for colour in itertools.product(np.linspace(0, 1, 9), repeat=3):
        assert contrast(readable(colour), colour) >= 4.5
        assert contrast(readable(colour), colour) >= contrast({"black": "white"}.get(readable(colour), "black"), colour)


def test_there_is_no_map_without_two_draft_levels(cells) -> None:
    with pytest.raises(NoResultsError):
        build(cells)
    tree(cells, (2, 4))
    with pytest.raises(NoResultsError, match="two draft levels"):
        build(cells)
    cells.add("mcsd", "mcsd", **SETTING)
    with pytest.raises(NoResultsError):
        build(cells)


def test_failed_trees_alone_are_no_result(cells) -> None:
    tree(cells, (2, 1, 1, 1), status="oom")
    with pytest.raises(NoResultsError, match="oom: 1"):
        build(cells)
