"""Interpolations for `conf/`: what depends on decoding, on the drafter's draws, and on what a paper prints."""

from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from specdec_core.models.kinds import KINDS, TARGET
from specdec_core.sampling import Sampling
from specdec_trees import published
from specdec_trees.names import unknown

RULES = {
    "topk": {"name": "target_sample", "class": "TargetSample"},
    "iid": {"name": "spec_infer", "class": "SpecInfer"},
    "without_replacement": {"name": "without_replacement", "class": "WithoutReplacement"},
    "greedy_one": {"name": "greedy_one", "class": "GreedyOne"},
}
EAGLES = {"name": "eagle1", "class": "Eagle1"}
"""In place of Sequoia's rule for what is drawn without replacement."""
BY_ROOT = (
    {"name": "multi_candidate", "class": "MultiCandidate", "lossy": False},
    {"name": "longest_subtree", "class": "LongestSubtree", "lossy": False},
    {"name": "independent_longest", "class": "IndependentLongest", "lossy": True},
)
"""Improved MCSD's rules for trees with none, one, or several first tokens from the target's distribution."""
DRAWS = {
    "target_sample": "topk",
    "greedy": "topk",
    **dict.fromkeys(("spec_infer", "k_seq", "multi_candidate_iid", "traversal_iid", "gbv"), "iid"),
    **dict.fromkeys(("greedy_one", "spec_hub", "traversal_greedy"), "greedy_one"),
}
"""The draws for which a rule was made; those without replacement for the others."""
PRINTED_AS = {"n": "tree_size", "depth": "tree_depth"}
"""The published metrics of a tree, which count the root: as a node, and as the first level."""
UNPRINTED = "unprinted"
"""What stands for the tree of a cell for whose setting the paper prints none."""


def register() -> None:
    """Make them known to OmegaConf, once or again."""
    of_rules = (rule_for, rule_by_root, draws_for_rule, drawn)
    for resolver in (when_sampling, with_root, *of_rules, own_model, if_drafted_by, unless_stand_in, printed_tree):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def when_sampling(yes: Any, no: Any, *, _root_: DictConfig) -> Any:
    """`${when_sampling:a,b}`: a, or b in greedy decoding."""
    return no if Sampling(_root_.decoding.temperature).greedy else yes


def with_root(size: int) -> int:
    """`${with_root:n}`: a tree of n drafted nodes, counted with its root as some papers do."""
    return size + 1


def rule_for(what: str, eagles: bool = False, *, _root_: DictConfig) -> str:
    """`${rule_for:name}` and `${rule_for:class}`: the rule that the drafter's draws call for, perhaps EAGLE's own."""
    if (draws := _root_.drafter.get("draws", "topk")) not in RULES:
        raise ValueError(unknown("drafter.draws", draws, RULES))
    return (EAGLES if eagles and draws == "without_replacement" else RULES[draws])[what]


def rule_by_root(what: str, *, _root_: DictConfig) -> Any:
    """`${rule_by_root:name}`, `class` and `lossy`: the rule that the drafter's first level calls for."""
    drafter = _root_.drafter
    first = drafter.widths[0] if "widths" in drafter else drafter.width if drafter.get("init") == "target" else 0
    return BY_ROOT[min(first, 2)][what]


def draws_for_rule(*, _root_: DictConfig) -> str:
    """`${draws_for_rule:}`: the draws that the rule was made for; the best tokens in greedy decoding."""
    return str(when_sampling(DRAWS.get(_root_.verifier.name, "without_replacement"), "topk", _root_=_root_))


def drawn(*, _root_: DictConfig) -> str:
    """`${drawn:}`: how the method draws children, also in greedy decoding: SpecInfer independently, others without
    replacement.
    """
    return "iid" if _root_.drafter.method.startswith("spec_infer") else "without_replacement"


def own_model(value: Any, *, _root_: DictConfig) -> Any:
    """`${own_model:x}`: x for a draft that is a model of its own, null for one that reads the target's weights."""
    return value if KINDS[_root_.pair.draft.get("kind", TARGET)].own_dtype else None


def if_drafted_by(kind: str, yes: Any, no: Any, *, _root_: DictConfig) -> Any:
    """`${if_drafted_by:medusa,a,b}`: a where the pair's draft is of this kind, else b."""
    return yes if (_root_.pair.draft or {}).get("kind", TARGET) == kind else no


def unless_stand_in(value: Any, other: Any, *, _root_: DictConfig) -> Any:
    """`${unless_stand_in:a,b}`: a, or b for a pair that stands in for a paper's models."""
    return other if (_root_.pair.get("published") or {}).get("stand_in", False) else value


def printed_tree(what: str, *, _root_: DictConfig) -> int | str:
    """`${printed_tree:n}` and `depth`: the tree that the experiment's table prints for this pair and setting.

    A pair that is not in the table stands for the first that is. `UNPRINTED` where the table has no tree for the
    dataset and temperature, or the experiment is no table with trees.
    """
    paper, _, artifact = str(_root_.name).partition("/")
    rows = published.find(paper, artifact, metric=PRINTED_AS[what]) if paper in published.papers() else pd.DataFrame()
    if rows.empty:
        return UNPRINTED
    printed, names = list(zip(rows["target"], rows["draft"], strict=True)), _root_.pair.get("published") or {}
    own = names.get("target"), names.get("draft")
    keep = pd.Series([models == (own if own in printed else printed[0]) for models in printed], index=rows.index)
    keep &= (rows["dataset"] == _root_.dataset.name) & (rows["temperature"] == _root_.decoding.temperature)
    return int(rows.loc[keep, "value"].iloc[0]) - 1 if keep.any() else UNPRINTED


def check_printed(cfg: DictConfig) -> None:
    """ValueError, a sentence, for a drafter whose tree the paper does not print for the config's setting."""
    if UNPRINTED in (cfg.drafter.get("n"), cfg.drafter.get("depth")):
        raise ValueError(
            f"drafter={cfg.drafter.name}: experiment {cfg.name} has no printed tree for {cfg.dataset.name} at "
            f"temperature {cfg.decoding.temperature:g}; leave this drafter out, or give drafter.n and drafter.depth"
        )
