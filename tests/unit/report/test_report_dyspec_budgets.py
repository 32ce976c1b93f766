"""DySpec's Tables 1 to 4 where budgets are not the paper's: what is left out, what is said, and what counts."""

from typing import Any

import pytest
from dyspec_fills import SAMPLING, THRESHOLD, fill_large, fill_small

from bench import published
from bench.artifacts.tables import Table
from bench.papers.dyspec.layouts import LAYOUTS
from bench.papers.registry import ARTIFACTS
from bench.published import params_of

pytestmark = pytest.mark.long


METHODS = ["DySpec", "Sequoia", "SpecInfer"]
PAIR = {"pair": "llama2_7b_jf68m", "published": {"target": "llama2_7b", "draft": "jf68m", "stand_in": False}}
SETTING = PAIR | SAMPLING | {"dataset": "gsm8k"}
PRINTED = ["2.44x (4.31)", "2.20x (3.55)"]
RATIOS = [f"DySpec / Sequoia: {metric}{side}" for metric in ("MAL", "speedup") for side in ("", " published")]
UNEVEN, OTHER = "budgets differ", "not comparable: other budget"


def build(name: str, cells) -> list[Table]:
    return ARTIFACTS[f"dyspec/{name}"].build(name, cells.load())


def fill(cells, *sizes: int, **given: Any) -> list[str]:
    """DySpec, Sequoia and SpecInfer with so many nodes, of which the last draws sequences of 8."""
    options = SETTING | given
    shape = {"shape": {"num_sequences": sizes[2] // 8, "depth": 8}}
    return [
        cells.add("dyspec", params={"n": sizes[0], "draft_temperature": 0.6}, **options),
        cells.add("sized_sequoia", "sequoia", params={"n": sizes[1], "draft_temperature": 0.3}, **options),
        cells.add("spec_infer_8x8", "spec_infer", params=shape, size=sizes[2], **options),
    ]


def test_the_budget_of_a_run_is_its_n_or_the_nodes_of_its_shape(cells) -> None:
    fill(cells, 8, 64, 24)
    cells.add("spec_infer_16x48", "spec_infer", params={"shape": {"num_sequences": 16, "depth": 48}}, **SETTING)
    cells.add("binary", params={"shape": {"n": 25}}, **SETTING)
    block = cells.block()
    assert [run.budget for run in block.ok] == [8, 64, 24, 768, 25]


@pytest.mark.parametrize(
    ("sizes", "off"), [((64, 64, 64), ()), ((8, 64, 64), (0,)), ((64, 64, 32), (2,)), ((8, 8, 8), (0, 1, 2))]
)
def test_the_papers_numbers_stand_beside_its_budget_alone(sizes, off, cells) -> None:
    fill(cells, *sizes)
    wide, details = build("table1", cells)
    shown = wide.frame[[f"{name} published" for name in METHODS]].iloc[0]
    frame = details.frame.set_index("Method")
    assert frame.loc[METHODS, "budget"].tolist() == [str(size) for size in sizes]
    for place, name in enumerate(METHODS):
        values = frame.loc[name, ["speedup published", "MAL published"]]
        verdicts = frame.loc[name, ["verdict speedup", "verdict MAL"]]
        if place in off:
            assert shown.iloc[place] == f"– (ours: {sizes[place]} nodes)"
            assert (values == "–").all()
            assert (verdicts == OTHER).all()
        else:
            assert "x (" in shown.iloc[place]
            assert (values != "–").all()
            assert not (verdicts == OTHER).any()
    if 0 not in off:
        assert shown.iloc[:2].tolist() == PRINTED


def test_a_method_of_another_budget_takes_no_part_in_the_order(cells) -> None:
    """Sequoia's order is judged against plain decoding alone, however far DySpec's small tree falls behind it."""
    options = SETTING | {"speedup": 2.0}
    cells.add("sized_sequoia", "sequoia", params={"n": 64}, mal=4.0, **options)
    cells.add("dyspec", params={"n": 8}, mal=2.0, **options | {"speedup": 1.1})
    frame = build("table1", cells)[1].frame.set_index("Method")
    assert frame.loc["Sequoia", "verdict speedup"] == "order holds"


def test_of_uneven_budgets_none_is_ahead_and_none_counts(cells) -> None:
    fill(cells, 8, 64, 64, dataset="c4")
    wide, details = build("table1", cells)
    row = wide.frame.iloc[0]
    assert all(row[name].endswith(f"({UNEVEN})") for name in RATIOS[::2])
    assert row[RATIOS[1::2]].tolist() == ["–", "–"]
    others = details.frame.set_index("Method").loc[["Sequoia", "SpecInfer"], ["MAL ratio", "speedup ratio"]]
    assert all(text.endswith(f"] ({UNEVEN})") for text in others.to_numpy().ravel())
    assert not [note for note in wide.notes if note.startswith("Here, by")]
    fill(cells, 64, 64, 64)
    notes = build("table1", cells)[0].notes
    assert sum("of 1 settings and behind in" in note for note in notes) == 2
    assert "Settings in which the budgets of DySpec and Sequoia differ are not counted: 1." in notes


def test_even_budgets_that_are_not_the_papers_are_compared_among_themselves(cells) -> None:
    fill(cells, 8, 8, 8)
    wide, _ = build("table1", cells)
    assert not any(UNEVEN in wide.frame[name].iloc[0] for name in RATIOS)
    assert wide.frame[RATIOS[1::2]].iloc[0].tolist() == ["–", "–"]
    assert not any("are not counted" in note for note in wide.notes)


def test_table_4_counts_the_shape_and_the_cap(cells) -> None:
    large = {"pair": "offloaded", "published": {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}}
    options = large | SAMPLING
    cells.add("dyspec_threshold", params=THRESHOLD | {"n": 100}, **options)
    cells.add("sized_sequoia", "sequoia", params={"n": 768}, **options)
    cells.add("spec_infer_16x48", "spec_infer", params={"shape": {"num_sequences": 16, "depth": 4}}, size=64, **options)
    wide, details = build("table4", cells)
    columns = [f"{name} published" for name in (*METHODS, "plain")]
    assert wide.frame[columns].iloc[0].tolist() == [
        "– (ours: 100 nodes)",
        "0.65835 (8.80)",
        "– (ours: 64 nodes)",
        "5.2928",
    ]
    assert details.frame["s/token published"].tolist() == ["–", "0.65835", "–", "5.2928"]


def test_of_several_runs_the_one_with_the_papers_budget_goes_first(cells) -> None:
    kept = fill(cells, 64, 64, 64)
    cells.add("dyspec", params={"n": 8}, **SETTING)
    cells.add("dyspec", params={"n": 64, "max_depth": 4}, status="oom", **SETTING)
    assert build("table1", cells)[0].runs == (" ".join(kept),)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_budgets_are_those_of_the_published_rows(name: str) -> None:
    rows = published.find("dyspec", name)
    sizes = {size for text in rows["params"] if (size := params_of(text).get("size"))}
    assert sizes == {str(arm.budget) for arm in LAYOUTS[name].arms}
    assert f"the paper: {'at most ' * (name == 'table4')}{sizes.pop()} nodes" in LAYOUTS[name].title


def test_notes_say_what_was_run(cells) -> None:
    fill(cells, 8, 64, 32)
    cells.add("dyspec", params={"n": 16, "draft_temperature": 0.6}, **SETTING | {"temperature": 0.0})
    options = SETTING | {"temperature": 0.0, "draws": "topk"}
    cells.add("sized_sequoia", "sequoia", params={"n": 64, "draft_temperature": 1.0}, **options)
    wide, _ = build("table1", cells)
    notes = " ".join(wide.notes)
    assert "trees of 64 nodes" not in wide.title
    assert "aside: DySpec 8 / 16, Sequoia 64, SpecInfer 32; the paper: 64. Where ours" in notes
    assert "SpecInfer's tree here: 4 sequences of 8 tokens." in notes
    assert "DySpec: 0.6, children drawn (target's temperature 0.6 and 0); " in notes
    sequoia = "0.3, children drawn (target's temperature 0.6) / 1, the draft's best tokens (target's temperature 0); "
    assert f"Sequoia: {sequoia}SpecInfer: not recorded, children drawn (target's temperature 0.6). The paper's" in notes


@pytest.mark.parametrize(("name", "fill_all"), [("table1", fill_small), ("table4", fill_large)])
def test_the_papers_budgets_leave_nothing_out(name: str, fill_all, cells) -> None:
    fill_all(cells)
    wide, details = build(name, cells)
    assert not any(word in " ".join(wide.notes) for word in ("left out and", "are left out; where", "not counted"))
    assert not any(
        OTHER in text or UNEVEN in text for table in (wide, details) for text in table.frame.to_numpy().ravel()
    )


def test_without_runs_the_budget_is_the_papers(cells) -> None:
    notes = build("table1", cells)[0].notes
    assert any("DySpec not run, Sequoia not run, SpecInfer not run; the paper: 64." in note for note in notes)
    assert not any(note.startswith("Draft temperature here") for note in notes)
