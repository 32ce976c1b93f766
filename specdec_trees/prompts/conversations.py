"""A conversation to decode, and the JSONL files that hold them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE = '{"id": str, "turns": [str, ...], "reference": str or null, "category": str or null}'
"""What one line of a file holds; the last two may be left out."""
IDS = ("id", "question_id", "prompt_id", "task_id")
TURNS = ("turns", "prompt")
"""What files call the same: MT-Bench's own, its copy on the hub, HumanEval's. The first that is there counts."""
Publisher = Callable[[dict[str, Any], int], dict[str, Any]]
"""(record of a publisher's own file, its line from 1) -> what `LINE` holds; KeyError for a record of another kind."""


class DatasetError(Exception):
    """A dataset cannot be had or read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the user says, turn by turn; the answers are what is decoded."""

    id: str
    turns: tuple[str, ...]
    reference: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        for text in (self.id, *self.turns, self.reference or "", self.category or ""):
            _check_characters(ascii(self.id), text)
        if not self.turns:
            raise DatasetError(f"conversation {self.id} has no turns; it needs at least one")
        for number, turn in enumerate(self.turns, 1):
            if not turn.strip():
                raise DatasetError(
                    f"conversation {self.id}: the prompt of turn {number} is empty; remove it or fill it"
                )


def read_jsonl(path: Path, publisher: Publisher | None = None, turns: Sequence[str] = TURNS) -> list[Conversation]:
    """All conversations of a file. DatasetError names the file and the line that is wrong.

    A record without any of the keys `turns` is what the publisher has, if the dataset has one.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {path}: {error}; it must be a readable UTF-8 file") from error
    found: dict[str, Conversation] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        conversation = _parse(line, f"{path}, line {number}", number, publisher, turns)
        if conversation.id in found:
            raise DatasetError(f'{path}, line {number}: the id "{conversation.id}" occurs twice; ids must be unique')
        found[conversation.id] = conversation
    return list(found.values())


def fingerprint(conversations: Iterable[Conversation]) -> str:
    """The sha256 of ids and turns in order: equal exactly if the same prompts are run."""
    return _sha256([[conversation.id, *conversation.turns] for conversation in conversations])


def labels_fingerprint(conversations: Iterable[Conversation]) -> str:
    """The sha256 of what rows have of conversations beside their prompts: references and categories, in order."""
    return _sha256([[conversation.reference, conversation.category] for conversation in conversations])


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _parse(line: str, where: str, number: int, publisher: Publisher | None, turns: Sequence[str]) -> Conversation:
    try:
        read = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where} is not JSON ({getattr(error, 'msg', error)}); each line is {LINE}") from error
    record = _plain(_published(read, number, publisher, turns)) if isinstance(read, dict) else read
    _check(record, where)
    try:
        return Conversation(record["id"], tuple(record["turns"]), record.get("reference"), record.get("category"))
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from error


def _published(
    record: dict[str, Any], number: int, publisher: Publisher | None, turns: Sequence[str]
) -> dict[str, Any]:
    """A publisher's record under the names of `LINE`; any other as it is."""
    if publisher is None or any(name in record for name in turns):
        return record
    try:
        return publisher(record, number)
    except (KeyError, TypeError):  # of another kind, which `_check` refuses
        return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ, since of two values nobody knows which is meant."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f'"{twice}" occurs twice')
    return record


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """The record under the names of `LINE`: numbers as ids, one prompt as a turn, several references as one text."""
    known = {"id": IDS, "turns": TURNS, "reference": ("reference",), "category": ("category",)}
    places = {field: next((name for name in names if name in record), None) for field, names in known.items()}
    found = {field: record[name] for field, name in places.items() if name}
    if type(found.get("id")) is int:
        found["id"] = str(found["id"])
    if places["turns"] == "prompt" and isinstance(found["turns"], str):
        found["turns"] = [found["turns"]]
    if isinstance(found.get("reference"), list):
        found["reference"] = json.dumps(found["reference"], ensure_ascii=False) if found["reference"] else None
    return found


def _check_characters(name: str, text: str) -> None:
    """DatasetError for half of a character, which is no Unicode text: no tokenizer reads it, no file holds it."""
    if half := next((letter for letter in text if "\ud800" <= letter <= "\udfff"), None):
        raise DatasetError(
            f"conversation {name} has half of a character, {half!a}, without the other half; where a text was cut "
            "inside of it, remove it or write the whole character"
        )


def _check(record: Any, where: str) -> None:
    if not isinstance(record, dict):
        raise DatasetError(f"{where} is a {type(record).__name__}; each line is {LINE}")
    turns = record.get("turns")
    fits = {
        "id": isinstance(record.get("id"), str) and bool(record["id"]),
        "turns": isinstance(turns, list) and all(isinstance(turn, str) for turn in turns),
        "reference": isinstance(record.get("reference"), str | None),
        "category": isinstance(record.get("category"), str | None),
    }
    for field, good in fits.items():
        if not good:
            raise DatasetError(f'{where}: "{field}" is {record.get(field, "missing")!r:.60}; each line is {LINE}')
