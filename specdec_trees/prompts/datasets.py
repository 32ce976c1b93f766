"""Conversations to decode: bundled in the package, from JSONL files, or from the hub."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Self

from specdec_trees.names import lacks, unknown
from specdec_trees.prompts.conversations import TURNS, Conversation, DatasetError, fingerprint, read_jsonl
from specdec_trees.prompts.hub import PROMPT_IN_PART, PUBLISHERS, HubSource, hub_conversations

__all__ = [
    "Conversation",
    "DatasetError",
    "DatasetSpec",
    "HubSource",
    "file_of",
    "fingerprint",
    "lacking",
    "load",
    "part_size",
    "selects",
    "source_id",
]

BUNDLED = Path(__file__).parents[1] / "tiny"
PARTS = ("all", "calibration", "evaluation")
MAX_NEW_TOKENS = 128
"""Of an answer, where a dataset does not say it."""
UNRESOLVED = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""What stands for a prompt in SPEED-Bench's files before its script has put it in."""
CALIBRATION, CANDIDATES, _SEED = 200, 2000, 17
"""Usable conversations for calibration; how many are looked at in all; the seed of whatever is drawn of them."""
HUB_SIZES = {
    "mt_bench": 80,
    "wikitext": 62,
    "humaneval": 164,
    "mbpp": 500,
    "math_500": 500,
    "aime": 30,
    "livecodebench": 175,
}
"""Usable conversations of a hub's dataset by adapter, where they may be fewer than are asked for."""
HUB_CATEGORIES = ("mt_bench", "math_500", "livecodebench")
"""Adapters that give conversations a category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One yaml of `conf/dataset`: where conversations come from and how long prompts and answers may be.

    What a yaml leaves out has the default below. A JSONL file needs `name` and `file`; a dataset of the hub needs
    `name`, `hub` and `adapter`. Without `file` and `hub`, `<name>.jsonl` lies in DATA_DIR or is bundled.
    """

    name: str
    file: str | None = None
    """A JSONL file by its path: absolute, or relative to DATA_DIR or to where the command runs."""
    hub: HubSource | None = None
    adapter: str | None = None
    """Name of the function in `specdec_trees.prompts.hub` that understands the hub's records."""
    mode: str = "chat"
    """chat: turns go through the pair's template | raw: the first `prompt_tokens` tokens of a text are the prompt"""
    prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    """The user's text is cut until the prompt has at most this many tokens; None: never."""
    max_new_tokens: int = MAX_NEW_TOKENS
    """An answer has at most this many tokens; the end-of-sequence token ends it sooner."""
    max_total_tokens: int | None = None
    """Decoding stops where prompt and answer together have this many tokens; None: no such rule."""
    min_chars: int = 0
    """Conversations whose first turn is shorter are passed over, so that raw prompts have all their tokens."""
    limit: int | None = None
    """The papers' sample size, of which `load` takes so many; None: all."""
    files: tuple[str, ...] = ()
    """Other names, without `.jsonl`, under which the file may lie in DATA_DIR."""
    frame: str | None = None
    """What is put around the text of every turn, `{text}`, before the pair's template: instructions, an example."""
    groups: Mapping[str, Sequence[str]] | None = field(default=None, hash=False)
    """Categories that count as one, by the name that they get: `{name: [category, ...]}`."""
    part: str = "all"
    """calibration: the first 200 usable ones, or half of fewer than 400 | evaluation: the others, in a fixed order."""

    def __post_init__(self) -> None:
        _check_complete(asdict(self))
        if self.hub and self.file:
            raise DatasetError(f"dataset {self.name} has both hub and file; give one of them")
        if self.mode not in ("chat", "raw"):
            raise DatasetError(unknown("dataset.mode", self.mode, ("chat", "raw")))
        if self.mode == "chat" and self.prompt_tokens is not None:
            raise DatasetError(f"dataset {self.name}: prompt_tokens is for mode raw; for chat give max_prompt_tokens")
        if self.frame is not None and (self.mode != "chat" or "{text}" not in self.frame):
            raise DatasetError(f"dataset {self.name}: a frame needs {{text}} where the turn's text goes, and mode chat")
        if self.part not in PARTS:
            raise DatasetError(unknown("dataset.part", self.part, PARTS))

    @property
    def source(self) -> str:
        """Where conversations come from without DATA_DIR: hub, file or bundled."""
        return "hub" if self.hub else "file" if self.file else "bundled"

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """From the plain mapping of a yaml; a DatasetError names a key that is unknown, or all that are missing."""
        known = {field.name for field in fields(cls)}
        for key in config:
            if key not in known:
                raise DatasetError(unknown(f"key of dataset {config.get('name')}", str(key), known))
        _check_complete(config)
        hub = HubSource(**config["hub"]) if config.get("hub") else None
        return cls(**{**config, "hub": hub, "files": tuple(config.get("files", ()))})

    def to_config(self) -> dict[str, Any]:
        """The plain values by which a cell is known: all but the path of a file; frame and groups if there are any.

        `source` is among them, as it was an option once.
        """
        left_out = ("file", *(key for key in ("frame", "groups") if getattr(self, key) is None))
        found = {key: value for key, value in asdict(self).items() if key not in left_out}
        return found | {"source": self.source, "files": list(self.files)}


def lacking(config: Mapping[str, Any]) -> list[str]:
    """The keys that a dataset's yaml needs beside those that it has."""
    hub, found = config.get("hub"), [] if config.get("name") else ["name"]
    if hub or config.get("adapter"):
        found += [f"hub.{key}" for key in ("path", "split") if not (hub or {}).get(key)]
        found += [] if config.get("adapter") else ["adapter"]
    return found + ["prompt_tokens"] * (config.get("mode") == "raw" and config.get("prompt_tokens") is None)


def _check_complete(config: Mapping[str, Any]) -> None:
    if missing := lacking(config):
        example = "c4" if config.get("mode") == "raw" else "gsm8k"
        what = f"dataset {config['name']}" if config.get("name") else "dataset"
        raise DatasetError(lacks(what, missing, f"conf/dataset/{example}.yaml"))


def load(spec: DatasetSpec, *, data_dir: Path | None = None, limit: int | None = None) -> list[Conversation]:
    """Usable conversations, `limit` of them at most (None: the dataset's own limit), at least one; in the part's order.

    A limit takes their categories in turn, or a seeded sample without two of them, of the first `CANDIDATES` or of as
    many as it is; a larger one takes those of a smaller one and others. `data_dir` is a folder of JSONL files in place
    of the hub. DatasetError says what to do.
    """
    wanted = spec.limit if limit is None else limit
    if wanted is not None and wanted < 1:
        raise DatasetError(f"limit={wanted}: ask for at least one conversation")
    chosen = _limited(_part(_usable(spec, data_dir), spec.part), wanted, spec.part)
    if spec.mode == "raw":  # a text has no second turn
        chosen = [replace(found, turns=found.turns[:1]) for found in chosen]
    if not chosen and spec.part != "all":
        raise DatasetError(
            f"the {spec.part} part of {source_id(spec, data_dir)} is empty: its usable conversations are split in two, "
            "so there must be at least two"
        )
    if not chosen:
        raise DatasetError(f"{source_id(spec, data_dir)} has no conversation of at least {spec.min_chars} characters")
    return chosen


def selects(spec: DatasetSpec, data_dir: Path | None, limit: int | None) -> bool:
    """Whether a limit takes others than the first so many; of the hub, which is not read for it, whether it may."""
    wanted = spec.limit if limit is None else limit
    if wanted is None:
        return False
    if file_of(spec, data_dir):
        part = list(_part(_usable(spec, data_dir), spec.part))
        return _limited(part, wanted, spec.part) != part[:wanted]
    there = part_size(HUB_SIZES.get(spec.adapter or "", CANDIDATES), spec.part)
    return wanted < there and (spec.part != "evaluation" or spec.adapter in HUB_CATEGORIES)


def _limited(found: Iterable[Conversation], wanted: int | None, part: str) -> list[Conversation]:
    """As many as are wanted, as `load` says, in the order in which they are found."""
    if wanted is None:
        return list(found)
    pool = list(islice(found, max(wanted, CANDIDATES)))
    places: dict[str | None, list[int]] = {}
    for place, conversation in enumerate(pool):
        places.setdefault(conversation.category, []).append(place)
    if len(places) > 1:
        order = [place for turn in zip_longest(*places.values()) for place in turn if place is not None]
    elif part == "evaluation":  # in a seeded order already
        order = list(range(len(pool)))
    else:
        order = random.Random(_SEED).sample(range(len(pool)), len(pool))
    return [pool[place] for place in sorted(order[:wanted])]


def _usable(spec: DatasetSpec, data_dir: Path | None) -> Iterator[Conversation]:
    return (found for found in _conversations(spec, data_dir) if len(found.turns[0]) >= spec.min_chars)


def _part(usable: Iterator[Conversation], part: str) -> Iterable[Conversation]:
    """Two parts that share nothing (Sequoia measures on 200 examples and evaluates on 200 others)."""
    if part == "all":
        return usable
    found = list(islice(usable, CANDIDATES))
    cut = part_size(len(found), "calibration")
    if part == "calibration":
        return found[:cut]
    return random.Random(_SEED).sample(found[cut:], len(found) - cut)


def part_size(usable: int, part: str) -> int:
    """How many of so many usable conversations are in a part."""
    if part == "all":
        return usable
    looked_at = min(usable, CANDIDATES)
    cut = CALIBRATION if looked_at >= 2 * CALIBRATION else looked_at // 2
    return cut if part == "calibration" else looked_at - cut


def source_id(spec: DatasetSpec, data_dir: Path | None = None) -> str:
    """The origin, for the rows: `file:gsm8k.jsonl`, `bundled:prompts.jsonl` or `hub:path/name/split@revision`."""
    if path := file_of(spec, data_dir):
        return f"{'bundled' if path.parent == BUNDLED else 'file'}:{path.name}"
    assert spec.hub is not None
    parts = (spec.hub.path, spec.hub.name, spec.hub.split)
    return f"hub:{'/'.join(part for part in parts if part)}@{spec.hub.revision or 'main'}"


def _conversations(spec: DatasetSpec, data_dir: Path | None) -> Iterator[Conversation]:
    group = {category: name for name, categories in (spec.groups or {}).items() for category in categories}
    read = _read(spec, data_dir)
    for found in _in_turn([*read], group) if group else read:
        if any(UNRESOLVED in text for text in found.turns):
            raise DatasetError(f"{spec.name}: {found.id} has no prompt yet; run the script of its publisher first")
        name = group.get(found.category or "")
        yield replace(found, category=name) if name else found


def _in_turn(read: Sequence[Conversation], group: Mapping[str, str]) -> Iterator[Conversation]:
    """In the order of the file, but that a group has its categories in turn, of which a limit takes the first."""
    waiting: dict[str, list[Conversation]] = {}
    for name in {*group.values()}:
        of_category: dict[str | None, list[Conversation]] = {}
        for found in read:
            if group.get(found.category or "") == name:
                of_category.setdefault(found.category, []).append(found)
        rounds = zip_longest(*of_category.values())
        waiting[name] = [found for one in rounds for found in one if found is not None][::-1]
    for found in read:
        of = group.get(found.category or "")
        yield waiting[of].pop() if of else found


def _read(spec: DatasetSpec, data_dir: Path | None) -> Iterator[Conversation]:
    if path := file_of(spec, data_dir):
        turns = TURNS[:1] if spec.adapter in PROMPT_IN_PART else TURNS
        return iter(read_jsonl(path, PUBLISHERS.get(spec.adapter or ""), turns))
    assert spec.hub is not None
    assert spec.adapter is not None
    return hub_conversations(spec.hub, spec.adapter, spec.name)


def file_of(spec: DatasetSpec, data_dir: Path | None) -> Path | None:
    """The file to read, or None for the hub. In DATA_DIR the dataset's own name comes first.

    `<name>/question.jsonl` is where FastChat and Spec-Bench have theirs in their folders `data`.
    """
    names = [f"{stem}.jsonl" for stem in (spec.name, *spec.files)]
    folder = Path(data_dir).expanduser() if data_dir else None
    places = [folder / name for name in (*names, f"{spec.name}/question.jsonl")] if folder else []
    if spec.file:
        own = Path(spec.file).expanduser()
        places += [*([folder / own] if folder else []), own]
    elif not spec.hub:
        places += [BUNDLED / name for name in names]
    for path in places:
        if path.is_file():
            return path
    if not places:
        return None
    raise DatasetError(_missing(spec, folder, names))


def _missing(spec: DatasetSpec, folder: Path | None, names: list[str]) -> str:
    if folder and not folder.is_dir():
        return f"DATA_DIR={folder} is not a folder; give the folder that holds {names[0]}"
    if spec.file:
        places = f"in {folder} or {Path.cwd()}" if folder else f"in {Path.cwd()}"
        where = "" if Path(spec.file).expanduser().is_absolute() else f" {places}"
        return f"dataset {spec.name}: there is no file {spec.file}{where}; correct dataset.file, its path"
    if folder is None:
        return (
            f"dataset {spec.name} names neither file, a JSONL file, nor hub and adapter; see conf/dataset/gsm8k.yaml, "
            f"or give DATA_DIR=<folder with {names[0]}>"
        )
    there = ", ".join(sorted(path.name for path in folder.glob("*.jsonl"))) or "no .jsonl file"
    hub = ", or leave DATA_DIR out to use the hub" if spec.hub else ""
    return f"no {' or '.join(names)} in {folder} (there: {there}); add it{hub}"
