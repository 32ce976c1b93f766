"""What a `runs` row says of its cell, held against the config that its name hashes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from specdec_trees.results.identity import identity
from specdec_trees.results.rows import SCHEMA_VERSION
from specdec_trees.results.store import OK, run_id

_FIRST = {"node_order": "creation", "ignore_eos": False, "graphs": "eager"}
"""What all files had before there was a choice, in which these columns are missing."""
_NO_PARAMETERS = ("name", "method", "_target_")


def misfits(row: Mapping[Any, Any]) -> Iterator[str]:
    """Columns that do not follow from the config, and a name that is not its hash."""
    try:
        config = json.loads(row["config"])
        name, columns = run_id(identity(config)), _columns(config, finished=row["status"] == OK)
    except (ValueError, LookupError, TypeError, AttributeError):
        yield f"cell {row['run_id']}: its config is that of none"
        return
    if name != row["run_id"]:
        yield f"cell {row['run_id']}: its config is that of {name}"
    for column, value in columns.items():
        written = None if pd.isna(row[column]) else row[column]
        written = _FIRST.get(column) if written is None else written
        if written != value:
            yield f"cell {row['run_id']}: {column} is {written}, and its config has {value}"


def _columns(config: Mapping[str, Any], *, finished: bool) -> dict[str, Any]:
    """What a row of the config has; some only where its models were loaded. Nobody finishes a lossy pair unasked."""
    pair, drafter, decoding, runtime = (config[axis] for axis in ("pair", "drafter", "decoding", "runtime"))
    of_finished = {"dtype": runtime["dtype"]}
    of_finished |= {} if config["verifier"]["allow_lossy"] else {"lossless": True}
    of_finished |= {} if "graphs" in runtime else {"graphs": _FIRST["graphs"]}
    parameters = {key: value for key, value in drafter.items() if key not in _NO_PARAMETERS}
    return {
        "schema_version": SCHEMA_VERSION,
        "pair": pair["name"],
        "target_id": pair["target"]["id"],
        "draft_id": (pair["draft"] or {}).get("id"),
        "dataset": config["dataset"]["name"],
        "drafter": drafter["name"],
        "method": drafter["method"],
        "drafter_params": json.dumps(parameters, sort_keys=True),
        "verifier": config["verifier"]["name"],
        "temperature": decoding["temperature"],
        "top_p": decoding["top_p"],
        "max_new_tokens": decoding["max_new_tokens"],
        "ignore_eos": decoding.get("ignore_eos", False),
        "seed": config["seed"],
        "node_order": runtime.get("node_order", _FIRST["node_order"]),
        **(of_finished if finished else {}),
    }
