"""Memory of a long run: the peak does not grow with the number of prompts."""

import resource

import pytest

from specdec_core import Sampling, generate
from specdec_core.drafters import DySpec, OptTree
from specdec_core.verifiers import Greedy, WithoutReplacement
from specdec_trees.prompts.embedded import prompts, tiny_pair

ALLOWED_MB = 4


def peak_mb() -> float:
    """The process's largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.long
def test_the_peak_does_not_grow_with_prompts():
    pair = tiny_pair("cpu", "float32")
    texts = [pair.tokenizer(conversation.turns[0])["input_ids"] for conversation in prompts()]
    arms = (
        (OptTree(draft=pair.draft, n=25, delta=0.2), Greedy(), Sampling()),
        (DySpec(draft=pair.draft, n=25), WithoutReplacement(), Sampling(1.0)),
    )

    def decode(count: int) -> None:
        for number in range(count):
            drafter, rule, sampling = arms[number % len(arms)]
            ids = texts[number // len(arms) % len(texts)]
            generate(pair.target, drafter, rule, ids, max_new_tokens=8, sampling=sampling)

    decode(len(arms) * len(texts))  # every prompt once: the longest has set the peak
    before = peak_mb()
    decode(200)
    assert peak_mb() - before < ALLOWED_MB
