"""DySpec's Table 5 and Figure 8 on made-up times."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT
from bench.papers.registry import ARTIFACTS, build
from bench.results.kept_rows import AttentionRow

COUNTS = {("creation", 256): 36, ("dfs", 256): 22, ("creation", 2048): 1650, ("dfs", 2048): 400}

GRID = {"heads": 64, "kv_heads": 64, "head_dim": 128, "num_prefix": 0, "block": 32}
TIMES = ["custom, paper", "manual, paper", "xformers, paper"]


def fill(cells, kernels: tuple[str, ...] = ("tree_triton", "sdpa"), run_id: str = "a77e00000000", **given) -> None:
    """Trees of three counts around the given one; times in proportion to the blocks, or to the square of the size."""
    rows = [
        AttentionRow(
            run_id=run_id,
            **GRID | {"device_name": "Test GPU", "dtype": "bfloat16", "torch_version": "2"} | given,
            kernel=kernel,
            num_nodes=nodes,
            order=order,
            tree=tree,
            num_blocks=count + tree % 3 - 1,
            num_tree_blocks=count + tree % 3 - 1,
            repeats=100,
            prepare_s=1e-5,
            forward_s=1e-6 * (count if kernel == "tree_triton" else nodes**2 / 1024) * (1 + tree % 3 / 100),
        )
        for kernel in kernels
        for (order, nodes), count in COUNTS.items()
        for tree in range(6)
    ]
    cells.store.write("attention", run_id, rows)


VERDICTS = ["matches (uncorrected)", "not resolved (n = 6; about 43 needed)", "matches", "differs"]
"""22.0 [20.34, 23.79] blocks against 22.5 with its tolerance, 21.375 to 23.625: 6 x (1.66 / 0.625)^2."""


def test_table_5_has_our_times_and_the_papers_beside_each_other(cells):
    fill(cells)
    (table,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    frame = table.frame.set_index(["Tokens", "Reordered"])
    assert list(frame.index) == [("256", "no"), ("256", "yes"), ("2048", "no"), ("2048", "yes")]
    row = frame.loc["256", "yes"]
    assert row["tree_triton ms"] == "0.02222"
    assert row["sdpa ms"] == "0.06464"
    assert row[["blocks", "paper's", "difference"]].tolist() == ["22.0 [20.3, 23.8]", "22.5", "-2.2%"]
    assert row[TIMES].tolist() == ["0.05406", "0.14124", "0.16721"]
    assert frame["Verdict"].tolist() == VERDICTS
    assert frame.loc["2048", "yes"]["difference"] == "+43.5%"
    for word in ("Test GPU", "bfloat16", "64 heads of 128", "blocks of 32", "6 uniform random recursive trees"):
        assert word in table.title
    assert any("unit that it does not state, on an A100" in note for note in table.notes)
    assert not any("on a GPU alone" in note for note in table.notes)
    assert table.runs == ("a77e00000000",) * 4


def test_what_the_paper_does_not_have_has_no_verdict(cells):
    fill(cells, kernels=("sdpa",), block=64)
    (table,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    assert set(table.frame["Verdict"]) == {"not comparable: no published value"}
    assert (table.frame[["paper's", *TIMES]] == ABSENT).all(axis=None)
    assert any("timed on a GPU alone; here they were not run" in note for note in table.notes)


@pytest.mark.parametrize(
    "given", [{"heads": 2, "kv_heads": 2}, {"head_dim": 16}, {"num_prefix": 512}, {"heads": 2, "head_dim": 16}]
)
def test_the_papers_times_stand_beside_its_own_grid_alone_and_its_blocks_beside_every_one(given, cells):
    fill(cells, **given)
    (table,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    assert (table.frame[TIMES] == ABSENT).all(axis=None)
    assert table.frame["paper's"].tolist() == ["36", "22.5", "1654.5", "278.7"]
    assert table.frame["Verdict"].tolist() == VERDICTS
    figure, _ = ARTIFACTS["dyspec/fig8"].build("fig8", cells.load())
    assert [axes.get_title() for axes in figure.canvas.axes] == ["Test GPU, bfloat16"]


def test_rows_and_panels_of_several_grids_are_told_apart(cells):
    grids = [{}, {"num_prefix": 512}, {"kv_heads": 8}, {"heads": 2, "kv_heads": 2, "head_dim": 16}, {"block": 64}]
    for place, grid in enumerate(grids):
        fill(cells, run_id=f"a77e0000000{place}", **grid)
    words = {
        "64 x 128, prefix 0, block 32",
        "64 x 128, prefix 512, block 32",
        "64 x 128 (8 of keys), prefix 0, block 32",
        "2 x 16, prefix 0, block 32",
        "64 x 128, prefix 0, block 64",
    }
    (table,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    assert set(table.frame["Grid"]) == words
    assert not table.frame.duplicated(["Grid", "Tokens", "Reordered"]).any()
    figure, listed = ARTIFACTS["dyspec/fig8"].build("fig8", cells.load())
    assert not listed.frame.duplicated(["Grid", "Kernel", "Order", "Tokens"]).any()
    titles = [axes.get_title() for axes in figure.canvas.axes]
    assert {title.partition("\n")[2] for title in titles[:-1]} == words
    assert "64 x 128, prefix 0" in titles[-1]


def test_figure_8_has_a_line_for_every_kernel_and_order_and_the_papers_beside_them(cells, tmp_path: Path):
    fill(cells)
    fill(cells, ("sdpa", "manual"), run_id="a77e00000001", device_name="Test CPU", dtype="float32")
    figure, table = ARTIFACTS["dyspec/fig8"].build("fig8", cells.load())
    assert isinstance(figure, Figure)
    ours, cpu, papers = figure.canvas.axes
    assert (ours.get_title(), cpu.get_title()) == ("Test GPU, bfloat16", "Test CPU, float32")
    assert "A100" in papers.get_title()
    labels = {line.get_label(): line for line in ours.lines}
    assert set(labels) == {f"{kernel}, {order}" for kernel in ("tree_triton", "sdpa") for order in ("creation", "dfs")}
    assert list(labels["tree_triton, dfs"].get_xdata()) == [256, 2048]
    assert list(labels["tree_triton, dfs"].get_ydata()) == pytest.approx([22.22e-3, 404e-3], rel=1e-3)
    beside = {line.get_label(): line for line in papers.lines}
    assert len(beside) == 6
    assert list(beside["custom, dfs"].get_ydata()) == [0.05406, 0.11364, 0.31801, 1.02645]
    assert to_hex(beside["custom, dfs"].get_color()) == to_hex(labels["tree_triton, dfs"].get_color())
    paths = write_all([figure, table], tmp_path)
    pixels = np.asarray(Image.open(paths[0]).convert("L"), dtype=float)
    assert pixels.std() > 8
    assert len(table.frame) == 16
    speedup = table.frame[(table.frame["Kernel"] == "tree_triton") & (table.frame["Order"] == "dfs")]
    ratios = [float(part.strip("[],")) for text in speedup["creation / this"] for part in text.split()]
    assert ratios == pytest.approx([36 / 22] * 3 + [1650 / 400] * 3, abs=0.0051)


def test_one_slow_tree_moves_neither_times_nor_the_ratio(cells):
    """Ratios of the trees' two times: 3, 1, 1.01, 1, 1, 1; the first of these trees was slow as created."""
    fill(cells, ("sdpa",))
    slow = {("creation", 0): 3.0, ("creation", 2): 1.01}
    rows = [AttentionRow(**row) for row in cells.load().attention.to_dict("records")]
    changed = [replace(row, forward_s=row.forward_s * slow.get((row.order, row.tree), 1.0)) for row in rows]
    cells.store.write("attention", "a77e00000000", changed)
    figure, table = ARTIFACTS["dyspec/fig8"].build("fig8", cells.load())
    one = table.frame[(table.frame["Tokens"] == "256") & (table.frame["Order"] == "dfs")].iloc[0]
    assert one["creation / this"] == "1.00 [1.00, 3.00]"  # of six, by the sign test: from the least to the largest
    expected = np.median([row.forward_s for row in changed if (row.order, row.num_nodes) == ("creation", 256)]) * 1e3
    drawn = {line.get_label(): line for line in figure.canvas.axes[0].lines}
    assert drawn["sdpa, creation"].get_ydata()[0] == pytest.approx(expected)
    (table5,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    assert table5.frame["sdpa ms"].iloc[0] == f"{expected:.4g}"


def test_the_verdict_is_explained_by_its_rule(cells):
    fill(cells)
    (table,) = ARTIFACTS["dyspec/table5"].build("table5", cells.load())
    assert "our interval lies wholly within 5% of the paper's value" in table.legend["Verdict"]


@pytest.mark.parametrize("name", ["table5", "fig8"])
def test_without_times_there_is_nothing_to_show(name, cells, tmp_path: Path):
    with pytest.raises(NoResultsError):
        ARTIFACTS[f"dyspec/{name}"].build(name, cells.load())
    with pytest.raises(NoResultsError):
        build(f"dyspec/{name}", tmp_path)
