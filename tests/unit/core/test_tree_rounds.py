"""Rounds at all nodes at once are the rounds of each node; the walk goes the same; the kernel is the definition."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from judged_trees import CASES, RULES, check

from specdec_core.verifiers import tree_rounds
from specdec_core.verifiers.tree_rounds import Families

INTERPRETED = Path(__file__).with_name("interpreted_tree_rounds.py")


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}-{rule.uniform_fallback}")
def test_chances_and_what_is_left_are_those_of_the_rule_child_by_child(rule, case, rng):
    assert check(case, rule, rng) >= 6


def test_families_list_children_in_draft_order_and_find_repeated_tokens():
    families = Families.of(torch.tensor([-1, 0, 0, 1, 0, 1, 2]), torch.tensor([7, 5, 3, 5, 5, 5, 5]))
    assert families.order.tolist() == [0, 1, 2, 4, 3, 5, 6]
    assert families.starts.tolist() == [1, 4, 6, 7, 7, 7, 7, 7]
    assert families.repeated.tolist() == [False] * 4 + [True, True, False]
    alone = Families.of(torch.tensor([-1]), torch.tensor([3]))
    assert (alone.starts.tolist(), alone.repeated.tolist()) == ([1, 1], [False])


def test_the_kernel_in_tritons_interpreter():
    """In a process of its own: Triton reads when it is imported whether it is to interpret."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rp", str(INTERPRETED))
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert run.stdout.count("PASSED ") >= 2 * len(CASES)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("remove", "fallback", "bisections", "weighted", "sure"),
    [
        *((False, False, 0, False, False), (True, False, 0, False, False), (True, True, 0, False, False)),
        *((False, False, 30, False, False), (False, False, 0, True, False), (True, True, 0, True, False)),
        *((False, False, 0, False, True), (False, False, 0, True, True)),
    ],
)
def test_the_kernel_compiles_for_gpus(capability, remove, fallback, bisections, weighted, sure):
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    from specdec_core.verifiers import tree_rounds_kernel

    function, sizes = tree_rounds_kernel._judge, {"EPS": 1e-12, "REMOVE": remove, "FALLBACK": fallback}
    sizes |= {"BISECTIONS": bisections, "BLOCK": 2048, "TINY": 1e-100, "WEIGHTED": weighted, "SURE": sure}
    kinds = dict.fromkeys(("p", "q"), "*fp32") | dict.fromkeys(("accept", "shares"), "*fp64") | {"vocab": "i32"}
    kinds |= dict.fromkeys(sizes, "constexpr") | {"uniform": "*fp64", "begins": "*fp64"}
    names = function.arg_names
    constants = {(names.index(name),): value for name, value in sizes.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = triton.compiler.ASTSource(function, {name: kinds.get(name, "*i64") for name in names}, constants)
        made = triton.compile(source, target=compiler.GPUTarget("cuda", capability, 32))
    assert made.metadata.shared < 99 * 1024
    assert f".target sm_{capability}" in made.asm["ptx"]


def test_where_triton_cannot_compile_trees_are_judged_all_the_same(monkeypatch, caplog):
    pytest.importorskip("triton")
    from specdec_core.verifiers import tree_rounds_kernel

    asked = []

    def cannot(*_):
        asked.append(1)
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(tree_rounds_kernel, "tree_rounds", cannot)
    monkeypatch.setattr(tree_rounds, "_in_triton", True)
    p, q, tokens = *torch.rand(2, 3, 5).softmax(-1), torch.tensor([0, 1, 2])
    families = Families.of(torch.tensor([-1, 0, 0]), tokens)
    given = p, q, torch.zeros(3, dtype=torch.long), tokens, torch.ones(3, dtype=torch.float64)
    given = *given, families.order, families.starts, families.repeated, True, True, False, False, None
    found = [tree_rounds._on_gpu(*given) for _ in range(2)]
    assert all(
        torch.equal(ours, own) for one in found for ours, own in zip(one, tree_rounds._on_host(*given), strict=True)
    )
    assert (len(asked), len(caplog.records)) == (1, 1), "it is tried once, and said"

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(tree_rounds_kernel, "tree_rounds", full)
    monkeypatch.setattr(tree_rounds, "_in_triton", True)
    with pytest.raises(torch.OutOfMemoryError):
        tree_rounds._on_gpu(*given)
