"""Models given in place of those that a pair's yaml names: they are not the paper's unless their shape says so.

`pair.target.id=/models/x` is the yaml's model if the folder's config.json has its shape; weights are not looked at, so
that a fine-tuned model counts as the one that it was made from. Another shape, or another hub id, makes the pair a
stand-in under a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.fetch import fetch_config
from specdec_core.models.kinds import KINDS
from specdec_trees.locations import yamls
from specdec_trees.measure import hub_configs
from specdec_trees.prompts.embedded import TINY

SHAPE = (
    *("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "ffn_dim", "word_embed_proj_dim"),
)
"""What of a config.json makes another architecture; a family has those of them that it knows."""
EMBEDDED = "tiny/"


def named(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair's resolved config, with a name of its own and as a stand-in if it has other models than its yaml.

    The name of a pair is its yaml's path in `conf/pair`. One that no yaml has cannot be told from a stand-in, and is
    one.
    """
    found, own = dict(pair), _own(str(pair["name"]))
    given = {role: model for role in ("target", "draft") if (model := pair.get(role))}
    others = [role for role, model in given.items() if not _is(model, own.get(role))]
    if not others:
        return found
    if own:
        words = [_word(given[role]) for role in others]
        found["name"] = f"{'_'.join(words)}{'_draft' if others == ['draft'] else ''}_for_{pair['name']}"
    if pair.get("published"):
        found["published"] = {**pair["published"], "stand_in": True}
    return found


def _is(given: Mapping[str, Any], own: Mapping[str, Any] | None) -> bool:
    """Whether a model is the yaml's: the same source, or a folder of the same shape."""
    if own is None:
        return False
    kind, source = own.get("kind", "causal_lm"), _source(given)
    if given.get("kind", "causal_lm") != kind:
        return False
    return source == _source(own) or (Path(source).is_dir() and _alike(source, str(own["id"]), kind))


def _alike(folder: str, model_id: str, kind: str) -> bool:
    """Whether the config.json in a folder has the shape of a known model; False where either cannot be read."""
    try:
        if hub_configs.known(model_id):
            ours = hub_configs.config_of(model_id)
        elif model_id.startswith(EMBEDDED):
            ours = fetch_config(ModelSpec(id=model_id, folder=str(TINY.parent / model_id)))
        else:
            return False
        theirs = KINDS[kind].config(ModelSpec(id=folder, kind=kind), ours)  # heads leave to the target what is its own
    except LoadError:
        return False
    keys = [key for key in SHAPE if key not in KINDS[kind].off_tensors]
    return all(getattr(theirs, key, None) == getattr(ours, key, None) for key in keys)


@cache
def _own(name: str) -> Mapping[str, Any]:
    """Target and draft of the yaml of this name; empty if there is none."""
    path = {**yamls("pair"), **yamls("pair", own=False)}.get(name)  # no yaml of one's own makes a model the paper's
    if path is None:
        return {}
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    above = [_own(base) for base in loaded.pop("defaults", []) if base != "_self_"]
    models = OmegaConf.create({role: loaded[role] for role in ("target", "draft") if role in loaded})
    plain: Any = OmegaConf.to_container(OmegaConf.merge(*above, models))
    return dict(plain)


def _source(model: Mapping[str, Any]) -> str:
    return str(model.get("folder") or model["id"])


def _word(model: Mapping[str, Any]) -> str:
    """The last part of a path or hub id, without what has a meaning in file names, overrides or tables."""
    return re.sub(r"[^\w.+-]+", "_", Path(_source(model)).resolve().name) or "model"
