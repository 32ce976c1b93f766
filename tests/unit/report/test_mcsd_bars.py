"""Improved MCSD's Figures 3 and 5: bars and their intervals, and how much faster the paper's method is than others."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from mcsd_figure_fills import LARGE, LLAMA
from mcsd_table_fills import AT_ONE, FIGURES, VICUNA, fill_dynamic, fill_static, run

from bench.artifacts.outputs import NoResultsError, write_all
from bench.artifacts.style import Figure
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.ties import BUSY_NOTE, UNRANKED
from bench.papers.registry import ARTIFACTS
from bench.results.rows import PromptRow
from bench.statistics import samples
from bench.statistics.intervals import Interval

pytestmark = pytest.mark.long


TI = "TI-MCSD (lossy)"


def build(name: str, cells) -> tuple[list[Axes], Table, Table]:
    figure, table, gains = ARTIFACTS[f"improving_mcsd/{name}"].build(name, cells.load())
    assert isinstance(figure, Figure)
    return figure.canvas.axes, table, gains


def heights(axes: Axes) -> dict[str, list[float]]:
    """The bars by the name in the legend, from left to right."""
    bars = [bars for bars in axes.containers if hasattr(bars, "patches")]
    return {str(one.get_label()): [bar.get_height() for bar in one] for one in bars}


def speedup(cells, run_id: str) -> Interval:
    prompts = cells.load().prompts
    return samples.interval(samples.speedup(prompts[prompts["run_id"] == run_id]))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_written_also_where_little_was_run(name: str, cells, tmp_path: Path) -> None:
    some = "ti" if name == "fig3" else "dynamic"
    given = {} if name == "fig3" else AT_ONE
    fills = (
        FIGURES[name],
        lambda empty: run(empty, some, **given),
        lambda empty: (run(empty, some, **given), run(empty, some, dataset="alpaca", status="oom", **given)),
        lambda empty: run(empty, some, pair="mine", published=None, dataset="mini", **given),
        lambda empty: run(empty, some, conversations=1, **given),
    )
    for place, fill in enumerate(fills):
        mine = type(cells)(tmp_path / str(place))
        fill(mine)
        outputs = ARTIFACTS[f"improving_mcsd/{name}"].build(name, mine.load())
        paths = write_all(outputs, tmp_path / "out")
        assert {path.name for path in paths} >= {f"{name}.png", f"{name}.pdf", f"{name}.md", f"{name}_gains.md"}
        for table in outputs[1:]:
            assert not {"nan", "None", ""} & set(table.frame.to_numpy().ravel())
            assert len(table.runs) == len(table.frame)


@pytest.mark.parametrize("name", FIGURES)
def test_without_a_run_there_is_no_figure(name: str, cells) -> None:
    run(cells, "ti", status="oom")
    run(cells, "dynamic", status="failed", **AT_ONE)
    run(cells, "ti", temperature=0.2)
    with pytest.raises(NoResultsError, match="ended well"):
        build(name, cells)


def test_bars_are_the_speedups_by_dataset_with_their_intervals(cells) -> None:
    runs = fill_static(cells, **LLAMA)
    (axes,), table, _ = build("fig3", cells)
    names = {"sd4": "SD", "mcsd4221": "MCSD", "matched": "MCSD, equal budget", "ti": TI}
    drawn = heights(axes)
    for name, header in names.items():
        expected = [speedup(cells, runs[dataset, name]) for dataset in ("mt_bench", "alpaca")]
        assert drawn[header] == pytest.approx([one.value for one in expected])
        (line,) = table.frame[(table.frame["Method"] == header) & (table.frame["Dataset"] == "alpaca")].itertuples()
        assert line.speedup.rstrip(" *=") == f"{expected[1].value:.2f} [{expected[1].low:.2f}, {expected[1].high:.2f}]"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["MT-Bench", "Alpaca"]
    segments = np.concatenate([one.get_segments() for one in axes.collections])
    found = sorted({(round(low[1], 6), round(high[1], 6)) for low, high in segments})
    every = [speedup(cells, run_id) for run_id in runs.values()]
    assert found == sorted({(round(one.low, 6), round(one.high, 6)) for one in every})
    (parity,) = [line for line in axes.lines if line.get_label() == "autoregressive decoding"]
    assert list(parity.get_ydata()) == [1, 1]


def test_every_pair_has_a_panel_of_the_same_height_and_colours(cells) -> None:
    for pair in (LLAMA, VICUNA, LARGE):
        fill_static(cells, **pair)
    run(cells, "ti", speedup=4.0, seed=1, **LLAMA)
    axes, _, _ = build("fig3", cells)
    names = [f"{LLAMA['pair']}, seed 0", VICUNA["pair"], LARGE["pair"], f"{LLAMA['pair']}, seed 1"]
    assert [one.get_title() for one in axes] == names
    assert len({one.get_ylim() for one in axes}) == 1
    assert {one.get_xlim() for one in axes} == {(-0.5, 1.5)}, "also where one of the datasets was run alone"
    colours = [
        {to_hex(bars.patches[0].get_facecolor()) for bars in one.containers if bars.get_label() == TI} for one in axes
    ]
    assert len(set.union(*colours)) == 1
    hatched = {
        str(bars.get_label()) for bars in axes[0].containers if hasattr(bars, "patches") and bars.patches[0].get_hatch()
    }
    assert hatched == {TI}


def test_a_method_that_was_not_run_somewhere_leaves_a_gap(cells) -> None:
    run(cells, "sd4", **LLAMA)
    run(cells, "sd4", dataset="alpaca", **LLAMA)
    alone = run(cells, "ti", dataset="alpaca", **LLAMA)
    (axes,), _, gains = build("fig3", cells)
    assert heights(axes)[TI] == pytest.approx([speedup(cells, alone).value])
    (bar,) = next(bars for bars in axes.containers if bars.get_label() == TI)
    assert 0.5 < bar.get_x() < 1.5
    (line,) = gains.frame.itertuples(index=False)
    assert line.mt_bench == ABSENT
    assert line.alpaca == line[-1]


def test_the_gain_is_the_ratio_of_mean_speedups(cells) -> None:
    """Every run decodes other tokens here; the conversations are the same."""
    runs = fill_static(cells, **LLAMA)
    _, _, gains = build("fig3", cells)
    means = {
        name: np.mean([speedup(cells, runs[dataset, name]).value for dataset in ("mt_bench", "alpaca")])
        for name in ("ti", "mcsd4221", "matched")
    }
    by_other = gains.frame.set_index("over")
    for name, over in (("mcsd4221", "MCSD 4x2x2x1"), ("matched", "MCSD, equal budget 8x3x1x1")):
        line = by_other.loc[over]
        assert line["mean of datasets"].startswith(f"{means['ti'] / means[name]:.3f} [")
        one = speedup(cells, runs["alpaca", "ti"]).value / speedup(cells, runs["alpaca", name]).value
        assert line["alpaca"].startswith(f"{one:.3f} [")
        low, high = (float(end) for end in line["mean of datasets"].split("[")[1].rstrip("]").split(", "))
        assert low < means["ti"] / means[name] < high
    assert set(gains.frame["Method"]) == {TI}


def test_the_papers_gain_stands_beside_its_own_pair_and_mcsd_alone(cells) -> None:
    for pair in (LLAMA, VICUNA):
        fill_static(cells, **pair)
    _, table, gains = build("fig3", cells)
    published = gains.frame.set_index(["Pair", "over"])["published"]
    assert published[LLAMA["pair"], "MCSD 4x2x2x1"] == "1.275"
    assert (published == ABSENT).sum() == len(published) - 1
    assert any("27.5%" in note for note in gains.notes)
    assert any("at most 1.90x" in note for note in table.notes)


def test_figure_5_has_no_published_gain(cells) -> None:
    fill_dynamic(cells, **LLAMA)
    _, table, gains = build("fig5", cells)
    assert "published" not in gains.frame.columns
    assert gains.frame["over"].tolist() == ["SD gamma = 5", "MCSD 4x2x2x1x1"]
    assert not any("1.90x" in note for note in table.notes)


def test_a_stand_in_is_set_against_the_first_pair(cells) -> None:
    fill_static(cells)
    _, table, gains = build("fig3", cells)
    assert "tiny (stands in for llama2_7b_chat + jf68m)" in table.title
    assert gains.frame.set_index("over").loc["MCSD 4x2x2x1", "published"] == "1.275"


def test_a_run_that_failed_is_told_and_not_drawn(cells) -> None:
    run(cells, "ti", **LLAMA)
    run(cells, "sd4", status="oom", **LLAMA)
    (axes,), table, gains = build("fig3", cells)
    assert list(heights(axes)) == [TI]
    assert table.frame.set_index("Method").loc["SD", "speedup"] == "oom"
    assert gains.frame.empty


def test_the_gain_counts_the_tokens_of_every_arm_and_the_conversations_of_both_runs(cells) -> None:
    """The target alone decoded other tokens than the methods, and one run lacks a conversation."""
    fast, slow = run(cells, "ti", speedup=2.0, **LLAMA), run(cells, "mcsd4221", speedup=1.5, **LLAMA)
    for run_id, factor in ((fast, 2), (slow, 3)):
        rows = cells.store.read("prompts", [run_id]).replace({np.nan: None}).to_dict("records")
        kept = [row for row in rows if (run_id, row["prompt_id"]) != (slow, "p0")]
        for row in kept:
            row["num_decoded_tokens"] *= factor if row["arm"] == "autoregressive" else 1
        cells.store.write("prompts", run_id, [PromptRow(**row) for row in kept])
    prompts = cells.load().prompts
    both = prompts[prompts["prompt_id"] != "p0"]
    rows = (both[both["run_id"] == run_id] for run_id in (fast, slow))
    expected, other = (samples.interval(samples.speedup(own)).value for own in rows)
    assert expected < 1.2, "twice the tokens in the same time"
    (line,) = build("fig3", cells)[2].frame.itertuples(index=False)
    assert line.mt_bench.startswith(f"{expected / other:.3f} (")


def test_gains_are_marked_as_too_noisy_by_block_as_the_speedups_are(cells) -> None:
    """Two runs of mt_bench were as slow as each other; of alpaca one of three was not, which is no noisy block."""
    for dataset, slow in (("mt_bench", (0.002, 0.002, 0.008)), ("alpaca", (0.004, 0.004, 0.0042))):
        for name, base in zip(("ti", "mcsd4221", "sd4"), slow, strict=True):
            run(cells, name, dataset=dataset, base_step_s=base)
    _, table, gains = build("fig3", cells)
    speeds = table.frame.groupby("Dataset")["speedup"].agg(lambda cells: cells.str.endswith(UNRANKED).all())
    assert speeds.to_dict() == {"mt_bench": True, "alpaca": False}
    assert gains.frame["mt_bench"].str.endswith(UNRANKED).all()
    assert not gains.frame["alpaca"].str.endswith(UNRANKED).any()
    assert gains.frame["mean of datasets"].str.endswith(UNRANKED).all(), "one of its blocks is too noisy"
    assert BUSY_NOTE in gains.notes


def test_the_papers_most_stands_beside_the_most_of_the_datasets(cells) -> None:
    for dataset, speedup in (("mt_bench", 1.5), ("alpaca", 2.5), ("triviaqa", 2.0)):
        run(cells, "ti", dataset=dataset, speedup=speedup, **LLAMA)
        run(cells, "mcsd4221", dataset=dataset, speedup=1.5, **LLAMA)
    (line,) = build("fig3", cells)[2].frame.to_dict("records")
    assert list(line)[-2:] == ["most of datasets", "published"]
    assert line["most of datasets"] == line["alpaca"] != line["mean of datasets"]
