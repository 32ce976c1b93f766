"""Every value and interval of a table's long frame, and the cell that prints it, once more from the files alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pytest
import recomputed
from compared import REFERENCE
from recomputed import TURN, Files, Numbers, assert_printed

from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.papers.registry import build

ARTIFACTS = ["smoke", "opt_tree/table3", "dyspec/table4", "opt_tree/table2", "opt_tree/table1", "bench/mt_bench"]
ARTIFACTS += [*(f"opt_tree/fig{number}" for number in (5, 6, 7, 8, 9)), "bench/draft_temperature", "bench/budget"]
ARTIFACTS += ["sequoia/fig5b", "sequoia/fig5c", *(f"sequoia/table{number}" for number in (3, 4, 5, 6, 7))]
ARTIFACTS += ["dyspec/fig4", *(f"dyspec/table{number}" for number in (1, 2, 3))]
ARTIFACTS += [f"improving_mcsd/table{number}" for number in (2, 3, 4)]
ARTIFACTS += [f"improving_mcsd/fig{number}" for number in (3, 4, 5, 6, 8)]
ARTIFACTS += [f"gsd/table{number}" for number in (1, 2, 3, 4, 6, 7, 8, 9, 10)]
"""Those whose tables stand on the long frame."""


def of_steps(of: Callable[..., Numbers]) -> Callable[[Files, str], Numbers]:
    return lambda files, run_id: of(files.steps(run_id))


def identical(files: Files, run_id: str) -> Numbers | None:
    """The share in percent of the turns whose tokens are the target's own; sampled turns are not compared."""
    if files.run(run_id)["temperature"]:
        return None
    own, plain = (files.turns(arm, run_id).set_index(TURN)["output_sha256"] for arm in ("method", "autoregressive"))
    own = own[own.index.isin(plain.index)]  # what was replayed has no output to be compared with
    return recomputed.percents(float((own == plain.reindex(own.index)).mean())) if len(own) else None


def params(files: Files, run_id: str) -> dict[str, Any]:
    return json.loads(files.run(run_id)["drafter_params"])


def budget(files: Files, run_id: str) -> Numbers:
    given = params(files, run_id)
    shape = given.get("shape", given)
    return (shape.get("num_sequences", 1) * shape["depth"] if "num_sequences" in shape else shape.get("n"),)


def at_cap(files: Files, run_id: str) -> Numbers | None:
    """The share in percent of the steps whose tree has as many nodes as its cap, of trees that a threshold ends."""
    given = params(files, run_id)
    if "threshold" not in given:
        return None
    return recomputed.percents(float((files.steps(run_id)["num_drafted"] >= given["n"]).mean()))


def stored(files: Files, run_id: str, column: str) -> Numbers | None:
    value = files.run(run_id)[column]
    return None if value is None or math.isnan(value) else (value,)


def ratio(files: Files, run_id: str, of: Callable[[str], Any], statistic: Callable[..., Numbers]) -> Numbers | None:
    """Of DySpec's value to this run's, both of one setting."""
    run = files.run(run_id)
    same = ("pair", "dataset", "temperature", "prompts_sha256", "git_revision")
    (first,) = (
        other
        for other in files.ids()
        if files.run(other)["drafter"] in ("dyspec", "dyspec_threshold")
        and all(files.run(other)[name] == run[name] for name in same)
    )
    return None if first == run_id else statistic(of(first), of(run_id))


def reached(steps: pd.DataFrame, depth: int) -> Numbers:
    return (recomputed.reached(steps, depth),)


def over_sequoia(files: Files, run_id: str) -> Numbers | None:
    """MAL over that of Sequoia's tree of the same size."""
    sizes = {one: json.loads(files.run(one)["drafter_params"])["n"] for one in files.ids()}
    trees = [one for one in files.ids() if files.run(one)["method"] == "sequoia" and sizes[one] == sizes[run_id]]
    return None if run_id in trees else recomputed.mal_ratio(files.steps(run_id), files.steps(*trees))


def lead(files: Files, run_id: str) -> Numbers | None:
    """Speedup of Sequoia's rule at the temperature of this run over its own."""
    runs = {
        one: files.run(one) for one in files.ids() if files.run(one)["temperature"] == files.run(run_id)["temperature"]
    }
    (first,) = (one for one, run in runs.items() if run["verifier"] == "without_replacement")
    return None if first == run_id else recomputed.speedup_ratio(files.speedup_sums(first), files.speedup_sums(run_id))


def of_samples(column: str) -> Callable[[Files, str], Numbers | None]:
    """The mean over samples of a count of a token graph; None where the run has no graph."""

    def numbers(files: Files, run_id: str) -> Numbers | None:
        if column != "rate" and files.steps(run_id)["num_live"].isna().all():
            return None
        counted = recomputed.gsd_samples(files, run_id).dropna(subset=[column])
        return recomputed.mean(counted, counted[column]) if len(counted) else None

    return numbers


def over_tree(files: Files, run_id: str, column: str) -> Numbers | None:
    """GSD's mean over samples over that of this tree, or of rates their difference, of the samples of both."""
    run = files.run(run_id)
    same = ("pair", "dataset", "temperature", "prompts_sha256")
    (graph,) = (
        one
        for one in files.ids()
        if files.run(one)["drafter"] == "gsd" and all(files.run(one)[name] == run[name] for name in same)
    )
    if run["drafter"] not in ("tsd", "tsd_sib"):
        return None
    first, other = (recomputed.gsd_samples(files, one).set_index(TURN)[column] for one in (graph, run_id))
    both = pd.DataFrame({"first": first, "other": other}).dropna()
    if column == "rate":
        gains = (both["first"] - both["other"]).groupby("prompt_id").agg(["sum", "size"])
        return recomputed.interval(gains, lambda total: total["sum"] / total["size"], c=1, scale="plain")
    sums = both.groupby("prompt_id").sum()
    return recomputed.interval(sums, lambda total: total["first"] / total["other"], c=1)


def happened(files: Files, run_id: str, column: str) -> Numbers | None:
    """The share of the steps in which a count is above 0."""
    steps = files.steps(run_id).dropna(subset=[column])
    happens = (steps[column] > 0).astype(float)
    return recomputed.percents(*recomputed.at_most_one(recomputed.mean(steps, happens))) if len(steps) else None


def variation(files: Files, run_id: str) -> Numbers | None:
    rows = files.rows("variation", run_id).dropna(subset=["total_variation"])
    return recomputed.at_most_one(recomputed.mean(rows, rows["total_variation"])) if len(rows) else None


def milliseconds(steps: pd.DataFrame, phases: Sequence[str]) -> Numbers:
    return recomputed.mean(steps, 1000 * steps[[f"{phase}_s" for phase in phases]].sum(axis=1, skipna=False))


def of_texts(files: Files, run_id: str, column: str, *, minus: bool = False) -> Numbers | None:
    """The mean of a score over the scored texts of a run; `minus` that of plain decoding's of the same turns."""
    texts = files.rows("quality", run_id).dropna(subset=["rouge1"])
    own, plain = (texts[texts["arm"] == arm].set_index(TURN)[column] for arm in ("method", "autoregressive"))
    values = (own - plain if minus else own).dropna().reset_index()
    return recomputed.mean(values, values[column]) if len(values) else None


def expected(steps: pd.DataFrame) -> Numbers:
    """No tree is expected to give more than a whole path of the deepest one, nor less than the target's token."""
    value, low, high = recomputed.at_least_one(recomputed.mean(steps, steps["expected_acceptance"], c=1))
    return value, low, min(high, 1 + steps["depth"].max())


def share(steps: pd.DataFrame, phases: Sequence[str]) -> Numbers:
    return recomputed.percents(seconds(steps, phases) / seconds(steps, PHASES))


def building(steps: pd.DataFrame) -> Numbers:
    """The share of choosing where trees grow, with its interval."""
    whole = steps[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    by = pd.DataFrame({"part": steps["choice_s"], "whole": whole}).groupby(steps["prompt_id"]).sum()
    return recomputed.percents(*recomputed.interval(by, lambda sums: sums["part"] / sums["whole"], scale="logit"))


def grown(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps with what is left of growing a tree."""
    return steps.assign(
        grown_s=steps["tree_s"] - steps[["choice_s", "sampling_s", "layout_s"]].sum(axis=1, skipna=False)
    )


def seconds(steps: pd.DataFrame, phases: Sequence[str]) -> float:
    return float(steps[[f"{phase}_s" for phase in phases]].sum(axis=1).mean())


def alpha(files: Files, run_id: str, *, drafted: bool = False) -> Numbers:
    """Accepted drafts per level that the draft might add, or added; first tokens are the target's own."""
    steps, first = files.steps(run_id), first_tokens(files, run_id) > 0
    most = mcsd_levels(params(files, run_id))
    levels = (steps["depth"] - first if drafted else steps["depth"] * 0 + most).groupby(steps["prompt_id"]).sum()
    return recomputed.at_most_one(
        recomputed.ratio((steps["num_accepted"] - first).groupby(steps["prompt_id"]).sum(), levels)
    )


def mcsd_levels(given: Mapping[str, Any]) -> int:
    """A chain's depth, the widths of a k-configuration, or the depth of a fork; the target's own level left out."""
    shape = given.get("shape", given)
    return len(shape["widths"]) - ("shape" not in given) if "widths" in shape else shape["depth"]


def first_tokens(files: Files, run_id: str) -> int:
    given = params(files, run_id)
    return given["widths"][0] if "widths" in given else given["width"] if given.get("init") == "target" else 0


def mcsd_nodes(files: Files, run_id: str, of: Callable[[int], int]) -> Numbers:
    """The mean size of the tree, and what the number of first tokens makes of it."""
    return (float(files.steps(run_id)["num_drafted"].mean()) + of(first_tokens(files, run_id)),)


def over_none(files: Files, run_id: str) -> Numbers | None:
    """The speedup with a decision model over that of the run that differs in nothing else."""
    given, rule = params(files, run_id), files.run(run_id)["verifier"]
    same = given | {"decision": None}
    others = [one for one in files.ids() if params(files, one) == same and files.run(one)["verifier"] == rule]
    if run_id in others:
        return None
    return recomputed.speedup_ratio(files.speedup_sums(run_id), files.speedup_sums(*others))


def decision_share(steps: pd.DataFrame) -> Numbers | None:
    asked = steps["decision_s"].dropna().astype(float)
    return recomputed.percents(float(asked.sum()) / len(steps) / seconds(steps, PHASES)) if len(asked) else None


def drafted_levels(files: Files, run_id: str) -> Numbers:
    return (float((files.steps(run_id)["depth"] - (first_tokens(files, run_id) > 0)).mean()),)


PHASES = ("tree", "draft", "score", "judge", "commit")
PARTS = {"tree_operations": PHASES[:1], "drafting": PHASES[1:2], "verification": PHASES[2:], "step": PHASES}
PARTS |= {"tree_construction": ("choice",), "sampling": ("sampling",), "mask_positions": ("layout",)}
PARTS |= {"rest_of_growing": ("grown",), "draft_forwards": ("draft",), "target_forward": ("score",)}
PARTS |= {"judging_committing": ("judge", "commit")}
OPERATIONS = {"draft_ms": ("draft", "tree"), "verify_ms": ("score", "judge"), "other_ms": ("commit",)}
"""Of GSD's Table 3."""
SCORES = ("rouge1", "rouge2", "rouge_l", "num_words")
ORACLES: Mapping[str, Callable[[Files, str], Numbers | None]] = {
    "mal": of_steps(recomputed.mal),
    "mal_as_published": of_steps(recomputed.mal_as_published),
    "tokens_per_s": recomputed.tokens_per_s,
    "autoregressive_tokens_per_s": lambda files, run_id: recomputed.tokens_per_s(files, run_id, "autoregressive")[:1],
    "tokens_per_s_with_prefill": partial(recomputed.tokens_per_s, prefill=True),
    "speedup": recomputed.speedup,
    "speedup_with_prefill": partial(recomputed.speedup, prefill=True),
    "lossless": identical,
    "s_per_token": lambda files, run_id: recomputed.seconds_per_token(files, "method", run_id),
    "autoregressive_s_per_token": lambda files, run_id: recomputed.seconds_per_token(files, "autoregressive", run_id),
    "nodes": of_steps(lambda steps: (steps["num_drafted"].max() + 1,)),
    "levels": of_steps(lambda steps: (steps["depth"].max() + 1,)),
    "mean_size": of_steps(lambda steps: (float(steps["num_drafted"].mean()),)),
    "mean_depth": of_steps(lambda steps: (float(steps["depth"].mean()),)),
    "mal_without_bonus": of_steps(lambda steps: (float(steps["num_accepted"].sum() / len(steps)),)),
    "at_cap": at_cap,
    "budget": budget,
    "predicted_speedup": lambda files, run_id: stored(files, run_id, "predicted_speedup"),
    "predicted_mal": lambda files, run_id: stored(files, run_id, "predicted_mal"),
    "mal_ratio": lambda files, run_id: ratio(files, run_id, files.steps, recomputed.mal_ratio),
    "speedup_ratio": lambda files, run_id: ratio(files, run_id, files.speedup_sums, recomputed.speedup_ratio),
    "identical": identical,
    "is_lossless": lambda files, run_id: None,
    "expected_acceptance": of_steps(expected),
    "expected_value": of_steps(lambda steps: (float(steps["expected_acceptance"].mean()),)),
    "steps": of_steps(lambda steps: (float(len(steps)),)),
    "draft_forwards": of_steps(lambda steps: (float(steps["draft_forwards"].mean()),)),
    **{f"depth_{depth}": of_steps(partial(reached, depth=depth)) for depth in range(1, 5)},
    "gap": of_steps(lambda steps: (float((steps["expected_acceptance"] - steps["acceptance_length"]).mean()),)),
    "correlation": of_steps(lambda steps: (float(steps["expected_acceptance"].corr(steps["acceptance_length"])),)),
    "mal_over_sequoia": over_sequoia,
    "lead": lead,
    **{f"{part}_share": of_steps(lambda steps, own=own: share(grown(steps), own)) for part, own in PARTS.items()},
    **{
        f"{part}_ms": of_steps(lambda steps, own=own: (1000 * seconds(grown(steps), own),))
        for part, own in PARTS.items()
    },
    "bounded_share": of_steps(building),
    **dict.fromkeys(("bounded_part", "bound", "within", "conversations"), lambda files, run_id: None),
    "alpha": alpha,
    "alpha_drafted": partial(alpha, drafted=True),
    "draft_nodes": partial(mcsd_nodes, of=lambda first: -first),
    "alpha_max": alpha,
    "draft_levels": drafted_levels,
    "with_without": over_none,
    "against_best": lambda files, run_id: None,
    "decision_calls": of_steps(lambda steps: (float(steps["decision_calls"].astype(float).mean()),)),
    "decision_time": of_steps(decision_share),
    "verified_rows": partial(mcsd_nodes, of=lambda first: first == 0),
    "acceptance_rate": of_samples("rate"),
    "drafted": of_samples("drafted"),
    "created": of_samples("created"),
    "aliases": of_samples("num_alias"),
    "sib_leaves": of_samples("num_sib_leaf"),
    "verified": of_samples("num_drafted"),
    "capped": of_steps(lambda steps: recomputed.percents(float(steps["capped"].mean()))),
    **{
        column: partial(happened, column=column)
        for column in ("num_displaced", "num_behind_merge", "num_in_shared_subtree")
    },
    "variation": variation,
    **{key: of_steps(partial(milliseconds, phases=phases)) for key, phases in OPERATIONS.items()},
    "plain_ms": lambda files, run_id: (1000 * recomputed.seconds_per_token(files, "autoregressive", run_id)[0],),
    **{
        f"{key}_ratio": partial(over_tree, column=column)
        for key, column in {"drafted": "drafted", "created": "created", "verified": "num_drafted"}.items()
    },
    "rate_gain": partial(over_tree, column="rate"),
    **{column: partial(of_texts, column=column) for column in SCORES},
    **{f"difference_{column}": partial(of_texts, column=column, minus=True) for column in SCORES},
    "greedy": recomputed.speedup,
    "sampled": lambda files, ids: recomputed.speedup(files, ids.partition(" ")[2]),
    "mean_speedup": lambda files, ids: recomputed.mean_speedup(*map(files.speedup_sums, ids.split())),
}
OF_ALL = {"sampled", "mean_speedup"}
"""What is of more than the first run of a row."""


@pytest.mark.few(1)
@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_every_value_is_that_of_its_run(artifact: str) -> None:
    """Each run of the folder has each metric once; a metric that has no oracle here fails."""
    files, tables = Files(REFERENCE / artifact), [one for one in build(artifact, REFERENCE) if isinstance(one, Table)]
    assert {run_id for table in tables for run_id in table.run_ids} == set(files.ids())
    for table in (one for one in tables if not one.name.endswith("_gains")):  # whose rows are of pairs of runs
        assert table.long is not None
        assert len(table.run_ids) == sum(len(ids.split()) for ids in table.runs)
        for metric in (one for one in table.long["metric"].unique() if one.key in table.frame):
            rows = table.long[table.long["metric"].isin([metric])]
            assert rows["run_id"].tolist() == list(table.runs)
            for row, cell in zip(named_rows(rows), table.frame[metric.key], strict=True):
                ids = row.run_id if metric.key in OF_ALL else row.run_id.partition(" ")[0]
                if not ids or getattr(row, "why", "") == "1 by definition":
                    continue
                numbers = ORACLES[metric.key](files, ids)
                if numbers is None or math.isnan(numbers[0]) or isinstance(row.value, str):
                    assert row.value is None or isinstance(row.value, str)
                    continue
                assert row.value is not None, f"{metric.key} of {row.run_id} has no value, and is {numbers}"
                digits = 0 if metric.key == "lossless" else 1 if metric.percent else metric.digits
                assert_printed(cell, numbers, least=digits)
                if row.interval is not None:
                    scale = 100 if metric.percent else 1
                    ours = tuple(scale * one for one in (row.interval.value, row.interval.low, row.interval.high))
                    assert ours == pytest.approx(numbers, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("artifact", ARTIFACTS[1:2])
def test_what_is_left_without_a_value_is_plain_decoding_alone(artifact: str) -> None:
    """Its MAL is 1 by definition."""
    (table,) = build(artifact, REFERENCE)
    assert isinstance(table, Table)
    assert table.long is not None
    blank = table.long[table.long["value"].isna()]
    assert {(metric.key, method) for metric, method in zip(blank["metric"], blank["method"], strict=True)} == {
        ("mal_as_published", "autoregressive")
    }
