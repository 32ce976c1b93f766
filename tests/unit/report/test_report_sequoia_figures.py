"""Sequoia's Figures 1, 2 and 5a: what is drawn and what stands in their tables, against the rows."""

from dataclasses import replace

import pytest
import recomputed
from drawn import build, labels, lines, mal_of
from sequoia_fills import GROWTH, SETTING, P, fill_hardware, fill_sizes, sized

from bench.artifacts import style
from bench.artifacts.outputs import write_all
from bench.papers.registry import ARTIFACTS
from bench.papers.sequoia.tokens import places

pytestmark = pytest.mark.long


LLAMA_13B = {"target": "llama2_13b", "draft": "jf68m", "stand_in": False}
METHOD = {name: {"sequence": "chain"}.get(name, name) for name in GROWTH}


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig5a"])
def test_lines_are_the_growth_rows_and_markers_the_runs(name: str, cells) -> None:
    fill_sizes(cells)
    (axes,), _ = build(name, cells)
    runs = cells.load().runs
    shown = ["sequoia", "k_sequences"] if name == "fig5a" else list(GROWTH)
    for structure in shown:
        look = style.of_method(METHOD[structure])
        expected = [(n + 1, tokens) for n, tokens in GROWTH[structure].items()]
        assert expected in lines(axes, color=look["color"], linestyle=look["linestyle"])
        ids = runs.loc[runs["method"] == METHOD[structure], "run_id"]
        measured = sorted(mal_of(cells, run_id) for run_id in ids)
        markers = [y for line in lines(axes, color=look["color"], linestyle="None") for _, y in line]
        assert sorted(markers) == pytest.approx(measured)
    ours = [label for label in labels(axes) if not label.endswith("(paper)")]
    assert len(ours) == len(shown)


def test_limits_are_dotted_in_the_colour_of_their_structure(cells) -> None:
    fill_sizes(cells)
    (axes,), table = build("fig1", cells)
    dotted = {line.get_color(): line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"}
    limits = {"sequence": 2.0, "k_sequences": 2.7, "binary": 1 / 0.3}  # the k-ary tree's 6.67 is far above all else
    assert dotted == pytest.approx({style.of_method(METHOD[name])["color"]: limit for name, limit in limits.items()})
    assert {"k sequences (limit 2.7 at k=4)", "k-ary tree (limit 6.67 at k=4)", "Sequoia"} <= set(labels(axes))
    assert table.frame.groupby("Structure")["limit"].first().to_dict() == {
        "Sequoia": "–",
        "k sequences": "2.70",
        "k-ary tree": "6.67",
        "binary tree": "3.33",
        "sequence": "2.00",
    }


def test_of_several_vectors_the_one_for_these_draws_of_most_positions_counts(cells) -> None:
    sized(cells, "sequoia", 7)
    for positions, tokens in ((10, 1.1), (5000, 2.2), (20, 3.3)):
        cells.add_vector(P, growth={"sequoia": {7: tokens}}, num_positions=positions, **SETTING)
    cells.add_vector(P, growth={"sequoia": {7: 9.9}}, num_positions=9999, draws="iid", verifier="spec_infer", **SETTING)
    found, table = build("fig1", cells)
    assert len(found) == 4  # the run's, and a panel for each vector that has no run
    assert lines(found[0], linestyle="-")[0] == [(8, 2.2)]
    assert table.frame["F(T)"].iloc[0] == "2.20"
    assert sorted(table.frame["F(T)"]) == ["1.10", "2.20", "3.30", "9.90"]


def test_a_vector_without_runs_and_runs_without_a_vector_are_drawn(cells) -> None:
    cells.add_vector(P, growth=GROWTH, **SETTING | {"dataset": "c4"})
    for n in (7, 31):
        sized(cells, "sequoia", n)
    (measured, expected), table = build("fig2", cells)
    assert [len(line) for line in lines(measured)] == [2]
    assert len([line for line in lines(expected) if len(line) == 4]) == 5
    assert "c4, temperature 0.6" in expected.get_title()
    assert "expected alone" in table.title
    assert table.frame.loc[table.frame["Drafter"].str.startswith("Sequoia, n = "), "F(T)"].tolist() == ["–", "–"]


def test_gains_are_sequoia_over_k_sequences(cells) -> None:
    fill_sizes(cells, pair="llama2_13b_jf68m")
    best = sized(cells, "k_sequences", 7, mal=4.0, pair="llama2_13b_jf68m", drafter="other")
    _, table = build("fig5a", cells)
    frame = table.frame[table.frame["Structure"] == "Sequoia"].set_index("N")
    assert frame["gain predicted"].tolist() == [
        f"{a / b:.3f}" for a, b in ((1.5, 1.5), (2.2, 2.1), (2.8, 2.4), (3.9, 2.6))
    ]
    files = recomputed.Files(cells.store.folder)
    value, low, high = recomputed.mal_ratio(files.steps(table.runs[1]), files.steps(best))
    assert value == pytest.approx(mal_of(cells, table.runs[1]) / mal_of(cells, best))
    assert frame.loc["8", "gain MAL"] == f"{value:.3f} [{low:.3f}, {high:.3f}]"
    assert frame.loc["2", "gain MAL"] == "–"
    assert frame["gain published"].tolist() == ["–", "–", "–", "1.33"]
    assert any("text on llama2_13b + jf68m: 33%" in note for note in table.notes), "not the models it stands in for"


def test_the_papers_gain_stands_beside_ours_in_its_setting(cells) -> None:
    fill_sizes(cells, pair="llama2_13b_jf68m", published=LLAMA_13B)
    (axes,), table = build("fig5a", cells)
    frame = table.frame[table.frame["Structure"] == "Sequoia"].set_index("N")
    assert frame["gain published"].tolist() == ["–", "–", "–", "1.33"]
    runs = cells.load().runs.set_index("drafter")["run_id"]
    baselines = [mal_of(cells, run_id) for run_id in runs["sized_k_sequences"]]
    (((size, height),),) = lines(axes, marker="*")
    assert size == 512
    assert min(abs(height / 1.33 - baseline) for baseline in baselines) < 1e-9
    assert any(label == "1.33 x our k sequences (paper)" for label in labels(axes))
    assert sum("The paper's text on llama2_13b + jf68m: 33%" in note for note in table.notes) == 2


@pytest.mark.parametrize("name", ["fig1", "fig5a", "fig5b", "fig5c", "table3", "table4"])
def test_rows_without_predictions_are_read(name: str, cells) -> None:
    """Runs of an earlier version have no such columns."""
    fill_hardware(cells)
    results = cells.load()
    runs = results.runs.drop(columns=["predicted_mal", "predicted_speedup"])
    for output in ARTIFACTS[f"sequoia/{name}"].build(name, replace(results, runs=runs)):
        assert output.name.startswith(name)


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig5a", "fig5b", "fig5c"])
def test_one_conversation_has_no_interval_and_is_drawn(name: str, cells, tmp_path) -> None:
    sized(cells, "sequoia", 7, conversations=1)
    cells.add_vector([1.0], growth={"sequoia": {7: 2.0}, "sequence": {7: 8.0}}, **SETTING)
    assert write_all(ARTIFACTS[f"sequoia/{name}"].build(name, cells.load()), tmp_path)
    _, table = build(name, cells)
    assert "[–, –]" in table.frame.loc[table.runs.index(cells.load().runs["run_id"].item())].to_string()


def test_trees_are_drawn_as_their_parents_say(cells) -> None:
    fill_sizes(cells)
    *_, trees = ARTIFACTS["sequoia/fig1"].build("fig1", cells.load())
    assert [axes.get_title().split("\n")[1] for axes in trees.canvas.axes] == [
        f"F(T) = {GROWTH[structure][31]:.2f}" for structure in METHOD
    ]
    for axes in trees.canvas.axes:
        assert len(axes.lines) == 31
        dots = {tuple(dot) for dot in axes.collections[0].get_offsets().tolist()}
        assert len(dots) == 32, "no two nodes in one place"
        assert {tuple(end) for line in axes.lines for end in line.get_xydata().tolist()} == dots
        for parent, child in (line.get_xydata().tolist() for line in axes.lines):
            assert child[1] == parent[1] + 1


def test_leaves_stand_side_by_side_and_parents_over_their_children() -> None:
    assert places([-1, 0, 0, 1, 1, 2, 3]) == [(1.25, 0), (0.5, 1), (2, 1), (0, 2), (1, 2), (2, 2), (0, 3)]
    assert places([-1]) == [(0, 0)]
