import sys

from specdec_trees.speed import graph_build


def test_the_cost_of_a_record_is_printed_by_size(monkeypatch, capsys):
    monkeypatch.setattr(graph_build, "TAUS", (1, None))
    monkeypatch.setattr(sys, "argv", ["graph_build", "--sizes", "20", "150", "--repeats", "2"])
    graph_build.main()
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["tau", "records", "read", "merged", "total", "forwards", "growing", "unmerging"]
    found = [row.split() for row in rows]
    assert [row[0] for row in found] == ["1", "1", "none", "none"]
    assert [int(row[1]) for row in found] == [20, 150, 20, 150], "nothing is pruned: graphs are as large as asked for"
    merged = [int(row[3]) for row in found]
    assert merged[1] > merged[0]
    assert merged[2:] == [0, 0]
    for row in found:
        assert int(row[2]) + int(row[3]) <= int(row[1]), "what is merged is not read"
        assert all(float(value) > 0 for value in row[4:])
