"""Datasets of the hub that are streamed: what one start read of them, later ones have without the hub."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub.utils import httpx

from specdec_trees.results.parquet import replace_text

Record = Mapping[str, Any]
UNREACHED = (ConnectionError, httpx.TransportError)
"""What clients of the hub raise where it cannot be reached; the second is no ConnectionError of Python's."""
log = logging.getLogger(__name__)


class _Earlier(NamedTuple):
    """What earlier starts read: records as lines of JSON, and whether they are all that there are."""

    lines: list[str]
    whole: bool


def streamed(path: str, arguments: Mapping[str, Any], load: Callable[[], Iterable[Record]]) -> Iterator[Record]:
    """The records of `load`, which stay in the hub's cache; those of earlier starts where the hub cannot be reached.

    `path` and `arguments` are those of `load_dataset`. ConnectionError where no start has read as far.
    """
    place = _place(path, arguments)
    lines: list[str] = []
    whole = broken = False
    try:
        for record in load():
            lines.append(json.dumps(record, default=str))
            yield record
        whole = True
    except UNREACHED as error:
        broken = True
        earlier, done = _read(place), len(lines)
        count = len(earlier.lines)
        if count <= done or earlier.lines[:done] != lines:
            raise
        log.warning("%s: the %d records that an earlier start read, as the hub cannot be reached", path, count)
        yield from map(json.loads, earlier.lines[done:])
        if not earlier.whole:
            raise ConnectionError(f"earlier starts read {count} records of {path}, and more are asked for") from error
    finally:
        if not (broken and _read(place).whole):
            _write(place, _Earlier(lines, whole))


def _place(path: str, arguments: Mapping[str, Any]) -> Path:
    import datasets  # slow to import

    name = hashlib.sha256(json.dumps([path, arguments], sort_keys=True).encode()).hexdigest()[:32]
    return Path(datasets.config.HF_DATASETS_CACHE) / "specdec-bench" / f"{name}.jsonl"


def _read(place: Path) -> _Earlier:
    try:
        first, *lines = place.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return _Earlier(lines, bool(json.loads(first)["whole"]))
    except (OSError, ValueError, LookupError, TypeError):
        return _Earlier([], False)


def _write(place: Path, read: _Earlier) -> None:
    """In the place of what earlier starts read, unless that begins alike and goes on."""
    earlier, count = _read(place).lines, len(read.lines)
    if not read.whole and len(earlier) >= count and earlier[:count] == read.lines:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_text(place, "".join(f"{line}\n" for line in (json.dumps({"whole": read.whole}), *read.lines)))
    except OSError as error:
        log.debug("what was read of a dataset does not stay in %s: %s", place, error)
