"""Every builder on small results: files that are there, not blank, and name their runs."""

from pathlib import Path

import pytest
from dyspec_fills import FILLS as DYSPEC
from gsd_figure_fills import FILLS as GSD_FIGURES
from sequoia_fills import FILLS as SEQUOIA

from bench.artifacts import draw, frame
from bench.artifacts.outputs import NoResultsError, Output, write_all
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table
from bench.papers.registry import ARTIFACTS


def opt_tree(cells, **given) -> str:
    return cells.add("opt_tree", params={"n": 25, "delta": 0.5}, **given)


def fill_fig3(cells) -> None:
    cells.add_latency()


def fill_fig5(cells) -> None:
    opt_tree(cells)
    opt_tree(cells, pair="tiny_eagle")


def fill_fig6(cells) -> None:
    for size in (8, 32, 160):
        cells.add("opt_tree", params={"n": size, "delta": 0.2}, mal=2 + size / 100)
        cells.add("opt_tree", params={"n": size, "delta": 0.7}, mal=1.5 + size / 100)


def fill_fig7(cells) -> None:
    cells.add("autoregressive", mal=1.0)
    opt_tree(cells)


def fill_fig8(cells) -> None:
    for delta in (0.1, 0.4, 0.8):
        cells.add("opt_tree_n50", "opt_tree", params={"n": 50, "delta": delta}, mal=4 - delta)


def fill_fig9(cells) -> None:
    for temperature in (0.0, 0.6, 1.0):
        opt_tree(cells, temperature=temperature)


def fill_draft_temperature(cells) -> None:
    for value in (0.5, 0.8, 1.0):
        cells.add("opt_tree", "opt_tree", params={"n": 25, "draft_temperature": value}, mal=3 - value, draws="topk")
        cells.add("eagle25", "eagle_tree", params={"draft_temperature": value}, mal=2.0, draws="topk")


def fill_fig11(cells) -> None:
    opt_tree(cells, nodes=True)


def fill_smoke(cells) -> None:
    cells.add("autoregressive", mal=1.0, speedup=1.0, dataset="mini")
    cells.add("chain4", "chain", mal=1.8, size=4, dataset="mini")
    opt_tree(cells, dataset="mini")
    cells.add("broken", status="failed", dataset="mini")


FILLS = {
    "opt_tree/table1": opt_tree,
    "opt_tree/table2": opt_tree,
    "opt_tree/table3": opt_tree,
    "opt_tree/fig3": fill_fig3,
    "opt_tree/fig5": fill_fig5,
    "opt_tree/fig6": fill_fig6,
    "opt_tree/fig7": fill_fig7,
    "opt_tree/fig8": fill_fig8,
    "opt_tree/fig9": fill_fig9,
    "bench/draft_temperature": fill_draft_temperature,
    "opt_tree/fig11": fill_fig11,
    "bench/c4": opt_tree,
    "smoke": fill_smoke,
    **SEQUOIA,
    **DYSPEC,
    **GSD_FIGURES,
}


def build(name: str, cells) -> list[Output]:
    return ARTIFACTS[name].build(Path(name).name, cells.load())


TITLED = ["opt_tree/fig5", "opt_tree/fig6", "opt_tree/fig8", "opt_tree/fig11", "smoke"]
TITLED += [name for name in SEQUOIA if name not in ("sequoia/fig4", "sequoia/fig5b")]


@pytest.mark.parametrize("name", [name for name in FILLS if "fig" in name])
def test_figures_without_rows_say_so(name: str, cells) -> None:
    with pytest.raises(NoResultsError):
        build(name, cells)
    opt_tree(cells, status="oom")
    with pytest.raises(NoResultsError):
        build(name, cells)


def test_no_interval_is_no_crash(cells, tmp_path: Path) -> None:
    opt_tree(cells, conversations=1, nodes=True)
    for name in ("opt_tree/fig5", "opt_tree/fig6", "opt_tree/fig8", "opt_tree/fig9", "opt_tree/fig11", "smoke"):
        assert write_all(build(name, cells), tmp_path / name)


def test_sequoias_sizes_are_a_line_beside_opt_trees(cells) -> None:
    for size in (8, 32):
        cells.add("sized_opt_tree", "opt_tree", params={"n": size, "delta": 0.2, "draft_temperature": 1.0})
        cells.add("sized_sequoia", "sequoia", params={"n": size, "acceptance": [0.5, 0.2], "depth": None})
    figure, _ = build("opt_tree/fig6", cells)
    assert isinstance(figure, Figure)
    axes, over = figure.canvas.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["OPT-Tree", "Sequoia"]
    assert [text.get_text() for text in over.get_legend().get_texts()] == ["OPT-Tree"]
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
    fill_fig9(cells)
    opt_tree(cells, seed=7, temperature=1.0)
    opt_tree(cells, pair="other")
    runs = frame.load(cells.load(), across=["temperature"])
    assert runs["setting"].unique().tolist() == ["tiny, seed 0", "tiny, seed 7", "other"]
    assert frame.load(cells.load())["block"].nunique() == 5


def test_frequency_table_equals_plain_pandas(cells) -> None:
    fill_fig11(cells)
    _, made = build("opt_tree/fig11", cells)
    assert isinstance(made, Table)
    nodes = cells.load().nodes
    tested = nodes[nodes["parent_accepted"]]
    share = tested.groupby((tested["edge_prob"] * 10).astype(int))["accepted"].agg(["mean", "count"])
    assert [cell.split(" ")[0] for cell in made.frame["accepted"]] == [f"{value:.2f}" for value in share["mean"]]
    assert made.frame["nodes"].tolist() == [str(count) for count in share["count"]]


def test_lines_across_stand_at_mu_and_the_papers_best_delta(cells) -> None:
    fill_fig8(cells)
    figure, _ = build("opt_tree/fig8", cells)
    results = cells.load()
    base = results.prompts[results.prompts["arm"] == "autoregressive"]
    mu = (results.steps["draft_s"].sum() / results.steps["draft_forwards"].sum()) / (
        base["decode_s"].sum() / base["num_steps"].sum()
    )
    across = [line.get_xdata()[0] for line in figure.canvas.axes[0].lines if [*line.get_ydata()] == [0, 1]]
    assert across == [pytest.approx(mu), 0.2]


def test_figure_6_sets_opt_tree_against_sequoias_tree_of_its_size(cells) -> None:
    for method, mal in (("opt_tree", 4.0), ("sequoia", 3.2)):
        for size in (8, 32)[: 1 if method == "sequoia" else 2]:
            cells.add(method, params={"n": size}, mal=mal)
    _, made = build("opt_tree/fig6", cells)
    found = made.frame.set_index(["line", "size_words"])
    mal, over = (found[header].str.split().str[0] for header in (found.columns[1], "mal_over_sequoia"))
    both = float(mal["OPT-Tree", "8"]) / float(mal["Sequoia", "8"])
    assert float(over["OPT-Tree", "8"]) == pytest.approx(both, abs=0.01)
    assert over["OPT-Tree", "32"] == over["Sequoia", "8"] == ABSENT
