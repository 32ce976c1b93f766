"""`python -m specdec_trees.engines RESULTS --as vllm`: acceptance of runs under the names that serving engines use.

RESULTS is a folder of results, or of an experiment. Out comes JSON, an object for each run: acceptance by position and
by depth and rank, and below the engine's name what it counts, under its own names.
With `--beside FILE` a record of an engine is set beside one run: a response of vLLM, its log or its `/metrics`, what
`--as` wrote, AIPerf's records, or a response, a log or `/metrics` of llama.cpp. Words and definitions: docs/engines.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec_trees.engines.reading import read
from specdec_trees.engines.records import ENGINES, EngineError
from specdec_trees.engines.table import table
from specdec_trees.engines.writing import Run, exported, runs_of
from specdec_trees.results.parquet import replace_text
from specdec_trees.results.store import StoreError


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 with a sentence where there is no run, no record, or nothing to compare."""
    given = _parser().parse_args(arguments)
    try:
        runs = [*runs_of(given.results, given.run)]
        if not runs:
            named = f" whose id begins with {given.run}" if given.run else ""
            raise EngineError(f"there is no run in {given.results}{named} that drafted and ended well")
        text = json.dumps([exported(run, given.engine) for run in runs], indent=1) if given.engine else ""
        if given.beside:
            run = _one(runs, given.results)
            text = table(run, *read(given.beside.read_text(encoding="utf-8"), str(run.row["run_id"])))
        if given.out:
            replace_text(given.out, f"{text}\n")
        else:
            print(text)
    except (EngineError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        print(f"{getattr(error, 'filename', None) or given.beside}: {error}", file=sys.stderr)
        return 2
    return 0


def _one(runs: Sequence[Run], folder: Path) -> Run:
    if len(runs) > 1:
        raise EngineError(f"{folder} has {len(runs)} runs; give the id of one, or its start: --run {_ids(runs)}")
    if runs[0].virtual:
        raise EngineError(f"the trees of {_ids(runs)} begin at the target's own token, which no engine's count has")
    return runs[0]


def _ids(runs: Sequence[Run]) -> str:
    return ", ".join([str(run.row["run_id"]) for run in runs[:3]] + ["..."] * (len(runs) > 3))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec_trees.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, help="a folder of results, or of an experiment")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--as", dest="engine", choices=ENGINES, help="whose names the JSON has")
    what.add_argument("--beside", type=Path, metavar="FILE", help="a record of an engine, set beside one run")
    parser.add_argument("--run", default="", metavar="ID", help="the run's id, or its start (default: all runs)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="written there, not printed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
