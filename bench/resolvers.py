"""Interpolations for `conf/`: what depends on whether the cell samples, and on the drafter's draws."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from bench.names import unknown
from specdec_core.sampling import Sampling

RULES = {
    "topk": {"name": "target_sample", "class": "TargetSample"},
    "iid": {"name": "spec_infer", "class": "SpecInfer"},
    "without_replacement": {"name": "without_replacement", "class": "WithoutReplacement"},
}
BY_ROOT = (
    {"name": "multi_candidate", "class": "MultiCandidate", "lossy": False},
    {"name": "longest_subtree", "class": "LongestSubtree", "lossy": False},
    {"name": "independent_longest", "class": "IndependentLongest", "lossy": True},
)
"""Improved MCSD's rules for trees with none, one, or several first tokens from the target's law."""
DRAWS = {"target_sample": "topk", "greedy": "topk", "spec_infer": "iid", "k_seq": "iid", "multi_candidate_iid": "iid"}
"""The draws for which a rule was made; those without replacement for the others."""


def register() -> None:
    """Make them known to OmegaConf, once or again."""
    for resolver in (when_sampling, with_root, rule_for, rule_by_root, draws_for_rule):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def when_sampling(yes: Any, no: Any, *, _root_: DictConfig) -> Any:
    """`${when_sampling:a,b}`: a, or b in greedy decoding."""
    return no if Sampling(_root_.decoding.temperature).greedy else yes


def with_root(size: int) -> int:
    """`${with_root:n}`: a tree of n drafted nodes, counted with its root as some papers do."""
    return size + 1


def rule_for(what: str, *, _root_: DictConfig) -> str:
    """`${rule_for:name}` and `${rule_for:class}`: the rule that the drafter's draws call for."""
    if (draws := _root_.drafter.get("draws", "topk")) not in RULES:
        raise ValueError(unknown("drafter.draws", draws, RULES))
    return RULES[draws][what]


def rule_by_root(what: str, *, _root_: DictConfig) -> Any:
    """`${rule_by_root:name}`, `class` and `lossy`: the rule that the drafter's first level calls for."""
    drafter = _root_.drafter
    first = drafter.widths[0] if "widths" in drafter else drafter.width if drafter.get("init") == "target" else 0
    return BY_ROOT[min(first, 2)][what]


def draws_for_rule(*, _root_: DictConfig) -> str:
    """`${draws_for_rule:}`: the draws that the rule was made for; the best tokens in greedy decoding."""
    return str(when_sampling(DRAWS.get(_root_.verifier.name, "without_replacement"), "topk", _root_=_root_))
