"""Names: sentences about unknown ones, that suggest the nearest known, and about missing ones; those of shards."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first; those that contain it count as like it. Empty if none is."""
    known = sorted(names)
    alike = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    containing = [other for other in known if name and name.lower() in other.lower() and other not in alike]
    return (alike + containing)[:count]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """One sentence: unknown pair "tinny"; did you mean "tiny"? All names are listed if none is near."""
    known = sorted(names)
    near = nearest(name, known)
    if near:
        return f'unknown {kind} "{name}"; did you mean {" or ".join(f"{chr(34)}{other}{chr(34)}" for other in near)}?'
    return f'unknown {kind} "{name}"; there are: {", ".join(known) or "none"}'


def lacks(what: str, names: Iterable[str], example: str) -> str:
    """One sentence: dataset quiz lacks hub, adapter; see conf/dataset/gsm8k.yaml."""
    return f"{what} lacks {', '.join(names)}; see {example}"


def without_paths(text: str) -> str:
    """A text for rows: of each absolute path its last name alone, so that no user and no machine is told."""
    text = text.replace(f"{Path.home()}/", "~/")
    return re.sub(r"(?<![\w.:/~-])(?:/[^\s/:,;'\"()\[\]{}]+){2,}/?", lambda found: Path(found[0]).name, text)


def shard_of(text: object) -> tuple[int, int] | None:
    """I and n of `i/n`, the i-th of n parts of a sweep, i from 0; None for anything else."""
    part, _, parts = str(text).partition("/")
    named = part.isdigit() and parts.isdigit() and int(part) < int(parts)
    return (int(part), int(parts)) if named else None
