"""`python -m specdec_trees.merge A B --into C`: results folders of several machines in one, refusing what disagrees.

A cell that one of them finished is taken from there. The same cell measured twice is refused, since nobody can say
which counts, and so are files that cannot be read. C may hold results already. Nothing is written where anything is
refused. Cells that were begun and not finished stay behind, which is said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec_trees.results.merging import MergeError, merge
from specdec_trees.results.parquet import warned_once
from specdec_trees.results.store import StoreError


@warned_once()
def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 with sentences on stderr where they cannot be joined."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.merge", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="folders of results")
    parser.add_argument("--into", type=Path, required=True, help="the folder that will hold all")
    given = parser.parse_args(arguments)
    for root in given.results:
        if not root.is_dir():
            print(f"there is no folder {root}", file=sys.stderr)
            return 2
    try:
        found = merge(given.results, given.into)
    except (MergeError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    if not (found.rows or found.plans):
        print(f"there are no results in {' and '.join(map(str, given.results))}", file=sys.stderr)
        return 2
    cells = sum(table == "runs" for _, table, _ in found.rows)
    print(f"{given.into}: {cells} cells of {len({name for name, *_ in found.rows})} experiments")
    for sentence in found.unfinished:
        print(sentence, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
