"""Figures of the long frame: lines, blocks, what stands across, and what says that there is nothing to draw."""

import pytest
from drawn import axes_of, build, labels, outputs, table_of

from specdec_trees.artifacts import draw, frame
from specdec_trees.artifacts.outputs import NoResultsError, read_results, write_all
from specdec_trees.artifacts.tables import ABSENT
from specdec_trees.papers.registry import ARTIFACTS


def opt_tree(cells, **given) -> str:
    return cells.add("opt_tree", params={"n": 25, "delta": 0.5}, **given)


@pytest.mark.parametrize("name", [name for name in ARTIFACTS if "fig" in name and ARTIFACTS[name].read is read_results])
def test_figures_without_rows_say_so(name: str, cells) -> None:
    with pytest.raises(NoResultsError):
        outputs(name, cells)
    opt_tree(cells, status="oom")
    with pytest.raises(NoResultsError):
        outputs(name, cells)


def test_no_interval_is_no_crash(cells, tmp_path) -> None:
    opt_tree(cells, conversations=1, nodes=True)
    for name in ("opt_tree/fig5", "opt_tree/fig6", "opt_tree/fig8", "opt_tree/fig9", "opt_tree/fig11", "smoke"):
        assert write_all(outputs(name, cells), tmp_path / name)


def test_sequoias_sizes_are_a_line_beside_opt_trees(cells) -> None:
    for size in (8, 32):
        cells.add("sized_opt_tree", "opt_tree", params={"n": size, "delta": 0.2, "draft_temperature": 1.0})
        cells.add("sized_sequoia", "sequoia", params={"n": size, "acceptance": [0.5, 0.2], "depth": None})
    axes, over = axes_of("opt_tree/fig6", cells)
    assert (labels(axes), labels(over)) == (["OPT-Tree", "Sequoia"], ["OPT-Tree"])
    assert [line.get_xdata().tolist() for line in axes.lines] == [[8, 32], [8, 32]]


def test_vectors_in_labels_are_short(cells) -> None:
    for vector in ([0.512345, 0.2, 0.1, 0.05], [0.6, 0.2]):
        cells.add("sized_sequoia", "sequoia", params={"n": 8, "acceptance": vector})
    first, other = draw.lines(frame.load(cells.load()), "n")["line"]
    assert first.endswith("acceptance=[0.512, 0.2, 0.1, …]")
    assert other.endswith("acceptance=[0.6, 0.2]")


def test_runs_fall_into_lines_by_what_is_not_swept(cells) -> None:
    for size in (160, 8, 32):
        for delta in (0.2, 0.7):
            cells.add("opt_tree", params={"n": size, "delta": delta})
    cells.add("autoregressive", mal=1.0)
    runs = draw.lines(frame.load(cells.load()), "n")
    points = runs.groupby("line")["x"].agg(list).to_dict()
    assert points == {"OPT-Tree, delta=0.2": [8, 32, 160], "OPT-Tree, delta=0.7": [8, 32, 160]}
    assert runs.groupby("line")["curve"].nunique().tolist() == [1, 1]


def test_blocks_are_told_apart_by_what_is_not_swept(cells) -> None:
    for temperature in (0.0, 0.6, 1.0):
        opt_tree(cells, temperature=temperature)
    opt_tree(cells, seed=7, temperature=1.0)
    opt_tree(cells, pair="other")
    runs = frame.load(cells.load(), across=["temperature"])
    assert runs["setting"].unique().tolist() == ["tiny, seed 0", "tiny, seed 7", "other"]
    assert frame.load(cells.load())["block"].nunique() == 5


def test_frequency_table_equals_plain_pandas(cells) -> None:
    opt_tree(cells, nodes=True)
    made, nodes = table_of("opt_tree/fig11", cells), cells.load().nodes
    tested = nodes[nodes["parent_accepted"]]
    share = tested.groupby((tested["edge_prob"] * 10).astype(int))["accepted"].agg(["mean", "count"])
    assert [cell.split(" ")[0] for cell in made.frame["accepted"]] == [f"{value:.2f}" for value in share["mean"]]
    assert made.frame["nodes"].tolist() == [str(count) for count in share["count"]]


def test_lines_across_stand_at_mu_and_the_papers_best_delta(cells) -> None:
    for delta in (0.1, 0.4, 0.8):
        cells.add("opt_tree_n50", "opt_tree", params={"n": 50, "delta": delta}, mal=4 - delta)
    axes, *_ = axes_of("opt_tree/fig8", cells)
    results = cells.load()
    base = results.prompts[results.prompts["arm"] == "autoregressive"]
    step = base["decode_s"].sum() / base["num_steps"].sum()
    mu = results.steps["draft_s"].sum() / results.steps["draft_forwards"].sum() / step
    across = [line.get_xdata()[0] for line in axes.lines if [*line.get_ydata()] == [0, 1]]
    assert across == [pytest.approx(mu), 0.2]


def test_figure_6_sets_opt_tree_against_sequoias_tree_of_its_size(cells) -> None:
    for method, mal, sizes in (("opt_tree", 4.0, (8, 32)), ("sequoia", 3.2, (8,))):
        for size in sizes:
            cells.add(method, params={"n": size}, mal=mal)
    _, made = build("opt_tree/fig6", cells)
    rows = made.frame.set_index(["line", "size_words"])
    mal, over = (rows[name].str.split().str[0] for name in ("mal", "mal_over_sequoia"))
    both = float(mal["OPT-Tree", "8"]) / float(mal["Sequoia", "8"])
    assert float(over["OPT-Tree", "8"]) == pytest.approx(both, abs=0.01)
    assert over["OPT-Tree", "32"] == over["Sequoia", "8"] == ABSENT
