"""Improved MCSD's Figure 7: histograms and how far they are apart, against their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import labels
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch
from mcsd_figure_fills import decision_rows, fill_fig7
from scipy import stats
from scipy.special import expit, logit

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError, read_results, write_all
from bench.artifacts.tables import ABSENT, Table
from bench.papers.improving_mcsd import scores
from bench.papers.registry import ARTIFACTS


def build(cells) -> tuple[list[Axes], Table]:
    figure, table = ARTIFACTS["improving_mcsd/fig7"].build("fig7", cells.load())
    assert isinstance(figure, style.Figure)
    assert isinstance(table, Table)
    assert figure.runs == table.runs
    return figure.canvas.axes, table


def frame(**given) -> pd.DataFrame:
    return pd.DataFrame(decision_rows("a" * 12, "hidden", **{"apart": 0.2} | given))


def area(rows: pd.DataFrame) -> float:
    """Pairs of an accepted and a rejected token that the first wins, one by one."""
    accepted, rejected = (rows["score"][rows["accepted"] == fate].to_numpy() for fate in (True, False))
    wins = (accepted[:, None] > rejected).sum() + (accepted[:, None] == rejected).sum() / 2
    return wins / (len(accepted) * len(rejected))


@pytest.mark.parametrize("digits", [1, 9])  # one digit: many ties
def test_auc_counts_pairs_and_its_interval_leaves_out_conversations(digits: int) -> None:
    rows = frame(prompts=7)
    rows["score"] = rows["score"].round(digits)
    names = sorted(rows["prompt_id"].unique())
    without = logit([area(rows[rows["prompt_id"] != name]) for name in names])
    reach = stats.t.ppf(0.975, 6) * (1 + 5 / 7) * np.sqrt(6 * np.var(without))
    found = scores.auc(rows.sample(frac=1, random_state=0))
    assert found.value == pytest.approx(area(rows), abs=1e-12)
    ends = tuple(expit(logit(area(rows)) + side * reach) for side in (-1, 1))
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-12)
    assert found.n == 7


def test_auc_at_its_ends() -> None:
    rows = frame()
    assert scores.auc(rows.assign(score=rows["accepted"].astype(float))).value == 1
    assert scores.auc(rows.assign(score=1.0 - rows["accepted"])).value == 0
    assert scores.auc(rows.assign(score=0.3)).value == 0.5
    assert np.isnan(scores.auc(rows.assign(accepted=True)).value)
    assert np.isnan(scores.auc(rows[rows["prompt_id"] == "p0"]).low)


def test_a_border_counts_above_it_and_1_in_the_last_bin() -> None:
    counts = scores.histogram(pd.Series([0.0, 0.049, 0.05, 0.4, 0.999, 1.0]))
    assert len(counts) == 20
    assert {place: count for place, count in enumerate(counts) if count} == {0: 2, 1: 1, 8: 1, 19: 2}


def test_overlap_is_the_common_area_whatever_the_numbers_are() -> None:
    rows = pd.DataFrame({"score": [0.11, 0.12, 0.61, 0.62, 0.11, 0.61], "accepted": [True] * 4 + [False] * 2})
    assert scores.overlap(rows) == 1
    rows.loc[3, "score"] = 0.9
    assert scores.overlap(rows) == pytest.approx(0.5 + 0.25)
    assert scores.overlap(rows.assign(score=rows["accepted"] * 0.5)) == 0
    assert np.isnan(scores.overlap(rows[rows["accepted"]]))


def test_histograms_are_shares_of_each_fate(cells) -> None:
    fill_fig7(cells)
    axes, table = build(cells)
    decisions = cells.load().decisions
    assert table.frame["Kind"].tolist() == ["hidden", "topk"]
    for panel, run_id, (_, row) in zip(axes, table.runs, table.frame.iterrows(), strict=True):
        rows = decisions[decisions["run_id"] == run_id]
        drawn = [patch for patch in panel.patches if isinstance(patch, StepPatch) and not patch.get_fill()]
        assert panel.get_title().startswith(f"tiny, {row['Kind']}\nAUC {area(rows):.2f}")
        for patch, fate in zip(drawn, (True, False), strict=True):
            scores = rows["score"][rows["accepted"] == fate]
            counts, edges = np.histogram(scores, bins=20, range=(0, 1))
            assert patch.get_data().values == pytest.approx(counts / counts.sum())
            assert patch.get_data().edges == pytest.approx(edges)
        accepted = rows["accepted"].astype(bool)
        below, above = (rows["score"][accepted] <= 0.4).mean(), (rows["score"][~accepted] > 0.4).mean()
        assert row["accepted, below"] == f"{100 * below:.1f}%"
        assert row["rejected, above"] == f"{100 * above:.1f}%"
        assert row["AUC"].startswith(f"{area(rows):.3f} [")
        assert row[["trained on", "conversations", "tokens"]].tolist() == ["40", "6", "180"]
        assert row["accepted"] == f"{100 * accepted.mean():.1f}%"
        assert labels(panel) == [
            *(
                f"{word}: {count} tokens"
                for word, count in (("accepted", accepted.sum()), ("rejected", (~accepted).sum()))
            ),
            "the paper's threshold: 0.4",
        ]


def test_a_score_of_exactly_the_threshold_does_not_go_on(cells) -> None:
    rows = decision_rows("a" * 12, "hidden", apart=0.1)
    fields = {name: getattr(rows[0], name) for name in rows[0].__slots__}
    cells.store.write(
        "decisions", "a" * 12, [type(rows[0])(**fields | {"score": 0.4, "accepted": a}) for a in (True, False)]
    )
    _, table = build(cells)
    assert table.frame.loc[0, ["accepted, below", "rejected, above"]].tolist() == ["100%", "0.0%"]
    assert table.frame.loc[0, "AUC"] == "0.500 [–, –]"


def test_models_are_told_apart(cells) -> None:
    for run_id, given in {"a": {}, "b": {"dataset": "alpaca"}, "c": {"pair": "other"}}.items():
        cells.store.write("decisions", run_id * 12, decision_rows(run_id * 12, "hidden", apart=0.1, **given))
    axes, table = build(cells)
    titles = [panel.get_title().split("\n")[0] for panel in axes]
    assert titles[0] == "other, hidden"
    assert sorted(titles[1:]) == [
        f"tiny, hidden, dataset {name}, run id {run}" for name, run in (("alpaca", "b" * 12), ("mt_bench", "a" * 12))
    ]
    assert sorted(table.frame["Dataset"]) == ["alpaca", "mt_bench", "mt_bench"]


def test_tokens_of_one_fate_tell_nothing(cells, tmp_path: Path) -> None:
    rows = [row for row in decision_rows("a" * 12, "topk", apart=0.1) if row.accepted]
    cells.store.write("decisions", "a" * 12, rows)
    _, table = build(cells)
    assert table.frame.loc[0, ["AUC", "overlap", "rejected, above", "mean rejected"]].tolist() == [ABSENT] * 4
    assert "tiny, topk: all tokens had the same fate" in " ".join(table.notes)
    outputs = ARTIFACTS["improving_mcsd/fig7"].build("fig7", cells.load())
    assert all(path.stat().st_size > 100 for path in write_all(outputs, tmp_path))


def test_a_folder_of_decision_models_alone_is_read(cells) -> None:
    fill_fig7(cells)
    assert len(read_results(cells.store.folder, "tiny").decisions) == 360
    with pytest.raises(NoResultsError):
        read_results(cells.store.folder, "other")


def test_without_a_model_there_is_no_figure(cells) -> None:
    cells.add("autoregressive")
    with pytest.raises(NoResultsError, match="measure=decision"):
        build(cells)
