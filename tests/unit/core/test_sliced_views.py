"""Sliced masks while decoding: no mask is made but views, and those are made before the first step."""

import pytest
from sliced import DRAFTERS, PROMPT, T07, as_before, decoded, eagle_pair, storages, tiny_pair

from specdec_core import CausalLM, Sampling, generate
from specdec_core.layout import tree_layout
from specdec_core.models.eagle import EagleHead
from specdec_core.sliced_mask import ALIGNMENT
from specdec_core.verifiers import IndependentLongest


@pytest.fixture
def received(monkeypatch):
    """Masks that each kind of forward was given, kept alive; and how often one was built from a tree or a text."""
    masks, built = [], []
    for kind in (CausalLM, EagleHead):
        run = kind._run

        def spied(self, *args, run=run, **options):
            layout = next((value for value in args if hasattr(value, "positions")), None)
            if layout is not None and layout.mask is not None:
                masks.append((self, layout.mask))
            return run(self, *args, **options)

        monkeypatch.setattr(kind, "_run", spied)
    for place in ("grown_mask", "drafters.cached_draft", "drafters.causal_draft", "layout"):
        name = f"specdec_core.{place}.tree_layout"

        def counted(*args, name=name, **options):
            built.append(name)
            return tree_layout(*args, **options)

        monkeypatch.setattr(name, counted)
    return masks, built


def made(*sliced):
    return {mask.untyped_storage().data_ptr() for one in sliced for mask, _ in one._made.values()}


@pytest.mark.parametrize("sampling", [T07, Sampling()], ids=["t07", "greedy"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_while_decoding_no_mask_is_made_but_views(name, sampling, received):
    """Of one for each residue of the root's place, all made before the first step."""
    masks, built = received
    target, draft = tiny_pair()
    drafter = DRAFTERS[name](draft, "topk" if sampling.greedy else "without_replacement")
    both = drafter.sliced, drafter.sliced_for_draft
    decoded(target, drafter, PROMPT, sampling, new=1)
    masks.clear()
    built.clear()
    warm = made(*both)
    assert len(warm) == 2 * ALIGNMENT
    depths, smaller = decoded(target, drafter, PROMPT, sampling)
    assert {model for model, _ in masks} >= {target}
    assert name == "chain" or {model for model, _ in masks} == {target, draft}, "a chain's draft reads single tokens"
    others = [mask for _, mask in masks if mask.untyped_storage().data_ptr() not in warm]
    assert len(others) == smaller == len(built)
    assert smaller < len(masks) / 8
    assert made(*both) == warm
    assert len(depths) > 1 or name in ("fork_always", "expanding")


def test_masks_are_made_before_the_first_step_and_kept_for_other_answers(received):
    masks, built = received
    target, draft = tiny_pair()
    drafter = DRAFTERS["fork_draft"](draft, "topk")
    assert made(drafter.sliced, drafter.sliced_for_draft) == set()
    decoded(target, drafter, PROMPT, Sampling(), new=40)
    first = made(drafter.sliced, drafter.sliced_for_draft)
    assert len(first) == 2 * ALIGNMENT
    assert storages(masks) <= first
    decoded(target, drafter, PROMPT, Sampling(), new=40)
    assert made(drafter.sliced, drafter.sliced_for_draft) == first >= storages(masks)
    assert not built


def test_the_spies_see_masks_that_are_built(received):
    masks, built = received
    target, draft = tiny_pair()
    drafter = as_before(DRAFTERS["fork_target"](draft, "topk"))
    generate(target, drafter, IndependentLongest(), PROMPT, max_new_tokens=12, allow_lossy=True)
    assert {"specdec_core.grown_mask.tree_layout", "specdec_core.drafters.causal_draft.tree_layout"} <= set(built)
    assert len(storages(masks)) == len(masks) > 5


def test_a_head_reads_its_trees_under_views(received):
    """Committed tokens are read again with the target's features, however many: that mask alone is built."""
    masks, built = received
    target, head = eagle_pair()
    masks.clear()  # of the head's trial as it was loaded
    drafter = DRAFTERS["fork_target"](head, "topk")
    found = generate(target, drafter, IndependentLongest(), PROMPT, max_new_tokens=30, allow_lossy=True)
    views = made(drafter.sliced, drafter.sliced_for_draft)
    assert all(mask.untyped_storage().data_ptr() in views for model, mask in masks if model is target)
    others = [mask for _, mask in masks if mask.untyped_storage().data_ptr() not in views]
    assert len(others) <= len(found.steps) + 1
    assert set(built) == {"specdec_core.layout.tree_layout"}, "by causal_layout"
