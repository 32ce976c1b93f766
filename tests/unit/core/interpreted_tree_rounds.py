"""The kernel in Triton's interpreter, on the CPU: collected by `test_tree_rounds.py` alone, in a process of its own.

TRITON_INTERPRET=1 python -m pytest tests/unit/core/interpreted_tree_rounds.py
"""

import judged_trees
import pytest
import torch
from judged_trees import CASES, RULES, check

from specdec_core.verifiers import tree_rounds_kernel
from specdec_core.verifiers.tree_rounds import residual, tree_rounds


def in_triton(
    p, q, rows, tokens, uniform, families, begins=None, /, *, remove, uniform_fallback, k_seq=False, sure=False
):
    lists = families.order, families.starts, families.repeated
    return tree_rounds_kernel.tree_rounds(
        p, q, rows, tokens, uniform, *lists, remove, uniform_fallback, k_seq, sure, begins
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_has_the_law_of_the_rules(case, rng, monkeypatch):
    monkeypatch.setattr(judged_trees, "tree_rounds", in_triton)
    monkeypatch.setattr(tree_rounds_kernel, "BLOCK", 32 if case.vocab < 100 else 1024)
    for rule in RULES:
        if not rule.k_seq or case.kind in ("near", "narrow"):  # its bisections take the interpreter seconds
            check(case, rule, rng, trees=1)


def test_no_number_stays_none(rng):
    """Logits that are no numbers are found where the walk ends: nothing is accepted there."""
    for spoilt in (0, 1):
        probs = torch.rand(2, 3, 40, generator=rng).softmax(-1)
        probs[spoilt, 0] = torch.nan
        chances, shares = of_two_children(*probs, torch.tensor([0, -1, -1]), torch.zeros(3, dtype=torch.float64))
        assert not (chances > 0).any()
        assert residual(probs[0, 0], probs[1, 0], shares[0]).isnan().all()


def test_children_behind_the_accepted_one_and_of_a_node_without_q_are_left_alone(rng):
    """Of such a node nothing is read: below a virtual root q is of what no rule judges."""
    p, q = torch.rand(2, 3, 40, generator=rng).softmax(-1)
    sure = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    chances, _ = of_two_children(p, q, torch.tensor([0, -1, -1]), sure)
    assert chances[1] > 0
    assert chances[2] == 0
    before = torch.full((4, 40), torch.nan)
    before[1:] = q
    for rule in (in_triton, judged_trees.tree_rounds):
        chances, shares = of_two_children(p, before[1:], torch.tensor([-1, -1, -1]), sure, rule)
        assert not chances.any()
        assert not shares.any()


def of_two_children(p, q, rows, uniform, rule=in_triton):
    """Chances and shares of a root with two children, drawn without replacement."""
    tokens = torch.tensor([1, 2, 3])
    families = judged_trees.Families.of(torch.tensor([-1, 0, 0]), tokens)
    return rule(p, q, rows, tokens, uniform, families, remove=True, uniform_fallback=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nodes_that_are_come_to_by_chance(case, rng):
    """Traversal's rounds: of each node the kernel and the definition have the same chances, and leave the same."""
    for rule in (rule for rule in RULES if not rule.k_seq):
        drafted = judged_trees.drafted(case, rule, rng)
        below_one = torch.full_like(drafted.p[:, 0], 1 - 2**-53, dtype=torch.float64)
        chances = torch.rand(len(below_one), dtype=torch.float64, generator=rng).sqrt()
        chances[:4] = torch.tensor([1.0, 0.0, 1e-9, 1 - 1e-14])[: len(chances)]
        given = drafted.p, drafted.judged_q, drafted.rows, drafted.tokens, below_one, drafted.families, chances
        (accept, shares), (expected, wanted) = (judge(*given, **rule.how) for judge in (in_triton, tree_rounds))
        torch.testing.assert_close(accept, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(shares[:, 2], wanted[:, 2], rtol=0, atol=1e-9)
