"""The kernels of a forward, by which hours on a GPU are estimated, are those that a draft launches."""

import pytest
from cells import config
from discovered import built, parameters, rule_for

from fake_cuda.phases import counted
from specdec_core.models import load_pair
from specdec_trees.calibrate.prices import launches_of, shape_of
from specdec_trees.configs.cells import pair_of

pytestmark = pytest.mark.fake_gpu


@pytest.mark.parametrize(
    ("name", "launches"),
    [("tiny", 60), ("tiny_eagle", 47), ("tiny_eagle3", 72), ("tiny_medusa", 17), ("tiny_self", 180)],
)
def test_kernels_of_a_forward_in_16_bits(name, launches):
    spec = pair_of(config(f"pair={name}"))
    assert launches_of(spec.draft, shape_of(spec.draft, shape_of(spec.target))) == launches
    pair = load_pair(spec.target, spec.draft, device="cuda", dtype="bfloat16")
    drafter = built(parameters("chain4", decoding="greedy", largest=8), pair.draft)
    done, counts = counted(pair.target, drafter, rule_for(drafter), [5, 9, 11, 3], max_new_tokens=16)
    forwards = sum(step.draft_forwards for step in done.steps)
    assert counts["draft"].launches / forwards == pytest.approx(launches, abs=1)
