"""The page of a pair that no paper has: its methods, its sizes as a figure, and MAL and speedup part by part."""

import pytest

from specdec_trees.artifacts.findings import HARDLY
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.registry import build

UNPUBLISHED = {"published": None, "pair": "hers"}


def category(prompt: str) -> str:
    return "coding" if int(prompt[-1]) % 2 else "writing"


def filled(cells, **more) -> None:
    for size, mal in ((8, 2.0), (25, 3.0)):
        given = {"params": {"n": size}, "size": size, "conversations": 14, **UNPUBLISHED, **more}
        cells.add(f"opt_tree_n{size}", "opt_tree", mal=mal, **given)
    cells.add("autoregressive", "autoregressive", mal=1.0, conversations=14, **UNPUBLISHED, **more)


def part_of(table: Table, part: str) -> dict[str, tuple[float, float]]:
    rows = table.frame[table.frame["part"] == part]
    leading = rows[["mal", "speedup"]].map(lambda text: float(text.split()[0]))
    return dict(zip(rows["who"], leading.itertuples(index=False, name=None), strict=True))


def test_a_pair_without_published_numbers_has_no_columns_of_theirs(cells) -> None:
    cells.experiment = "bench/mt_bench"
    filled(cells)
    methods, figure, *_ = build("bench/mt_bench", cells.root)
    assert isinstance(figure, Figure)
    assert {"who", "mean_size", "mal", "expected_value", "speedup", "identical", "tokens_per_s"} <= {*methods.frame}
    assert not [column for column in methods.frame if "published" in column]
    cells.add("binary", params={"n": 30})  # of a pair that stands in for one of the paper's
    (theirs,) = build("bench/mt_bench", cells.root, "tiny")
    assert [column for column in theirs.frame if "published" in column]


@pytest.mark.parametrize(("part", "kept"), [("coding", "coding"), ("writing", "writing"), ("turn 1", 0), ("turn 2", 1)])
def test_every_part_has_its_own_turns_alone(part: str, kept: str | int, cells) -> None:
    cells.experiment = "mine"
    filled(cells, category=category)
    *_, parts = build("mine", cells.root)
    found, results = part_of(parts, part), cells.load()
    of = results.prompts["prompt_id"].map(category) if isinstance(kept, str) else results.prompts["turn"]
    steps_of = results.steps["prompt_id"].map(category) if isinstance(kept, str) else results.steps["turn"]
    prompts, steps = results.prompts[of == kept], results.steps[steps_of == kept]
    names = {"opt_tree_n8": "OPT-Tree, n = 8", "opt_tree_n25": "OPT-Tree, n = 25"}
    assert {*found} == {*names.values()}
    for run in results.runs[results.runs["method"] == "opt_tree"].itertuples():
        mal, speedup = found[names[run.drafter]]
        own = steps[steps["run_id"] == run.run_id]
        assert mal == pytest.approx(own["acceptance_length"].sum() / len(own), abs=0.006)
        arms = prompts[prompts["run_id"] == run.run_id].groupby("arm")[["decode_s", "num_decoded_tokens"]].sum()
        pace = arms["decode_s"] / arms["num_decoded_tokens"]
        assert speedup == pytest.approx(pace["autoregressive"] / pace["method"], abs=0.006)


def test_parts_tell_runs_apart_and_mark_no_length(cells) -> None:
    cells.experiment = "mine"
    for delta, size in ((0.1, 8), (0.5, 8), (0.1, 64)):
        cells.add("opt_tree", params={"n": size, "delta": delta}, mal=size / 16 + 2, conversations=14, **UNPUBLISHED)
    *_, parts = build("mine", cells.root)
    of_part = parts.frame[parts.frame["part"] == "turn 1"]
    assert of_part["who"].nunique() == 3
    assert not parts.frame["mal"].str.endswith(("*", "=")).any()
    assert "part" in parts.legend


def test_prompts_of_one_kind_and_one_turn_have_no_parts(cells) -> None:
    cells.experiment = "mine"
    filled(cells, turns=1)
    assert len(build("mine", cells.root)) == 2


@pytest.mark.parametrize("methods", [1, 3, 7])
def test_the_legend_lies_within_the_figure(methods: int, cells) -> None:
    cells.experiment = "mine"
    for name in ("opt_tree", "eagle2", "dyspec", "sequoia", "gsd", "spec_infer", "prompt_lookup_tree")[:methods]:
        for size in (8, 25):
            cells.add(f"{name}_{size}", name, params={"n": size}, size=size, conversations=14, **UNPUBLISHED)
    (canvas,) = (one.canvas for one in build("mine", cells.root) if isinstance(one, Figure))
    canvas.draw_without_rendering()
    (legend,) = canvas.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= canvas.bbox.width


def test_one_size_of_each_method_is_no_figure(cells) -> None:
    cells.experiment = "mine"
    for name in ("binary", "opt_tree"):
        cells.add(name, params={"n": 30}, **UNPUBLISHED)
    assert not [one for one in build("mine", cells.root) if isinstance(one, Figure)]


@pytest.mark.parametrize(("mal", "hardly"), [(1.02, True), (1.2, False)])
def test_a_draft_that_hardly_helps_is_told(mal: float, hardly: bool, cells) -> None:
    cells.experiment = "mine"
    for name in ("binary", "opt_tree"):
        cells.add(name, params={"n": 30}, mal=mal, steps=80, conversations=20, **UNPUBLISHED)
    methods = build("mine", cells.root)[0]
    assert any(HARDLY in text for text in methods.findings) is hardly
