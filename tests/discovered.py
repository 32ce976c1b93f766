"""Every drafter of `conf/drafter`, small enough to be run often."""

from typing import Any

import hydra
from composed import composed, names, plain

from specdec_core.drafters import Autoregressive, Drafter

NAMES = names("drafter")
ACCEPTANCE = [0.5, 0.2, 0.1]
"""In place of a vector that would be measured."""


def parameters(name: str, *, decoding: str, largest: int) -> dict[str, Any]:
    """What a yaml gives its drafter. Numbers above `largest` are that, and the target's law gives one first token."""
    found = _small(plain(composed(f"drafter={name}", f"decoding={decoding}"))["drafter"], largest)
    if "widths" in found:
        found["widths"][0] = 1
    if found.get("init") == "target":
        found["width"] = 1
    return {key: value for key, value in found.items() if key not in ("name", "method")}


def built(found: dict[str, Any], draft: Any) -> Drafter:
    """The drafter of these parameters."""
    build = hydra.utils.instantiate(found, _partial_=True, _convert_="all")
    return build() if build.func is Autoregressive else build(draft=draft)


def _small(value: Any, largest: int) -> Any:
    """Whole numbers cut off, and plain values for the words that stand for what is measured."""
    if isinstance(value, dict):
        return {key: _small(item, largest) for key, item in value.items()}
    if isinstance(value, list):
        return [_small(item, largest) for item in value]
    if value == "measured":
        return ACCEPTANCE
    if value in ("hardware", "unprinted") or (isinstance(value, int) and value > largest):
        return largest
    return value
