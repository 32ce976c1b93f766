"""The smoke table: sorted by speedup, what is marked, and what it says in sentences."""

import re

import pytest

from specdec_trees.artifacts import findings, frame, ties
from specdec_trees.artifacts.definitions import rule_label
from specdec_trees.artifacts.frame import load
from specdec_trees.artifacts.tables import WIDTH, Table, to_text
from specdec_trees.artifacts.ties import BEST
from specdec_trees.artifacts.unresolved import warn
from specdec_trees.papers.beyond.by_speedup import by_speedup
from specdec_trees.results.rows import METHOD


def opt_tree(cells, drafter: str, size: int, mal: float, **given) -> None:
    cells.add(drafter, "opt_tree", params={"n": size, "delta": 0.2}, dataset="mini", mal=mal, conversations=8, **given)


def smoke(cells) -> Table:
    return by_speedup("smoke", "All tree methods", cells.load())


def marks(cells, column: str) -> dict[str, str]:
    frame = smoke(cells).frame.set_index("who")
    return {drafter: cell[cell.index("]") + 1 :] for drafter, cell in frame[column].items()}


def test_times_are_marked_and_not_what_larger_trees_accept(cells) -> None:
    for size, speedup in ((4, 3.0), (25, 1.0), (127, 0.3)):
        opt_tree(cells, f"n{size}", size, 3.0 + size / 64, speedup=speedup)
    assert set(marks(cells, "mal").values()) == {""}
    assert [drafter for drafter, mark in marks(cells, "speedup").items() if mark == BEST] == ["OPT-Tree, n = 4"]
    assert ties.NOTE in smoke(cells).notes


def test_a_table_without_marks_does_not_explain_them(cells) -> None:
    opt_tree(cells, "alone", 25, 3.0)
    assert ties.NOTE not in smoke(cells).notes


def test_the_longest_stands_first_where_times_tell_nothing(cells) -> None:
    for place, (size, step) in enumerate(((25, 0.002), (50, 0.004), (127, 0.008))):
        opt_tree(cells, f"drafter{place}", size, 3.0 + size / 64, speedup=3.0 - place, base_step_s=step)
    assert smoke(cells).frame["n"].tolist() == ["127", "50", "25"]


def test_a_noisy_setting_puts_no_other_in_its_order(cells) -> None:
    for place, (size, step) in enumerate(((25, 0.002), (50, 0.004), (127, 0.008))):
        opt_tree(cells, f"noisy{place}", size, 3.0 + size / 64, speedup=3.0 - place, base_step_s=step)
        opt_tree(cells, f"calm{place}", size, 3.0 + size / 64, speedup=3.0 - place, temperature=1.0)
    rows = smoke(cells).frame
    sizes = {setting: own["n"].tolist() for setting, own in rows.groupby("setting")}
    assert sorted(sizes.values()) == [["127", "50", "25"], ["25", "50", "127"]]


def test_tokens_per_second_stand_beside_those_of_the_runs_own_autoregressive_arm(cells) -> None:
    """A speedup of 1.09 beside 333 and 322 tokens/s is of two speeds of one run, both of which are printed."""
    opt_tree(cells, "quick_minute", 25, 3.0, speedup=1.2, base_step_s=0.002)
    opt_tree(cells, "slow_minute", 50, 3.0, speedup=1.4)
    frame = smoke(cells).frame
    for _, row in frame.iterrows():
        own, plain, gain = (
            float(row[name].split(" ")[0]) for name in ("tokens_per_s", "autoregressive_tokens_per_s", "speedup")
        )
        assert abs(own / plain - gain) < 0.01


def test_the_fastest_stands_first_and_what_failed_last(cells) -> None:
    cells.add("broken", "eagle2", dataset="mini", status="failed", conversations=8)
    for name, speedup in (("slow", 0.5), ("fast", 2.0), ("middle", 1.2)):
        opt_tree(cells, name, 25, 3.0, speedup=speedup)
    table = smoke(cells)
    named = [f"OPT-Tree, n = 25 ({name})" for name in ("fast", "middle", "slow")]
    assert table.frame["who"].tolist() == [*named, "EAGLE-2"]
    assert smoke(cells).findings[-1] == "1 of 4 runs did not end well: EAGLE-2 (failed)."


def test_a_terminal_shows_rows_and_sentences_in_120_columns(cells) -> None:
    opt_tree(cells, "a_drafter_with_a_long_name", 25, 12.0, speedup=12.0)
    opt_tree(cells, "longer", 127, 14.0, speedup=0.5)
    short = smoke(cells)
    text = to_text(short, ties.KEY)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert ties.NOTE not in text
    told = short.findings[0]
    assert re.fullmatch(
        r"Fastest: OPT-Tree, n = 25, speedup 1\d\.\d\d \[.+, .+\]\. "
        r"Longest: OPT-Tree, n = 127, MAL \d\.\d\d \[.+, .+\]\.",
        told,
    ), told


def test_one_conversation_has_no_interval(cells) -> None:
    for name, speedup in (("fast", 2.0), ("slow", 1.0)):
        cells.add(name, "opt_tree", params={"n": 25}, dataset="mini", conversations=1, speedup=speedup)
    told = smoke(cells).findings[0]
    assert re.match(
        r".* too few .+ \(OPT-Tree, n = 25 \(fast\), speedup \d\.\d\d \(no interval: 1 conversation\)\)\. .* too few",
        told,
    ), told


def test_a_single_method_that_is_not_lossless_is_the_longest_all_the_same(cells) -> None:
    for name, size in (("a", 8), ("b", 16)):
        opt_tree(cells, name, size, 3.0)
    opt_tree(cells, "lossy", 4, 6.0, lossless=False)
    assert "Longest: OPT-Tree, n = 4 (not lossless)" in smoke(cells).findings[0]


def test_outputs_that_differ_are_counted_and_their_methods_named(cells) -> None:
    opt_tree(cells, "same", 25, 3.0)
    opt_tree(cells, "differing", 50, 3.0)
    results = cells.load()
    differing = results.runs.loc[results.runs["drafter"] == "differing", "run_id"].item()
    every = smoke(cells).findings[1]
    total = int(re.fullmatch(r"All (\d+) .+", every)[1])
    own = results.prompts.index[(results.prompts["run_id"] == differing) & (results.prompts["arm"] == METHOD)]
    results.prompts.loc[own[0], "identical"] = False
    results.runs.loc[results.runs["run_id"] == differing, "identical"] = 1 - 1 / len(own)
    short = by_speedup("smoke", "All tree methods", results)
    share = f"{100 * (1 - 1 / len(own)):.1f}%"
    assert short.findings[1].startswith(f"{total - 1} of {total} ")
    assert short.findings[1].endswith(f"not all of: OPT-Tree, n = 50 {share}.")


def test_sampled_outputs_are_not_called_identical(cells) -> None:
    opt_tree(cells, "sampled", 25, 3.0, temperature=1.0)
    assert "greedy decoding alone" in smoke(cells).findings[0]


def test_a_busy_machine_is_a_warning_in_place_of_marks(cells) -> None:
    for place, step in enumerate((0.002, 0.004, 0.008)):
        opt_tree(cells, f"drafter{place}", 25, 3.0, speedup=1.0 + place, base_step_s=step)
    short = smoke(cells)
    assert short.warning == findings.BUSY
    assert ties.BUSY_NOTE not in short.notes
    assert not short.frame["speedup"].str.endswith(ties.UNRANKED).any()
    assert "too noisy" in short.findings[0].partition("(OPT-Tree, n = 25 (drafter2), speedup")[0]
    assert "Longest: OPT-Tree" in short.findings[0]
    assert warn(frame.load(cells.load()), short).warning.startswith(findings.BUSY)


@pytest.mark.parametrize("given", [{"params": {"n": 25, "delta": 0.4}}, {"verifier": "target_sample"}])
def test_runs_of_one_config_are_told_apart_by_what_differs(given, cells) -> None:
    for changes in ({}, given):
        cells.add("opt_tree", "opt_tree", dataset="mini", **{"params": {"n": 25, "delta": 0.2}} | changes)
    told = (
        {"delta 0.2", "delta 0.4"}
        if "params" in given
        else {"judged by greedy", f"judged by {rule_label('target_sample')}"}
    )
    assert set(smoke(cells).frame["who"]) == {f"OPT-Tree, n = 25 ({words})" for words in told}


def test_several_settings_are_a_column_and_a_table_for_each_in_a_terminal(cells) -> None:
    for seed in (0, 1):
        opt_tree(cells, "one", 25, 3.0, seed=seed)
        opt_tree(cells, "other", 25, 2.0, seed=seed)
    short = smoke(cells)
    assert short.frame["setting"].tolist() == ["tiny, seed 0"] * 2 + ["tiny, seed 1"] * 2
    text = to_text(short)
    assert [line for line in text.splitlines() if line.startswith("tiny, seed")][:2] == [
        "tiny, seed 0:",
        "tiny, seed 1:",
    ]
    assert text.count("OPT-Tree, n = 25 (one)") > 1
    assert sum(line.startswith("tiny, seed") for line in short.findings) == 2


def test_a_single_run_in_lines(cells) -> None:
    opt_tree(cells, "alone", 25, 3.0, speedup=1.5)
    short = smoke(cells)
    first, mal, speedup, outputs = findings.facts(load(cells.load()))
    assert first == "OPT-Tree, n = 25 with the pair tiny, judged by greedy at temperature 0, 8 conversations of mini:"
    assert short.frame["mal"].item() in mal
    assert short.frame["speedup"].item() in speedup
    assert outputs.endswith(short.findings[0])
