"""`python -m specdec_trees.check RESULTS`: is it complete, of committed code, lossless, and do its rows fit together?

Complete: every plan is done, and no cell is only begun. All prompts: no conversation failed. Committed: all rows name
revisions without changes, which this checkout knows. Lossless: greedy outputs are the target's own, but for ties that a
half-precision dtype may break. Rules: files can be read, page checksums hold, and rows follow from one another.
That shows accidents and edits by hand; only running cells again shows rows that somebody made up (`--rerun 2`). The
digest is of all rows, packed or not: quote or sign it where you hand the folder on.

Exit status: 0 where all answers are yes, 1 where one is NO or `--rerun` finds others, 3 where nothing is wrong and
something is not known, 2 where there is nothing to check.

Two lists are printed: the rules that rows were held against, and what no rule can hold. Of `masks`, `variation`,
`quality`, `answers`, `judgements`, `acceptance`, `growth`, `decisions` and forward times (`latency`, `attention`) the
files alone are checked, not their values.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from specdec_trees.check.folder import LOOKED_AT, Findings, check
from specdec_trees.check.rules import RULES
from specdec_trees.check.unheld import UNHELD, named

SHOWN = 5
"""Sentences of a kind that are printed."""
YES, NO, UNKNOWN = "yes", "NO", "not known"
NOT_KNOWN = 3
"""Exit status where nothing is wrong and something is not known; of `rerun` too."""


def unknown_revisions(revisions: set[str], root: Path) -> list[str]:
    """Those that the checkout at `root` does not have."""
    ask = ("git", "-C", str(root), "cat-file", "-e")
    every = (
        (one, subprocess.run([*ask, f"{one}^{{commit}}"], capture_output=True, check=False))
        for one in sorted(revisions)
    )
    return [one for one, asked in every if asked.returncode]


def verdicts(findings: Findings, strange: Sequence[str]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Of each question: the answer, what it rests on, and what speaks against it."""
    state = NO if findings.incomplete else UNKNOWN if findings.unplanned else YES
    yield (
        "complete",
        state,
        f"{len(findings.unplanned)} of {findings.experiments} experiments have no plan.json"
        if findings.unplanned
        else f"{findings.planned} plans can be read",
        findings.incomplete,
    )
    yield (
        "all prompts",
        NO if findings.failed else YES,
        f"{len(findings.prompt_ids)} prompts, in {findings.finished} finished cells {findings.conversations} "
        "conversations",
        findings.failed,
    )
    against = [*findings.uncommitted, *(f"revision {one} is not in this checkout" for one in strange)]
    yield "committed code", NO if against else YES, f"{len(findings.revisions)} revisions", against
    ties = f", {findings.ties} of them but for a tie that rounding broke" if findings.ties else ""
    again = f"; {findings.float32} were decoded again in float32" if findings.float32 else ""
    kept = (
        f"{findings.greedy - len(findings.lossy)} of {findings.greedy} compared outputs of lossless methods are the "
        f"target's{ties}{again}"
        if findings.greedy
        else "no output of a lossless method was compared with the target's"
    )
    if findings.replayed:
        kept += f"; {findings.replayed} outputs were replayed, which tells nothing of their rule"
    compared = findings.greedy or not (findings.unaudited or findings.replayed)
    state = NO if findings.lossy else YES if compared else UNKNOWN
    yield "lossless", state, kept, [*findings.lossy, *findings.unaudited]
    looked_at = sum(count > 0 for count in findings.held.values())
    kept = f"{looked_at} rules over {findings.cells} cells, {findings.prompts} rows of prompts"
    yield "rules", NO if findings.altered else YES, kept, findings.altered


def told(findings: Findings) -> Iterator[str]:
    """Two lists: the rules that rows were held against, and what no rule can hold, each with its number of rows."""
    sentences = {name: says for name, (_, says) in LOOKED_AT.items()} | {rule.name: rule.says for rule in RULES}
    yield "held, with rows looked at:"
    yield from (f"    {count:>9,}  {name}: {sentences[name]}" for name, count in findings.held.items())
    if not findings.held:
        yield "    none: no rule was looked at"
    yield "cannot be held by looking, with rows that it may be of:"
    for entry in UNHELD:
        if count := findings.unheld[entry.name]:
            yield f"    {count:>9,}  {entry.name}: {entry.says}"
    if findings.empty:
        columns = ", ".join(f"{name} ({count:,})" for name, count in sorted(findings.empty.items()))
        yield f"    {'':>9}  empty columns of files today, with rows: {columns}"
    yield from (f"    {'':>9}  {line}" for line in (named(pd.concat(findings.runs)) if findings.runs else ()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print answers and lists; see above for the exit status."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.check", description=__doc__)
    parser.add_argument("results", type=Path, help="a folder of results")
    parser.add_argument("--rerun", type=int, metavar="K", help="decode K prompts of a random cell of each pair again")
    parser.add_argument("--data-dir", type=Path, help="with --rerun: the folder of the prompts, where rows are of one")
    options = parser.parse_args(arguments)
    root = options.results
    findings = check(root) if root.is_dir() else Findings()
    if not findings.experiments:
        print(f"there are no results in {root}", file=sys.stderr)
        return 2
    answers = []
    for question, answer, ground, against in verdicts(
        findings, unknown_revisions(findings.revisions, Path(__file__).parent)
    ):
        answers.append(answer)
        print(f"{question:<15} {answer}: {ground}")
        for sentence in against[:SHOWN]:
            print(f"    {sentence}")
        if len(against) > SHOWN:
            print(f"    and {len(against) - SHOWN} more")
    print("\n".join(told(findings)))
    print(f"{'digest':<15} {findings.digest}")
    again = decoded_again(root, options.rerun, options.data_dir) if options.rerun else 0
    if NO in answers or again not in (0, NOT_KNOWN):
        return 1
    return NOT_KNOWN if again or UNKNOWN in answers else 0


def decoded_again(root: Path, count: int, data_dir: Path | None) -> int:
    """Decode in a process of its own, which needs the models; 0 where no token or step differs."""
    where = [] if data_dir is None else ["--data-dir", str(data_dir)]
    command = [sys.executable, "-m", "specdec_trees.rerun", str(root), str(count), *where]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
