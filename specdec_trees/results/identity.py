"""What makes a cell the same cell: the part of its config that its `run_id` hashes."""

import json
from collections.abc import Mapping
from typing import Any

LABELS = {"pair": ("name", "published"), "drafter": ("name", "method"), "verifier": ("name",)}
"""Names, and what only reports read: changing them makes no other cell."""

LATER = ("bits", "dtype", "feature_layers")
"""Options of a model that came after the first kept results; null is their default."""

WORDS = ("licence",)
"""What is said of a model, and changes nothing."""

LOCAL = "local"
"""Marks a model of a folder of one's own, which is its files: where they are, and what they go by, changes nothing."""
PLACES = ("id", "folder", "revision", "gated")

PRINTED = ("sequoia_printed",)
"""Methods that make a cell of their own: what a machine chooses may have the very tree that is printed."""


def canonical(config: Any) -> str:
    """Plain values as JSON, the same text for equal ones."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a scientific config that `run_id` hashes. Options at a default that came later make no other cell."""
    pair = dict(config["pair"])
    for role in ("target", "draft"):
        if model := pair.get(role):
            kept = {key: value for key, value in model.items() if key not in LATER or value is not None}
            words = (*WORDS, *PLACES) if kept.get(LOCAL) else WORDS
            pair[role] = {key: value for key, value in kept.items() if key not in words}
    config = {**config, "pair": pair}
    found = {
        axis: {key: value for key, value in values.items() if key not in LABELS[axis]} if axis in LABELS else values
        for axis, values in config.items()
    }
    if (method := config["drafter"].get("method")) in PRINTED:
        found["drafter"]["method"] = method
    return found
