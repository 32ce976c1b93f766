"""`python -m specdec_trees.pack results/reference`: one file per table, `rows/<table>.parquet`, not per cell.

What reads results reads both; packing again takes in what was run since.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec_trees.results.pack import PackError, pack
from specdec_trees.results.parquet import warned_once
from specdec_trees.results.store import StoreError, experiments, explained, within


@warned_once()
def main(arguments: Sequence[str] | None = None) -> int:
    """Pack every experiment below a folder; 0, or 2 with a sentence on stderr for each that cannot be packed."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.pack", description=__doc__)
    parser.add_argument("results", type=Path, help="a folder of results")
    root, code = parser.parse_args(arguments).results, 0
    if not root.is_dir():
        print(f"there is no folder {root}", file=sys.stderr)
        return 2
    before = _size(root)
    idle: list[str] = []
    stores = experiments(root)
    if not stores:
        print(f"there are no results in {root}", file=sys.stderr)
        return 2
    for store in stores:
        try:
            store.check_idle()
            idle.append(store.experiment)
        except PackError as error:
            print(f"{store.folder}: {error}", file=sys.stderr)
            code = 2
    try:
        with explained(root):
            counts = pack(root, idle)
        print("".join(f"{root / name}: {count} files packed\n" for name, count in counts.items() if count), end="")
    except (StoreError, PackError) as error:
        print(error, file=sys.stderr)
        code = 2
    print(f"{root}: {before} before, {_size(root)} now")
    return code


def _size(root: Path) -> str:
    sizes = [path.stat().st_size for path in within(root, "*.parquet")]
    return f"{len(sizes)} files and {sum(sizes) / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
