"""How many prompts of which length a job decodes: counted where they are files, bounded where they are the hub's."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdec_trees.measure.file_digests import state
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import DatasetSpec

TURNS = {"mt_bench": 2}
"""Turns of a conversation by adapter, where they are not one; a bundled dataset or a folder's are counted."""


def turns(spec: DatasetSpec, plain: Mapping[str, Any], limit: int | None) -> tuple[int, ...]:
    """Turns of every conversation that is decoded, for a composed config; `limit` None: the dataset's own limit.

    DatasetError or ValueError where they cannot be counted.
    """
    folder = Path(plain["data_dir"]) if plain["data_dir"] else None
    if path := datasets.file_of(spec, folder):
        return _counted(spec, folder, limit, path, state(path))
    if (count := limit or spec.limit) is None:
        raise ValueError(f"dataset {spec.name} has no sample size; give limit=")
    adapter = spec.adapter or ""
    there = datasets.part_size(datasets.HUB_SIZES.get(adapter, max(count, datasets.CANDIDATES)), spec.part)
    each = 1 if spec.mode == "raw" else TURNS.get(adapter, 1)
    return (each,) * min(count, there)


@functools.lru_cache(maxsize=256)
def _counted(
    spec: DatasetSpec, folder: Path | None, limit: int | None, _path: Path, _state: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(len(found.turns) for found in datasets.load(spec, data_dir=folder, limit=limit))


def answers(spec: DatasetSpec, new: int, plain: Mapping[str, Any]) -> tuple[str, int, int]:
    """The prompts of a cell in words; if no answer ends early their new tokens, and those of first turns."""
    bound, each = spec.max_total_tokens, turns(spec, plain, plain["limit"])
    tokens = sum(min(count * new, bound or count * new) for count in each)
    least, most = min(each), max(each)
    counts = f"{most} turn{'s' if most > 1 else ''}" if least == most else f"{least} to {most} turns"
    total = f", {bound} with the prompt" if bound else ""
    return (
        f"{len(each)} conversations x {counts} x {new} new tokens{total}: at most {tokens:,} per arm",
        tokens,
        sum(min(new, bound or new) for _ in each),
    )


def calibration(spec: DatasetSpec, plain: Mapping[str, Any], wanted: int) -> tuple[DatasetSpec, int]:
    """The calibration part, and how many of so many wanted prompts it has under the config's limit."""
    part = replace(spec, part="calibration")
    return part, len(turns(part, plain, min(wanted, plain["limit"] or wanted)))


def context(spec: DatasetSpec, new: int) -> int | None:
    """Tokens of prompt and answer; None: as many as the model has positions."""
    prompt = spec.prompt_tokens or spec.max_prompt_tokens
    return spec.max_total_tokens or (prompt + new if prompt else None)
