"""The status of an artifact, and the verdicts of its tables."""

import pandas as pd
import pytest

from specdec_trees.artifacts.tables import ABSENT, Table
from specdec_trees.report.site import facts
from specdec_trees.report.site.facts import FAILED, MEASURED, NOT_RUN, NOTHING, PARTLY, RUNNING, Built
from specdec_trees.results.progress import Progress

BUILT, UNBUILT = Built(), Built(missing="there are none")


def counts(done: int = 0, failed: int = 0, running: int = 0, planned: int | None = None, detail: str = "") -> Progress:
    return Progress(planned=planned, done=done, failed=failed, running=running, detail=detail)


@pytest.mark.parametrize(
    ("built", "progress", "absent", "expected"),
    [
        (BUILT, counts(8, planned=8), "", (MEASURED, "8 of 8 cells")),
        (BUILT, counts(1), "", (MEASURED, "1 cell")),
        (BUILT, counts(), "", (MEASURED, "")),
        (BUILT, counts(3, planned=8), "", (PARTLY, "3 of 8 cells")),
        (BUILT, counts(3, 1, planned=8, detail="no memory"), "", (PARTLY, "3 of 8 cells, 1 failed: no memory")),
        (BUILT, counts(3, running=2, planned=8), "", (RUNNING, "3 of 8 cells, 2 running")),
        (BUILT, counts(8, planned=8), "a drawing", (MEASURED, "8 of 8 cells")),
        (Built(failure="no such column"), counts(8, planned=8), "", (FAILED, "no such column")),
        (Built(empty=("fig1",)), counts(8, planned=8), "", (FAILED, "nothing is shown in fig1")),
        (UNBUILT, counts(planned=8), "", (NOT_RUN, "")),
        (UNBUILT, counts(), "", (NOT_RUN, "")),
        (UNBUILT, counts(running=1, planned=8), "", (RUNNING, "0 of 8 cells, 1 running")),
        (UNBUILT, counts(0, 2, planned=2, detail="oom"), "", (FAILED, "0 of 2 cells, 2 failed: oom")),
        (BUILT, counts(0, 2, detail="oom"), "", (FAILED, "2 failed: oom")),
        (UNBUILT, counts(2, planned=3), "", (PARTLY, "2 of 3 cells; there are none")),
        (UNBUILT, counts(), "a drawing", (NOTHING, "a drawing")),
    ],
)
def test_a_status_follows_from_what_was_built_run_and_left_out(built, progress, absent, expected) -> None:
    assert facts.status(built, progress, absent) == expected


def table(**columns: list[str]) -> Table:
    return Table("t", "T", pd.DataFrame(columns))


def test_verdicts_are_counted_without_their_reasons_in_the_order_of_the_rule() -> None:
    first = table(mal_as_published_verdict=["not comparable: other models", "matches", "not run"], mal=["differs"] * 3)
    second = table(blocks_verdict=["not comparable: no interval", "order holds", ABSENT])
    counted = facts.count_verdicts([first, second])
    assert list(counted.items()) == [("matches", 1), ("order holds", 1), ("not comparable", 2), ("not run", 1)]


def test_a_verdict_that_the_rule_does_not_have_is_counted_under_its_own_words() -> None:
    assert facts.count_verdicts([table(verdict=["undecided", "differs"])]) == {"differs": 1, "undecided": 1}


def test_tables_without_verdicts_have_no_counts() -> None:
    assert facts.count_verdicts([table(MAL=["2.5"])]) == {}


def test_an_experiment_that_is_named_after_a_dataset_says_on_which_it_was_run() -> None:
    entry = facts.Entry("bench/mt_bench", "as it is")
    assert facts.on_datasets(entry, []).title == "as it is"
    assert "MT-Bench" in facts.on_datasets(entry, ["mt_bench"]).title
    own = facts.on_datasets(entry, ["quiz"]).title
    assert "quiz" in own
    assert "MT-Bench" not in own
    assert facts.on_datasets(facts.Entry("opt_tree/table1", "as it is"), ["quiz"]).title == "as it is"
