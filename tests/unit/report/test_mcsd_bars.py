"""Improved MCSD's Figures 3 and 5: bars and their intervals, and how much faster the paper's method is than others."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from mcsd_figure_fills import LARGE, LLAMA
from mcsd_table_fills import AT_ONE, FIGURES, VICUNA, fill_dynamic, fill_static, run

from bench.artifacts.outputs import NoResultsError
from bench.artifacts.style import Figure
from bench.artifacts.tables import Table
from bench.artifacts.ties import UNRANKED
from bench.papers.registry import ARTIFACTS
from bench.results.rows import PromptRow
from bench.statistics import samples
from bench.statistics.intervals import Interval

TI, MCSD, MATCHED = "TI-MCSD (lossy)", "MCSD 4x2x2x1", "MCSD, equal budget 8x3x1x1"


def build(name: str, cells) -> tuple[list[Axes], Table, Table]:
    figure, table, gains = ARTIFACTS[f"improving_mcsd/{name}"].build(name, cells.load())
    assert isinstance(figure, Figure)
    return figure.canvas.axes, table, gains


def heights(axes: Axes) -> dict[str, list[float]]:
    """The bars by the name in the legend, from left to right."""
    bars = [bars for bars in axes.containers if hasattr(bars, "patches")]
    return {str(one.get_label()): [bar.get_height() for bar in one] for one in bars}


def gain(gains: Table, over: str, column: str, name: str = "value", pair: str = LLAMA["pair"]) -> Any:
    rows = gains.long[(gains.long["over"] == over) & (gains.long["panel"] == pair)]
    (value,) = rows.loc[rows["metric"].map(lambda metric: metric.header) == column, name]
    return value


def speedup(cells, run_id: str) -> Interval:
    prompts = cells.load().prompts
    return samples.interval(samples.speedup(prompts[prompts["run_id"] == run_id]))


@pytest.mark.parametrize("name", FIGURES)
def test_without_a_run_there_is_no_figure(name: str, cells) -> None:
    run(cells, "ti", temperature=0.2)
    with pytest.raises(NoResultsError):
        build(name, cells)
    run(cells, "ti", status="oom")
    run(cells, "dynamic", status="failed", **AT_ONE)
    with pytest.raises(NoResultsError):
        build(name, cells)


def test_bars_are_the_speedups_by_dataset_and_gains_ratios_of_their_means(cells) -> None:
    """Every run decodes other tokens here; the conversations are the same."""
    runs = fill_static(cells, **LLAMA)
    (axes,), _, gains = build("fig3", cells)
    names = {"sd4": "SD", "mcsd4221": "MCSD", "matched": "MCSD, equal budget", "ti": TI}
    drawn, every = heights(axes), {key: speedup(cells, run_id) for key, run_id in runs.items()}
    for name, header in names.items():
        assert drawn[header] == pytest.approx([every[dataset, name].value for dataset in ("mt_bench", "alpaca")])
    assert len(axes.get_xticklabels()) == 2
    segments = np.concatenate([one.get_segments() for one in axes.collections])
    found = sorted({(round(low[1], 6), round(high[1], 6)) for low, high in segments})
    assert found == sorted({(round(one.low, 6), round(one.high, 6)) for one in every.values()})
    assert any([*line.get_ydata()] == [1, 1] for line in axes.lines)
    means = {name: np.mean([every[dataset, name].value for dataset in ("mt_bench", "alpaca")]) for name in names}
    for name, over in (("mcsd4221", MCSD), ("matched", MATCHED)):
        assert gain(gains, over, "mean of datasets") == pytest.approx(means["ti"] / means[name])
        assert gain(gains, over, "alpaca") == pytest.approx(every["alpaca", "ti"].value / every["alpaca", name].value)
        interval = gain(gains, over, "mean of datasets", "interval")
        assert interval.low < means["ti"] / means[name] < interval.high
    assert set(gains.frame["Method"]) == {TI}


def test_every_pair_has_a_panel_of_the_same_height_and_colours(cells) -> None:
    for pair in (LLAMA, VICUNA, LARGE):
        fill_static(cells, **pair)
    run(cells, "ti", speedup=4.0, seed=1, **LLAMA)
    axes, _, gains = build("fig3", cells)
    names = [f"{LLAMA['pair']}, seed 0", VICUNA["pair"], LARGE["pair"], f"{LLAMA['pair']}, seed 1"]
    assert [one.get_title() for one in axes] == names
    assert len({one.get_ylim() for one in axes}) == 1
    assert {one.get_xlim() for one in axes} == {(-0.5, 1.5)}, "also where one of the datasets was run alone"
    bars = [[bars for bars in one.containers if hasattr(bars, "patches")] for one in axes]
    own = [bar.patches[0] for one in bars for bar in one if bar.get_label() == TI]
    assert len({to_hex(patch.get_facecolor()) for patch in own}) == 1
    assert {str(bar.get_label()) for bar in bars[0] if bar.patches[0].get_hatch()} == {TI}
    known = gains.long[gains.long["published"].notna()]
    assert known[["panel", "over", "published"]].to_numpy().tolist() == [[names[0], MCSD, 1.275]]


def test_a_method_that_was_not_run_somewhere_leaves_a_gap(cells) -> None:
    run(cells, "sd4", **LLAMA)
    run(cells, "sd4", dataset="alpaca", **LLAMA)
    alone = run(cells, "ti", dataset="alpaca", **LLAMA)
    (axes,), _, gains = build("fig3", cells)
    assert heights(axes)[TI] == pytest.approx([speedup(cells, alone).value])
    (bar,) = next(bars for bars in axes.containers if bars.get_label() == TI)
    assert 0.5 < bar.get_x() < 1.5
    assert gain(gains, "SD gamma = 4", "mt_bench") is None
    assert gain(gains, "SD gamma = 4", "alpaca") == gain(gains, "SD gamma = 4", "mean of datasets") is not None


def test_figure_5_has_no_published_gain(cells) -> None:
    fill_dynamic(cells, **LLAMA)
    _, _, gains = build("fig5", cells)
    assert gains.long["published"].isna().all()
    assert "most of datasets" not in gains.frame
    assert gains.frame["over"].tolist() == ["SD gamma = 5", "MCSD 4x2x2x1x1"]


def test_a_stand_in_is_set_against_the_first_pair(cells) -> None:
    fill_static(cells)
    assert gain(build("fig3", cells)[2], MCSD, "most of datasets", "published", "tiny") == 1.275


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
    assert gain(build("fig3", cells)[2], MCSD, "mt_bench") == pytest.approx(expected / other)


def test_gains_are_marked_as_too_noisy_by_block_as_the_speedups_are(cells) -> None:
    """Two runs of mt_bench were as slow as each other; of alpaca one of three was not, which is no noisy block."""
    for dataset, slow in (("mt_bench", (0.002, 0.002, 0.008)), ("alpaca", (0.004, 0.004, 0.0042))):
        for name, base in zip(("ti", "mcsd4221", "sd4"), slow, strict=True):
            run(cells, name, dataset=dataset, base_step_s=base)
    _, table, gains = build("fig3", cells)
    speeds = table.frame.groupby("Dataset")["speedup"].agg(lambda cells: cells.str.endswith(UNRANKED).all())
    assert speeds.to_dict() == {"mt_bench": True, "alpaca": False}
    marks = {column: gain(gains, MCSD, column, "mark", "tiny") for column in ("mt_bench", "alpaca", "mean of datasets")}
    assert marks == {"mt_bench": UNRANKED, "alpaca": "", "mean of datasets": UNRANKED}


def test_the_papers_most_stands_beside_the_most_of_the_datasets(cells) -> None:
    for dataset, speedup in (("mt_bench", 1.5), ("alpaca", 2.5), ("triviaqa", 2.0)):
        run(cells, "ti", dataset=dataset, speedup=speedup, **LLAMA)
        run(cells, "mcsd4221", dataset=dataset, speedup=1.5, **LLAMA)
    gains = build("fig3", cells)[2]
    most, mean = (gain(gains, MCSD, column) for column in ("most of datasets", "mean of datasets"))
    assert most == gain(gains, MCSD, "alpaca") != mean
