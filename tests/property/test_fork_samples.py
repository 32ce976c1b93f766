"""Trees that end early, in the engine: the distribution of many samples."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from doubles import BigramLM
from played_forks import T1, table
from scipy import stats
from stops import STOPS, model_stop

from specdec_core import generate
from specdec_core.drafters import fork_tree
from specdec_core.models import ModelOutput
from specdec_core.verifiers import MultiCandidate


def pooled_pvalue(tokens, p):
    """Chi-square of all transitions against the target's rows."""
    counts, statistic, freedom = Counter(pairwise(tokens)), 0.0, 0
    for above in range(len(p)):
        seen = [counts[above, token] for token in range(len(p))]
        if sum(seen) < 40:
            continue
        for token, number in enumerate(seen):
            wanted = sum(seen) * float(p[above, token])
            statistic += (number - wanted) ** 2 / wanted
        freedom += len(p) - 1
    assert freedom > len(p)
    return stats.chi2.sf(statistic, freedom)


@pytest.mark.parametrize("stop", ["none", "always_off", "likes_1", "model"])
def test_samples_of_the_engine_have_the_targets_distribution(stop):
    p, q, depths = table(1, 4, 0.8), table(2, 4, 0.8), set()
    decision, beta = (STOPS[stop](), 0.4) if stop != "model" else (model_stop(), 0.0)
    if stop == "model":
        scores = decision.scores(ModelOutput(q)).sort().values.tolist()
        beta = (scores[1] + scores[2]) / 2
    drafter = fork_tree(draft=BigramLM(q), width=2, depth=3, init="draft", decision=decision, beta=beta)
    found = generate(
        BigramLM(p), drafter, MultiCandidate(), [0], max_new_tokens=700, sampling=T1,
        rng=torch.Generator().manual_seed(7), watch=lambda tree, *rest: depths.add(int(tree.depths.max())),
    )  # fmt: skip
    assert pooled_pvalue([0, *found.tokens], p.softmax(-1)) > 1e-3
    assert len(depths) > 1 or stop in ("none", "always_off")


def test_samples_tell_a_rule_that_is_wrong_for_the_draws():
    p, q = table(1, 4, 0.8), table(2, 4, 2.0)
    drafter = fork_tree(draft=BigramLM(q), width=3, depth=1, init="draft")
    found = generate(
        BigramLM(p), drafter, MultiCandidate(replacement=True), [0], max_new_tokens=700, sampling=T1, allow_lossy=True,
        rng=torch.Generator().manual_seed(7),
    )  # fmt: skip
    assert pooled_pvalue([0, *found.tokens], p.softmax(-1)) < 1e-4
