"""Rejection samplers of serving engines: chains of many requests in one call, laid out as vLLM's are.

Names and shapes are those of `rejection_sample` in `vllm/v1/sample/rejection_sampler.py` (2025); vLLM is not needed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from specdec_trees.conformance.calls import NonsenseError, listed, raised
from specdec_trees.conformance.cases import Drafted, Text

BATCH = 1024
"""Requests of a call."""
PLACEHOLDER = -1
NAMES = (
    "draft_token_ids",
    "num_draft_tokens",
    "max_spec_len",
    "cu_num_draft_tokens",
    "draft_probs",
    "target_probs",
    "target_logits",
    "bonus_token_ids",
    "generator",
)
"""Parameters that a sampler may have, in any order; it is called by name."""


class Chains:
    """Such a sampler, called with many requests at once."""

    def __init__(self, sample: Callable[..., Any], names: Sequence[str], seed: int) -> None:
        """NonsenseError if it must be given what none of `NAMES` is."""
        if strange := [name for name in names if name not in NAMES]:
            raise NonsenseError(f"it wants {', '.join(strange)}, but a sampler is given {', '.join(NAMES)}")
        self._sample, self._names = sample, names
        self._rng, self._bonus = torch.Generator().manual_seed(seed), np.random.default_rng(seed)

    def texts(self, drafted: Sequence[Drafted]) -> Iterator[Text]:
        """Of each request: the drafted tokens that were accepted, and the recovered or bonus token."""
        for start in range(0, len(drafted), BATCH):
            yield from self._called(drafted[start : start + BATCH])

    def _called(self, requests: Sequence[Drafted]) -> Iterator[Text]:
        given = self._given(requests)
        try:
            rows = listed(self._sample(**{name: given[name] for name in self._names}))
        except (Exception, SystemExit) as error:  # whatever it is: the function is not ours
            raise NonsenseError(raised(error, f"given {len(requests)} requests as torch tensors")) from error
        width = given["max_spec_len"] + 1
        if not isinstance(rows, list) or [len(row) for row in rows] != [width] * len(requests):
            raise NonsenseError(f"it must return output token ids of shape [{len(requests)}, {width}]")
        for chain, row in zip(requests, rows, strict=True):
            yield text_of(chain, row)

    def _given(self, requests: Sequence[Drafted]) -> dict[str, Any]:
        """What is given by each name; rows of p and q are those that a drafted token was drawn or is judged by."""
        lengths = [len(chain.parents) - 1 for chain in requests]
        texts = [(chain.model, text) for chain in requests for text in chain.texts[:-1]]
        vocab = requests[0].model.vocab
        rows = {
            "draft_probs": torch.tensor([model.q[text] for model, text in texts]).view(-1, vocab),
            "target_probs": torch.tensor([model.p[text] for model, text in texts]).view(-1, vocab),
        }
        last = np.array([chain.model.p[chain.texts[-1]] for chain in requests]).cumsum(1)
        bonus = (self._bonus.random((len(requests), 1)) * last[:, -1:] >= last).sum(1, keepdims=True)
        return rows | {
            "draft_token_ids": torch.tensor([token for chain in requests for token in chain.tokens[1:]]).long(),
            "num_draft_tokens": lengths,
            "max_spec_len": max(lengths),
            "cu_num_draft_tokens": torch.tensor(lengths).cumsum(0),
            "target_logits": rows["target_probs"].log(),
            "bonus_token_ids": torch.tensor(bonus),
            "generator": self._rng,
        }


def text_of(chain: Drafted, row: Sequence[int]) -> Text:
    """A row without its placeholders. NonsenseError where it is not a beginning of the chain and one token."""
    length = row.index(PLACEHOLDER) if PLACEHOLDER in row else len(row)
    if not all(isinstance(token, int) for token in row):
        raise NonsenseError(f"of {chain.tokens[1:]} it made {row}, which are no token ids")
    text = tuple(row[:length])
    if any(token != PLACEHOLDER for token in row[length:]) or not 1 <= length <= len(chain.parents):
        raise NonsenseError(
            f"of {chain.tokens[1:]} it made {row}: one token behind the accepted ones, and only then -1"
        )
    if text[:-1] != chain.texts[length - 1]:
        raise NonsenseError(f"of {chain.tokens[1:]} it made {row}, whose accepted tokens were not drafted")
    if not 0 <= text[-1] < chain.model.vocab:
        raise NonsenseError(f"its token {text[-1]} is none of the vocabulary's {chain.model.vocab}")
    return text
