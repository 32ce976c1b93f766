"""`python -m specdec_trees.rerun RESULTS 2`: of each pair decode prompts of a random cell again, and compare.

Tokens are compared, and what each step drafted and accepted; of a replay the target's own tokens alone. What is not at
hand here, models or prompts, is said. Drawn tokens are the same on the same machine and versions alone, greedy ones and
their steps wherever rounding breaks no tie.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hydra
import pandas as pd
import torch
from omegaconf import OmegaConf

from specdec_core.errors import SpecdecError
from specdec_core.sampling import NO_DRAWS
from specdec_trees.configs.cells import of_config, pair_of
from specdec_trees.measure import pairs, weights
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.decoding import Decoding
from specdec_trees.prompts import datasets
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK
from specdec_trees.results.store import Store, experiments

OURS = "specdec_core"
"""A stranger's config builds classes and functions of this package, and nothing else."""
UNKNOWN = (
    *(SpecdecError, datasets.DatasetError, hydra.errors.HydraException),
    *(ValueError, LookupError, TypeError, OSError, RuntimeError),
)
"""What decoding again raises where models, prompts or room for them are not here."""
STEP = ["acceptance_length", "num_accepted", "num_drafted"]
"""What steps are compared by."""
ADDED = {"files_sha256", "local", "template_sha256", "source", "prompts_sha256", "selection"}
"""What configs of rows say beside the yamls'."""


def _is_ours(target: str) -> bool:
    """Whether what a name leads to is of `OURS`; a module of it names others', such as `os.system`."""
    if not target.startswith(f"{OURS}."):
        return False
    try:
        origin = getattr(hydra.utils.get_object(target), "__module__", None)
    except (ImportError, ValueError):
        return False
    return str(origin).partition(".")[0] == OURS


def _plain(values: Any) -> Any:
    """A config's values as its yaml had them; ValueError for a class that is not ours."""
    if isinstance(values, Mapping):
        if "_target_" in values and not _is_ours(str(values["_target_"])):
            raise ValueError(f"{values['_target_']} is none of {OURS}'s")
        return {key: _plain(value) for key, value in values.items() if key not in ADDED}
    return [_plain(value) for value in values] if isinstance(values, list) else values


def cell_of_row(row: Mapping[Any, Any]) -> tuple[Cell, Runtime]:
    """The cell of a row of `runs`, and how it was run; ValueError where a config alone does not make it."""
    config = _plain(json.loads(row["config"]))
    if config["drafter"].get("decision"):
        raise ValueError("its decision model is no part of a row")
    cell = of_config(
        config,
        run_id=row["run_id"],
        experiment=row["experiment"],
        pair=pair_of(OmegaConf.create({"pair": config["pair"]})),
        dataset=datasets.DatasetSpec.from_config(config["dataset"]),
    )
    placement = config["runtime"].pop("placement", {})
    if "tensor_parallel" in placement:
        raise ValueError("it ran in several processes")
    return cell, Runtime(**config["runtime"], **placement, num_threads=1, progress=False)


def differing(
    row: Mapping[Any, Any], tables: Mapping[str, pd.DataFrame], count: int, data_dir: Path | None
) -> dict[str, list[str]]:
    """The first turns, of so many at random, whose `tokens` or `steps` are others now."""
    cell, runtime = cell_of_row(row)
    texts = {text.id: text for text in datasets.load(cell.dataset, data_dir=data_dir, limit=cell.limit)}
    if datasets.fingerprint([*texts.values()]) != row["prompts_sha256"]:
        raise ValueError("the prompts here are others")
    here = weights.revisions(cell.pair)
    if other := [role for role, now in here.items() if isinstance(row[role], str) and row[role] != now]:
        raise ValueError(f"the weights here are others: {' and '.join(other)}")
    decoding = Decoding(cell, pairs.loaded(cell.pair, runtime), runtime)
    arm = METHOD if pd.isna(row["recording"]) else AUTOREGRESSIVE
    prompts, steps = tables["prompts"], tables["steps"]
    rows = prompts[(prompts["arm"] == METHOD) & (prompts["turn"] == 0) & (prompts["status"] == OK)]
    apart: dict[str, list[str]] = {"tokens": [], "steps": []}
    for name, ids in rows.sample(min(count, len(rows)))[["prompt_id", "output_ids"]].to_numpy():
        again = decoding.decode(decoding.turn(texts[name], 0, []), arm)
        there = steps[(steps["prompt_id"] == name) & (steps["turn"] == 0)].sort_values("step")
        now = [[getattr(step, column) for column in STEP] for step in again.steps]
        if again.tokens != list(ids):
            apart["tokens"].append(name)
        elif arm == METHOD and now != there[STEP].to_numpy().tolist():
            apart["steps"].append(name)
    return apart


def rerun(root: Path, count: int, data_dir: Path | None) -> Iterator[tuple[bool | None, str]]:
    """Of each pair whether a cell's tokens and steps are the same, None where nobody knows, and a line about it."""
    stores = list(experiments(root, "runs"))
    if not stores:
        return
    runs = pd.concat([store.read("runs").assign(place=store.experiment) for store in stores])
    for pair, cells in runs[runs["status"] == OK].groupby("pair"):
        row = random.choice(cells.to_dict("records"))
        line = f"{pair}: cell {row['run_id']} ({row['drafter']}, {row['dataset']})"
        store = Store(root, row["place"])
        try:
            tables = {table: store.read(table, [row["run_id"]]) for table in ("prompts", "steps")}
            apart = differing(row, tables, count, data_dir)
        except UNKNOWN as problem:
            yield None, f"{line} was not decoded again: {problem}"
            continue
        said = [f"other {what} of {', '.join(names)}" for what, names in apart.items() if names]
        same = "the same tokens and steps again" if pd.isna(row["recording"]) else "the same tokens again"
        if said and _elsewhere(row):
            yield None, f"{line}: {'; '.join(said)}, which was drawn elsewhere"
            continue
        yield not said, f"{line}: {'; '.join(said) or same}"


def _elsewhere(row: Mapping[Any, Any]) -> bool:
    """Whether a cell drew random numbers on another device, or by another torch: they are others here."""
    drew = row["temperature"] > 0 or row["draws"] not in ("topk", NO_DRAWS)
    return drew and (pd.notna(row["cuda_version"]), row["torch_version"]) != (
        torch.cuda.is_available(),
        torch.__version__,
    )


def main() -> int:
    """1 if any tokens or steps are others, 3 if a cell was not decoded again, else 0."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.rerun", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("count", type=int, help="prompts of a cell of each pair")
    parser.add_argument("--data-dir", type=Path, help="the folder of the prompts, where rows are of one")
    options = parser.parse_args()
    answers = set()
    for fits, line in rerun(options.results, options.count, options.data_dir):
        print(line, flush=True)
        answers.add(fits)
    return 1 if False in answers else 3 if None in answers else 0


if __name__ == "__main__":
    sys.exit(main())
