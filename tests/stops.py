"""Stops that read what the draft says, and tables about which they are of two minds."""

import torch
from played_forks import table

from specdec_core.models.decision import DecisionModel


class Rule:
    """Goes on where a function of the draft's rows says so."""

    needs_hidden = False

    def __init__(self, says):
        self.says = says

    def goes_on(self, drafted):
        return self.says(drafted)


def likes_token_1(drafted):
    """Content dependent: whether the draft's best token is 1 at any parent."""
    return bool((drafted.logits.argmax(-1) == 1).any())


def unsure(drafted):
    """Content dependent the other way: whether some parent's distribution is flat."""
    return bool((drafted.logits.softmax(-1).max(-1).values < 0.6).any())


def model_stop(seed=5):
    """A `topk` model of random weights and the beta that divides what it says of two tables' rows."""
    torch.manual_seed(seed)
    model = DecisionModel.of("topk")
    model.layers.linear1.weight.data *= 10
    return model


STOPS = {
    "none": lambda: None,
    "always_on": lambda: Rule(lambda drafted: True),
    "always_off": lambda: Rule(lambda drafted: False),
    "likes_1": lambda: Rule(likes_token_1),
    "unsure": lambda: Rule(unsure),
}


def two_minded(vocab, seed):
    """A draft's table whose rows have best tokens 1 and others, some flat and some sharp."""
    q = table(seed, vocab, 1.0)
    q[0, 1] = q[0].max() + 0.4
    q[1, 0] = q[1].max() + 1.5
    return q
