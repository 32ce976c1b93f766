"""Every builder on small results: files that are there, not blank, and name their runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from dyspec_fills import FILLS as DYSPEC
from gsd_figure_fills import FILLS as GSD_FIGURES
from PIL import Image
from sequoia_fills import FILLS as SEQUOIA

from bench.artifacts import draw, frame
from bench.artifacts.outputs import NoResultsError, Output, write_all
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table
from bench.papers.beyond.by_speedup import by_speedup
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


@pytest.mark.few(3)
@pytest.mark.parametrize("name", FILLS)
def test_every_artifact_is_written_and_not_blank(name: str, cells, tmp_path: Path) -> None:
    FILLS[name](cells)
    outputs = build(name, cells)
    paths = write_all(outputs, tmp_path / "out")
    assert len(paths) == len({path.name for path in paths})
    assert all(path.stat().st_size > 100 for path in paths)
    figures = [output for output in outputs if isinstance(output, Figure)]
    assert bool(figures) == ("table" not in name and name not in ("bench/mt_bench", "bench/c4"))
    for figure in figures:
        image = Image.open(tmp_path / "out" / f"{figure.name}.png")
        pixels = np.asarray(image.convert("L"), dtype=float)
        assert pixels.std() > 8
        assert (pixels[[0, -1]] == 255).all()  # nothing runs over the edges
        assert (pixels[:, [0, -1]] == 255).all()
        assert set(image.text["run_ids"].split(",")) == set(figure.runs)
        assert b"run_ids=" in (tmp_path / "out" / f"{figure.name}.pdf").read_bytes()


TITLED = ["opt_tree/fig5", "opt_tree/fig6", "opt_tree/fig8", "opt_tree/fig11", "smoke"]
TITLED += [name for name in SEQUOIA if name not in ("sequoia/fig4", "sequoia/fig5b")]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TITLED)
def test_titles_say_pair_dataset_temperature_and_device(name: str, cells) -> None:
    FILLS[name](cells)
    dataset = "cnn_dm" if name in SEQUOIA else {"smoke": "mini"}.get(name, "mt_bench")
    for output in build(name, cells):
        assert isinstance(output, Table | Figure)
        for word in ("tiny", dataset, "temperature 0", "Test CPU"):
            assert word in output.title


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


def test_smoke_table_numbers(cells) -> None:
    fill_smoke(cells)
    results = cells.load()
    _, made = by_speedup("smoke", "All", results)
    frame = made.frame.set_index("Drafter")
    run_id = made.runs[made.frame["Drafter"].tolist().index("OPT-Tree, n = 25")]
    steps = results.steps[results.steps["run_id"] == run_id]
    assert frame.loc["OPT-Tree, n = 25", "E(A)"] == f"{steps['expected_acceptance'].mean():.2f}"
    for depth in range(1, 5):
        assert frame.loc["OPT-Tree, n = 25", f"d={depth}"] == f"{(steps['num_accepted'] >= depth).mean():.2f}"
    assert frame.loc["OPT-Tree, n = 25", "forwards"] == "8.0"
    assert frame.loc["autoregressive", "d=1"] == "–"
    assert frame.loc["broken", "MAL"] == "failed"
    assert frame.loc["OPT-Tree, n = 25", ["identical", "lossless"]].tolist() == ["100%", "yes"]


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


def test_mal_against_the_drafts_temperature_is_a_line_per_drafter(cells) -> None:
    fill_draft_temperature(cells)
    figure, made = build("bench/draft_temperature", cells)
    assert isinstance(made, Table)
    (axes,) = figure.canvas.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["OPT-Tree", "EAGLE's tree", "E(A)"]
    frame = made.frame.set_index(["Line", "draft_temperature"])
    best = made.frame[made.frame["MAL"].str.endswith(" *")]
    assert best["draft_temperature"].tolist() == ["0.5", "0.8", "1"], "the best of every temperature is marked"
    assert not any(note.startswith("Draft temperature") for note in made.notes), "it is what the table is about"
    own = cells.load()
    for _, run in own.runs.iterrows():
        steps = own.steps[own.steps["run_id"] == run["run_id"]]
        found = frame.loc[({"opt_tree": "OPT-Tree", "eagle_tree": "EAGLE's tree"}[run["method"]], temperature_of(run))]
        assert found["MAL"].split(" ")[0] == f"{steps['acceptance_length'].mean():.2f}"
        assert found["E(A)"].split(" ")[0] == f"{steps['expected_acceptance'].mean():.2f}"


def temperature_of(run) -> str:
    return f"{json.loads(run['drafter_params'])['draft_temperature']:g}"


@pytest.mark.parametrize("name", ["opt_tree/table1", "opt_tree/fig6", "bench/budget", "bench/mt_bench", "smoke"])
def test_another_draft_temperature_than_the_papers_is_told(name: str, cells) -> None:
    """Of the draft's best tokens; what is drawn at random has its method's."""
    settings = {"n": 8, "draft_temperature": 0.6}
    cells.add("opt_tree", "opt_tree", params=settings, draws="without_replacement", size=8)
    said = "Draft temperature 0.6 for tiny (the papers: 1; DySpec: 0.6)"
    assert not any(note.startswith(said) for output in build(name, cells) for note in getattr(output, "notes", ()))
    cells.add("opt_tree", "opt_tree", params=settings, draws="topk", size=8)
    assert any(note.startswith(said) for output in build(name, cells) for note in getattr(output, "notes", ()))


def test_figure_6_sets_opt_tree_against_sequoias_tree_of_its_size(cells) -> None:
    for method, mal in (("opt_tree", 4.0), ("sequoia", 3.2)):
        for size in (8, 32)[: 1 if method == "sequoia" else 2]:
            cells.add(method, params={"n": size}, mal=mal)
    _, made = build("opt_tree/fig6", cells)
    found = made.frame.set_index(["Line", "Tree size n"])
    mal, over = (found[header].str.split().str[0] for header in (found.columns[1], "MAL over Sequoia's"))
    both = float(mal["OPT-Tree", "8"]) / float(mal["Sequoia", "8"])
    assert float(over["OPT-Tree", "8"]) == pytest.approx(both, abs=0.01)
    assert over["OPT-Tree", "32"] == over["Sequoia", "8"] == ABSENT


def test_figure_6_says_for_what_texts_sequoias_trees_are_made(cells) -> None:
    fill_fig6(cells)
    before = build("opt_tree/fig6", cells)[1].notes
    cells.add_vector([0.5, 0.2], dataset="c4")
    (added,) = {*build("opt_tree/fig6", cells)[1].notes} - {*before}
    assert "c4" in added
