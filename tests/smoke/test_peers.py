"""`python -m bench.speed.peers`: every arm on every prompt in every round, ratios in pairs, outputs compared."""

import sys

import numpy as np
import pytest
import torch
from jaxtyping import config as shape_checks
from torch._dynamo.testing import CompileCounterWithBackend

from bench.speed import peers
from bench.speed.peers import BASE, Arm, ratio, table, take_turns, warm_up
from specdec_core.models import graphs


def test_all_arms_are_measured_and_ours_are_the_librarys_own_outputs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["peers", "--limit", "2", "--new", "8", "--rounds", "1", "--out", str(tmp_path / "peers")]
    )
    peers.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert [name for name in cells if name.startswith("ours")] == [
        *("ours, autoregressive", "ours, chain of 4"),
        *(f"ours, OPT-Tree, n = {n}" for n in (3, 7, 25)),
        "ours, prompt lookup, n = 10",
    ]
    assert len(cells) == 11
    assert {row[-1] for row in cells.values()} == {"100%"}
    assert cells[BASE][1] == "1.00 [1.00, 1.00]"
    assert cells["ours, autoregressive"][3] == "1.00" < cells["ours, OPT-Tree, n = 25"][3]
    target, draft, outside = (float(cell.removesuffix("%")) for cell in cells["ours, OPT-Tree, n = 25"][4:7])
    assert target > 0 < draft
    assert 0 < outside < 100
    assert cells["ours, autoregressive"][5] == "0.0"
    assert {path.name for path in (tmp_path / "peers").iterdir()} == {"peers.md", "peers.csv", "peers.tex"}


def test_arms_take_turns_and_a_ratio_is_of_totals():
    order: list[str] = []

    def arm(name: str, answer: list[int]) -> Arm:
        return Arm(name, lambda ids: order.append(f"{name} {len(ids)}") or answer)

    fast, base = arm("a", [1, 2]), arm(BASE, [1, 2])
    prompts = [[0], [0, 0]]
    warm_up([fast, base], prompts)
    take_turns([fast, base], prompts, 8, torch.device("cpu"))
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
    found = ratio(fast, base)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    rows = table([fast, base, other], [0.5, 1.0], 8.0, "", ()).frame
    assert rows["identical"].tolist() == ["50.0%", "100%", "–"]
    # 60 tokens behind the first ones: in (1 - 0.5) + (2 - 1), and in (2 - 0.5) + (4 - 1), twice each
    assert rows["of the limit"].tolist() == ["250%", "83%", "–"]
    assert table([base], [0.5, 1.0], None, "", ()).frame["of the limit"].tolist() == ["–"]


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
    options = ("--limit", "2", "--new", "24", "--rounds", "1", "--graphs", "compile", "--drafters", "autoregressive")
    monkeypatch.setattr(sys, "argv", ["peers", *options, "opt_tree"])
    peers.main()
    out = capsys.readouterr().out
    rows = {cells[1].strip(): cells[-2].strip() for line in out.splitlines() if len(cells := line.split("|")) > 3}
    assert rows["ours, autoregressive, compile"] == rows["ours, OPT-Tree, n = 25, compile"] == "100%"
    assert made == [counter.frame_count]
    assert "Target: graphs of 1, 32 tokens, compiled in " in out
