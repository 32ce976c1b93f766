"""Fingerprints of local weights and prompts, by which a cell is known in place of their paths.

Kept as long as the process lives, and made anew when a file has changed: the cells of a sweep share them.
"""

import functools
import hashlib
from pathlib import Path

from bench.prompts import datasets

SELECTION = {"selection": "categories in turn, else a seeded sample"}
"""What a dataset's config has in the identity of a cell whose limit selects."""


def fingerprint_folder(folder: Path) -> str:
    """Of a model folder: names and sizes of its files, and the first MiB of each. Retrained weights differ there."""
    paths = tuple(sorted(path for path in folder.resolve().iterdir() if path.is_file()))
    return _of_files(paths, tuple(map(state, paths)))


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
def _of_files(paths: tuple[Path, ...], _states: tuple[tuple[int, ...], ...]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=256)
def _of_prompts(spec: datasets.DatasetSpec, data_dir: Path | None, _path: Path, _state: tuple[int, ...]) -> str:
    return datasets.fingerprint(datasets.load(spec, data_dir=data_dir))[:16]


@functools.lru_cache(maxsize=256)
def _selects(
    spec: datasets.DatasetSpec, data_dir: Path | None, limit: int | None, _path: Path | None, _state: tuple[int, ...]
) -> bool:
    return datasets.selects(spec, data_dir, limit)


def state(path: Path) -> tuple[int, ...]:
    """What changes whenever a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
