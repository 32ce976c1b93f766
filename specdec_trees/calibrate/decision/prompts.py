"""Which prompts decision models learn from, and that none of them is decoded in a cell that uses the model."""

import hashlib
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_trees.measure.cell import DecisionPlan
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import Conversation, DatasetError, DatasetSpec

TRAINED_ON = ("training_prompts", "validation_prompts")
"""Facts of a model that list short hashes of prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Conversations of the calibration part, whose first turns are the prompts; no text is in both."""

    training: list[Conversation]
    validation: list[Conversation]

    @property
    def facts(self) -> dict[str, str]:
        """Short hashes of the prompts, by which they are known whatever dataset they are in."""
        both = ([_hash(found.turns[0]) for found in some] for some in (self.training, self.validation))
        return {name: " ".join(known) for name, known in zip(TRAINED_ON, both, strict=True)}


def most(plan: DecisionPlan, limit: int | None) -> int:
    """Prompts of a plan, no more than `limit` if that is given."""
    return min(plan.prompts + plan.validation, limit or sys.maxsize)


def split(dataset: DatasetSpec, plan: DecisionPlan, *, data_dir: Path | None, limit: int | None, seed: int) -> Split:
    """The prompts of the dataset's calibration part in a seeded order, some to train on and some to validate with.

    Of another dataset, if the plan names one, they are all texts but the sample that is decoded of it. At most as many
    as the plan says; of fewer an eighth is for validation. Texts of the evaluation part are left out. DatasetError
    where there are no two.
    """
    source, wanted = plan.dataset or dataset, most(plan, limit)
    decoded = datasets.load(
        replace(source, part="evaluation"), data_dir=data_dir, limit=None if plan.dataset else sys.maxsize
    )
    others = {_hash(turn) for found in decoded for turn in found.turns}
    part, count = ("all", wanted + len(decoded)) if plan.dataset else ("calibration", wanted)
    texts = datasets.load(replace(source, part=part), data_dir=data_dir, limit=count)
    pool = {text: found for found in texts if (text := _hash(found.turns[0])) not in others}
    if len(pool) < 2:
        raise DatasetError(
            "a decision model needs two prompts at least, one to train on and one to validate with, and "
            f"{source.name} gives {len(pool)}; raise limit, take a larger dataset, or give drafter.decision the "
            ".safetensors file of one that was trained before"
        )
    order = random.Random(seed).sample(list(pool.values()), min(len(pool), wanted))
    held = plan.validation if len(order) >= plan.prompts + plan.validation else max(1, len(order) // 8)
    return Split(training=order[held:], validation=order[:held])


def check_disjoint(facts: Mapping[str, str], dataset: DatasetSpec, *, data_dir: Path | None, limit: int | None) -> None:
    """DatasetError where a prompt to be decoded, of whichever turn, is what a model with these facts learnt from."""
    known = {found for name in TRAINED_ON for found in facts.get(name, "").split()}
    own = datasets.load(dataset, data_dir=data_dir, limit=limit)
    shared = [found.id for found in own if known & {_hash(turn) for turn in found.turns}]
    if shared:
        raise DatasetError(
            f"{len(shared)} of the {len(own)} conversations to be decoded, such as {shared[0]}, are what the decision "
            "model is trained on; set dataset.part=evaluation"
        )


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]
