"""Every number of the tables of the reference results, against a recomputation that shares no code with them."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
import recomputed
from recomputed import TURN, Files, assert_printed, at_most_one

from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.beyond.claims import CLAIMS
from specdec_trees.papers.registry import build

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
ABSENT = "–"


@cache
def tables(artifact: str) -> tuple[Files, dict[str, Table]]:
    found = [output for output in build(artifact, REFERENCE) if isinstance(output, Table)]
    return Files(REFERENCE / artifact), {table.name: table for table in found}


def rows(table: Table) -> list[tuple[dict[str, str], list[str]]]:
    """The rows that were run, each with its run ids; every run of the experiment's table is in one."""
    found = [(row, runs.split()) for row, runs in zip(table.frame.to_dict("records"), table.runs, strict=True)]
    return [(row, runs) for row, runs in found if runs]


def run_ids(artifact: str) -> set[str]:
    return set(Files(REFERENCE / artifact).ids())


def shown(table: Table) -> set[str]:
    return {run_id for _, runs in rows(table) for run_id in runs}


@pytest.mark.long
def test_improving_mcsd_answers() -> None:
    files, found = tables("improving_mcsd/table1")
    assert shown(found["table1"]) == run_ids("improving_mcsd/table1")
    for row, (run_id, *several) in rows(found["table1"]):
        if several:  # the target alone
            continue
        both = files.rows("quality", run_id)
        own, plain = (both[both["arm"] == arm].reset_index() for arm in ("method", "autoregressive"))
        paired = own.merge(plain, on=TURN, suffixes=("", "_plain"))
        variation = files.rows("variation", run_id)
        difference = paired["log_likelihood"] - paired["log_likelihood_plain"]
        assert_printed(row["log_likelihood_alone"], recomputed.mean(paired, difference), least=3)
        assert_printed(row["rouge_l"], at_most_one(recomputed.mean(own, own["greedy_rouge_l"])), least=3)
        assert_printed(row["rouge_l_alone"], recomputed.mean(plain, plain["greedy_rouge_l"]), least=3)
        assert_printed(row["variation"], at_most_one(recomputed.mean(variation, variation["total_variation"])), least=3)


@pytest.mark.long
def test_the_oracle_notices_a_wrong_digit() -> None:
    """A cell of another value, of another interval and without one are told from the right one."""
    assert_printed("2.58 [2.51, 2.66] =", (2.584, 2.508, 2.6649))
    for cell in ("2.59 [2.51, 2.66]", "2.58 [2.50, 2.66]", "2.58 [2.51, –]", "2.58", "failed", "–"):
        with pytest.raises(AssertionError):
            assert_printed(cell, (2.584, 2.508, 2.6649))


FIRST = {
    "OPT-Tree": {"opt_tree", "opt_tree_n50"},
    "Sequoia": {"sequoia", "sequoia_hardware", "sequoia_printed", "sized_sequoia"},
}
FIRST |= {"DySpec": {"dyspec"}, "GSD": {"gsd"}, "TSD": {"tsd", "tsd_sib"}, "TI-MCSD (lossy)": {"ti_mcsd"}}
FIRST |= {"SSD": {"ssd"}, "SD": {"sd"}, "MCSD": {"mcsd", "mcsd_matched"}, "binary": {"binary_n25"}}
FIRST |= {
    "EAGLE's tree": {"eagle25"},
    "SpecInfer": {"spec_infer_5x8", "spec_infer_8x8", "sequoia"},
    "top-k": {"sequoia"},
}


@pytest.mark.long
def test_claims() -> None:
    """Ratios of means over datasets, with intervals over the conversations that both decoded; whose runs they are."""
    (table,) = (output for output in build("claims", REFERENCE) if isinstance(output, Table))
    assert len(table.frame) > 40
    for row, runs in zip(table.frame.to_dict("records"), table.runs, strict=True):
        files, ids = Files(REFERENCE / row["table"]), runs.split()
        (measure,) = {
            one.metric.key for one in CLAIMS if (one.artifact, one.metric.header) == (row["table"], row["measure"])
        }
        each = 1 + (measure == "mean_speedup")  # greedy and sampled
        sides = [tuple(ids[place : place + each]) for place in range(0, len(ids), each)]
        names = [re.split(r", | \d", name)[0] for name in row["claim"].split(" > ")]
        for place, side in enumerate(sides):
            known = FIRST[names[place % 2]] | ({"sequoia"} if row["table"] == "sequoia/table6" else set())
            assert {files.run(run_id)["drafter"] for run_id in side} <= known, row["claim"]
        pairs = [*zip(sides[::2], sides[1::2], strict=True)]
        assert row["pair"].startswith(f"{files.run(ids[0])['pair']} (")
        apart = " ".join(re.findall(r"not comparable[^(]*\(([^)]*)\)", row["by_dataset"])).replace(",", "").split()
        pairs = [both for both in pairs if files.run(both[0][0])["dataset"].split("/")[-1] not in apart] or pairs
        counted = [tuple(_counted(measure, files, side) for side in both) for both in pairs]
        sums = [both for both in counted if len(_joined(*both)) >= 6] or counted
        assert_printed(row["ours"], _ratio_of_means(measure, sums), least=3)
        assert row["n"] == " + ".join(str(len(_joined(*both))) for both in sums)


@pytest.mark.long
def test_the_picture_of_the_claims_has_the_tables_ratios() -> None:
    table, figure = build("claims", REFERENCE)
    assert isinstance(table, Table)
    assert isinstance(figure, Figure)
    drafted = {one.metric.header for one in CLAIMS if one.metric.key == "drafted"}
    rows = table.frame[~table.frame["measure"].isin(list(drafted))]
    looks: dict[str, list[float]] = {}
    for axes in figure.canvas.axes:
        for line in axes.lines:
            if len(line.get_xdata()) == 1:
                looks.setdefault(line.get_marker(), []).append(float(line.get_xdata()[0]))
    published = looks.pop("|")
    ours = [f"{ratio:.3f}" for ratio in chain.from_iterable(looks.values())]
    assert sorted(ours) == sorted(text.split()[0] for text in rows["ours"])
    assert len(looks) == rows["pair"].nunique()
    assert sorted(f"{lead:.2f}" for lead in published) == sorted(text.split()[0] for text in rows["published"])


def _counted(measure: str, files: Files, side: tuple[str, ...]) -> pd.DataFrame:
    """By conversation the sums of a measure, of one run or, for GSD's speedups, of two."""
    run_id = side[0]
    if "speedup" in measure:
        sums = [files.speedup_sums(run_id, prefill="prefill" in measure) for run_id in side]
        return recomputed.of_two(*sums) if measure == "mean_speedup" else sums[0]
    if measure == "expected_mal":
        turns = files.turns("method", run_id).dropna(subset=["expected_steps"])
        by = turns.groupby("prompt_id")
        return pd.DataFrame({"above": by["expected_length"].sum(), "below": by["expected_steps"].sum()})
    steps = files.steps(run_id)
    by = steps.groupby("prompt_id")["acceptance_length"]
    turns = 0
    if measure in ("acceptance_rate", "drafted"):
        by = recomputed.gsd_samples(files, run_id).groupby("prompt_id")["rate" if "rate" in measure else measure]
    elif measure == "alpha":
        params = json.loads(files.run(run_id)["drafter_params"])
        widths = params.get("widths") or params["shape"].get("widths") or [1] * params["shape"]["depth"]
        first = "widths" in params
        by = ((steps["num_accepted"] - first) / (len(widths) - first)).groupby(steps["prompt_id"])
    elif measure == "mal_as_published":
        turns = steps.groupby("prompt_id")["turn"].nunique()
    else:
        assert measure == "mal"
    return pd.DataFrame({"above": by.sum(), "below": by.size() - turns})


def _joined(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    return first.add_prefix("first ").join(other.add_prefix("other "), how="inner")


def _ratio_of_means(measure: str, sums: list[tuple[pd.DataFrame, ...]]) -> recomputed.Numbers:
    """Of the sums of two sides per dataset: the mean of the first side's values / the mean of the other's."""
    joined = []
    for place, both in enumerate(sums):
        own = _joined(*both).add_suffix(f"/{place}")
        joined.append(own.set_axis([f"{place}/{name}" for name in own.index]))
    every = pd.concat(joined).fillna(0.0)

    def value(total: pd.DataFrame, side: str, place: int) -> pd.Series:
        part = {name: total[f"{side} {name}/{place}"] for name in sums[0][0].columns}
        if "speedup" not in measure:
            return part["above"] / part["below"]
        gains = [recomputed.gain(part, end) for end in ("", "_")[: 1 + (measure == "mean_speedup")]]
        return sum(gains) / len(gains)

    def mean(total: pd.DataFrame, side: str) -> pd.Series:
        return sum(value(total, side, place) for place in range(len(sums))) / len(sums)

    return recomputed.interval(every, lambda total: mean(total, "first") / mean(total, "other"), c=1)
