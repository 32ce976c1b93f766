"""`python -m bench.peers`: every arm on every prompt in every round, ratios in pairs, outputs compared."""

import sys

import numpy as np

from bench import peers
from bench.artifacts.tables import percent
from bench.peers import BASE, Arm, ratio, table, take_turns


def test_all_arms_are_measured_and_ours_are_the_librarys_own_outputs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["peers", "--limit", "2", "--new", "8", "--rounds", "1", "--out", str(tmp_path / "peers")]
    )
    peers.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert [name for name in cells if name.startswith("ours")] == [
        *("ours, autoregressive", "ours, chain of 4", "ours, OPT-Tree, n = 25", "ours, prompt lookup, n = 10")
    ]
    assert len(cells) == 9
    assert {row[-1] for row in cells.values()} == {"100%"}
    assert cells[BASE][2] == "1.00 [1.00, 1.00]"
    assert cells["ours, autoregressive"][3] == "1.00" < cells["ours, OPT-Tree, n = 25"][3]
    assert {path.name for path in (tmp_path / "peers").iterdir()} == {"peers.md", "peers.csv", "peers.tex"}


def test_arms_take_turns_and_a_ratio_is_of_totals():
    order: list[str] = []

    def arm(name: str, answer: list[int]) -> Arm:
        return Arm(name, lambda ids: order.append(f"{name}{ids[0]}") or answer)

    fast, base = arm("a", [1, 2]), arm(BASE, [1, 2])
    take_turns([fast, base], [[0], [1]], rounds=2)
    assert order == [f"a{0}", f"{BASE}0", "a0", f"{BASE}0", f"{BASE}1", "a1", f"{BASE}0", "a0", "a1", f"{BASE}1"]
    assert np.shape(fast.seconds) == np.shape(fast.tokens) == (2, 2)
    assert fast.outputs == [[1, 2], [1, 2]]
    fast.seconds, base.seconds = [[1.0, 3.0], [2.0, 2.0]], [[2.0, 6.0], [4.0, 4.0]]
    found = ratio(fast, base)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    assert table([fast, base], 1.0, "", ()).frame["of the limit"].tolist() == [percent(1.0), percent(0.5)]
    base.outputs[1] = [9]
    assert table([fast, base], 1.0, "", ()).frame["identical"].tolist() == [percent(0.5), percent(1.0)]
