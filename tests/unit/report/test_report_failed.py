"""Conversations that failed in one method count in none of what is set against it, and tables say so."""

from dataclasses import replace

import pytest

from specdec_trees.artifacts import findings, frame, ties
from specdec_trees.artifacts.frame import load
from specdec_trees.artifacts.metrics import EXPECTED, MAL, SECONDS, SPEEDUP
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.artifacts.unresolved import warn
from specdec_trees.artifacts.verdict import Pairing, judge
from specdec_trees.check.__main__ import NO, verdicts
from specdec_trees.check.folder import check
from specdec_trees.papers.beyond.by_speedup import by_speedup
from specdec_trees.results import failures
from specdec_trees.results.parquet import read_table
from specdec_trees.results.rows import METHOD, TABLES, PromptRow, RunRow, StepRow
from specdec_trees.results.store import one_run
from specdec_trees.statistics.aggregates import aggregates
from specdec_trees.statistics.intervals import Interval

REASON = "the draft has 256 positions, and the prompt has 300 tokens with 64 more asked for; shorten the prompt"


def fail(cells, run_id: str, *prompt_ids: str, turn: int = 0, error: str = REASON) -> None:
    """Make these conversations of a run fail in this turn."""
    tables = ("prompts", "steps", "runs")
    rows = {table: read_table(cells.store.path(table, run_id), TABLES[table]).to_pylist() for table in tables}

    def kept(row) -> bool:
        return row["prompt_id"] not in prompt_ids or row["turn"] < turn

    prompts = [PromptRow(**row) for row in rows["prompts"] if kept(row)]
    first = next(PromptRow(**row) for row in rows["prompts"] if row["arm"] == METHOD)
    nothing = {"num_new_tokens": 0, "num_decoded_tokens": 0, "num_steps": 0, "decode_s": 0.0, "identical": None}
    lost = [replace(first, prompt_id=name, turn=turn, status="failed", error=error, **nothing) for name in prompt_ids]
    cells.store.write("prompts", run_id, [*prompts, *lost])
    cells.store.write("steps", run_id, [StepRow(**row) for row in rows["steps"] if kept(row)])
    (run,) = (RunRow(**row) for row in rows["runs"])
    left = run.num_conversations - len(prompt_ids)
    cells.store.write("runs", run_id, [replace(run, num_conversations=left, num_failed=len(prompt_ids))])


def measured(cells, *several) -> list:
    """The rows of MAL of all runs, or of these metrics."""
    return [*named_rows(frame.measure(load(cells.load()), several or [MAL]))]


def long_ones_failed(cells, turn: int = 0) -> None:
    """A head that fails in two of eight conversations beside a method that decodes all."""
    head, names = cells.add("head", "eagle_tree", mal=5.0, speedup=2.0, conversations=8), ("p6", "p7")
    cells.add("chain", "chain", mal=2.0, speedup=1.2, conversations=8)
    fail(cells, head, *names, turn=turn)


@pytest.mark.parametrize("turn", [0, 1])
def test_what_one_method_failed_in_counts_in_none(cells, turn) -> None:
    """In its first turn or in a later one: no turn of it counts, in either arm, of either method."""
    long_ones_failed(cells, turn)
    runs = load(cells.load())
    for rows in (*runs["prompts"], *runs["steps"]):
        assert set(rows["prompt_id"]) == {f"p{place}" for place in range(6)}
    assert {one.n for one in frame.measure(runs, [MAL, SPEEDUP, EXPECTED, SECONDS])["interval"]} == {6}


def test_values_are_those_of_the_common_conversations_alone(cells) -> None:
    long_ones_failed(cells)
    whole = cells.store.read("steps")
    for run in measured(cells):
        mine = whole[(whole["run_id"] == run.run_id) & ~whole["prompt_id"].isin(["p6", "p7"])]
        assert run.value == pytest.approx(mine["acceptance_length"].mean())


def test_another_pair_and_other_prompts_keep_their_conversations(cells) -> None:
    long_ones_failed(cells)
    cells.add("chain", "chain", pair="other", conversations=8)
    cells.add("chain", "chain", dataset="gsm8k", conversations=12)
    counts = {(run.pair, run.dataset): run.interval.n for run in measured(cells) if run.drafter == "chain"}
    assert counts == {("tiny", "mt_bench"): 6, ("other", "mt_bench"): 8, ("tiny", "gsm8k"): 12}


def test_methods_that_failed_in_different_halves_are_not_ranked(cells) -> None:
    first, other = (cells.add(name, name, mal=mal, conversations=8) for name, mal in (("chain", 2.0), ("binary", 4.0)))
    fail(cells, first, "p0", "p1", "p2", "p3")
    fail(cells, other, "p4", "p5", "p6", "p7")
    assert {row.interval for row in measured(cells, MAL, SPEEDUP)} == {None}
    short = by_speedup("smoke", "All tree methods", cells.load())
    assert not any("Fastest" in text or "Longest" in text for text in short.findings)
    assert not {
        sign for cell in short.frame.to_numpy().flat for sign in (ties.BEST, ties.TIED) if str(cell).endswith(sign)
    }
    assert "8 of 8 conversations failed" in warn(frame.load(cells.load()), short).warning


def test_a_run_that_failed_as_a_whole_leaves_nothing_out(cells) -> None:
    cells.add("head", "eagle_tree", status="failed", conversations=8)
    cells.add("chain", "chain", conversations=8)
    assert [row.interval.n for row in measured(cells) if row.drafter == "chain"] == [8]
    assert cells.load().failed.empty


def test_tables_say_how_many_failed_and_why(cells) -> None:
    long_ones_failed(cells, turn=1)
    short = by_speedup("smoke", "All tree methods", cells.load())
    warning = warn(frame.load(cells.load()), short).warning
    assert "2 of 8 conversations failed: the draft has 256 positions." in warning
    assert failures.NOTE in warning
    assert "head" in warning
    alone = replace(short, runs=(next(run_id for run_id in short.runs if run_id),))
    assert "2 of 8" in warn(frame.load(cells.load()), alone).warning, "a table of one run says so too"


def test_a_table_of_whole_conversations_says_nothing(cells) -> None:
    cells.add("chain", "chain", conversations=8)
    short = by_speedup("smoke", "All tree methods", cells.load())
    assert "failed" not in warn(frame.load(cells.load()), short).warning


def test_a_cell_alone_says_so_too(cells) -> None:
    run_id = cells.add("head", "eagle_tree", conversations=8)
    fail(cells, run_id, "p1", "p3", turn=1)
    text = "\n".join(findings.facts(load(one_run(cells.store, run_id))))
    assert "2 of 8 conversations failed: the draft has 256 positions" in text


def test_the_check_counts_them(cells) -> None:
    long_ones_failed(cells)
    found = check(cells.root)
    (said,) = found.failed
    assert "2 of 8 conversations failed: the draft has 256 positions" in said
    assert found.conversations == 16
    answers = {question: answer for question, answer, *_ in verdicts(found, [])}
    assert answers["all prompts"] == NO


def test_values_are_not_judged_where_conversations_failed_and_orders_are() -> None:
    def pairing(value: float, published: float) -> Pairing:
        return Pairing(Interval(value, value - 0.01, value + 0.01, 8), published)

    block = {"first": pairing(3.0, 3.0), "other": pairing(2.0, 2.0)}
    assert judge("first", block, stand_in=False) == "matches"
    assert judge("first", block, stand_in=False, whole=False) == "not comparable: conversations failed"
    assert judge("first", block, stand_in=True, whole=False) == "order holds"


def test_a_cells_own_averages_leave_out_every_turn_of_a_failed_conversation(cells) -> None:
    run_id = cells.add("head", "eagle_tree", conversations=8)
    names = [f"p{place}" for place in range(8)]
    before = {table: cells.store.read(table, [run_id]) for table in ("prompts", "steps")}
    fail(cells, run_id, "p2", turn=1)
    found = aggregates(cells.store.read("prompts", [run_id]), cells.store.read("steps", [run_id]))
    left = {name: rows[rows["prompt_id"].isin(set(names) - {"p2"})] for name, rows in before.items()}
    expected = aggregates(left["prompts"], left["steps"])
    assert found == expected | {"num_failed": 1}
    assert found["mal"] != aggregates(before["prompts"], before["steps"])["mal"]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([], ""),
        ([REASON, REASON.replace("300", "301")], "2 of 8 conversations failed: the draft has 256 positions."),
        (
            ["the prompt has 300 tokens of 256 allowed in all", "the prompt has 310 tokens of 256 allowed in all"],
            "2 of 8 conversations failed: the prompt has 300 tokens of 256 allowed in all.",
        ),
        (
            [REASON, REASON, "the prompt ends with the end-of-sequence token 5; remove it"],
            "3 of 8 conversations failed: the draft has 256 positions (2); "
            "the prompt ends with the end-of-sequence token 5 (1).",
        ),
    ],
)
def test_reasons_are_counted_by_their_kind(errors, said) -> None:
    assert failures.sentence({str(place): error for place, error in enumerate(errors)}, 8) == said
