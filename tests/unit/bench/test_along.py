"""Distributions along a known text are what each kind of draft says at a root."""

import copy

import pytest
import torch
from doubles import context_for, random_llama

from specdec_core import CausalLM
from specdec_core.drafters.tree_drafter import draft_model_of
from specdec_core.errors import NonFiniteLogitsError, PromptError
from specdec_core.models import EagleHead, LayerSkip
from specdec_core.models.eagle import EagleModel
from specdec_trees.calibrate.teacher_forced import draft_logits_along

PROMPT, TEXT = [5, 9, 11, 3], [8, 2, 7, 7, 1]


def head_for(target: CausalLM) -> EagleHead:
    torch.manual_seed(7)
    config = copy.deepcopy(target.config)
    config.initializer_range = 0.1
    return EagleHead(EagleModel(config, bias=True), target.model.get_output_embeddings())


DRAFTS = {"causal": lambda target: random_llama(1, layers=1), "eagle": head_for, "skip": lambda t: LayerSkip(t, [1])}


@pytest.mark.parametrize("kind", DRAFTS)
def test_each_row_is_what_a_drafter_would_begin_with(kind):
    target = random_llama(0, layers=3)
    draft = DRAFTS[kind](target)
    found = draft_logits_along(draft, target, PROMPT, TEXT)
    assert found.shape == (len(TEXT), 61)
    for number, row in enumerate(found):
        *before, root = PROMPT + TEXT[:number]
        model, read = draft_model_of(draft), torch.tensor(before)
        target.reset(64)
        target.keep_hidden = model.needs_hidden
        model.reset(read, target.prefill(read))
        with torch.inference_mode():
            assert torch.allclose(model.begin(context_for(root, tuple(before))).logits[0], row, atol=1e-5)


def test_what_has_no_distribution_is_said():
    target = random_llama(0)
    head = head_for(target)
    with pytest.raises(PromptError, match="give a longer prompt"):
        draft_logits_along(head, target, [3], TEXT)
    head.model.fc.weight.data.fill_(torch.nan)
    with pytest.raises(NonFiniteLogitsError):
        draft_logits_along(head, target, PROMPT, TEXT)
