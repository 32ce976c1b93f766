"""The kernel in Triton's interpreter, on the CPU: collected by `test_tree_rounds.py` alone, in a process of its own.

TRITON_INTERPRET=1 python -m pytest tests/unit/core/interpreted_tree_rounds.py
"""

import judged_trees
import pytest
import torch
from judged_trees import CASES, RULES, check

from specdec_core.verifiers import tree_rounds_kernel


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_has_the_law_of_the_rules(case, rng, monkeypatch):
    def in_triton(p, q, rows, tokens, families, *, remove, uniform_fallback):
        lists = families.order, families.starts, families.repeated
        return tree_rounds_kernel.tree_rounds(p, q, rows, tokens, *lists, remove, uniform_fallback)

    monkeypatch.setattr(judged_trees, "tree_rounds", in_triton)
    monkeypatch.setattr(tree_rounds_kernel, "BLOCK", 32 if case.vocab < 100 else 1024)
    for rule in RULES:
        check(case, rule, rng, trees=1)


def test_no_number_stays_none(rng):
    """Logits that are no numbers are found where the walk ends: nothing is accepted there."""
    p, q = torch.rand(2, 3, 40, generator=rng).softmax(-1)
    families = judged_trees.Families.of(torch.tensor([-1, 0, 0]), torch.tensor([1, 2, 3]))
    lists = families.order, families.starts, families.repeated
    for spoilt in (p, q):
        spoilt[0] = torch.nan
        given = p, q, torch.tensor([0, -1, -1]), torch.tensor([1, 2, 3])
        accept, shares = tree_rounds_kernel.tree_rounds(*given, *lists, True, True)
        assert not (accept > 0).any()
        assert judged_trees.residual(p[0], q[0], shares[0]).isnan().all()
        spoilt[0] = 1 / 40
