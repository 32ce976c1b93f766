"""DySpec's Figures 2, 4 and 5: what is drawn and what stands in their tables, against the rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from drawn import labels, lines
from dyspec_fills import Q_AND_P, SAMPLING, fill_nodes, fill_sizes, fill_steps, node, resize
from hydra.utils import instantiate
from omegaconf import OmegaConf

from bench.artifacts import frame
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.style import Figure
from bench.artifacts.tables import Table, named_rows
from bench.papers.dyspec.figures import BINS, RULES, first_children, shares, within
from bench.papers.registry import ARTIFACTS
from bench.statistics.intervals import Interval
from specdec_core.verifiers import ChildByChild

pytestmark = pytest.mark.long


CONF = Path(__file__).parents[3] / "conf" / "verifier"
LLAMA_70B = {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}


def build(name: str, cells) -> list[Output]:
    return ARTIFACTS[f"dyspec/{name}"].build(name, cells.load())


def first(name: str, cells) -> tuple[list, Table]:
    figure, table, *_ = build(name, cells)
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    return figure.canvas.axes, table


def children_of(cells) -> pd.DataFrame:
    results = cells.load()
    (run,) = named_rows(frame.finished(results))
    return first_children(run, results.nodes)


def test_columns_of_the_heat_maps_sum_to_one_and_empty_ones_are_blank(cells) -> None:
    fill_nodes(cells)
    nodes = children_of(cells)
    assert len(nodes) == 20  # neither a second child nor one below a node that was not accepted
    for column, values in (("chance", [1.0, 0.5, 0.25, 1.0, 0.5]), ("target_prob", [p for _, p in Q_AND_P])):
        expected = np.full((BINS, BINS), np.nan)
        for (q, _), value in zip(Q_AND_P, values, strict=True):
            x, y = (min(int(number * BINS), BINS - 1) for number in (q, value))
            expected[:, x] = np.nan_to_num(expected[:, x])
            expected[y, x] += 1
        expected /= expected.sum(axis=0)
        np.testing.assert_allclose(shares(nodes, column), expected)


def test_the_panels_show_the_shares_and_what_was_accepted(cells) -> None:
    fill_nodes(cells)
    (left, right, *_), _ = first("fig2", cells)
    nodes = children_of(cells)
    for axes, column in ((left, "chance"), (right, "target_prob")):
        drawn = axes.collections[0].get_array()
        np.testing.assert_allclose(np.ma.filled(drawn, np.nan).reshape(BINS, BINS), shares(nodes, column))
    assert (0.425, 0.375) in [(pytest.approx(x), pytest.approx(y)) for x, y in lines(left)[0]]  # 0.5 and 0.25
    accepted = nodes.groupby("bin")["accepted"].mean()
    assert [y for _, y in lines(left, marker="x")[0]] == pytest.approx(accepted.tolist())
    assert [left.get_ylabel(), right.get_ylabel()] == ["acceptance probability min(1, p/q)", "target probability p"]


def test_the_table_has_a_row_for_every_bin_of_q(cells) -> None:
    fill_nodes(cells)
    _, table = first("fig2", cells)
    frame = table.frame.set_index("q")
    assert len(frame) == BINS
    assert frame["nodes"].astype(int).sum() == 20
    columns = ["nodes", "acceptance probability", "p"]
    assert frame.loc["0.40 to 0.45", columns].tolist() == ["8", "0.38", "0.16"]
    assert frame.loc["0.95 to 1.00", columns].tolist() == ["8", "0.75", "0.73"]
    assert frame.loc["0.70 to 0.75", [*columns, "accepted"]].tolist() == ["0", "–", "–", "–"]
    nodes = cells.load().nodes
    own = nodes[(nodes["edge_prob"] // 0.05 == 8) & (nodes["rank"] == 0)]
    assert frame.loc["0.40 to 0.45", "accepted"].startswith(f"{own['accepted'].mean():.2f} (")


@pytest.mark.parametrize("given", [{"temperature": 0.0}, {"draws": "topk"}])
def test_nodes_that_chance_does_not_judge_are_not_drawn(given, cells) -> None:
    fill_nodes(cells, **given)
    with pytest.raises(NoResultsError, match="record_nodes=true"):
        build("fig2", cells)


@pytest.mark.parametrize("rule", ["target_sample", "k_seq"])
def test_rules_that_test_a_first_child_otherwise_are_not_drawn(rule: str, cells) -> None:
    """Neither takes it with probability min(1, p/q), though the children were drawn from q."""
    fill_nodes(cells, verifier=rule)
    with pytest.raises(NoResultsError, match=r"tests the first of them with min\(1, p/q\) \(without_replacement, "):
        build("fig2", cells)
    kept = fill_nodes(cells)
    assert set(first("fig2", cells)[1].runs) == {kept}


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_foretell_by_p_over_q_are_drawn(rule: str, cells) -> None:
    fill_nodes(cells, verifier=rule)
    assert len(first("fig2", cells)[0]) == 4  # two panels with their scales


def test_those_rules_and_no_others_are_configured_to_do_so() -> None:
    """The first round of each rule gives min(1, p/q), checked on distributions in which both sides of 1 occur."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    names = [
        path.stem
        for path in CONF.glob("*.yaml")
        if not path.stem.startswith("by_") and path.stem not in ("greedy", "target_sample")
    ]
    found = set()
    for name in names:
        config = OmegaConf.load(CONF / f"{name}.yaml")
        rule = instantiate({key: value for key, value in config.items() if key not in ("name", "allow_lossy")})
        if not isinstance(rule, ChildByChild):
            continue  # judges whole paths
        chances = [float(rule.begin(p, q, 2 - (name == "chain")).accept(torch.tensor(child))) for child in range(3)]
        if chances == pytest.approx([1, 0.6, 2 / 3]):
            found.add(name)
    assert found == set(RULES)


def test_nodes_of_an_earlier_version_have_no_rank(cells) -> None:
    run_id = cells.add("dyspec", **SAMPLING)
    cells.store.write("nodes", run_id, [node(run_id, 0, 0.5, 0.5, rank=None)])
    with pytest.raises(NoResultsError, match="force=true"):
        build("fig2", cells)


def test_components_of_a_step_and_the_papers_bound(cells) -> None:
    fill_steps(cells)
    (axes,), table = first("fig4", cells)
    steps = cells.load().steps
    sums = {part: steps[f"{part}_s"].sum() for part in ("choice", "sampling", "layout")}
    sums["rest"] = steps["tree_s"].sum() - sum(sums.values())
    sums |= {phase: steps[f"{phase}_s"].sum() for phase in ("draft", "score")}
    sums["end"] = steps[["judge_s", "commit_s"]].sum().sum()
    shares = {phase: value / sum(sums.values()) for phase, value in sums.items()}
    row = table.frame.iloc[0]
    names = ["tree construction", "sampling", "mask, positions", "rest of growing"]
    names += ["draft forwards", "target forward", "judging, committing"]
    assert [row[f"{name} share"] for name in names] == [f"{share:.1%}" for share in shares.values()]
    assert [row[f"{name} ms"] for name in names] == [f"{value / len(steps) * 1000:.2f}" for value in sums.values()]
    assert row[["bounded part", "published", "within"]].tolist() == ["tree construction", "< 2%", "yes"]
    assert row["bounded share"].startswith(f"{shares['choice']:.1%} [")
    assert labels(axes)[0].endswith(f"({shares['choice']:.1%}, the paper: < 2%)")
    assert not any("paper" in label for label in labels(axes)[1:])


def test_with_the_offloaded_pair_all_but_the_forwards_is_bounded(cells) -> None:
    cells.add("dyspec", pair="offloaded", published=LLAMA_70B, **SAMPLING)
    (axes,), table = first("fig4", cells)
    steps = cells.load().steps
    other = steps[["tree_s", "judge_s", "commit_s"]].sum().sum()
    row = table.frame.iloc[0]
    assert row["bounded part"] == "all but the forwards"
    assert row["bounded share"].startswith(f"{other / (other + steps[['draft_s', 'score_s']].sum().sum()):.1%} [")
    assert not any("paper" in label for label in labels(axes))


def test_a_run_without_parts_is_not_held_against_the_bound(cells) -> None:
    cells.add("dyspec", params={"n": 64}, **SAMPLING)
    _, table = first("fig4", cells)
    row = table.frame.iloc[0]
    assert row[["bounded part", "within", "tree construction ms"]].tolist() == ["–", "–", "0.00"]
    assert row["rest of growing ms"] == f"{cells.load().steps['tree_s'].mean() * 1000:.2f}"


def test_models_that_the_paper_has_not_have_no_bound(cells) -> None:
    cells.add("dyspec", published={"target": "vicuna_33b", "draft": "jf68m", "stand_in": False}, **SAMPLING)
    _, table = first("fig4", cells)
    assert table.frame[["bounded part", "bounded share", "published", "within"]].iloc[0].tolist() == ["–"] * 4


def test_within_is_judged_by_the_whole_interval() -> None:
    ends = [(0.01, 0.019), (0.02, 0.03), (0.01, 0.02), (float("nan"), float("nan"))]
    assert [within(Interval(0.02, low, high, 6), 0.02) for low, high in ends] == ["yes", "no", "open", "open"]
    assert {within(Interval(0.02, low, high, 5), 0.02) for low, high in ends} == {"open"}


def test_sizes_and_tokens_of_the_first_conversation(cells) -> None:
    run_id = fill_sizes(cells)
    (left, right), table = first("fig5", cells)
    *_, listed = build("fig5", cells)
    steps = cells.load().steps
    shown = steps[(steps["prompt_id"] == "p0") & (steps["turn"] == 0)].sort_values("step")
    assert list(left.lines[0].get_ydata()) == shown["num_drafted"].tolist()
    assert [bar.get_height() for bar in right.patches] == shown["acceptance_length"].tolist()
    assert [bar.get_x() + bar.get_width() / 2 for bar in right.patches] == pytest.approx(shown["step"].tolist())
    assert isinstance(listed, Table)
    assert listed.frame["A"].tolist() == [str(value) for value in shown["acceptance_length"]]
    assert listed.frame["accepted"].tolist() == [str(value) for value in shown["num_accepted"]]
    row = table.frame.iloc[0]
    assert row["steps"] == str(len(steps))
    assert row["n mean"].startswith(f"{steps['num_drafted'].mean():.2f} [")
    assert row[["threshold", "cap", "at cap", "n published"]].tolist() == ["0.001", "768", "100%", "551.79"]
    assert any(label.startswith("the paper's mean: 551.79 (llama2_70b") for label in labels(left))
    assert "new tokens A" in labels(left)
    assert set(table.runs) == {run_id}


def test_where_the_cap_ends_every_tree_figure_5_says_so(cells) -> None:
    run_id = fill_sizes(cells)
    (left, _), table = first("fig5", cells)
    words = "the cap ends it level by level, the threshold never does; the paper's mean is 551.79."
    assert any(note.endswith(words) for note in table.notes)
    assert any(label.endswith("the cap in every step") for label in labels(left))
    resize(cells, run_id, 600)
    (left, _), table = first("fig5", cells)
    assert not any("threshold never" in note for note in table.notes)
    assert not any("in every step" in label for label in labels(left))


@pytest.mark.parametrize(
    "given", [{"dataset": "c4"}, {"temperature": 0.0}, {"params": {"threshold": None, "n": 768}}, {"params": {"n": 64}}]
)
def test_the_papers_mean_stands_beside_its_own_setting_alone(given, cells) -> None:
    fill_sizes(cells, **given)
    (left, _), table = first("fig5", cells)
    assert "n published" not in table.frame
    assert not any("paper" in label for label in labels(left))
