"""Which weights a model has, by all bytes of its folder or its hub's commit; and runs of other files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from transformers.utils import cached_file
from transformers.utils.hub import extract_commit_hash

from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.fetch import fetch
from specdec_trees.measure.cell import Cell, PairSpec
from specdec_trees.measure.fingerprints import fingerprint_folder
from specdec_trees.results.identity import identity
from specdec_trees.results.store import Store

_ROLES = ("target", "draft")
_read: dict[Path, tuple[dict[tuple[str, str], dict[str, tuple[str, Any]]], set[str]]] = {}
"""By folder of an experiment what its runs are alike in, and which were read."""


def revisions(pair: PairSpec) -> dict[str, str]:
    """Of target and draft, by their columns of `runs`, the weights that would be loaded now, where that is known."""
    if pair.planted:
        return {}
    models = {f"{role}_revision": getattr(pair, role) for role in _ROLES}
    known = {column: revision(spec) for column, spec in models.items() if spec}
    return {column: value for column, value in known.items() if value}


def revision(spec: ModelSpec) -> str | None:
    """`files:<digest>` of a folder, the commit of a hub id; None where the hub is not reached and has left no files."""
    folder = Path(spec.source)
    if folder.is_dir():
        return f"files:{fingerprint_folder(folder)}"
    if re.fullmatch(r"[0-9a-f]{40}", spec.revision or ""):
        return spec.revision
    return _commit(spec.id, spec.revision)


def commits(pair: PairSpec) -> dict[str, Any]:
    """What hub ids stand for, for the keys of what is kept; nothing where all weights are folders, which keys have."""
    found = {column: value for column, value in revisions(pair).items() if not value.startswith("files:")}
    return {"commits": found} if found else {}


def replaced(cell: Cell, store: Store) -> str:
    """`run 1a2b3c is of other prompts`: the newest run of a cell that is alike but for its files; "" without one."""
    same, contents = _apart(cell.config)
    alike = _alike(store).get((cell.drafter, json.dumps(same, sort_keys=True)), {})
    there = store.rows("runs").ids() - {cell.run_id}
    others = [(created, run_id) for run_id, (created, _) in alike.items() if run_id in there]
    if not others:
        return ""
    _, run_id = max(others)
    _, before = alike[run_id]
    return f"run {run_id} is of other {' and '.join(name for name in contents if contents[name] != before[name])}"


def _alike(store: Store) -> Mapping[tuple[str, str], dict[str, tuple[str, Any]]]:
    """When runs were made, and their files' contents, by drafter and all but these; each run is read once."""
    runs, known = _read.setdefault(store.folder, ({}, set()))
    there = store.rows("runs").ids()
    rows = store.read("runs", sorted(there - known), only=("run_id", "drafter", "created_utc", "config"))
    for run_id, drafter, created, config in rows.itertuples(index=False):
        same, contents = _apart(json.loads(config))
        runs.setdefault((drafter, json.dumps(same, sort_keys=True)), {})[run_id] = created, contents
    known |= there
    return runs


def _apart(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cell's identity without its files' contents, and these by what they are of."""
    plain = identity(config)
    pair, dataset = dict(plain["pair"]), dict(plain["dataset"])
    models = {role: dict(pair[role]) for role in _ROLES if pair[role]}
    contents = {
        "weights": {role: model.pop("files_sha256", None) for role, model in models.items()},
        "template": pair.pop("template_sha256", None),
        "prompts": dataset.pop("prompts_sha256", None),
    }
    return {**plain, "pair": pair | models, "dataset": dataset}, contents


@cache
def _commit(model_id: str, revision: str | None) -> str | None:
    """The commit that would be loaded: that of the hub's newest config, or of the files on this machine."""
    spec = ModelSpec(id=model_id, revision=revision)
    try:
        path = fetch(cached_file, spec, filename="config.json")
    except LoadError:
        return None  # which loading then says in a sentence
    return extract_commit_hash(path, None)
