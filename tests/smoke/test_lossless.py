"""`python -m specdec_trees.lossless`: the drafters that are asked for are counted, and no others."""

import sys

import pytest

from specdec_trees import lossless


def test_drafters_are_chosen_and_mistyped_ones_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["lossless", "--limit", "2", "--new", "8", "--drafters", "prompt_lookup", "chain4"]
    )
    with pytest.raises(SystemExit) as ended:
        lossless.main()
    assert not ended.value.code
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if len(line) == 2 and "/" in line[1]] == [
        ["prompt_lookup", "2/2"],
        ["chain4", "2/2"],
    ]
    assert ["0", "of", "4", "outputs", "differ"] in lines
    monkeypatch.setattr(sys, "argv", ["lossless", "--drafters", "chain55"])
    with pytest.raises(SystemExit, match='unknown drafter "chain55"'):
        lossless.main()
