"""Digests of outputs, and of rows: the same packed or not, and read by a later version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from specdec_trees.results.parquet import digest
from specdec_trees.results.rows import TABLES
from specdec_trees.results.store import Store, experiments


def prompts_ids_sha256(prompts: Iterable[Sequence[int] | None]) -> str:
    """Of the token ids of several prompts in order; None for one that could not be made."""
    return hashlib.sha256(json.dumps([list(ids) if ids else None for ids in prompts]).encode()).hexdigest()


def output_sha256(tokens: Sequence[int]) -> str:
    """Of the token ids in decimal, comma-separated."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()


def digest_of(root: Path) -> str:
    """Of all rows of a results folder."""
    sha = hashlib.sha256()
    for store in experiments(root):
        for table in TABLES:
            sha.update(named_digests(store, table, store.rows(table).by_id()))
    return sha.hexdigest()


def named_digests(store: Store, table: str, by_id: Mapping[str, pa.Table | None]) -> bytes:
    """A line for each cell, what the digest of a results folder is made of, in the order of experiments and tables."""
    return "".join(f"{store.experiment}/{table}/{run_id}:{digest([rows])}\n" for run_id, rows in by_id.items()).encode()
