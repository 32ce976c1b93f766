"""What is said below a comparison: what differs beside the metrics, what is missing, how the words come about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from specdec_trees.artifacts import tables
from specdec_trees.compare.changes import METRICS, NO_INTERVAL, Couple
from specdec_trees.compare.joined import Joined, cell_words, counterpart
from specdec_trees.compare.sides import Run

DIFFERENT = (
    *("lossless", "prompts_sha256", "dtype", "device_name", "num_threads", "wait_policy", "schema_version"),
    *("package_version", "git_revision", "git_dirty", "python_version", "torch_version", "transformers_version"),
    *("cuda_version", "driver_version"),
)
"""Columns of `runs` that are told of where they differ."""
_LONGEST = 40
_MANY = 6


def notes(joined: Joined, judged: Sequence[str]) -> Iterator[str]:
    """Sentences, the outcome first, but for prompts that are not what it is taken to be about."""
    first, second = joined.sides
    yield from _other_prompts(joined.couples)
    yield f"A is {first.name}, B is {second.name}. B/A: above 1 B is ahead."
    yield from outcome(joined, judged)
    yield from dict.fromkeys(note for side in joined.sides for note in side.notes)
    for name, own, others in zip("AB", joined.alone, reversed(joined.alone), strict=True):
        if own:
            yield f"Only in {name}: {'; '.join(_alone(run, others) for run in own)}."
    yield from _not_measured(joined.couples)
    yield from _differences(joined.couples)
    if "mal" in judged:
        yield from _chance(joined.couples)


def outcome(joined: Joined, judged: Sequence[str]) -> Iterator[str]:
    """Which metrics got worse beyond their intervals, and what else is not well any more."""
    couples = joined.couples
    worse = [
        f"{METRICS[metric]} of {_words(couple)} ({tables.ratio(couple.changes[metric].ratio)})"
        for couple in couples
        for metric in judged
        if couple.worse(metric)
    ]
    worse += [f"{_words(couple)} {what}" for couple in couples for what in couple.broken]
    if worse:
        yield f"Worse in B: {'; '.join(worse)}."
        return
    measured = [couple for couple in couples if couple.measured]
    words = [couple.changes[metric].word for couple in measured for metric in judged]
    unknown = words.count(NO_INTERVAL)
    but = f"; {unknown} of {len(words)} ratios have no interval and say nothing" if unknown else ""
    cells = len(couples) + len(joined.alone[0])
    where = "" if joined.sides[0].kind == "run" else f" in {len(measured)} of A's {cells} cells"
    yield f"Nothing got worse{where}, by {' or '.join(METRICS[metric] for metric in judged)}{but}."


def _other_prompts(couples: Sequence[Couple]) -> Iterator[str]:
    other = [couple for couple in couples if couple.ok and not couple.same_prompts]
    if other:
        left = set.union(*(couple.other_prompts for couple in other))
        yield (
            f"In {len(other)} of {len(couples)} cells the prompts are not the same. Conversations are paired by id; "
            f"left out, as their first prompts differ: {_listed(left)}."
        )


def _listed(prompt_ids: set[str]) -> str:
    words = ", ".join(sorted(prompt_ids)[:_MANY]) + ", ..." * (len(prompt_ids) > _MANY)
    return f"{len(prompt_ids)} ({words})" if prompt_ids else "none"


def _alone(run: Run, others: Sequence[Run]) -> str:
    near = counterpart(run, others)
    status = "" if run.ok else f", {run.row['status']}"
    return f"{cell_words(run)}, run {run.run_id}{status}" + (
        f" (other arguments of the drafter: {near})" if near else ""
    )


def _not_measured(couples: Sequence[Couple]) -> Iterator[str]:
    for couple in couples:
        if couple.ok and not couple.num_conversations:
            yield f"{_words(couple)}: no conversation was decoded in both runs."
        own, shared = _conversations(couple), couple.num_conversations
        if couple.ok and shared and own != (shared, shared):
            yield f"{_words(couple)}: A decoded {own[0]} conversations, B {own[1]}; all is of the {shared} of both."


def _conversations(couple: Couple) -> tuple[int, int]:
    first, second = (run.decoded["prompt_id"].nunique() for run in (couple.first, couple.second))
    return int(first), int(second)


def _differences(couples: Sequence[Couple]) -> Iterator[str]:
    """One sentence per difference, with the number of cells that it is in."""
    counts = Counter(text for couple in couples for text in dict.fromkeys(_unlike(couple)))
    for text, count in counts.items():
        yield text + ("." if count == len(couples) else f" ({count} of {len(couples)} cells).")


def _unlike(couple: Couple) -> Iterator[str]:
    first, second = couple.first.row, couple.second.row
    known = [name for name in DIFFERENT if couple.ok or (first[name] and second[name])]
    pairs = [(name, first[name], second[name]) for name in known]
    configs = [flat(json.loads(row["config"])) for row in (first, second)]
    keys = dict.fromkeys([*configs[0], *configs[1]])
    pairs += [(key, configs[0].get(key), configs[1].get(key)) for key in keys]
    for name, one, other in pairs:
        values = [short(value) for value in (one, other)]
        if not _same(one, other):
            yield f"{name}: {values[0]} in A, {values[1]} in B"


def _chance(couples: Sequence[Couple]) -> Iterator[str]:
    """Of many intervals of 95% some miss 1 by chance; those of equal rows have no width and do not."""
    ratios = [couple.changes["mal"].ratio for couple in couples if couple.measured]
    wide = sum(ratio.known and ratio.high > ratio.low for ratio in ratios)
    if wide > 1:
        yield (
            "Intervals are over conversations. Of methods that accept the same in the long run 1 interval of MAL in 20 "
            f"does not hold 1, by the choice of prompts: about {wide / 20:.1f} of {wide} here."
        )


def _words(couple: Couple) -> str:
    first, second = cell_words(couple.first), cell_words(couple.second)
    return first if first == second else f"{second} (A: {first})"


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """`{"pair": {"name": 1}}` as `{"pair.name": 1}`."""
    if not isinstance(value, Mapping):
        return {name: value}
    prefix = f"{name}." if name else ""
    return {key: own for part, inner in value.items() for key, own in flat(inner, f"{prefix}{part}").items()}


def _same(one: Any, other: Any) -> bool:
    missing = [value is None or value is pd.NA or value != value for value in (one, other)]
    return all(missing) if any(missing) else bool(one == other)


def short(value: Any) -> str:
    """A value in a sentence."""
    if value is None or value is pd.NA or value != value:
        return "none"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:12]}..."
