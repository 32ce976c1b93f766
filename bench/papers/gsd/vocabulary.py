"""The size of a model's vocabulary, by its id: from the published shapes, or from the embedded models' own configs."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def vocabulary(model_id: str) -> int | None:
    """Elements of the model's law; None for a model whose config is not in the package, such as one in a folder.

    The configs are read as data: what else reads them (`bench.measure.hub_configs`) needs transformers.
    """
    package = files("bench")
    shapes: dict[str, dict[str, Any]] = json.loads(package.joinpath("measure", "hub_configs.json").read_text("utf-8"))
    own = package.joinpath(model_id, "config.json")
    if model_id.startswith("tiny/") and own.is_file():
        shapes[model_id] = json.loads(own.read_text("utf-8"))
    size = shapes.get(model_id, {}).get("vocab_size")
    return None if size is None else int(size)
