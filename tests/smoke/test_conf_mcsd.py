"""Improved MCSD's experiments against what the paper's tables and figures compare."""

import math

import pandas as pd
import pytest
from composed import cells, composed, plain

from specdec_trees import published
from specdec_trees.papers.improving_mcsd.methods import (
    DYNAMIC,
    STATIC,
    admits,
    draft_levels,
    first_tokens,
    lossy_mark,
    virtual,
)
from specdec_trees.plan.published import row_of

SETS = {"mt_bench", "triviaqa", "alpaca"}
FOUR = ["llama2_7b_chat_jf68m", "vicuna_7b_jf68m", "llama2_7b_chat_tinyllama", "vicuna_7b_tinyllama"]


@pytest.mark.parametrize(
    ("experiment", "drafters", "temperatures", "pairs"),
    [
        ("table2", "sd mcsd mcsd_matched ti_mcsd ti_mcsd_w1", {0.7}, FOUR[:2]),
        ("table3", "sd mcsd dyn_mcsd dyn_mcsd_hidden dyn_mcsd_topk", {1.0}, FOUR[:2]),
        ("table4", "dyn_mcsd dyn_mcsd_hidden dyn_mcsd_topk", {0.0, 1.0}, FOUR),
        ("fig3", "sd mcsd mcsd_matched ti_mcsd", {0.7}, FOUR),
        ("fig5", "sd mcsd dyn_mcsd dyn_mcsd_hidden dyn_mcsd_topk", {1.0}, FOUR),
    ],
)
def test_experiments_have_the_rows_of_the_paper(experiment, drafters, temperatures, pairs):
    configs = [composed(*cell) for cell in cells(f"improving_mcsd/{experiment}")]
    assert {config.dataset.name for config in configs} == SETS
    assert {config.decoding.temperature for config in configs} == temperatures
    assert {config.drafter.name for config in configs} == set(drafters.split())
    assert len(configs) == len(SETS) * len(temperatures) * len(drafters.split())
    assert {config.decoding.max_new_tokens for config in configs} == {200}
    assert {config.decoding.top_p for config in configs} == {1.0}
    assert {config.runtime.baseline for config in configs} == {True}
    assert list(configs[0].pairs) == pairs


@pytest.mark.parametrize("experiment", ["table2", "table3", "table4", "fig3", "fig5"])
def test_every_run_is_of_one_method_that_says_whether_it_is_lossy(experiment):
    """Reports show runs of the paper's configurations alone: what an experiment runs must have them."""
    methods = STATIC if experiment in ("table2", "fig3") else DYNAMIC
    for config in (composed(*cell) for cell in cells(f"improving_mcsd/{experiment}")):
        run = row_of(plain(config))
        (method,) = [one for one in methods if admits(one, run)]
        assert method.header.endswith(" (lossy)") == bool(lossy_mark(run)) == plain(config)["verifier"]["allow_lossy"]
        assert draft_levels(run) == (4 if methods is STATIC else 5)
        assert virtual(run) == (first_tokens(run) > 0) == (run.method in ("target_init_mcsd", "dynamic_mcsd"))


def test_every_number_of_the_tables_has_a_run():
    for table in ("table2", "table3", "table4"):
        configs = [composed(*cell) for cell in cells(f"improving_mcsd/{table}")]
        runs = [(config.dataset.name, config.decoding.temperature, row_of(plain(config))) for config in configs]
        for row in published.find("improving_mcsd", table).itertuples():
            rows = pd.DataFrame([row])
            methods = [one for one in (*STATIC, *DYNAMIC) if row.value in one.published(rows).values()]
            here = [run for dataset, t, run in runs if dataset == row.dataset and math.isclose(t, row.temperature)]
            assert len([run for run in here if any(admits(one, run) for one in methods)]) == 1, row


@pytest.mark.parametrize("experiment", [f"improving_mcsd/{name}" for name in ("table2", "table4", "fig3", "fig6")])
def test_pairs_have_the_papers_names_and_are_no_stand_ins(experiment):
    pairs = [composed(f"experiment={experiment}", f"pair={name}").pair for name in FOUR]
    printed = published.find("improving_mcsd", "table4")
    named = [(pair.published.target, pair.published.draft) for pair in pairs]
    assert set(named) == set(zip(printed["target"], printed["draft"], strict=True))
    assert {pair.published.stand_in for pair in pairs} == {False}


def test_other_papers_keep_their_names_of_the_pairs():
    jf68m, tinyllama = (composed("experiment=opt_tree/table1", f"pair={name}").pair.published for name in FOUR[::2])
    assert (jf68m.target, jf68m.draft, jf68m.stand_in) == ("llama2_7b", "jf68m", False)
    assert (tinyllama.target, tinyllama.draft, tinyllama.stand_in) == ("llama2_7b", "llama_1b", True)


def test_budgets_are_those_that_the_notes_state():
    """44 nodes of MCSD, 80 of equal budget, 82 with the two first tokens; 60, and 80 below 16, of dynamic trees."""

    def nodes(widths: list[int]) -> int:
        return sum(math.prod(widths[: level + 1]) for level in range(len(widths)))

    sizes = {name: plain(composed(f"drafter={name}"))["drafter"] for name in ("mcsd", "mcsd_matched", "ti_mcsd")}
    assert [nodes(sizes[name]["shape"]["widths"]) for name in ("mcsd", "mcsd_matched")] == [44, 80]
    assert nodes(sizes["ti_mcsd"]["widths"]) == 82
    longer = plain(composed("experiment=improving_mcsd/table3", "drafter=mcsd"))["drafter"]["shape"]["widths"]
    fork = plain(composed("experiment=improving_mcsd/table3"))["drafter"]
    assert (nodes(longer), math.prod(longer)) == (60, 16)
    assert (fork["width"], fork["width"] * fork["depth"]) == (16, 80)
