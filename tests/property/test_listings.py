"""The listings of CONTRIBUTING.md: each drafter and rule in them is what its text says."""

import inspect
import re
from pathlib import Path

import pytest
import yaml
from doubles import random_llama
from test_declared_draws import DRAFT, SMALLEST_P, T1, TARGET, p_value
from test_three_token_distribution import SHAPES, error

from specdec_core import generate
from specdec_core.checks import check_lossless
from specdec_core.verifiers import Greedy, SpecInfer, TargetSample, WithoutReplacement

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


KNOWN: dict = {}
for block in blocks("python"):
    exec(block, KNOWN)
AGAIN, BEAM, COMB, RULE = (KNOWN[name] for name in ("Again", "Beam", "Comb", "MyRule"))
DRAFTERS = {
    "again": (AGAIN(n=3), TargetSample()),
    "beam": (BEAM(draft=DRAFT, k=2, depth=3), TargetSample()),
    "comb_topk": (COMB(draft=DRAFT, k=2, depth=3, draws="topk"), TargetSample()),
    "comb_iid": (COMB(draft=DRAFT, k=2, depth=3, draws="iid"), RULE()),
    "comb_once": (COMB(draft=DRAFT, k=2, depth=3, draws="without_replacement"), WithoutReplacement()),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_sampled_text_has_the_targets_distribution(name):
    drafter, rule = DRAFTERS[name]
    assert check_lossless(drafter, rule, T1)
    assert p_value(drafter, rule) > SMALLEST_P


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_text_is_the_targets_own(name):
    text = generate(TARGET, DRAFTERS[name][0], Greedy(), [0], max_new_tokens=20)
    best = TARGET.table.argmax(-1)
    assert text.tokens == [int(best[token]) for token in (0, *text.tokens[:-1])]


@pytest.mark.parametrize("draws", ["iid", "without_replacement"])
def test_a_draft_that_is_the_target_is_accepted_down_to_the_last_layer(draws):
    """A wrong slot would give it another text to read."""
    drafter = COMB(draft=random_llama(0, vocab=23), k=3, depth=4, draws=draws)
    rule = SpecInfer() if draws == "iid" else WithoutReplacement()
    steps = generate(random_llama(0, vocab=23), drafter, rule, [3, 1, 4], max_new_tokens=50, sampling=T1).steps
    assert {(step.num_drafted, step.acceptance_length) for step in steps[:-1]} == {(12, 5)}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rule_gives_the_next_three_tokens_the_targets_distribution(shape):
    for seed in range(3):
        assert error(RULE(), SHAPES[shape], 3, seed, "iid", 3) < 1e-14
    assert shape in ("chain", "deep") or error(RULE(), SHAPES[shape], 3, 0, "without_replacement", 3) > 1e-3


@pytest.mark.parametrize("text", [block for block in blocks("yaml") if "_target_" in block])
def test_each_yaml_gives_its_class_what_it_takes(text):
    found = yaml.safe_load(text)
    made = KNOWN[found["_target_"].rpartition(".")[2]]
    assert {*found} - {"name", "method", "_target_"} <= {*inspect.signature(made).parameters}
