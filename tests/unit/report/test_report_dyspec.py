"""DySpec's figures and Table 5: what is read of nodes, masks and times, and which of the paper's numbers stand beside.

That curves have their tables' values is in test_drawn, what these are in test_recomputed_long.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from doubles import random_tree
from drawn import axes_of, build, column, table_of
from dyspec_fills import Q_AND_P, SAMPLING, fill_nodes, fill_sizes, fill_steps, node, resize
from hydra.utils import instantiate
from matplotlib.colors import to_rgb
from omegaconf import OmegaConf

from specdec_core import Verdict
from specdec_core.models import ModelOutput
from specdec_core.node_order import block_map
from specdec_core.verifiers import ChildByChild
from specdec_trees.artifacts import frame
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.tables import ABSENT, named_rows
from specdec_trees.measure.recorders import MaskRecorder
from specdec_trees.papers.dyspec.figures import BINS, RULES, first_children, shares, within
from specdec_trees.papers.dyspec.masks import ORDERS, Mask
from specdec_trees.results.kept_rows import AttentionRow
from specdec_trees.results.rows import MaskRow
from specdec_trees.statistics.intervals import Interval

CONF = Path(__file__).parents[3] / "conf" / "verifier"
LLAMA_70B = {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}
VICUNA = LLAMA_70B | {"target": "vicuna_33b", "draft": "jf68m"}


# Figure 2


def test_columns_of_the_heat_maps_sum_to_one_and_empty_ones_are_blank(cells) -> None:
    fill_nodes(cells)
    results = cells.load()
    (run,) = named_rows(frame.finished(results))
    nodes = first_children(run, results.nodes)
    assert len(nodes) == 20, "neither a second child nor one below a node that was not accepted"
    heats = [axes.collections[0].get_array() for axes in axes_of("dyspec/fig2", cells)[:2]]
    parts = (("chance", [1.0, 0.5, 0.25, 1.0, 0.5]), ("target_prob", [p for _, p in Q_AND_P]))
    for (name, values), heat in zip(parts, heats, strict=True):
        expected = np.full((BINS, BINS), np.nan)
        for (q, _), value in zip(Q_AND_P, values, strict=True):
            x, y = (min(int(number * BINS), BINS - 1) for number in (q, value))
            expected[:, x] = np.nan_to_num(expected[:, x])
            expected[y, x] += 1
        expected /= expected.sum(axis=0)
        np.testing.assert_allclose(shares(nodes, name), expected)
        np.testing.assert_allclose(np.ma.filled(heat, np.nan).reshape(BINS, BINS), expected)


def test_the_table_has_a_row_for_every_bin_of_q(cells) -> None:
    fill_nodes(cells)
    rows = table_of("dyspec/fig2", cells).frame.set_index("q")
    assert len(rows) == BINS
    assert rows["nodes"].astype(int).sum() == 20
    assert rows.loc["0.40 to 0.45", ["nodes", "chance", "p"]].tolist() == ["8", "0.38", "0.16"]
    assert rows.loc["0.70 to 0.75", ["nodes", "chance", "p", "accepted"]].tolist() == ["0", "–", "–", "–"]
    nodes = cells.load().nodes
    share = nodes.loc[(nodes["edge_prob"] // 0.05 == 8) & (nodes["rank"] == 0), "accepted"].mean()
    assert rows.loc["0.40 to 0.45", "accepted"].startswith(f"{share:.2f} (")


@pytest.mark.parametrize(
    "given", [{"temperature": 0.0}, {"draws": "topk"}, {"verifier": "target_sample"}, {"verifier": "k_seq"}]
)
def test_nodes_that_are_not_taken_with_min_1_p_over_q_are_not_drawn(given, cells) -> None:
    fill_nodes(cells, **given)
    with pytest.raises(NoResultsError):
        build("dyspec/fig2", cells)
    kept = fill_nodes(cells)
    assert set(table_of("dyspec/fig2", cells).runs) == {kept}


def test_the_rules_that_are_drawn_are_those_whose_first_round_takes_with_min_1_p_over_q() -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    names = {path.stem for path in CONF.glob("*.yaml")} - {"greedy", "target_sample"}
    found = set()
    for name in sorted(one for one in names if not one.startswith("by_")):
        config = OmegaConf.load(CONF / f"{name}.yaml")
        rule = instantiate({key: value for key, value in config.items() if key not in ("name", "allow_lossy")})
        if isinstance(rule, ChildByChild):
            chances = [float(rule.begin(p, q, 2 - (name == "chain")).accept(torch.tensor(child))) for child in range(3)]
            found |= {name} if chances == pytest.approx([1, 0.6, 2 / 3]) else set()
    assert found == set(RULES)


def test_nodes_of_an_earlier_version_have_no_rank(cells) -> None:
    run_id = cells.add("dyspec", **SAMPLING)
    cells.store.write("nodes", run_id, [node(run_id, 0, 0.5, 0.5, rank=None)])
    with pytest.raises(NoResultsError):
        build("dyspec/fig2", cells)


# Figure 4


def test_components_of_a_step_and_the_papers_bound(cells) -> None:
    fill_steps(cells)
    row = table_of("dyspec/fig4", cells).frame.iloc[0]
    steps = cells.load().steps
    seconds = steps[[name for name in steps if name.endswith("_s")]].sum()
    choice, parts = seconds["choice_s"], seconds["tree_s"] - seconds[["choice_s", "sampling_s", "layout_s"]].sum()
    whole = seconds[["tree_s", "draft_s", "score_s", "judge_s", "commit_s"]].sum()
    assert row["tree_construction_share"] == f"{choice / whole:.1%}"
    assert row["rest_of_growing_ms"] == f"{1000 * parts / len(steps):.2f}"
    assert row[["bounded_part", "bound", "within"]].tolist() == ["tree construction", "< 2%", "yes"]
    assert row["bounded_share"].startswith(f"{choice / whole:.1%} [")


@pytest.mark.parametrize(
    ("published", "bounded"), [(LLAMA_70B, "all but the forwards"), (VICUNA, ABSENT), (None, ABSENT)]
)
def test_the_bound_is_of_the_papers_models_and_parts_that_were_timed(published, bounded: str, cells) -> None:
    """Parts of growing were not timed here."""
    cells.add("dyspec", params={"n": 64}, **SAMPLING | ({"published": published} if published else {}))
    row = table_of("dyspec/fig4", cells).frame.iloc[0]
    assert row["bounded_part"] == bounded
    assert (row["within"] == ABSENT) == (bounded == ABSENT)
    steps = cells.load().steps
    rest, forwards = (
        steps[list(names)].sum().sum() for names in (("tree_s", "judge_s", "commit_s"), ("draft_s", "score_s"))
    )
    if bounded != ABSENT:
        assert row["bounded_share"].startswith(f"{rest / (rest + forwards):.1%} [")


def test_within_is_judged_by_the_whole_interval() -> None:
    ends = [(0.01, 0.019), (0.02, 0.03), (0.01, 0.02), (float("nan"), float("nan"))]
    assert [within(Interval(0.02, low, high, 6), 0.02) for low, high in ends] == ["yes", "no", "open", "open"]
    assert {within(Interval(0.02, low, high, 5), 0.02) for low, high in ends} == {"open"}


# Figure 5


def test_sizes_and_tokens_of_the_first_conversation(cells) -> None:
    run_id = fill_sizes(cells)
    (left, right), made = build("dyspec/fig5", cells)
    steps = cells.load().steps
    shown = steps[(steps["prompt_id"] == "p0") & (steps["turn"] == 0)].sort_values("step")
    assert list(left.lines[0].get_ydata()) == shown["num_drafted"].tolist()
    assert [bar.get_height() for bar in right.patches] == shown["acceptance_length"].tolist()
    row = made.frame.iloc[0]
    assert row[["threshold", "cap", "at_cap", "mean_size_published"]].tolist() == ["0.001", "768", "100%", "551.79"]
    resize(cells, run_id, 600)
    assert column(table_of("dyspec/fig5", cells), "at_cap", who="run_id")[run_id] < 1


@pytest.mark.parametrize(
    "given", [{"dataset": "c4"}, {"temperature": 0.0}, {"params": {"threshold": None, "n": 768}}, {"params": {"n": 64}}]
)
def test_the_papers_mean_stands_beside_its_own_setting_alone(given, cells) -> None:
    fill_sizes(cells, **given)
    assert "mean_size_published" not in table_of("dyspec/fig5", cells).frame


# Figures 6, 7 and 9

PATH = torch.tensor([0, 1, 2])


def add_masks(cells, n: int) -> list[MaskRow]:
    """Random trees behind a prefix of 128 and two more tokens a step; the second step's has a node more."""
    run_id, rng = cells.add("dyspec", params={"n": n}, dataset="openwebtext"), torch.Generator().manual_seed(0)
    rows: list[MaskRow] = []
    for prompt in range(2):
        recorder = MaskRecorder(run_id, f"p{prompt}", 0, 128)
        for step in range(6):
            size = n + 1 + (step == 1)
            recorder(random_tree(size, 7, rng), ModelOutput(torch.zeros(size, 7)), Verdict(PATH, (1, 1), 1))
        rows += recorder.rows
    cells.store.write("masks", run_id, rows)
    return rows


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("nodes", [1, 8, 33, 70])
def test_masks_and_blocks_from_parents_are_the_trees(nodes: int, block: int) -> None:
    tree = random_tree(nodes, 7, torch.Generator().manual_seed(nodes))
    mask = Mask(tree.parents.tolist(), block)
    assert np.array_equal(mask.visible, tree.ancestor_mask.numpy())
    assert np.array_equal(mask.blocks, block_map(tree.ancestor_mask, block).numpy())
    side = -(-nodes // block)
    assert mask.filled == mask.blocks.sum() <= mask.at_most == side * (side + 1) // 2


def test_a_picture_tells_what_is_seen_from_what_is_read_in_vain_and_what_is_skipped() -> None:
    """Two branches below the root, in blocks of 2: the lower ones do not see one another."""
    picture = Mask([-1, 0, 1, 1, 0, 4], 2).picture()
    seen, masked, empty = picture[0, 0], picture[0, 1], picture[0, 5]
    assert len({tuple(seen), tuple(masked), tuple(empty)}) == 3
    assert tuple(masked) == to_rgb("white")
    rows = ("102222", "112222", "111022", "110122", "102210", "102211")
    visible = np.array([[int(cell) for cell in row] for row in rows])
    for kind, colour in ((1, seen), (0, masked), (2, empty)):
        assert np.array_equal((picture == colour).all(-1), visible == kind)


def test_the_largest_tree_is_drawn_in_every_order_with_its_counts(cells) -> None:
    rows = add_masks(cells, 69)
    cells.add("opt_tree", dataset="openwebtext")  # recorded no masks
    axes, made = build("dyspec/fig7", cells)
    shown = [row for row in rows if (row.prompt_id, row.step) == ("p0", 1)]
    assert [row.order for row in shown] == list(ORDERS)
    for axis, row in zip(axes, shown, strict=True):
        (image,) = axis.images
        assert np.array_equal(image.get_array(), Mask(row.parents, 32).picture())
    assert made.frame["filled"].tolist() == [str(row.num_tree_blocks) for row in shown]
    assert set(made.frame["mask_nodes"]) == {"71"}
    assert table_of("dyspec/fig6", cells).frame["words"].tolist() == [ORDERS["heap"], ORDERS["dfs"]]


def test_blocks_by_prefix_beside_the_papers(cells) -> None:
    """The paper has a value for 768 rows with the root, none for others."""
    runs = {n: add_masks(cells, n) for n in (767, 40)}
    made = table_of("dyspec/fig9", cells)
    for n, rows in runs.items():
        alike = {"who": "order", "n": n}
        heap, depth_first = (366.12, 218.31) if n == 767 else (None, None)
        printed = column(made, "blocks", "published", **alike)
        assert (printed["heap"], printed["dfs"]) == (heap, depth_first)
        means = {order: np.mean([row.num_tree_blocks for row in rows if row.order == order]) for order in ORDERS}
        assert column(made, "tree_blocks", **alike) == pytest.approx(means)
        assert column(made, "of_heap", **alike) == pytest.approx(
            {one: mean / means["heap"] for one, mean in means.items()}
        )


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig9", "table5", "fig8"])
def test_without_masks_or_times_there_is_nothing_to_show(name: str, cells) -> None:
    cells.add("dyspec", params={"n": 9})
    with pytest.raises(NoResultsError):
        build(f"dyspec/{name}", cells)


# Table 5 and Figure 8

COUNTS = {("creation", 256): 36, ("dfs", 256): 22, ("creation", 2048): 1650, ("dfs", 2048): 400}
GRID = {"heads": 64, "kv_heads": 64, "head_dim": 128, "num_prefix": 0, "block": 32}
TIMES = ["custom_published", "manual_published", "xformers_published"]
VERDICTS = ["matches (uncorrected)", "not resolved (n = 6; about 43 needed)", "matches", "differs"]
"""22.0 [20.34, 23.79] blocks against 22.5 with its tolerance, 21.375 to 23.625: 6 x (1.66 / 0.625)^2."""


def add_times(cells, kernels: tuple[str, ...] = ("tree_triton", "sdpa"), run_id: str = "a77e00000000", **given) -> None:
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


def test_table_5_has_our_times_and_the_papers_beside_each_other(cells) -> None:
    add_times(cells)
    rows = table_of("dyspec/table5", cells).frame.set_index(["num_nodes", "reordered"])
    assert list(rows.index) == [("256", "no"), ("256", "yes"), ("2048", "no"), ("2048", "yes")]
    row = rows.loc["256", "yes"]
    assert row[["tree_triton_ms", "sdpa_ms"]].tolist() == ["0.02222", "0.06464"]
    assert row[["blocks", "blocks_published", "difference"]].tolist() == ["22.0 [20.3, 23.8]", "22.5", "-2.2%"]
    assert row[TIMES].tolist() == ["0.05406", "0.14124", "0.16721"]
    assert rows["blocks_verdict"].tolist() == VERDICTS


def test_a_size_of_blocks_that_the_paper_does_not_have_has_no_verdict(cells) -> None:
    add_times(cells, kernels=("sdpa",), block=64)
    made = table_of("dyspec/table5", cells)
    assert set(made.frame["blocks_verdict"]) == {"not comparable: no published value"}
    assert (made.frame[["blocks_published", *TIMES]] == ABSENT).all(axis=None)


@pytest.mark.parametrize("given", [{"heads": 2, "kv_heads": 2}, {"head_dim": 16}, {"num_prefix": 512}])
def test_the_papers_times_stand_beside_its_own_grid_alone_and_its_blocks_beside_every_one(given, cells) -> None:
    add_times(cells, **given)
    made = table_of("dyspec/table5", cells)
    assert (made.frame[TIMES] == ABSENT).all(axis=None)
    assert made.frame["blocks_published"].tolist() == ["36", "22.5", "1654.5", "278.7"]
    assert made.frame["blocks_verdict"].tolist() == VERDICTS
    assert len(axes_of("dyspec/fig8", cells)) == 1, "no panel of the paper's"


def test_rows_and_panels_of_several_grids_are_told_apart(cells) -> None:
    grids = [{}, {"num_prefix": 512}, {"kv_heads": 8}, {"heads": 2, "kv_heads": 2, "head_dim": 16}, {"block": 64}]
    for place, grid in enumerate(grids):
        add_times(cells, run_id=f"a77e0000000{place}", **grid)
    made = table_of("dyspec/table5", cells)
    assert made.frame["grid"].nunique() == len(grids)
    assert not made.frame.duplicated(["grid", "num_nodes", "reordered"]).any()
    axes, listed = build("dyspec/fig8", cells)
    assert not listed.frame.duplicated(["grid", "kernel", "order", "num_nodes"]).any()
    assert len({axis.get_title() for axis in axes}) == len(grids) + 1, "the paper's own beside them"


def test_figure_8_has_a_line_for_every_kernel_and_order_and_the_papers_beside_them(cells) -> None:
    add_times(cells)
    add_times(cells, ("sdpa", "manual"), run_id="a77e00000001", device_name="Test CPU", dtype="float32")
    (ours, _, papers), made = build("dyspec/fig8", cells)
    drawn = {line.get_label(): line for line in ours.lines}
    assert set(drawn) == {f"{kernel}, {order}" for kernel in ("tree_triton", "sdpa") for order in ("creation", "dfs")}
    assert list(drawn["tree_triton, dfs"].get_ydata()) == pytest.approx([22.22e-3, 404e-3], rel=1e-3)
    beside = {line.get_label(): line for line in papers.lines}
    assert list(beside["custom, dfs"].get_ydata()) == [0.05406, 0.11364, 0.31801, 1.02645]
    speedup = made.frame[(made.frame["kernel"] == "tree_triton") & (made.frame["order"] == "dfs")]
    ratios = [float(part.strip("[],")) for text in speedup["over_created"] for part in text.split()]
    assert ratios == pytest.approx([36 / 22] * 3 + [1650 / 400] * 3, abs=0.0051)


def test_one_slow_tree_moves_neither_times_nor_the_ratio(cells) -> None:
    """Ratios of the trees' two times: 3, 1, 1.01, 1, 1, 1; the first of these trees was slow as created."""
    add_times(cells, ("sdpa",))
    slow = {("creation", 0): 3.0, ("creation", 2): 1.01}
    rows = [AttentionRow(**row) for row in cells.load().attention.to_dict("records")]
    changed = [replace(row, forward_s=row.forward_s * slow.get((row.order, row.tree), 1.0)) for row in rows]
    cells.store.write("attention", "a77e00000000", changed)
    made = table_of("dyspec/fig8", cells)
    one = made.frame[(made.frame["num_nodes"] == "256") & (made.frame["order"] == "dfs")].iloc[0]
    assert one["over_created"] == "1.00 [1.00, 3.00]", "of six, by the sign test: from the least to the largest"
    expected = np.median([row.forward_s for row in changed if (row.order, row.num_nodes) == ("creation", 256)]) * 1e3
    assert table_of("dyspec/table5", cells).frame["sdpa_ms"].iloc[0] == f"{expected:.4g}"
