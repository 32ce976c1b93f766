"""What rows say of launches and waits is what the fake device counts."""

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from discovered import built, parameters, rule_for

from fake_cuda.counting import counting
from fake_cuda.counts import COUNTS, PROMPT, loaded, warm
from specdec_core import Sampling, generate
from specdec_trees.measure.step_costs import STEPS, StepCosts

pytestmark = pytest.mark.fake_gpu


class Profile(ExitStack):
    """The profiler's events, by the names of the calls."""

    def __init__(self, activities: Any) -> None:
        super().__init__()
        assert activities == [torch.profiler.ProfilerActivity.CUDA]

    def __enter__(self) -> "Profile":
        self.counts = self.enter_context(counting())
        return self

    def events(self) -> Iterator[SimpleNamespace]:
        names = ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"]
        yield from (SimpleNamespace(name=names[number % 3]) for number in range(self.counts.launches))
        yield SimpleNamespace(name="cudaStreamSynchronize")


@pytest.mark.parametrize("name", ["autoregressive", "chain4"])
@pytest.mark.parametrize("launches", [True, False])
def test_a_steps_costs_are_those_of_the_table(name, launches, monkeypatch):
    """Of ways all of whose steps are alike."""
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    warm()
    pair, prompt = loaded("tiny", "cuda"), loaded("tiny", "cuda").tokenizer(PROMPT)["input_ids"]
    drafter = built(parameters(name, decoding="greedy", largest=127), pair.draft)
    options: dict[str, Any] = {"sampling": Sampling(0.0), "max_new_tokens": 24}
    with StepCosts(launches=launches) as costs:
        generate(pair.target, drafter, rule_for(drafter), prompt, watch=costs, **options)
    table = pd.read_csv(COUNTS, index_col="case").loc[f"tiny-{name}-T0"]
    assert costs.waits_per_step == table["waits"]
    assert costs.launches_per_step == (table["launches"] if launches else None)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_an_answer_of_too_few_steps_says_nothing():
    pair = loaded("tiny", "cuda")
    drafter = built(parameters("autoregressive", decoding="greedy", largest=127), None)
    with StepCosts(launches=False) as costs:
        generate(pair.target, drafter, rule_for(drafter), [5, 9, 11, 3], max_new_tokens=STEPS, watch=costs)
    assert costs.waits_per_step is None
    assert torch.cuda.get_sync_debug_mode() == 0
