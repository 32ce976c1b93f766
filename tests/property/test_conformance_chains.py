"""Samplers of chains with a serving engine's parameters: a plain one passes, and mistakes of such code do not."""

import numpy as np
import pytest
import torch

from specdec_trees.conformance import REFUSED, check
from specdec_trees.conformance.cases import cases
from specdec_trees.conformance.chains import PLACEHOLDER, Chains


def rejection_sample(
    draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_probs, bonus_token_ids,
    generator, *, fault=None,
):  # fmt: skip
    """Speculative sampling (arXiv:2211.17192) of many requests at once, with the mistake that is asked for."""
    ids, uniform = draft_token_ids[:, None], torch.rand(len(draft_token_ids), generator=generator)
    if fault == "one_number_for_all_positions":
        uniform = torch.rand(len(num_draft_tokens), generator=generator).repeat_interleave(
            torch.tensor(num_draft_tokens)
        )
    p, q = target_probs.gather(1, ids)[:, 0], draft_probs.gather(1, ids)[:, 0]
    accepted = uniform * q < p
    rest = (target_probs - draft_probs).clamp(min=0)
    rest = target_probs if fault == "no_residual" else rest + 1e-30
    recovered = torch.multinomial(rest, 1, generator=generator)[:, 0] if len(rest) else draft_token_ids
    output = torch.full((len(num_draft_tokens), max_spec_len + 1), PLACEHOLDER)
    for request, (length, end) in enumerate(zip(num_draft_tokens, cu_num_draft_tokens.tolist(), strict=True)):
        begin = end - length + (fault == "offset" and length > 0 and end < len(ids))
        for place in range(length):
            kept = bool(accepted[begin + place if begin + place < len(ids) else -1])
            token = draft_token_ids[end - length + place] if kept else recovered[end - length + place]
            output[request, place] = token
            if not kept:
                break
        if length == 0 or kept or fault == "bonus_behind_a_rejection":
            output[request, place + 1 if length and not kept else length] = bonus_token_ids[request, 0]
    return output


def test_a_sampler_of_chains_passes():
    report = check(rejection_sample, "chain", samples=20_000)
    assert report.passed
    assert not report.exact


@pytest.mark.parametrize("fault", ["one_number_for_all_positions", "no_residual", "offset", "bonus_behind_a_rejection"])
def test_mistakes_of_samplers_are_refused(fault):
    def sample(
        draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_probs,
        bonus_token_ids, generator,
    ):  # fmt: skip
        return rejection_sample(
            draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_probs,
            bonus_token_ids, generator, fault=fault,
        )  # fmt: skip

    assert check(sample, "chain", samples=100_000).p < REFUSED


def test_a_sampler_is_given_what_it_names():
    given = {}

    def sample(draft_token_ids, cu_num_draft_tokens, target_logits, bonus_token_ids, num_draft_tokens, unused=None):
        given.update(locals())
        rows = torch.full((len(num_draft_tokens), max(num_draft_tokens) + 1), PLACEHOLDER)
        rows[:, 0] = bonus_token_ids[:, 0]
        return rows

    *_, case = cases("chain", np.random.default_rng(0), batched=True)
    drafted = [tree for _, tree in case.drawn(50, np.random.default_rng(1))]
    texts = [*Chains(sample, ["draft_token_ids", "cu_num_draft_tokens", "target_logits", "bonus_token_ids",
                              "num_draft_tokens"], 0).texts(drafted)]  # fmt: skip
    lengths = [len(tree.parents) - 1 for tree in drafted]
    assert {*lengths} == {0, 1, 2, 3}
    assert given["num_draft_tokens"] == lengths
    assert given["cu_num_draft_tokens"].tolist() == np.cumsum(lengths).tolist()
    assert given["draft_token_ids"].tolist() == [token for tree in drafted for token in tree.tokens[1:]]
    rows = [tree.model.p[text] for tree in drafted for text in tree.texts[:-1]]
    torch.testing.assert_close(given["target_logits"].exp(), torch.tensor(rows))
    assert [text[0] for text in texts] == given["bonus_token_ids"][:, 0].tolist()
    assert given["unused"] is None


@pytest.mark.parametrize(
    "rows", [lambda n, width: torch.zeros(n, width, dtype=torch.long), lambda n, width: torch.full((n, width), -1),
             lambda n, width: torch.zeros(n, 1, dtype=torch.long), lambda n, width: None,
             lambda n, width: torch.full((n, width), 7), lambda n, width: torch.zeros(n, width)],
)  # fmt: skip
def test_rows_that_are_no_output_are_a_failure(rows):
    def sample(draft_token_ids, num_draft_tokens):
        return rows(len(num_draft_tokens), max(num_draft_tokens) + 1)

    report = check(sample, "chain", samples=1000)
    assert (report.passed, report.p, bool(report.failure.reason)) == (False, 0, True)
