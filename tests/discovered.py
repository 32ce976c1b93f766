"""Every drafter of `conf/drafter`, small enough to be run often."""

from typing import Any

from composed import composed, names, plain

from specdec_core import verifiers
from specdec_core.drafters import Drafter
from specdec_core.sampling import NO_DRAWS, check_draws
from specdec_core.verifiers import LongestSubtree, Verifier
from specdec_trees.configs.cells import drafter_builder
from specdec_trees.configs.resolvers import RULES

NAMES = names("drafter")
ACCEPTANCE = [0.5, 0.2, 0.1]
"""In place of a vector that would be measured."""


def parameters(name: str, *, decoding: str, largest: int, size: int | None = None) -> dict[str, Any]:
    """What a yaml gives its drafter, of `size` nodes where it can be told.

    Numbers above `largest` are that, and the target gives one first token.
    """
    sized = [] if size is None else [f"+size={size}"]
    found = small(plain(composed(f"drafter={name}", f"decoding={decoding}", *sized))["drafter"], largest)
    if "widths" in found:
        found["widths"][0] = 1
    if found.get("init") == "target":
        found["width"] = 1
    return {key: value for key, value in found.items() if key not in ("name", "method")}


def built(found: dict[str, Any], draft: Any) -> Drafter:
    """The drafter of these parameters."""
    return drafter_builder(found)(draft)


def rule_for(drafter: Drafter) -> Verifier:
    """The rule for which the declared draws were made (`verifier=by_draws`, `by_root`)."""
    draws = "topk" if drafter.draws == NO_DRAWS else drafter.draws.removeprefix("target_")
    check_draws(draws)
    rule = getattr(verifiers, RULES[draws]["class"])()
    return LongestSubtree(rule=rule) if drafter.virtual_root else rule


def small(value: Any, largest: int) -> Any:
    """Whole numbers cut off, plain values for the words that stand for what is measured, and no decision model."""
    if isinstance(value, dict):
        return {key: None if key == "decision" else small(item, largest) for key, item in value.items()}
    if isinstance(value, list):
        return [small(item, largest) for item in value]
    if value == "measured":
        return ACCEPTANCE
    if value in ("hardware", "unprinted") or (isinstance(value, int) and value > largest):
        return largest
    return value
