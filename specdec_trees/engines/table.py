"""A record of an engine beside a run of ours, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from specdec_trees.artifacts import markdown
from specdec_trees.engines.records import SHARP, Record
from specdec_trees.engines.writing import Run

Theirs = float | tuple[float, float]
"""A number, or the least and the greatest that it may be."""


def beside(run: Run, theirs: Record) -> tuple[list[tuple[str, Theirs, float, str]], list[str]]:
    """Rows of quantity, theirs, ours and why they may differ; then sentences on what cannot be compared."""
    ours, tree = run.record, bool((run.steps["num_drafted"] > run.steps["depth"]).any())
    trees = "ours has several children at a depth" if tree else "texts and answer lengths"
    between = theirs.lengths
    length = between if between and between[1] - between[0] > SHARP else theirs.length
    rows: list[tuple[str, Theirs | None, float | None, str]] = [
        ("mean acceptance length", length, ours.length, trees),
        ("draft acceptance rate", theirs.rate, ours.rate, "ours is of nodes" if tree else "lengths of drafts"),
    ]
    depth = max(len(record.reached or ()) for record in (theirs, ours))
    for words, of in (("{} or more accepted", "joint"), ("{} accepted, given {}", "conditional")):
        both = zip(getattr(theirs.deeper(depth), of), getattr(ours.deeper(depth), of), strict=False)
        rows += [(words.format(place, place - 1), *each, trees) for place, each in enumerate(both, 1)]
    whole = [(name, a, b, why) for name, a, b, why in rows if a is not None and b is not None]
    return whole, [*_without(theirs, ours, tree)]


def _without(theirs: Record, ours: Record, tree: bool) -> Iterator[str]:
    yield "Prompts, models, draft and temperature are taken to be the same: the record does not name them."
    if theirs.steps is None:
        yield "The record does not tell all its steps: mean acceptance length and positions cannot be compared."
    elif theirs.reached is None:
        yield "The record does not tell all its positions."
    elif len(theirs.reached) != len(ours.reached or ()):
        yield (
            f"The record has {len(theirs.reached)} positions, this run {len(ours.reached or ())}; "
            "no step accepts a token at one that it does not have."
        )
    if theirs.lengths and theirs.between:
        (fewest, most), (least, greatest) = theirs.between, theirs.lengths
        yield (
            f"The record rounds: it allows {fewest} to {most} steps, and so a mean acceptance length of {least:.3f} to "
            f"{greatest:.3f}; {theirs.steps} steps are an estimate."
        )
    if tree:
        yield "A tree drafts more nodes than its path can accept: draft acceptance rates do not rank the two."
    yield "Acceptance by rank, E(A) and times cannot be compared: no engine counts the first two."


def table(run: Run, theirs: Record, notes: list[str]) -> str:
    """The comparison as Markdown, with the notes on how the record was read."""
    rows, without = beside(run, theirs)
    lines = [markdown.row(("quantity", "theirs", "ours", "ours - theirs", "may differ by")), "|---|---|---|---|---|"]
    for name, a, b, why in rows:
        least, greatest = a if isinstance(a, tuple) else (a, a)
        cells = [f"{least:.3f}", f"{b - greatest:+.3f}"]
        if least < greatest:
            cells = [f"{cells[0]} to {greatest:.3f}", f"{cells[1]} to {b - least:+.3f}"]
        lines.append(markdown.row((name, cells[0], f"{b:.3f}", cells[1], why)))
    whose = "Ours is {run_id}, {drafter} on {dataset}.".format(**run.row)
    return "\n".join([whose, "", *lines, "", *notes, *without])
