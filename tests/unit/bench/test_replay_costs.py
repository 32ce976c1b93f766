"""`specdec_trees.speed.replays`: what its table adds up, and a run of it."""

import pytest

from specdec_trees.speed import replays
from specdec_trees.speed.replays import Cost, main, table


def test_sums_are_of_all_conversations_and_count_the_recording_once():
    found = [Cost("chain", 4.0, 2.0, 0.1), Cost("chain", 6.0, 3.0, 0.1), Cost("opt_tree", 10.0, 4.0, None)]
    lines = {line[:22].strip(): line[22:].split() for line in table(1.0, found, 10.0).splitlines()}
    assert lines["chain"] == ["100.0", "50.0", "2.0", "50.0"]
    assert lines["opt_tree"] == ["100.0", "40.0", "2.5"]
    assert lines["recording"] == ["10.0"]
    assert lines["fixed shapes"] == ["100.0", "50.0", "2.0", "50.0"]
    assert lines["all, with recording"] == ["200.0", "100.0", "52.0", f"{200 / 52:.1f}"]


def test_every_method_is_decoded_and_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replays, "SIZES", (4,))
    main(["sample=1", "conversations=3", "decoding.max_new_tokens=4", "dataset=mini"])
    first, _, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("tiny: 13 cells, 1 conversations counted as 3")
    times = {line[:22].strip(): [float(cell) for cell in line[22:].split()] for line in lines}
    assert all(cells[0] > 0 for cells in times.values())
    assert len(times["chain"]) == 4, "looked up too"
    assert len(times["opt_tree"]) == 3
