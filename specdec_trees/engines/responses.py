"""Records in JSON: responses of vLLM and llama.cpp, whole or as streams, AIPerf's records, and what is written here."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from specdec_trees.engines.records import NAMES, EngineError, Record
from specdec_trees.statistics import positions

DEEPEST = 1 << 16
"""More positions than any engine drafts."""
_BEGINNING = re.compile(r'\{\s*"|\[\s*\{')


class Place(NamedTuple):
    """Where a record stands: its run of ours, the response it is of, the object that says so, and what that says."""

    run: str | None = None
    response: Hashable = None
    holder: int = 0
    ended: bool = False
    warmup: bool = False


def documents(text: str) -> tuple[list[Any], str, int]:
    """The objects and lists in a text, what stands around them, and how many begin but do not end.

    So are read: one document, several, one in each line, events of a stream (`data: {...}`), and lines of a log.
    """
    decoder, values, rest, cut, place = json.JSONDecoder(), [], [], 0, 0
    while begin := _BEGINNING.search(text, place):
        line = text.find("\n", begin.start()) + 1 or len(text)
        first = begin.start() if begin.end() <= line else 0  # an error in a long text takes long to be raised
        try:
            value, end = decoder.raw_decode(text[first:line] if first else text, begin.start() - first)
            values.append(value)
            rest.append(text[place : begin.start()])
            place = first + end
        except json.JSONDecodeError:
            after = text.find("\n", begin.end()) + 1 or len(text)
            rest.append(text[place:after])
            place, cut = after, cut + 1
    return values, "".join([*rest, text[place:]]), cut


def responses(values: list[Any], run: str) -> tuple[list[Record], list[str]]:
    """The records, each response's once, and notes on what was left out.

    Chunks of a stream count from its beginning: the last one is the response's. Records of other runs are left out
    where one is of this run, and so is AIPerf's warm-up.
    """
    placed, notes = [*_last(_inside(values, Place()))], []
    if warmup := sum(place.warmup for place, _ in placed):
        notes.append(f"Records of a warm-up are left out: {warmup}.")
        placed = [(place, record) for place, record in placed if not place.warmup]
        if not placed:
            raise EngineError("the record has a warm-up alone")
    runs = {place.run for place, _ in placed if place.run}
    if run in runs:
        placed = [(place, record) for place, record in placed if place.run in (None, run)]
    elif len(runs) > 1:
        raise EngineError(f"the record has {len(runs)} runs, and none of them is {run}")
    elif runs:
        notes.append(f"Theirs is of run {', '.join(runs)}.")
    return [record for _, record in placed], notes


def _last(placed: Iterator[tuple[Place, Record]]) -> Iterator[tuple[Place, Record]]:
    """Of each response the records in the last object that has any."""
    latest: dict[Hashable, list[tuple[Place, Record]]] = {}
    for number, (place, record) in enumerate(placed):
        key = number if place.response is None else (place.run, place.response)
        before = latest.get(key, [])
        latest[key] = [*(one for one in before if one[0].holder == place.holder), (place, record)]
        if place.ended:
            latest[number] = latest.pop(key)
    for group in latest.values():
        yield from group


def _inside(value: Any, place: Place) -> Iterator[tuple[Place, Record]]:
    """The outermost objects that have what was drafted and what was accepted."""
    if isinstance(value, list):
        for item in value:
            yield from _inside(item, place)
    if not isinstance(value, dict):
        return
    place, held = _placed(value, place), {}
    for quantity, names in NAMES.items():
        held[quantity] = next((value[name] for name in names.values() if name in value), None)
    if all(isinstance(held[quantity], int | float) for quantity in ("drafted", "accepted")):
        yield place, _record(held)
        return
    for name, item in value.items():
        if name != "__verbose" or "timings" not in value:  # llama.cpp has the same timings in both
            yield from _inside(item, place)


def _placed(value: Mapping[str, Any], place: Place) -> Place:
    """The place of what stands in an object; llama.cpp's own `/completion` has no ids, but says where it ends."""
    if isinstance(value.get("run_id"), str):
        place = place._replace(run=value["run_id"])
    if isinstance(value.get("id"), str | int):
        place = place._replace(response=("id", value["id"]), holder=id(value), ended=False)
    elif isinstance(value.get("stop"), bool):
        stream = ("stream", str(value.get("index")), str(value.get("id_slot")))
        place = place._replace(response=stream, holder=id(value), ended=value["stop"])
    about = [some for some in (value, value.get("metadata")) if isinstance(some, dict)]
    phases = [some.get(name) for some in about for name in ("benchmark_phase", "phase_kind")]
    return place._replace(warmup=True) if "warmup" in phases else place


def _record(held: Mapping[str, Any]) -> Record:
    """Of an object's counts; EngineError where they contradict each other."""
    drafted, accepted = (_count(held[quantity]) for quantity in ("drafted", "accepted"))
    steps = None if held["steps"] is None else _count(held["steps"])
    depth = 0 if held["depth"] is None else _count(held["depth"])
    if held["counts"] is None:
        reached = None if held["reached"] is None else [*map(_count, held["reached"])]
        if reached and (sum(reached) != accepted or [steps or 0, *reached] != sorted([steps or 0, *reached])[::-1]):
            raise EngineError(f"a record has {accepted} accepted tokens in {steps} steps, but by position {reached}")
    else:
        counts = _histogram(held["counts"])
        sums = sum(counts.values()), sum(count * tokens for tokens, count in counts.items())
        if sums != (sums[0] if steps is None else steps, accepted):
            raise EngineError(
                f"a record has {accepted} accepted tokens in {steps} steps, its histogram {sums[1]} in {sums[0]}"
            )
        steps, depth = sums[0], max([depth, *counts])
        reached = positions.reached([counts.get(tokens, 0) for tokens in range(min(depth, DEEPEST) + 1)])
    if depth > DEEPEST:
        raise EngineError(f"a record has drafts of {depth} tokens")
    return Record(drafted, accepted, steps, None if reached is None else tuple(reached)).deeper(depth)


def _histogram(counts: Any) -> dict[int, int]:
    """Steps by accepted tokens: vLLM writes a list, AIPerf an object without the empty places."""
    pairs = enumerate(counts) if isinstance(counts, list) else counts.items()
    return {_count(int(tokens)): _count(count) for tokens, count in pairs}


def _count(value: Any) -> int:
    if isinstance(value, bool | str) or value != int(value) or value < 0:
        raise ValueError(f"{value} is no count")
    return int(value)
