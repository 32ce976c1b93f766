"""What makes a cell the same cell: the hashed part of its config, and fingerprints of local weights and prompts."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import datasets

LABELS = {"pair": ("name", "published"), "drafter": ("name", "method"), "verifier": ("name",)}
"""Names, and what only reports read: changing them makes no other cell."""


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a scientific config that `run_id` hashes. Options at a default that came later make no other cell."""
    target = config["pair"]["target"]
    if target and target.get("bits", 0) is None:
        pair = config["pair"] | {"target": {key: value for key, value in target.items() if key != "bits"}}
        config = {**config, "pair": pair}
    return {
        axis: {key: value for key, value in values.items() if key not in LABELS[axis]} if axis in LABELS else values
        for axis, values in config.items()
    }


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
