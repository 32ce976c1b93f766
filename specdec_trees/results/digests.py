"""Digests of outputs, and of rows: the same packed or not, and read by a later version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
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
            for run_id, rows in store.rows(table).each():
                sha.update(named_digest(store, table, run_id, rows))
    return sha.hexdigest()


def named_digest(store: Store, table: str, run_id: str, rows: pa.Table | None) -> bytes:
    """The line of a cell, of which the digest of a folder is made: by experiment, table and cell."""
    return f"{store.experiment}/{table}/{run_id}:{digest([rows])}\n".encode()
