"""The target's own answers to a cell's prompts, on which the cell is replayed (`specdec_core.replay`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import load_file

from specdec_core.checks import check_lossless
from specdec_core.drafters import Drafter
from specdec_core.errors import PairError, PromptError
from specdec_core.rank_replay import goes_by_distributions
from specdec_core.replay import Distributions, Recording
from specdec_core.sampling import NO_DRAWS
from specdec_trees.measure.cell import Cell
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.kept_rows import FOLDER, RecordingRow
from specdec_trees.results.store import Store


@dataclass(frozen=True)
class Recordings:
    """The target's answers to turns of conversations."""

    key: str
    folder: Path
    """Of the features."""
    rows: dict[tuple[str, int], RecordingRow] = field(repr=False)
    """By conversation and the turn's number."""

    @classmethod
    def read(cls, root: Path, key: str) -> Recordings:
        """Those of a key in a folder of results."""
        store = Store(root, FOLDER)
        return cls(key, features(store, key), {(row.prompt_id, row.turn): row for row in recorded(store, [key])})

    @property
    def eos(self) -> list[int]:
        """The tokens that end the target's answers, which all of them have in common."""
        return next((row.eos_ids for row in self.rows.values()), [])

    def of(self, conversation: str, number: int, prompt: Sequence[int]) -> Recording:
        """The answer to a turn; PairError where its prompt was not recorded, PromptError where the target refused it.

        Conversations may begin alike: each has a drawn answer of its own.
        """
        row = self.rows.get((conversation, number))
        if row is None or row.prompt_ids_sha256 != output_sha256(prompt):
            what = f"{conversation} turn {number}, of {len(prompt)} tokens"
            raise PairError(f"recording {self.key} has no answer to this prompt: {what}")
        if row.error:
            raise PromptError(row.error)
        tensors = load_file(features_of(self.folder, row)) if row.layers or row.distributions else {}
        texts = tuple(row.prompt_ids), tuple(row.answer_ids), tuple(row.gaps)
        facts, hidden = (row.ended, row.vocab_size, row.max_positions), tensors.pop("hidden", None)
        return Recording(*texts, *facts, hidden, Distributions(row.vocab_size, **tensors) if tensors else None)


def features(store: Store, key: str) -> Path:
    """The folder of a recording's features and distributions, a file per text."""
    return store.folder / "features" / key


def features_of(folder: Path, row: RecordingRow) -> Path:
    """The file of an answer's features, which are those of the prompt and of the answer itself."""
    return folder / f"{output_sha256([*row.prompt_ids, *row.answer_ids])}.safetensors"


def unrecorded(cell: Cell, drafter: Drafter, instruments: Sequence[str]) -> str:
    """Why a cell cannot be replayed, in a clause; "" where it can. `instruments` are options such as `record_nodes`."""
    if not cell.recordable:
        return f"{cell.verifier} judges the tree as a whole; verifier=target_sample, another method, is replayed"
    if drafter.virtual_root:
        return "its trees start from the target's distribution, which is not recorded"
    if not check_lossless(drafter, cell.rule, cell.sampling, allow_lossy=cell.allow_lossy):
        return f"{cell.verifier} does not keep the target's answers, which are what is recorded"
    if cell.by_distributions and drafter.draws != NO_DRAWS and not goes_by_distributions(drafter, cell.rule):
        return (
            f"{cell.verifier} compares p with q, and is replayed for trees of fixed shape whose nodes a draft model of "
            "its own draws"
        )
    if instruments:
        return f"{', '.join(instruments)} asks for what is seen while the target decodes, which is not recorded"
    return ""


def recorded(store: Store, keys: Collection[str] | None = None) -> Iterator[RecordingRow]:
    """The answers of these recordings, or of all."""
    for row in store.read("recordings", keys).to_dict("records"):
        lists: dict[Any, Any] = {name: one.tolist() for name, one in row.items() if isinstance(one, np.ndarray)}
        plain: dict[Any, Any] = {name: None for name, one in row.items() if name not in lists and pd.isna(one)}
        yield RecordingRow(**row | lists | plain)
