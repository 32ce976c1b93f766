import sys

from specdec_trees.speed import tree_build


def test_the_cost_of_building_is_printed_by_size(monkeypatch, capsys):
    monkeypatch.setattr(tree_build, "VOCABULARY", 600)
    monkeypatch.setattr(sys, "argv", ["tree_build", "--sizes", "8", "32", "--repeats", "2"])
    tree_build.main()
    title, _, header, *rows = capsys.readouterr().out.splitlines()
    assert "600 tokens" in title
    assert header.split()[:6] == ["n", "OPT-Tree", "EAGLE-2", "Sequoia", "DySpec", "in"]
    for n, row in zip((8, 32), rows, strict=True):
        size, *times = (float(value.rstrip("%")) for value in row.split())
        assert size == n
        assert 0 < times[4] < times[3], "the selection is a part of it"
        assert times[5] > 0, "timed apart, so that it may be disturbed apart"
        assert 1 < times[-1] <= n, "not every node is read"
