"""GSD's Figures 3, 5, 7 and 8 against their definitions, written down once more; and what their axes show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import labels, lines
from gsd_figure_fills import FILLS, fill_fig3, fill_fig5a, fill_fig7, fill_fig8
from gsd_fills import add
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.markers import CARETUPBASE
from recomputed import of_columns, written

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError
from bench.artifacts.tables import ABSENT, Table
from bench.papers.registry import ARTIFACTS

pytestmark = pytest.mark.long


FIGURES = [name for name in FILLS if "fig" in name]


def build(name: str, cells) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS[f"gsd/{name}"].build(name, cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert set(figure.runs) == set(table.runs)
    return figure.canvas.axes, table


def interval(values: dict[str, Sequence[float]], digits: int = 2, scale: str = "log") -> str:
    """Mean of all values and its interval over conversations."""
    sums = np.array([(sum(values[name]), len(values[name])) for name in sorted(values)])
    return written(of_columns(sums, np.divide, scale=scale), digits)


def by_conversation(
    rows: pd.DataFrame, found: Callable[[pd.DataFrame], Sequence[float]], keys: Sequence[str] = ("prompt_id",)
) -> dict[str, list[float]]:
    """The values of each conversation; `found` gives those of every group of its rows by `keys`."""
    values: dict[str, list[float]] = {}
    for _, group in rows.groupby(list(keys), sort=False):
        values.setdefault(group["prompt_id"].iloc[0], []).extend(found(group))
    return values


def steps_of(cells, run_id: str) -> pd.DataFrame:
    steps = cells.load().steps
    return steps[steps["run_id"] == run_id]


def reaches(axes: Axes) -> list[tuple[float, str]]:
    """x, and the ends of every vertical line, as a table prints them."""
    found = [line for line in axes.collections if isinstance(line, LineCollection)]
    return [(part[0][0], f"[{part[0][1]:.2f}, {part[1][1]:.2f}]") for line in found for part in line.get_segments()]


@pytest.mark.parametrize("name", FIGURES)
def test_without_graphs_there_is_no_figure(name: str, cells) -> None:
    with pytest.raises(NoResultsError):
        ARTIFACTS[name].build(Path(name).name, cells.load())
    cells.add("opt_tree", params={"k": 4, "tau": 1, "theta_prob": 0.2, "theta_sib": 0.3})
    with pytest.raises(NoResultsError):
        ARTIFACTS[name].build(Path(name).name, cells.load())


def test_recurrence_is_the_mean_over_graphs(cells) -> None:
    run_id = fill_fig3(cells)
    (axes,), table = build("fig3", cells)
    steps = steps_of(cells, run_id)
    rows = {n: steps[[not np.isnan(row[n - 1]) for row in steps["recurring"]]] for n in range(1, 6)}
    deep = {n: found[found["draft_forwards"] == 10] for n, found in rows.items()}
    expected = {}
    for column, name, graphs in (
        ("in_recurring", "tokens", rows),
        ("recurring", "n-grams", rows),
        ("in_recurring", "tokens, full depth", deep),
    ):

        def shares(group: pd.DataFrame, column: str, n: int) -> list[float]:
            return [row[n - 1] for row in group[column]]

        means = [
            interval(by_conversation(found, lambda group, column=column, n=n: shares(group, column, n)), scale="logit")
            for n, found in graphs.items()
        ]
        assert table.frame[name].tolist() == means
        expected[name] = dict(enumerate(means, start=1))
    full = expected.pop("tokens, full depth")
    assert 0 < len(rows[5]) < len(rows[1]) == len(steps)
    assert 0 < len(deep[1]) < len(steps)
    assert table.frame["graphs of full depth"].tolist() == [str(len(found)) for found in deep.values()]
    assert table.frame["graphs"].tolist() == [str(len(found)) for found in rows.values()]
    assert table.frame["tokens published"].tolist() == ["0.70", *[ABSENT] * 4]
    *drawn, deepest, star = lines(axes)
    for line, means in zip([*drawn, deepest], [*expected.values(), {1: full[1]}], strict=True):
        assert [f"{y:.2f}" for _, y in line] == [text.split(" ")[0] for text in means.values()]
    assert star == [(1, 0.7)]
    every = [(n, text) for means in [*expected.values(), {1: full[1]}] for n, text in means.items()]
    assert reaches(axes) == [(n, text.partition(" ")[2]) for n, text in every]
    assert axes.get_xlabel().startswith("n of the n-gram")


def test_ablations_average_over_samples(cells) -> None:
    runs = fill_fig5a(cells)
    _, table = build("fig5a", cells)
    assert table.frame[["Line", "k"]].to_numpy().tolist() == [[m.upper(), str(k)] for m, k in runs]
    for (_, row), run_id in zip(table.frame.iterrows(), runs.values(), strict=True):
        steps = steps_of(cells, run_id)

        def rate(sample: pd.DataFrame) -> list[float]:
            return [sample["num_accepted"].sum() / sample["draft_forwards"].sum()]

        def drafted(sample: pd.DataFrame) -> list[float]:
            count = sample["num_live"].sum() + sample["num_prob_leaf"].sum() + len(sample)
            return [count * 512 / (sample["kept"].sum() + 1)]

        for column, found, digits in (("acceptance rate", rate, 3), ("drafted tokens", drafted, 1)):
            assert row[column] == interval(by_conversation(steps, found, ("prompt_id", "turn")), digits)


@pytest.mark.parametrize(("shares", "ringed"), [((0.0, 0.0), 0), ((0.0, 1.0), 1)])
def test_points_whose_trees_the_cap_cut_are_ringed(shares: tuple[float, ...], ringed: int, cells) -> None:
    for k, share in zip((2, 4), shares, strict=True):
        add(cells, "tsd", capped=share, params={"k": k, "verify_cap": 100})
    (left, _), table = build("fig5a", cells)
    rings = [line for line in left.lines if line.get_fillstyle() == "none"]
    assert [list(line.get_xdata()) for line in rings] == [[4.0]] * ringed
    assert sum("Ringed: our cap of verified nodes" in note for note in table.notes) == ringed


@pytest.mark.parametrize(("name", "swept"), [("fig5b", "tau"), ("fig5c", "theta_prob"), ("fig5d", "theta_sib")])
def test_ablations_read_what_is_swept(name: str, swept: str, cells) -> None:
    FILLS[f"gsd/{name}"](cells)
    (left, right), table = build(name, cells)
    assert left.get_xlabel().startswith(f"{swept}: ")
    assert (
        [x for x, _ in lines(left)[0]] == [x for x, _ in lines(right)[0]] == table.frame[swept].astype(float).tolist()
    )
    assert left.get_xticks().tolist() == table.frame[swept].astype(float).tolist()
    assert not lines(right, marker=CARETUPBASE)


def test_a_sweep_of_something_else_is_no_ablation(cells) -> None:
    cells.add("dyspec", params={"k": 3})
    fill_fig5a(cells)
    _, table = build("fig5a", cells)
    assert set(table.frame["Line"]) == {"TSD", "GSD"}


def counted(steps: pd.DataFrame) -> int:
    return max(count for counts in steps["visited_children"] for count in counts)


def tried(steps: pd.DataFrame, rank: int, fewest: int = 0) -> list[float]:
    """Of every visited node with so many children, whether the child of this rank was accepted."""
    return [
        float(at < len(ranks) and ranks[at] == rank - 1)
        for ranks, counts in zip(steps["accepted_ranks"], steps["visited_children"], strict=True)
        for at, count in enumerate(counts)
        if count >= fewest
    ]


def test_child_ranks_are_shares_of_visited_nodes_and_of_accepted_tokens(cells) -> None:
    runs = fill_fig7(cells)
    (axes,), table = build("fig7", cells)
    assert table.frame["Method"].tolist() == ["SSD", "TSD", "GSD"]
    for (_, row), run_id in zip(table.frame.iterrows(), runs.values(), strict=True):
        steps = steps_of(cells, run_id)
        counts = Counter(rank for ranks in steps["accepted_ranks"] for rank in ranks)
        assert row["accepted tokens"] == str(counts.total()) == str(steps["num_accepted"].sum())
        for rank in (1, 2, 3):
            values = by_conversation(
                steps,
                lambda group, rank=rank: [float(r == rank - 1) for ranks in group["accepted_ranks"] for r in ranks],
            )
            assert row[f"{rank} of accepted"] == (ABSENT if rank > counted(steps) else interval(values))
            for header, fewest in ((f"child {rank}", 0), (f"child {rank} if drafted", rank)):
                nodes = by_conversation(steps, lambda group, rank=rank, fewest=fewest: tried(group, rank, fewest))
                assert row[header] == (ABSENT if rank > counted(steps) else interval(nodes))
        later = 1 - counts[0] / counts.total()
        assert row["> 1 of accepted"].startswith(f"{later:.2f} ")
    assert table.frame.loc[1, "child 4"] == "0.00 [0.00, 0.00]"  # some have four children, though none was accepted
    assert "about 50% of the accepted tokens" in " ".join(table.notes)
    bars = [cell for _, row in table.frame.iterrows() for cell in row[[f"child {i}" for i in range(1, 5)]]]
    heights = [f"{patch.get_height():.2f}" for patch in axes.patches]
    assert [f"{height} {reach}" for height, (_, reach) in zip(heights, reaches(axes), strict=True)] == bars
    assert "tiny (stands in for llama2_7b + llama_160m)" in table.title
    assert labels(axes) == ["SSD", "TSD", "GSD"]
    assert axes.get_xticks().tolist() == [1, 2, 3, 4]


def test_bars_of_figure_8_stand_in_the_order_of_theta_sib(cells) -> None:
    runs = fill_fig8(cells)
    (axes,), table = build("fig8", cells)
    assert labels(axes) == table.frame["Line"].tolist() == [f"theta_sib = {theta}" for theta in (0.1, 0.2, 0.3)]
    assert table.runs == (runs[0.1], runs[0.2], runs[0.3])
    places = [patch.get_x() for patch in axes.patches]
    assert places[0] < places[4] < places[8] < places[1]  # bars of a rank side by side, run by run
    assert "theta_prob = 0.4" in " ".join(table.notes)


@pytest.mark.parametrize(("last", "words"), [((6, 1, 1, 1), "more often"), ((9, 0, 0, 0), "less often")])
def test_whether_later_children_are_accepted_less_often_is_said_from_the_rows(
    last: tuple[int, ...], words: str, cells
) -> None:
    """Of the highest theta_sib all first children are accepted, or as many later ones as the lowest has not."""
    ends = ((9, 0, 0, 0), last) if words == "more often" else ((6, 1, 1, 1), last)
    for theta, ranks in zip((0.1, 0.4), ends, strict=True):
        add(cells, "gsd", params={"theta_sib": theta}, ranks=ranks, conversations=20)
    _, table = build("fig8", cells)
    (note,) = [note for note in table.notes if "theta_sib 0.1 to 0.4" in note]
    assert note.count(f"({words})") == 3
    assert f"the trend is seen at {3 * (words == 'less often')} of 3 ranks here" in note
    cells_of = [table.frame.loc[row, "child 2"] for row in (0, 1)]
    assert f"child 2 {' to '.join(cells_of)} ({words})" in note


def test_runs_of_one_method_are_told_apart(cells) -> None:
    fill_fig7(cells)
    add(cells, "gsd_tau2", "gsd", params={"k": 4, "tau": 2})
    (axes,), _ = build("fig7", cells)
    assert labels(axes) == ["SSD", "TSD", "GSD, tau=1", "GSD, tau=2"]
