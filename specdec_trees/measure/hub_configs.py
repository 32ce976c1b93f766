"""The shapes of the papers' models: what their published config.json fix, so that nothing is fetched to plan.

`hub_configs.json` has one entry per hub id of `conf/pair`, and the small shapes of `planted/small`, which are no one's.
`kind` is eagle for EAGLE-1's heads: one decoder layer, as the training configs of its repository have it (Vicuna-33B's
has 13 key-value heads, its target 52).
"""

import json
import logging
from functools import cache
from importlib.resources import files
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from specdec_core.errors import LoadError
from specdec_trees.names import unknown

logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)  # of each retry; the sentence has the cause


def known(model_id: str) -> bool:
    """Whether the shape of this hub id is in the table."""
    return model_id in _table()


def names() -> list[str]:
    """All hub ids in the table."""
    return list(_table())


def config_of(model_id: str) -> PreTrainedConfig:
    """A new config of the published shape; an EAGLE head's has `kind` "eagle".

    LoadError names the nearest known ids.
    """
    if not known(model_id):
        raise LoadError(unknown("model", model_id, _table()))
    return AutoConfig.for_model(**_table()[model_id])


@cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        files("specdec_trees.measure").joinpath("hub_configs.json").read_text("utf-8")
    )
    return found
