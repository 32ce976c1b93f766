"""Names of a config held against the yamls of this checkout: of drafter, method, verifier, pair, published pair."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from specdec_trees.locations import yamls
from specdec_trees.results.identity import LOCAL

WHOLE = {"pair": ("target",), "drafter": ("method", "_target_"), "verifier": ("_target_",)}
"""What yamls of a group have, unless they are made of others."""


@functools.cache
def committed(group: str) -> dict[str, dict[str, Any]]:
    """The yamls of a group by name; variants have the values of their base and their own."""
    found: dict[str, Any] = {name: OmegaConf.load(path) for name, path in yamls(group, own=False).items()}
    variants: Any = OmegaConf.load(yamls(own=False)["variants"])
    for base, named in variants.get(group, {}).items():
        found |= {name: OmegaConf.merge(found[base], {"name": name}, values) for name, values in named.items()}
    plain: dict[str, Any] = {name: OmegaConf.to_container(values) for name, values in found.items()}
    return {name: values for name, values in plain.items() if values.keys() >= set(WHOLE[group])}


def misnamed(config: Mapping[str, Any]) -> Iterator[str]:
    """Names that are committed for something else, in sentences; of what is committed nowhere there are none."""
    drafter, verifier, pair = (config.get(axis) or {} for axis in ("drafter", "verifier", "pair"))
    priced = config.get("prices") is not None  # then a tree like any other
    if (there := committed("drafter").get(drafter.get("name", ""))) and not _is(drafter, there, priced):
        yield f"drafter {drafter.get('name')} is method {there['method']} of {there['_target_']}"
    if (there := committed("verifier").get(verifier.get("name", ""))) and there["_target_"] != verifier.get("_target_"):
        yield f"verifier {verifier.get('name')} is {there['_target_']}"
    if there := committed("pair").get(pair.get("name", "")):
        for key in ("target", "draft"):
            model, asked = ((one.get(key) or {}) for one in (pair, there))
            if model and _apart(model.get("id"), asked.get("id")) and LOCAL not in model:
                yield f"pair {pair['name']} has {key} {asked['id']}, not {model.get('id')}"
        if _apart(pair.get("published"), there.get("published")):
            yield f"pair {pair['name']} is published as {there['published']}, not {pair.get('published')}"


def _apart(value: Any, committed: Any) -> bool:
    """Whether a value is another than a yaml's, as far as the yaml says it and no experiment does."""
    if isinstance(committed, Mapping) and isinstance(value, Mapping):
        return committed.keys() != value.keys() or any(_apart(value[key], committed[key]) for key in committed)
    return committed is not None and "${" not in str(committed) and value != committed


def _is(drafter: Mapping[str, Any], there: Mapping[str, Any], priced: bool) -> bool:
    """Whether class and method are a yaml's, or the method one of those that it chooses from."""
    methods = re.findall(r"\w+", str(there["method"]))
    return drafter.get("_target_") == there["_target_"] and (priced or drafter.get("method") in methods)
