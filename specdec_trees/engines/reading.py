"""The record in a file of an engine."""

from __future__ import annotations

from specdec_trees.engines import logs
from specdec_trees.engines.records import EngineError, Record, total
from specdec_trees.engines.responses import documents, responses


def read(text: str, run: str = "") -> tuple[Record, list[str]]:
    """All that a file counts, added up, and notes on how; EngineError where it has no record, or one without drafts.

    JSON, `/metrics`, statistics and lines of a log may count the same steps: the first of them that is there is taken.
    `run` is the run of ours that is compared, for files with objects of several.
    """
    try:
        values, rest, cut = documents(text)
        found = {
            "JSON": responses(values, run),
            "/metrics": logs.scraped(rest),
            "llama.cpp's statistics": logs.statistics(rest),
            "lines of a log": logs.lines(rest),
        }
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise EngineError(f"the record has counts that are no numbers: {error}") from error
    (kind, record, notes), *others = [
        (kind, total(records), notes) for kind, (records, notes) in found.items() if records
    ] or [("", None, [])]
    if record is None:
        raise EngineError("no record of speculative decoding: neither JSON nor a log that docs/engines.md lists")
    if not record.drafted:
        raise EngineError("the record has no drafts")
    for other, left, _ in others:
        counts = f"{left.accepted} of {left.drafted} drafted tokens accepted" if left else ""
        notes.append(f"Read: {kind}. Left out, as they may count the same steps: {other} ({counts}).")
    if cut and kind == "JSON":
        notes.append(f"JSON that does not end is left out: {cut}.")
    return record, notes
