"""Fingerprints of local weights and prompts, by which a cell is known in place of their paths."""

import hashlib
from pathlib import Path

from bench import datasets


def fingerprint_folder(folder: Path) -> str:
    """Of a model folder: names and sizes of its files, and the first MiB of each. Retrained weights differ there."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
    return digest.hexdigest()[:16]


def fingerprint_data(spec: datasets.DatasetSpec, data_dir: Path) -> str | None:
    """Of the conversations in DATA_DIR; None where they cannot be read, which the run then says in a sentence."""
    try:
        return datasets.fingerprint(datasets.load(spec, data_dir=data_dir))[:16]
    except datasets.DatasetError:
        return None
