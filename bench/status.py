"""`python -m bench.status [--results folder]`: what is done, running, failed or missing, from the files alone."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.locations import hint
from bench.papers.registry import ARTIFACTS
from bench.results import progress
from bench.results.parquet import warned_once


def lines(root: Path) -> Iterator[str]:
    """A line for every artifact, and their counts."""
    found = {name: progress.read(root, name) for name in ARTIFACTS}
    width = max(map(len, found))
    for name, one in found.items():
        yield f"{name:<{width}}  {progress.words(one)}".rstrip()
    counts = Counter(one.state for one in found.values())
    yield f"{len(found)} artifacts: " + ", ".join(f"{counts[state]} {state}" for state in progress.STATES)


@warned_once()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; 0, or 2 with a sentence on stderr where there is no such folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.status", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: %(default)s")
    root = parser.parse_args(arguments).results
    if not root.is_dir():
        command = hint("make reproduce-all", "specdec reproduce")
        print(f"there is no folder {root}; `{command}` makes it, or give another --results", file=sys.stderr)
        return 2
    print("\n".join(lines(root)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
