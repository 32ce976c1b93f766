"""Transformers' own `generate` as the target alone: without what a generation config changes about its logits."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from transformers import GenerationConfig

from specdec_core.models import Pair

log = logging.getLogger(__name__)
_OWN = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "max_length", "max_new_tokens"),
    *("do_sample", "temperature", "top_p", "top_k", "use_cache", "cache_implementation", "transformers_version"),
)
"""What decoding here sets itself, or what changes no token."""


def left_out(model: Any) -> dict[str, Any]:
    """What a model's generation config asks for that no arm here does, such as a repetition penalty."""
    config = getattr(model, "generation_config", None)
    asked = config.to_diff_dict() if config else {}
    return {name: value for name, value in asked.items() if name not in _OWN and value and name[0] != "_"}


def say_left_out(pair: Pair, name: str) -> None:
    """One line of the log, where there is something."""
    if asked := left_out(pair.target.model):
        said = ", ".join(f"{key}={value}" for key, value in asked.items())
        log.warning("%.300s", f"{name}: left out of its generation_config.json, in every arm: {said}")


@contextlib.contextmanager
def neutral(pair: Pair) -> Iterator[None]:
    """Inside, `generate` takes the target's most probable token, up to those that end an answer here.

    Transformers would fill what a call leaves open from the model's own config, so that this is another for a while.
    """
    model, ends = pair.target.model, pair.eos_token_ids
    before = model.generation_config
    model.generation_config = GenerationConfig(
        do_sample=False,
        bos_token_id=before.bos_token_id,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else None,
    )
    try:
        yield
    finally:
        model.generation_config = before
