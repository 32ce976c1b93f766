"""`generate` as the target alone: what a model's own generation config asks for besides is left out, and told."""

import logging

import pytest
import torch
from cells import word_pair
from transformers import GenerationConfig

from specdec_core import generate
from specdec_core.drafters import Autoregressive
from specdec_core.verifiers import Greedy
from specdec_trees.lossless import reference
from specdec_trees.measure.neutral import left_out, neutral, say_left_out

PROMPT, NEW, END = [3, 1, 4, 1, 5], 24, 7
PENALTIES = {
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 1,
    "suppress_tokens": [*range(0, 61, 2)],
    "begin_suppress_tokens": [*range(60)],
    "bad_words_ids": [[token] for token in range(1, 61, 2)],
    "forced_eos_token_id": END,
    "min_length": 20,
    "min_new_tokens": 20,
    "sequence_bias": [[[9], 100.0]],
    "num_beams": 3,
    "encoder_repetition_penalty": 3.0,
}
"""What changes greedy outputs."""
HARMLESS = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "do_sample": True, "max_length": 7, "max_new_tokens": 2}
"""What files say of sampling and lengths, which are ours to say."""


def said(asked, *, neutrally=True, ends=()):
    """The answer of a random target whose generation config asks for this."""
    pair = word_pair()
    pair.target.model.generation_config = GenerationConfig(eos_token_id=list(ends) or None, pad_token_id=0, **asked)
    if neutrally:
        return reference(pair, PROMPT, NEW)
    tokens = torch.tensor([PROMPT])
    found = pair.target.model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=NEW, do_sample=False
    )
    return found[0, len(PROMPT) :].tolist()


def ours(ends=()):
    return generate(
        word_pair().target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=NEW, eos_token_ids=ends
    ).tokens


def ending() -> int:
    """A token that the target says early, for the first time."""
    return ours()[3]


@pytest.mark.parametrize("name", PENALTIES)
def test_the_reference_is_the_targets_own_choice(name):
    ends = [ending()] if name.startswith("min") else []
    asked = {name: PENALTIES[name]}
    assert said(asked, ends=ends) == ours(ends)
    assert said(asked, neutrally=False, ends=ends) != ours(ends)


def test_all_of_them_at_once_and_what_is_ours_to_say():
    assert said(PENALTIES | HARMLESS) == ours()


def test_what_is_left_out_is_named_in_one_line_and_nothing_else_is(caplog):
    pair = word_pair()
    pair.target.model.generation_config = GenerationConfig(**PENALTIES, **HARMLESS, eos_token_id=END)
    assert left_out(pair.target.model).keys() == PENALTIES.keys()
    with caplog.at_level(logging.WARNING):
        say_left_out(pair, "mine")
    (line,) = caplog.messages
    assert "repetition_penalty=1.5" in line
    assert "\n" not in line
    pair.target.model.generation_config = GenerationConfig(**HARMLESS, eos_token_id=END)
    caplog.clear()
    say_left_out(pair, "mine")
    assert not caplog.messages


def test_the_models_own_config_comes_back():
    pair = word_pair()
    own = pair.target.model.generation_config
    with pytest.raises(AttributeError), neutral(pair):
        pair.target.model.generate("no tensor")
    assert pair.target.model.generation_config is own
