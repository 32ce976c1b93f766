"""GSD's Figures 3, 5, 7 and 8 and Table 5 against their definitions, written down once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from drawn import axes_of, build, labels, lines, table_of
from gsd_figure_fills import FILLS, fill_fig3, fill_fig5a, fill_fig7, fill_fig8, fill_table5, probe, rewritten
from gsd_fills import add
from recomputed import of_columns, written

from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.tables import ABSENT, Table
from specdec_trees.artifacts.verdict import NOT_RUN
from specdec_trees.measure.hub_configs import config_of
from specdec_trees.papers.gsd.merging import vocabulary

FIGURES = [name for name in FILLS if "fig" in name]


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


@pytest.mark.parametrize("name", FIGURES)
def test_without_graphs_there_is_no_figure(name: str, cells) -> None:
    cells.add("opt_tree", params={"k": 4, "tau": 1, "theta_prob": 0.2, "theta_sib": 0.3})
    with pytest.raises(NoResultsError):
        build(name, cells)


def test_recurrence_is_the_mean_over_graphs(cells) -> None:
    run_id = fill_fig3(cells)
    (axes,), made = build("gsd/fig3", cells)
    steps = steps_of(cells, run_id)
    rows = {n: steps[[not np.isnan(row[n - 1]) for row in steps["recurring"]]] for n in range(1, 6)}
    deep = {n: found[found["draft_forwards"] == 10] for n, found in rows.items()}
    assert 0 < len(rows[5]) < len(rows[1]) == len(steps)
    assert 0 < len(deep[1]) < len(steps)
    for column, name, graphs in (
        ("in_recurring", "tokens", rows),
        ("recurring", "n_grams", rows),
        ("in_recurring", "deep", deep),
    ):
        means = [
            by_conversation(found, lambda group, n=n, column=column: [row[n - 1] for row in group[column]])
            for n, found in graphs.items()
        ]
        assert made.frame[name].tolist() == [interval(one, scale="logit") for one in means]
    assert made.frame["deep_graphs"].tolist() == [str(len(found)) for found in deep.values()]
    assert made.frame["graphs"].tolist() == [str(len(found)) for found in rows.values()]
    assert made.frame["tokens_published"].tolist() == ["0.70", *[ABSENT] * 4]
    assert lines(axes)[-1] == [(1, 0.7)]


def test_ablations_average_over_samples(cells) -> None:
    """And of runs of other methods nothing stands there."""
    cells.add("dyspec", params={"k": 3})
    runs = fill_fig5a(cells)
    made = table_of("gsd/fig5a", cells)
    assert made.frame[["line", "k"]].to_numpy().tolist() == [[m.upper(), str(k)] for m, k in runs]
    for (_, row), run_id in zip(made.frame.iterrows(), runs.values(), strict=True):
        steps = steps_of(cells, run_id)

        def rate(sample: pd.DataFrame) -> list[float]:
            return [sample["num_accepted"].sum() / sample["draft_forwards"].sum()]

        def drafted(sample: pd.DataFrame) -> list[float]:
            count = sample["num_live"].sum() + sample["num_prob_leaf"].sum() + len(sample)
            return [count * 512 / (sample["kept"].sum() + 1)]

        for column, found, digits in (("acceptance_rate", rate, 3), ("drafted", drafted, 1)):
            assert row[column] == interval(by_conversation(steps, found, ("prompt_id", "turn")), digits)


@pytest.mark.parametrize(("shares", "ringed"), [((0.0, 0.0), 0), ((0.0, 1.0), 1)])
def test_points_whose_trees_the_cap_cut_are_ringed(shares: tuple[float, ...], ringed: int, cells) -> None:
    for k, share in zip((2, 4), shares, strict=True):
        add(cells, "tsd", capped=share, params={"k": k, "verify_cap": 100})
    left, _ = axes_of("gsd/fig5a", cells)
    rings = [line for line in left.lines if line.get_fillstyle() == "none"]
    assert [list(line.get_xdata()) for line in rings] == [[4.0]] * ringed


@pytest.mark.parametrize(("name", "swept"), [("fig5b", "tau"), ("fig5c", "theta_prob"), ("fig5d", "theta_sib")])
def test_ablations_read_what_is_swept(name: str, swept: str, cells) -> None:
    FILLS[f"gsd/{name}"](cells)
    (left, right), made = build(f"gsd/{name}", cells)
    values = made.frame[swept].astype(float).tolist()
    assert [x for x, _ in lines(left)[0]] == [x for x, _ in lines(right)[0]] == values


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


def test_child_ranks_are_shares_of_visited_nodes_and_later_ones_of_accepted_tokens(cells) -> None:
    runs = fill_fig7(cells)
    (axes,), made = build("gsd/fig7", cells)
    assert made.frame["bar"].tolist() == labels(axes) == ["SSD", "TSD", "GSD"]
    for (_, row), run_id in zip(made.frame.iterrows(), runs.values(), strict=True):
        steps = steps_of(cells, run_id)
        counts = Counter(rank for ranks in steps["accepted_ranks"] for rank in ranks)
        assert row["accepted_tokens"] == str(counts.total()) == str(steps["num_accepted"].sum())
        for rank in (1, 2, 3):
            for column, fewest in ((f"child_{rank}", 0), (f"drafted_{rank}", rank)):
                nodes = by_conversation(steps, lambda group, rank=rank, fewest=fewest: tried(group, rank, fewest))
                assert row[column] == (ABSENT if rank > counted(steps) else interval(nodes))
        assert row["later"].startswith(f"{1 - counts[0] / counts.total():.2f} ")
    assert made.frame.loc[1, "child_4"] == "0.00 [0.00, 0.00]", "some have four children, though none was accepted"
    bars = [row[f"child_{rank}"].split()[0] for _, row in made.frame.iterrows() for rank in range(1, 5)]
    heights = [f"{patch.get_height():.2f}" for patch in axes.patches]
    assert heights == bars


def test_bars_of_figure_8_stand_in_the_order_of_theta_sib(cells) -> None:
    runs = fill_fig8(cells)
    (axes,), made = build("gsd/fig8", cells)
    assert labels(axes) == made.frame["bar"].tolist()
    assert made.runs == (runs[0.1], runs[0.2], runs[0.3])
    places = [patch.get_x() for patch in axes.patches]
    assert places[0] < places[4] < places[8] < places[1], "bars of a rank side by side, run by run"


@pytest.mark.parametrize(("last", "words"), [((6, 1, 1, 1), "more often"), ((9, 0, 0, 0), "less often")])
def test_whether_later_children_are_accepted_less_often_is_said_from_the_rows(
    last: tuple[int, ...], words: str, cells
) -> None:
    """Of the highest theta_sib all first children are accepted, or as many later ones as the lowest has not."""
    ends = ((9, 0, 0, 0), last) if words == "more often" else ((6, 1, 1, 1), last)
    for theta, ranks in zip((0.1, 0.4), ends, strict=True):
        add(cells, "gsd", params={"theta_sib": theta}, ranks=ranks, conversations=20)
    (note,) = [note for note in table_of("gsd/fig8", cells).notes if "theta_sib 0.1 to 0.4" in note]
    assert note.count(f"({words})") == 3
    assert f"{3 * (words == 'less often')} of 3 ranks" in note


def test_runs_of_one_method_are_told_apart(cells) -> None:
    fill_fig7(cells)
    add(cells, "gsd_tau2", "gsd", params={"k": 4, "tau": 2})
    assert labels(axes_of("gsd/fig7", cells)[0]) == ["SSD", "TSD", "GSD, tau=1", "GSD, tau=2"]


# Table 5


def rows(made: Table) -> dict[tuple[int, int], dict[str, str]]:
    """By k and tau."""
    found = made.frame.assign(k=made.frame["k"].str.extract(r"(\d+)")[0].astype(int)).to_dict("records")
    return {(line["k"], int(line["tau"])): line for line in found}


def test_means_are_over_merge_edges_beside_the_papers_and_divided_by_the_vocabulary(cells) -> None:
    """Every k and tau that the paper prints is a row; its values stand as printed, and times 32,000."""
    runs = fill_table5(cells)
    made = table_of("gsd/table5", cells)
    steps, found = cells.load().steps, rows(made)
    assert set(found) == {(k, tau) for k in (3, 5, 32) for tau in range(5)}
    assert made.run_ids == {*runs.values()}
    for place, line in found.items():
        if place not in runs:
            assert (line["kl"], line["merges"]) == (NOT_RUN, ABSENT)
            continue
        values = np.concatenate(steps.loc[steps["run_id"] == runs[place], "merge_kl"].tolist())
        assert line["kl"].startswith(f"{values.mean():.3f} ")
        texts = [str(len(values)), "512", f"{values.mean() / 512:.2e}"]
        assert [line[name] for name in ("merges", "vocabulary", "kl_by_v")] == texts
    for tau, values in {0: (1.19e-4, 1.78e-4, 1.30e-4), 4: (5.13e-7, 8.49e-7, 7.64e-7)}.items():
        for k, value in zip((3, 5, 32), values, strict=True):
            assert float(found[k, tau]["kl_published"]) == pytest.approx(value * 32000, abs=5e-4)
            assert float(found[k, tau]["printed"]) == value


@pytest.mark.parametrize(("theta_prob", "told"), [(0.2, True), (0.1, False), (0.0, False)])
def test_why_two_k_have_one_divergence_is_told_where_the_threshold_leaves_no_more_children(
    theta_prob: float, told: bool, cells
) -> None:
    """At one tau they have the same merge edges, at another one not; 0.1 leaves 10 children, of which k = 5 has 5."""
    params = {"tau_as_context": True, "theta_prob": theta_prob}
    runs = {
        (k, tau): add(cells, "gsd_probe", "gsd", params=params | {"k": k, "tau": tau}, kl=0.1 * k)
        for k in (3, 5, 32)
        for tau in (0, 1)
    }
    for k in (3, 5, 32):
        rewritten(cells, runs[k, 1], "merge_kl", lambda rng: [float(rng.uniform())])
    assert any("1 of 2 tau" in note for note in table_of("gsd/table5", cells).notes) == told


def test_tau_is_the_context_whatever_the_drafter_counts(cells) -> None:
    run_id = probe(cells, 5, 2, 0.1, params={"k": 5, "tau": 2, "tau_as_context": False})
    made = table_of("gsd/table5", cells)
    assert [(place, ids) for place, ids in zip(rows(made), made.runs, strict=True) if ids] == [((5, 1), run_id)]


def test_no_merge_and_failed_runs(cells) -> None:
    probe(cells, 3, 0, 0.1)
    probe(cells, 3, 4, 0.1, alias=0)
    probe(cells, 5, 0, 0.1, status="oom")
    found = rows(table_of("gsd/table5", cells))
    assert [found[3, 4][name] for name in ("kl", "merges", "kl_by_v")] == [ABSENT, "0", ABSENT]
    assert [found[5, 0][name] for name in ("kl", "merges", "kl_by_v")] == ["oom", ABSENT, ABSENT]


@pytest.mark.parametrize("status", ["ok", "oom"])
def test_runs_that_compare_nothing_are_no_table(status: str, cells) -> None:
    add(cells, "gsd", params={"k": 4, "tau": 2}, status=status)
    with pytest.raises(NoResultsError):
        table_of("gsd/table5", cells)


def test_vocabularies_are_those_of_the_models_configs(cells, monkeypatch) -> None:
    for model in ("meta-llama/Llama-2-7b-hf", "JackFram/llama-160m", "bigscience/bloom-560m", "facebook/opt-350m"):
        assert vocabulary(model) == config_of(model).vocab_size
    assert vocabulary("tiny/draft") == 512
    assert vocabulary("tiny/nothing") is None
    monkeypatch.setattr(
        "specdec_trees.papers.gsd.merging.vocabulary", lambda model: None if model == "tiny/draft" else 32000
    )
    probe(cells, 3, 0, 0.1)
    line = rows(table_of("gsd/table5", cells))[3, 0]
    assert line["kl"].startswith("0.")
    assert {"vocabulary", "kl_by_v"}.isdisjoint(line), "a column of details that knows nothing is left out"
