"""E(A) of every drafter of `conf/drafter`: never above depth + 1, and absent where edges are no probabilities."""

import json
from functools import cache

import pytest
import torch
from discovered import NAMES, built, parameters, rule_for
from doubles import BigramLM

from specdec_core import Sampling, generate
from specdec_core.drafters import Drafter
from specdec_core.engine import Step
from specdec_core.sampling import NO_DRAWS
from specdec_core.verifiers import TargetSample

PROMPTS = ([0], [3, 1, 2, 3, 1])
TARGET, DRAFT = (BigramLM(2 * torch.randn(6, 6, generator=torch.Generator().manual_seed(seed))) for seed in (0, 1))
DECODINGS = {"greedy": Sampling(), "t1": Sampling(1.0), "t1_top_p08": Sampling(1.0, 0.8)}
LARGEST = 6


def rule(drafter: Drafter, sampling: Sampling):
    return TargetSample() if sampling.greedy and not drafter.virtual_root else rule_for(drafter)


@cache
def decoded(found: str, decoding: str) -> tuple[Drafter, list[list[Step]]]:
    """The steps of every prompt; of drafters that differ in nothing but their size or name there is one."""
    drafter, sampling = built(json.loads(found), DRAFT), DECODINGS[decoding]
    options = {"max_new_tokens": 12, "sampling": sampling}
    rngs = [torch.Generator().manual_seed(seed) for seed in range(len(PROMPTS))]
    return drafter, [
        generate(TARGET, drafter, rule(drafter, sampling), prompt, rng=rng, **options).steps
        for prompt, rng in zip(PROMPTS, rngs, strict=True)
    ]


@pytest.mark.few(40)
@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("name", NAMES)
def test_no_tree_expects_more_than_its_depth_allows(name, decoding):
    drafter, texts = decoded(json.dumps(parameters(name, decoding=decoding, largest=LARGEST)), decoding)
    for steps in texts:
        if drafter.draft_model is None and drafter.draws != NO_DRAWS:
            assert {step.expected_acceptance for step in steps} == {None}
        else:
            assert all(step.expected_acceptance <= step.depth + 1 + 1e-6 for step in steps), name
        if drafter.draws == NO_DRAWS:
            assert {step.expected_acceptance for step in steps} == {1.0}
