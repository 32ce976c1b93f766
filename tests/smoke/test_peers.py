"""`python -m specdec_trees.speed.peers`: all arms on all prompts and rounds, ratios in pairs, outputs compared."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from jaxtyping import config as shape_checks
from torch._dynamo.testing import CompileCounterWithBackend

from specdec_core.models import graphs
from specdec_trees.artifacts.tables import ABSENT
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.speed import peer_ratios, peers
from specdec_trees.speed.peer_ratios import ratio
from specdec_trees.speed.peers import BASE, Arm, rows_of, table, take_turns, warm_up
from specdec_trees.statistics import samples


def printed(out: str) -> list[dict[str, list[str]]]:
    """The cells of the rows of each table that was printed, by arm."""
    parts = [part.splitlines() for part in out.split("### ")[1:]]
    rows = [[line.split("|")[1:-1] for line in part if line.startswith("| ")][1:] for part in parts]
    return [{row[0].strip(): [cell.strip() for cell in row[1:]] for row in part} for part in rows]


def test_all_arms_are_measured_and_ours_are_the_librarys_own_outputs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["peers", "--limit", "2", "--new", "8", "--rounds", "1", "--out", str(tmp_path / "peers")]
    )
    peers.main()
    cells, ratios = printed(capsys.readouterr().out)
    assert [name for name in cells if name.startswith("ours")] == [
        *("ours, autoregressive", "ours, chain of 4"),
        *(f"ours, OPT-Tree, n = {n}" for n in (3, 7, 25)),
        "ours, prompt lookup, n = 10",
    ]
    assert len(cells) == 11
    assert {row[-1] for row in cells.values()} == {"100%"}
    assert cells[BASE][1] == "1.00 (1.00 to 1.00)"
    assert cells["ours, autoregressive"][3] == "1.00" < cells["ours, OPT-Tree, n = 25"][3]
    target, draft, outside = (float(cell.removesuffix("%")) for cell in cells["ours, OPT-Tree, n = 25"][4:7])
    assert target > 0 < draft
    assert 0 < outside < 100
    assert cells["ours, autoregressive"][5] == "0.0"
    names = {f"{name}.{kind}" for name in ("peers", "peers_ratios") for kind in ("md", "csv", "tex", "json")}
    assert {path.name for path in (tmp_path / "peers").iterdir()} == names | {"peers_prompts.csv"}
    rows = pd.read_csv(tmp_path / "peers" / "peers_prompts.csv")
    assert rows.groupby("arm")["prompt_id"].nunique().to_dict() == dict.fromkeys(cells, 2)
    speeds = rows.groupby("arm")[["tokens", "seconds"]].sum()
    for name, (speed, *_) in cells.items():
        assert float(speed) == pytest.approx(speeds["tokens"][name] / speeds["seconds"][name], abs=0.05)
    assert list(ratios) == [name for name in cells if name.startswith("ours")]
    assert {row[0] for row in ratios.values()} == {ABSENT}, "nothing ran in graphs"
    assert next(iter(ratios.values()))[1] == ABSENT
    assert ABSENT not in {cell for row in [*ratios.values()][1:] for cell in row[1:]}


def test_arms_take_turns_and_a_ratio_is_of_totals():
    order: list[str] = []

    chosen: list[str] = []

    def arm(name: str, answer: list[int], how: str) -> Arm:
        return Arm(name, lambda ids: order.append(f"{name} {len(ids)}") or (chosen[-1] == how and answer), graphs=how)

    fast, base = arm("a", [1, 2], "packed"), arm(BASE, [1, 2], "eager")
    prompts = [[0], [0, 0]]
    warm_up([fast, base], chosen.append, prompts)
    take_turns([fast, base], chosen.append, prompts, 8, torch.device("cpu"))
    warm, turns = order[:4], [order[at : at + 2] for at in range(4, len(order), 2)]
    assert warm == ["a 2", "a 2", f"{BASE} 2", f"{BASE} 2"], "warmed on the longest"
    assert [{text.rsplit(" ", 1)[0] for text in pair} for pair in turns] == [{"a", BASE}] * 16
    assert [pair[0][-1] for pair in turns] == ["1", "2"] * 8
    assert 3 < sum(pair[0].startswith("a") for pair in turns) < 13
    assert np.shape(fast.seconds) == np.shape(fast.tokens) == (8, 2)
    assert fast.outputs == [[1, 2], [1, 2]]


def test_a_row_has_ratio_and_share_of_the_limit():
    fast, base, other = (Arm(name, list) for name in ("a", BASE, "quantised"))
    for one, seconds in ((fast, 1.0), (base, 2.0), (other, 1.5)):
        one.tokens, one.seconds, one.outputs = [[11, 21]] * 2, [[1.0 * seconds, 2.0 * seconds]] * 2, [[1], [2]]
    other.same_arithmetic, base.outputs = False, [[1], [9]]
    arms = [fast, base, other]
    kept = rows_of(arms, ["x", "y"])
    assert ratio(kept, "a", BASE).value == 2.0
    rows = table(arms, kept, [0.5, 1.0], 8.0, "", ()).frame
    assert rows["identical"].tolist() == ["50.0%", "100%", "–"]
    # 60 tokens behind the first ones: in (1 - 0.5) + (2 - 1), and in (2 - 0.5) + (4 - 1), twice each
    assert rows["of the limit"].tolist() == ["250%", "83%", "–"]
    assert table([base], kept, [0.5, 1.0], None, "", ()).frame["of the limit"].tolist() == ["–"]


def played(rng: np.random.Generator, prompts: int, rounds: int) -> list[Arm]:
    """Arms whose times are drawn: ours plain and as a tree, eager and compiled, and two peers."""
    pace = rng.uniform(0.5, 4.0, prompts)  # of a prompt, which all arms share
    names = [("autoregressive", "eager"), ("tree", "eager"), ("autoregressive", "compile"), ("tree", "compile")]
    arms = [Arm(f"ours, {drafter}, {graphs}", list, drafter, graphs) for drafter, graphs in names]
    arms += [Arm(BASE, list), Arm("lookup", list)]
    for place, arm in enumerate(arms):
        own = rng.lognormal(0.1 * place, 0.2, (rounds, prompts))
        arm.seconds, arm.tokens = (pace * own).tolist(), [rng.integers(9, 33, prompts).tolist()] * rounds
    return arms


def as_cells(arm: Arm, other: Arm, ids: list[str]) -> pd.DataFrame:
    """The means of the rounds as prompts of a cell, in which the other arm is the baseline."""
    columns = {"run_id": "r", "turn": 0, "status": "ok", "contaminated": False, "prefill_s": 0.0}
    parts = [
        pd.DataFrame({"prompt_id": ids, "decode_s": np.mean(one.seconds, axis=0), "num_decoded_tokens": one.tokens[0]})
        for one in (arm, other)
    ]
    return pd.concat(
        [part.assign(arm=name, **columns) for part, name in zip(parts, (METHOD, AUTOREGRESSIVE), strict=True)]
    )


@pytest.mark.parametrize(("prompts", "rounds"), [(8, 3), (20, 2), (40, 1)])
def test_intervals_are_those_of_paired_speedups_of_the_means_of_rounds(prompts, rounds):
    """Each ratio by the way of a cell's speedup, from arrays of its own; one prompt's rounds are one observation."""
    arms, ids = played(np.random.default_rng(prompts), prompts, rounds), [f"p{place:02}" for place in range(prompts)]
    rows = rows_of(arms, ids)
    for arm in arms:
        for other in arms:
            wanted = samples.interval(samples.speedup(as_cells(arm, other, ids)))
            found = ratio(rows, arm.name, other.name)
            assert found.n == prompts
            assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
    again = pd.concat([rows, rows.assign(round=rows["round"] + rounds)])
    more, less = (ratio(one, "lookup", BASE) for one in (again, rows))
    assert (more.low, more.high) == pytest.approx((less.low, less.high)), "rounds are no prompts"
    # a pace that all arms share is no uncertainty: where each prompt has the same ratio, there is none
    twice = rows[rows["arm"] == BASE].assign(arm="twice", seconds=lambda one: one["seconds"] / 2)
    steady = ratio(pd.concat([rows, twice]), "twice", BASE)
    assert (steady.value, steady.low, steady.high) == pytest.approx((2.0, 2.0, 2.0))


def test_every_arm_of_ours_is_held_against_eager_plain_and_peers():
    arms = played(np.random.default_rng(0), 12, 2)
    rows = rows_of(arms, [str(place) for place in range(12)])
    found = peer_ratios.table(rows, "").frame.set_index("Arm")

    def cell(arm: int, other: int) -> str:
        one = ratio(rows, arms[arm].name, arms[other].name)
        return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"

    assert found.index.tolist() == [arm.name for arm in arms[:4]]
    assert found["to eager"].tolist() == [ABSENT, ABSENT, cell(2, 0), cell(3, 1)]
    assert found["to plain decoding"].tolist() == [ABSENT, cell(1, 0), ABSENT, cell(3, 2)]
    for place in (4, 5):
        assert found[arms[place].name].tolist() == [cell(arm, place) for arm in range(4)]


@pytest.fixture
def unchecked():
    """Checks of shapes are no part of a graph."""
    before = shape_checks.jaxtyping_disable
    shape_checks.update("jaxtyping_disable", True)
    yield
    shape_checks.update("jaxtyping_disable", before)
    torch._dynamo.reset()


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_arms_in_graphs_have_the_same_outputs_and_are_not_compiled_while_the_clock_runs(monkeypatch, capsys):
    counter = CompileCounterWithBackend("eager")
    monkeypatch.setattr(graphs, "_options", lambda device: {"backend": counter})
    made = []
    monkeypatch.setattr(peers, "take_turns", lambda *given: made.append(counter.frame_count) or take_turns(*given))
    options = (
        "--limit",
        "2",
        "--new",
        "24",
        "--rounds",
        "1",
        "--graphs",
        "packed",
        "compile",
        "--drafters",
        "autoregressive",
    )
    monkeypatch.setattr(sys, "argv", ["peers", *options, "opt_tree"])
    peers.main()
    out = capsys.readouterr().out
    cells, ratios = printed(out)
    for how in ("packed", "compile"):
        assert cells[f"ours, autoregressive, {how}"][-1] == cells[f"ours, OPT-Tree, n = 25, {how}"][-1] == "100%"
        assert ABSENT not in ratios[f"ours, OPT-Tree, n = 25, {how}"]
    assert made == [counter.frame_count]
    assert "Target: graphs of 1, 32 tokens, compiled in " in out
