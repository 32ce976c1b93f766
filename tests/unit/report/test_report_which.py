"""Which method for which model: a row per method of a setting, and which of them is the best at what."""

import re
from pathlib import Path

import pandas as pd
import pytest

from specdec_trees.artifacts import findings
from specdec_trees.artifacts.metrics import SPEEDUP
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.tables import Table
from specdec_trees.artifacts.ties import BEST
from specdec_trees.papers.beyond import settings
from specdec_trees.papers.beyond.which import LEFT_OUT
from specdec_trees.papers.registry import build
from specdec_trees.report.__main__ import main
from specdec_trees.statistics.intervals import Interval


def which(cells) -> Table:
    (table,) = build("which", cells.root)
    return table


def column(table: Table, key: str) -> dict[str, str]:
    return dict(zip(table.frame["name"], table.frame[key], strict=True))


def leading(text: str) -> float:
    return float(re.match(r"[\d.]+", text).group())


def filled(cells, **more) -> None:
    """Three methods far from each other: the longest is not the fastest, and the shallowest drafts least."""
    cells.add("chain4", "chain", params={"n": 4}, mal=2.0, speedup=1.5, depth=4, **more)
    cells.add("binary", params={"n": 30}, mal=3.0, speedup=2.5, depth=6, **more)
    cells.add("opt_tree", params={"n": 50}, mal=5.0, speedup=2.0, depth=8, **more)


def test_the_fastest_has_the_highest_speedup_the_longest_the_highest_mal_and_the_cheapest_drafts_least(cells) -> None:
    filled(cells, conversations=12)
    table = which(cells)
    (answer,) = table.answers.values()
    parts = [answer.partition(word)[2] for word in ("Fastest: ", "Longest: ", "Cheapest to draft: ")]
    best = {"speedup": max, "mal": max, "drafting_ms": min}
    for said, (key, most) in zip(parts, best.items(), strict=True):
        values = {name: leading(text) for name, text in column(table, key).items()}
        assert said.startswith(most(values, key=values.__getitem__))
    assert {name: text[-1] == "*" for name, text in column(table, "speedup").items()}["binary, n = 30"]
    assert "tied" not in answer


def test_sentences_have_the_values_of_the_rows_though_methods_share_fewer_conversations(cells) -> None:
    filled(cells, conversations=12)
    cells.add("dyspec", params={"n": 12}, mal=9.0, speedup=9.0, spread=0.3, depth=1, conversations=20)
    table = which(cells)
    (answer,) = table.answers.values()
    for key in ("mal", "speedup"):
        assert column(table, key)["DySpec, n = 12"].removesuffix(" *") in answer


def test_methods_that_differ_in_their_rule_alone_are_named_with_it(cells) -> None:
    for rule, mal in (("spec_infer", 2.0), ("without_replacement", 4.0)):
        cells.add("sequoia", params={"n": 8}, verifier=rule, mal=mal, temperature=1.0, conversations=12)
    cells.add("chain4", "chain", params={"n": 4}, mal=1.5, speedup=3.0, temperature=1.0, conversations=12)
    table = which(cells)
    (answer,) = table.answers.values()
    rules = dict(zip(table.frame["rule"], table.frame["mal"], strict=True))
    best = next(rule for rule, text in rules.items() if text.endswith("*"))
    assert f"(rule: {best})" in answer.partition("Longest: ")[2]
    assert "(rule" not in answer.partition("Longest: ")[0], "a chain stands there once"


def test_what_is_tied_is_counted_and_marked(cells) -> None:
    for size in (8, 9, 10):
        cells.add(f"opt_tree_n{size}", "opt_tree", params={"n": size}, speedup=1.5, conversations=12)
    table = which(cells)
    (answer,) = table.answers.values()
    marks = [text.rsplit(" ", 1)[-1] for text in table.frame["speedup"]]
    assert sorted(marks) == ["*", "=", "="]
    assert "tied with 2 others" in answer.partition("Longest")[0]


@pytest.mark.parametrize(("speedup", "beaten"), [(0.5, True), (2.0, False)])
def test_that_nothing_beats_plain_decoding_is_said(speedup: float, beaten: bool, cells) -> None:
    for size, more in ((8, 1.0), (16, 0.8)):
        cells.add(f"opt_tree_n{size}", "opt_tree", params={"n": size}, speedup=speedup * more, conversations=12)
    (answer,) = which(cells).answers.values()
    assert answer.startswith("No method is faster than plain decoding") is beaten
    assert ("Fastest" in answer) is not beaten


def test_a_lossy_method_is_shown_and_never_the_best(cells) -> None:
    filled(cells, conversations=12)
    cells.add("k_seq", params={"n": 90}, mal=8.0, speedup=6.0, depth=1, lossless=False, conversations=12)
    table = which(cells)
    lossy = next(name for name, words in column(table, "is_lossless").items() if words == "no")
    assert not any(lossy in answer for answer in table.answers.values())
    assert not column(table, "speedup")[lossy].endswith(("*", "="))


def test_a_run_counts_once_and_of_one_method_and_size_the_one_with_most_conversations(cells) -> None:
    filled(cells)
    cells.experiment = "opt_tree/table2"
    cells.clock = iter(range(3))
    filled(cells)  # the same runs
    filled_before = which(cells)
    assert len(filled_before.frame) == 3
    cells.clock = iter(range(10, 20))
    cells.add("binary", params={"n": 30}, mal=4.0, conversations=9)
    after = column(which(cells), "conversations")
    assert after == {**dict.fromkeys(after, "6"), "binary, n = 30": "9"}


def test_a_replay_has_mal_and_no_times_and_is_no_second_row(cells) -> None:
    filled(cells)
    cells.add("binary", params={"n": 30}, mal=3.0, conversations=20, recording="r1")
    cells.add("dyspec", params={"n": 12}, mal=3.0, conversations=20, recording="r1")
    table = which(cells)
    counts, speeds = column(table, "conversations"), column(table, "speedup")
    assert counts["binary, n = 30"] == "20 / 6"
    assert counts["DySpec, n = 12"] == "20"
    assert {name for name, text in speeds.items() if text == "\u2013"} == {"DySpec, n = 12"}
    assert len(table.frame) == 4


def test_a_method_of_few_conversations_is_shown_and_takes_none_from_the_others(cells) -> None:
    filled(cells, conversations=12)
    (before,) = which(cells).answers.values()
    cells.add("dyspec", params={"n": 12}, mal=9.0, speedup=9.0, depth=1, conversations=5)
    table = which(cells)
    assert [*table.answers.values()] == [before]
    assert leading(column(table, "mal")["DySpec, n = 12"]) > 5
    assert {name for name, text in column(table, "mal").items() if text.endswith(LEFT_OUT)} == {"DySpec, n = 12"}
    cells.add("dyspec", params={"n": 12}, mal=9.0, speedup=9.0, depth=1, conversations=6)
    assert "DySpec" in which(cells).answers.popitem()[1]


def test_the_setting_of_most_conversations_leads_and_its_fastest_method_stands_first(cells) -> None:
    for size in range(8, 12):
        cells.add(f"opt_tree_n{size}", "opt_tree", params={"n": size}, conversations=6, dataset="gsm8k")
    filled(cells, conversations=12)
    table = which(cells)
    first = table.frame[table.frame["setting"] == next(iter(table.answers))]
    assert {*first["conversations"]} == {"12"}
    speeds = [leading(text) for text in first["speedup"]]
    assert speeds == sorted(speeds, reverse=True)
    assert len({*speeds}) == 3


def test_times_of_two_machines_are_two_settings_and_so_are_two_datasets(cells) -> None:
    filled(cells)
    filled(cells, device="Other CPU")
    filled(cells, dataset="gsm8k")
    assert sorted(which(cells).frame.groupby("setting").size()) == [3, 3, 3]


def test_one_method_alone_is_no_choice(cells) -> None:
    cells.add()
    with pytest.raises(NoResultsError, match="no two methods"):
        which(cells)


def test_of_another_pair_nothing_is_shown(cells) -> None:
    filled(cells)
    filled(cells, pair="other")
    (table,) = build("which", cells.root, "other")
    assert {*table.frame["pair"]} == {"other"}


def test_a_method_that_was_replayed_alone_stands_in_its_setting(cells) -> None:
    filled(cells, conversations=12)
    cells.add("dyspec", params={"n": 12}, mal=6.0, conversations=20, recording="r1")
    table = which(cells)
    assert table.frame["setting"].nunique() == 1
    (answer,) = table.answers.values()
    assert "DySpec, n = 12" in answer.partition("Longest: ")[2]
    assert table.frame.set_index("name")["mal"]["DySpec, n = 12"].endswith("*")


def test_settings_with_the_same_words_stay_two(cells, monkeypatch) -> None:
    monkeypatch.setattr(settings, "_base", lambda _: ("the same", "words"))
    monkeypatch.setattr(settings, "_word", lambda *_: "")
    filled(cells)
    filled(cells, dataset="gsm8k")
    table = which(cells)
    assert sorted(table.frame.groupby("setting").size()) == [3, 3]
    assert len(table.answers) == 2


def test_runs_that_differ_in_an_argument_are_two_rows_and_say_in_which(cells) -> None:
    for delta, mal in ((0.1, 4.0), (0.5, 2.0)):
        cells.add(f"opt_tree_{delta}", "opt_tree", params={"n": 50, "delta": delta}, mal=mal, conversations=12)
    lengths = column(which(cells), "mal")
    assert {name: round(leading(text)) for name, text in lengths.items()} == {
        "OPT-Tree, n = 50, delta 0.1": 4,
        "OPT-Tree, n = 50, delta 0.5": 2,
    }


def test_who_drafts_without_a_forward_drafts_cheapest(cells) -> None:
    for name, depth in (("prompt_lookup", 0), ("binary", 3), ("opt_tree", 8)):
        cells.add(name, params={"n": 9}, depth=depth, conversations=12, recording="r1")
    (answer,) = which(cells).answers.values()
    assert answer.partition("Cheapest to draft: ")[2].startswith("prompt lookup")
    assert "No speedup was measured." in answer


def test_a_method_that_is_surely_faster_is_named_beside_one_with_a_higher_value(monkeypatch) -> None:
    long = pd.DataFrame(
        {
            "metric": [SPEEDUP] * 2,
            "interval": [Interval(1.22, 0.76, 1.96, 12, 11), Interval(1.13, 1.08, 1.19, 12, 11)],
            "name": ["wild", "steady"],
            "lossless": True,
            "busy": False,
        }
    )
    wild = next(findings.named_rows(long))
    monkeypatch.setattr(findings, "first", lambda _: findings.First(wild, wild.interval, BEST, 1, common=8))
    (said,) = findings.fastest(long)
    assert said.index("wild") < said.index("steady")
    assert not said.startswith("No method")


def test_alone_it_is_printed_too(cells, capsys) -> None:
    filled(cells, conversations=12)
    assert main(["which", "--results", str(cells.root), "--out", str(cells.root / "out")]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in which(cells).frame["name"])


def test_the_first_page_leads_with_it(cells, tmp_path: Path) -> None:
    filled(cells, conversations=12)
    assert main(["--results", str(cells.root), "--out", str(tmp_path)]) == 0
    index, page = ((tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "which"))
    places = [index.index(f'id="{name}"') for name in ("which", "papers", "all", "unrun")]
    assert places == sorted(places)
    (answer,) = which(cells).answers.values()
    assert answer in index
    assert answer in page
