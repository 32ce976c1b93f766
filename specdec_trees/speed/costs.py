"""`python -m specdec_trees.speed.costs` (make bench-costs): what commands cost as cells of a results folder grow.

One cell is decoded; its rows are copied under other seeds, and a plan asks for all of them. Beside them lies a table of
ten cells, which is reported. Each command runs in a process of its own: CPU seconds, which other processes hardly
change, and peak memory in GB. The cost of a cell is to stay as it is, however many there are.

`--large 5000 500` is about a single cell of 5,000 prompts of 500 steps each, for which 2 GB should do.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from specdec_trees.results.identity import canonical, identity
from specdec_trees.results.parquet import write_table
from specdec_trees.results.progress import Planned
from specdec_trees.results.store import Store, run_id
from specdec_trees.speed import large_cell

NAME, TABLE = "costs", "table"
"""The experiment of many cells, and the one of ten."""
SETTING = ("pair=tiny", "dataset=mini", "drafter=chain4", "limit=6", "decoding.max_new_tokens=8")
QUIET = (f"name={NAME}", "runtime.num_threads=1", "runtime.progress=false")
OPTIONS = (*SETTING, *QUIET)
LARGE = ("pair=tiny", "drafter=chain4", "decoding.max_new_tokens=64", *QUIET)
ENDS_WELL = (0, 1, 3)
"""Exit statuses: of `check` 1 where code is not committed and 3 without a plan, of `compare` 1 where MAL fell."""
Cost = tuple[float, float]
"""CPU seconds of all threads, and GB."""


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, nargs="+", default=(100, 1000), help="numbers of cells")
    parser.add_argument("--only", nargs="*", help="commands, by their names in the table")
    parser.add_argument(
        "--large", type=int, nargs=2, metavar=("PROMPTS", "STEPS"), help="one cell of this size instead"
    )
    args = parser.parse_args()
    if args.large:
        with TemporaryDirectory() as folder:
            prompts, steps = args.large
            large = dict(of_large_cell(prompts, steps, Path(folder), args.only))
        print("\n".join(large_table(prompts, steps, large)))
        return
    costs = {}
    with TemporaryDirectory() as folder:
        one = Path(folder) / "one"
        timed(["run", *OPTIONS, f"results_dir={one}"], Path(folder))
        for cells in args.cells:
            costs[cells] = dict(measured(Store(one, NAME), cells, Path(folder) / str(cells), args.only))
    print("\n".join(table(costs)))


def measured(one: Store, cells: int, folder: Path, only: Sequence[str] | None) -> Iterator[tuple[str, Cost]]:
    """The cost of each command on copies of a cell."""
    copies, packed = folder / "copies", folder / "packed"
    multiply(one, cells, Store(copies, NAME))
    multiply(one, 10, Store(copies, TABLE))
    own = {"merge": ["merge", str(copies), "--into", str(packed)], "pack": ["pack", str(packed)]}
    commands = {**commands_of(copies, cells), **own}
    commands |= {f"{name}, packed": command for name, command in commands_of(packed, cells).items()}
    for name, command in commands.items():
        if not only or name in (*only, *own):
            cost = timed(command, folder)
            print(f"{cells} cells, {name}: {cost[0]:.1f} s, {cost[1]:.2f} GB", file=sys.stderr, flush=True)
            yield name, cost


def of_large_cell(prompts: int, steps: int, folder: Path, only: Sequence[str] | None) -> Iterator[tuple[str, Cost]]:
    """The cost of each command on a single cell, and of the run that writes it (`large_cell`)."""
    root, packed = folder / "large", folder / "packed"
    large_cell.write_prompts(prompts, folder / "prompts")
    run = [*LARGE, f"data_dir={folder / 'prompts'}", f"results_dir={root}"]
    own = {
        "run": ["speed.large_cell", str(prompts), str(steps), *run],
        "merge": ["merge", str(root), "--into", str(packed)],
        "pack": ["pack", str(packed)],
    }
    commands = {"run": own["run"], **readers(root, NAME), **own}
    commands |= {f"{name}, packed": command for name, command in readers(packed, NAME).items()}
    for name, command in commands.items():
        if not only or name in (*only, *own):
            cost = timed(command, folder)
            print(f"{name}: {cost[0]:.1f} s, {cost[1]:.2f} GB", file=sys.stderr, flush=True)
            yield name, cost


def commands_of(root: Path, cells: int) -> dict[str, list[str]]:
    """Those that a finished folder is given to, by name."""
    sweep = ["run", "-m", *OPTIONS, f"results_dir={root}", f"seed=range({cells})"]
    return readers(root, TABLE) | {"sweep": sweep, "sweep, one shard of ten": [*sweep, "shard=0/10"]}


def readers(root: Path, table: str) -> dict[str, list[str]]:
    """Those that read it, and report one experiment."""
    return {
        "status": ["status", "--results", str(root)],
        "check": ["check", str(root)],
        "report": ["report", table, "--results", str(root), "--out", str(root / "report")],
        "compare": ["compare", str(root / NAME), str(root / NAME)],
    }


def multiply(one: Store, cells: int, into: Store) -> None:
    """Write the rows of the cell that a store has under as many seeds, and a plan that asks for them."""
    names = ("prompts", "steps", "runs")
    tables = {name: rows for name in names if (rows := next(one.rows(name).tables())) is not None}
    config = json.loads(tables["runs"]["config"][0].as_py())
    configs = [config | {"seed": seed} for seed in range(cells)]
    for name, rows in tables.items():
        (into.folder / name).mkdir(parents=True)
        for copy in configs:
            changed = {"run_id": run_id(identity(copy)), "seed": copy["seed"], "config": canonical(copy)}
            changed["experiment"] = into.experiment
            write_table(into.path(name, changed["run_id"]), with_values(rows, changed))
    plan = [{"pair": "tiny", "config": identity(copy)} for copy in configs]
    Planned(overrides=SETTING, pairs=("tiny",), cells=tuple(plan)).write(into.folder)


def with_values(rows: pa.Table, values: dict[str, object]) -> pa.Table:
    """Rows with one value in all of a column, where they have the column."""
    columns = [
        pa.array([values[field.name]] * len(rows), field.type) if field.name in values else rows[field.name]
        for field in rows.schema
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def timed(arguments: Sequence[str], cwd: Path) -> Cost:
    """Run a command of this package to its end; RuntimeError with what it said where it fails."""
    cwd.mkdir(exist_ok=True)
    said = cwd / "output.txt"
    with said.open("w") as file:
        command = [sys.executable, "-m", f"specdec_trees.{arguments[0]}", *arguments[1:]]
        process = subprocess.Popen(command, cwd=cwd, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ENDS_WELL:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}:\n{said.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def table(costs: dict[int, dict[str, Cost]]) -> Iterator[str]:
    """A line for each command: of each number of cells the cost, and how many times that before."""
    sizes = list(costs)
    heads = [head for place, cells in enumerate(sizes) for head in (f"{cells:,} cells", *["times"] * (place > 0))]
    yield f"| command | {' | '.join(heads)} |"
    yield f"|---|{'---:|' * len(heads)}"
    for name in dict.fromkeys(name for each in costs.values() for name in each):
        shown: list[str] = []
        for place, cells in enumerate(sizes):
            seconds, memory = costs[cells][name]
            shown.append(f"{seconds:.1f} s, {memory:.2f} GB")
            shown += [f"{seconds / costs[sizes[place - 1]][name][0]:.1f}"] if place else []
        yield f"| {name} | {' | '.join(shown)} |"


def large_table(prompts: int, steps: int, costs: Mapping[str, Cost]) -> Iterator[str]:
    """A line for each command."""
    yield f"| command | CPU s | GB, a cell of {prompts:,} x {steps:,} steps |\n|---|---:|---:|"
    for name, (seconds, memory) in costs.items():
        yield f"| {name} | {seconds:.1f} | {memory:.2f} |"


if __name__ == "__main__":
    main()
