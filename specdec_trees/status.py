"""`python -m specdec_trees.status [--results folder]`: what is done, running, failed or missing, from files alone."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from specdec_trees.locations import hint
from specdec_trees.papers.registry import ARTIFACTS, yours
from specdec_trees.results import progress
from specdec_trees.results.parquet import warned_once
from specdec_trees.results.progress import MISSING


def lines(root: Path, *, everything: bool = False) -> Iterator[str]:
    """A line for every experiment of one's own, then for every artifact, and the counts of these.

    Artifacts that were neither planned nor run are counted in one line, unless `everything` is asked for.
    """
    own = {name: progress.read(root, name) for name in yours(root)}
    known = {name: progress.read(root, name) for name in ARTIFACTS}
    begun = {
        name: one
        for name, one in known.items()
        if everything or one.planned is not None or one.unreadable or one.state != MISSING
    }
    width = max(map(len, own | begun), default=0)
    for name, one in (own | begun).items():
        words = progress.words(one, "runs of your own") if name in own else progress.words(one)
        yield f"{name:<{width}}  {words}".rstrip()
    if begun:
        counts = Counter(one.state for one in begun.values())
        yield f"{len(begun)} artifacts: " + ", ".join(f"{counts[state]} {state}" for state in progress.STATES)
    if rest := len(known) - len(begun):
        command = hint("make status ARGS=--all", "specdec status --all")
        yield f"{rest} {'more ' * bool(begun)}artifacts are neither planned nor run; `{command}` lists them."


@warned_once()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; 0, or 2 with a sentence on stderr where there is no such folder."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.status", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="default: %(default)s")
    parser.add_argument("--all", action="store_true", help="also what is neither planned nor run")
    given = parser.parse_args(arguments)
    root = given.results
    if not root.is_dir():
        command = hint("make reproduce-all", "specdec reproduce")
        print(f"there is no folder {root}; `{command}` makes it, or give another --results", file=sys.stderr)
        return 2
    print("\n".join(lines(root, everything=given.all)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
