"""Results to compare: copies whose rows are changed, and the table of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import recomputed
from recomputed import Files, experiments

from specdec_trees.artifacts.tables import Table
from specdec_trees.compare.__main__ import main
from specdec_trees.compare.changes import Couple
from specdec_trees.compare.joined import join
from specdec_trees.compare.sides import find
from specdec_trees.compare.table import table
from specdec_trees.statistics.intervals import Interval

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
SMOKE = str(REFERENCE / "smoke")


def alter(folder: Path, rows: str, run_id: str, **columns: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite columns of a run's rows; each gets a row and returns its new value."""
    found = Files(folder).table(rows, run_id)
    for name, change in columns.items():
        field = found.schema.field(name)
        values = pa.array([change(row) for row in found.to_pylist()], field.type)
        found = found.set_column(found.schema.get_field_index(name), field, values)
    pq.write_table(found, folder / rows / f"run_id={run_id}.parquet")


def copied(experiment: str, to: Path) -> Path:
    """A copy of a reference experiment, a file per run and table."""
    for name in (name for name in experiments(REFERENCE) if f"{name}/".startswith(f"{experiment}/")):
        files = Files(REFERENCE / name)
        for rows in ("runs", "prompts", "steps"):
            folder = to / name.removeprefix(experiment).lstrip("/") / rows
            folder.mkdir(parents=True)
            for run_id in files.ids():
                pq.write_table(files.table(rows, run_id), folder / f"run_id={run_id}.parquet")
    return to


def alone(experiment: str, to: Path) -> Path:
    """A copy of one that has a single conversation, its first."""
    folder = copied(experiment, to)
    first = pq.read_table(next((folder / "prompts").iterdir()))["prompt_id"][0]
    for rows in ("prompts", "steps"):
        for path in (folder / rows).iterdir():
            pq.write_table(pq.read_table(path).filter(pc.field("prompt_id") == first), path)
    return folder


def run_of(folder: Path, drafter: str) -> str:
    """The run id of a drafter on the embedded pair, in an experiment's folder that has one run of it."""
    runs = {one: Files(folder).run(one) for one in Files(folder).ids()}
    (run_id,) = (one for one, run in runs.items() if (run["pair"], run["drafter"]) == ("tiny", drafter))
    return run_id


def compared(first: object, second: object, results: Path = Path("none")) -> Table:
    return table(join(*(find(str(name), results) for name in (first, second))))


def couples(first: object, second: object) -> tuple[Couple, ...]:
    return join(*(find(str(name), Path("none")) for name in (first, second))).couples


def smoke_ids() -> list[str]:
    """The run ids of the smoke run."""
    return Files(Path(SMOKE)).ids()


def numbers(change: Interval) -> recomputed.Numbers:
    return change.value, change.low, change.high


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `python -m specdec_trees.compare`."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()
