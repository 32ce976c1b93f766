"""Rules that are asked on the trees of a run: which, at every step, and as its own coins accept in the mean."""

from dataclasses import replace

import pytest
from cells import cell, word_pair

from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.recorders import RULES
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation

TALKS = [Conversation(f"talk{number}", ("w3 w1 w4", "w1 w5")) for number in range(15)]
DRAFTERS = {
    "branching_4_2_2_1_iid": "spec_infer",
    "branching_4_2_2_1_wor": "without_replacement",
    "branching_4_2_2_1_greedy": "greedy_one",
    "branching_4_2_2_1": "target_sample",
}


def measured(drafter: str, *overrides: str, temperature: float = 0.8, talks: int = 1) -> Rows:
    rows, pair = Rows(), word_pair()
    made = cell(f"drafter={drafter}", *overrides, new=20, temperature=temperature)
    made = replace(made, allow_lossy=True)
    for talk in TALKS[:talks]:
        Measurement(made, pair, rows, Runtime(record_rules=True, baseline=False)).run(talk)
    return rows


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_rule_that_is_lossless_for_the_draws_is_asked_at_every_step(drafter):
    rows = measured(drafter, f"verifier={DRAFTERS[drafter]}")
    steps = [(step.prompt_id, step.turn, step.step, step.depth) for step in rows.steps]
    draws = cell(f"drafter={drafter}", new=20, temperature=0.8).drafter_params["draws"]
    asked = [name for name, rule in RULES.items() if draws in rule.lossless_for]
    assert DRAFTERS[drafter] in asked
    assert [(row.prompt_id, row.turn, row.step, row.rule) for row in rows.rules] == [
        (*step[:3], rule) for step in steps for rule in asked
    ]
    for row, depth in zip(rows.rules, [step[3] for step in steps for _ in asked], strict=True):
        assert -1e-9 <= row.expected_accepted <= depth + 1e-9


@pytest.mark.few(1)
@pytest.mark.parametrize("drafter", ["branching_4_2_2_1_iid", "branching_4_2_2_1_wor", "branching_4_2_2_1_greedy"])
def test_the_rule_that_decodes_accepts_as_many_in_the_mean(drafter):
    """Given the tree the number is what the coins accept in the mean: the differences are a martingale's."""
    rows = measured(drafter, f"verifier={DRAFTERS[drafter]}", talks=15)
    expected = [row.expected_accepted for row in rows.rules if row.rule == DRAFTERS[drafter]]
    apart = [step.num_accepted - tokens for step, tokens in zip(rows.steps, expected, strict=True)]
    assert len(apart) > 100
    error = (sum(one * one for one in apart) / len(apart) ** 2) ** 0.5
    assert abs(sum(apart) / len(apart)) < 5 * error


def test_at_temperature_0_nobody_is_asked():
    assert not measured("branching_4_2_2_1", "verifier=target_sample", temperature=0.0).rules
