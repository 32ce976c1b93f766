"""The kernels of a forward, by which hours on a GPU are estimated, are those that a draft launches."""

import pytest
from cells import config
from discovered import built, parameters, rule_for
from heads import write_dflash, write_target

from fake_cuda.phases import counted
from specdec_core.models import ModelSpec, Pair, load_pair
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
    assert counted_in(load_pair(spec.target, spec.draft, device="cuda", dtype="bfloat16")) == pytest.approx(
        launches, abs=1
    )


def test_kernels_of_a_dflash_heads_block(tmp_path):
    """No trained one is embedded; this one has two layers."""
    write_dflash(write_target(tmp_path))
    draft = ModelSpec(id=str(tmp_path / "head"), kind="dflash")
    target = ModelSpec(id=str(tmp_path / "target"))
    launches = counted_in(load_pair(target, draft, device="cuda", dtype="bfloat16"))
    assert launches_of(draft, shape_of(draft, shape_of(target))) == pytest.approx(launches, abs=1)


def counted_in(pair: Pair) -> float:
    """Kernels of a forward of the draft, as a chain is drafted."""
    drafter = built(parameters("chain4", decoding="greedy", largest=8), pair.draft)
    done, counts = counted(pair.target, drafter, rule_for(drafter), [5, 9, 11, 3], max_new_tokens=16)
    return counts["draft"].launches / sum(step.draft_forwards for step in done.steps)
