"""Speedup and tokens per step of several methods, in a paper's layout and with all details."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, tables, ties
from bench.artifacts.blocks import Block, blocks
from bench.artifacts.outputs import Output
from bench.artifacts.speedups import against
from bench.artifacts.speedups.arms import METRICS
from bench.artifacts.speedups.layout import Layout
from bench.artifacts.speedups.rows import DETAILS, PLAIN, Row
from bench.artifacts.speedups.settings import drafted, left_out, setting_of, settings, stand_ins, who
from bench.artifacts.speedups.wide import beside, ratio_header, wide
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.results.store import Results

_MAL = definitions.MAL.partition("; in brackets")[0]
LEGEND = {
    "Tree": definitions.TREE,
    "budget": "nodes that the method may draft in a step, root excluded",
    "N": definitions.NODES,
    "levels": definitions.LEVELS,
    "n mean": f"{definitions.SIZE}, on average; N and levels are the largest",
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    "speedup predicted": definitions.PREDICTED_SPEEDUP,
    "MAL": definitions.MAL,
    "MAL predicted": definitions.PREDICTED_MAL,
    "MAL - 1": "accepted drafted tokens a step, without the token that the target adds",
    "s/token": definitions.SECONDS_PER_TOKEN,
    "MAL ratio": definitions.RATIO.format("the first method's MAL", "this one's"),
    "speedup ratio": "the same for the speedups",
    PLAIN: "seconds per token of autoregressive decoding, of all runs of the row together",
    "lossless": definitions.LOSSLESS,
    "verdict speedup": definitions.VERDICT,
}


def speedup_table(name: str, layout: Layout, results: Results) -> list[Output]:
    """One table of a paper, twice: as printed, and a row per method with intervals, predictions and verdicts."""
    paper = published.find(layout.paper, name)
    found = [block.standing_in(drafted(paper)) for block in blocks(results)]
    rows = [Row(layout, _who(layout, block), setting_of(paper, layout, block), block) for block in found]
    if not found:
        rows = [Row(layout, who, of_setting) for who, of_setting in settings(paper, layout)]
    title = f"{layout.title} ({setting(found) if found else 'not run'})"
    notes = (*_notes(paper, layout, found), *(_comparison(paper, layout, rows) if layout.against else ()))
    where = f"Intervals, marks and verdicts are in {name}_details."
    return [_wide(name, title, rows, (where, *notes)), _details(f"{name}_details", title, rows, notes)]


def _wide(name: str, title: str, rows: list[Row], notes: tuple[str, ...]) -> Table:
    lines, layout = [wide(row) for row in rows], rows[0].layout
    arms = [arm for arm in layout.arms if _shown(arm.header, lines)]
    hidden = {header for arm in layout.arms if arm not in arms for header in (arm.header, beside(arm.header))}
    columns = [column for column in lines[0] if column not in hidden]
    length = definitions.length(layout.paper)
    legend = LEGEND | {arms[0].header: _cells(layout, length)} if arms else LEGEND
    legend |= {f"{arms[0].header} predicted": f"speedup ({length}): {_predicted()}"} if arms else {}
    headers = {arm.header: f"{arm.header}: {'s/token' if layout.in_seconds else 'speedup'} ({length})" for arm in arms}
    if layout.against:
        names = [f"{arm.header}'s MAL" for arm in layout.arms]
        legend |= {ratio_header(rows[0], "mal"): definitions.RATIO.format(*names[:2])}
    runs = tuple(row.runs for row in rows)
    return Table(name, title, tables.frame(lines, columns), notes, legend, runs, headers)


def _details(name: str, title: str, rows: list[Row], notes: tuple[str, ...]) -> Table:
    layout = rows[0].layout
    lines = [line for row in rows for line in row.details()]
    absent: set[str] = set()
    if not layout.seconds and not layout.plain:
        absent |= {"s/token", "s/token published"}
    if not layout.growing:
        absent |= {"budget", "n mean", "MAL - 1"}
    else:  # their size is given, not chosen by what it is predicted to gain
        absent |= {"speedup predicted"}
    if layout.plain and not layout.in_seconds:  # no such paper prints both
        absent |= {"s/token published"}
    if not layout.against:
        absent |= {f"{header} ratio{side}" for header in against.HEADERS.values() for side in ("", " published")}
    columns = [column for column in (*rows[0].who, *DETAILS) if column not in absent]
    frame = tables.frame([line for line, _ in lines], columns)
    return Table(name, f"{title}, details", frame, (*notes, *ties.note(frame)), LEGEND, tuple(run for _, run in lines))


def _shown(header: str, lines: list[dict[str, str]]) -> bool:
    """Whether an arm has any number: SpecTr is in no table of the paper, and a column only where it was run."""
    return any(line[name] != tables.ABSENT for line in lines for name in (header, beside(header)))


def _cells(layout: Layout, length: str) -> str:
    what = f"speedup, in parentheses {length}; speedup: {definitions.SPEEDUP}"
    if layout.in_seconds:
        what = f"seconds of decoding / decoded token, prefill excluded, in parentheses {length}"
    return f"{what}; {length}: {_MAL}"


def _predicted() -> str:
    return f"{definitions.PREDICTED_SPEEDUP} ({definitions.PREDICTED_MAL})"


def _who(layout: Layout, block: Block) -> dict[str, str]:
    first, names = block.first, who(block)
    names["temperature"] = f"{first['temperature']:g}"
    return names | ({"top-p": f"{first['top_p']:.1f}"} if layout.top_p else {})


def _notes(paper: pd.DataFrame, layout: Layout, found: list[Block]) -> Iterator[str]:
    for block in found:
        hardware = " / ".join(setting_of(paper, layout, block)["hardware"].unique())
        yield scale(block) + (f" Published: {hardware}." if hardware else " The paper has no numbers for this setting.")
    yield from stand_ins(found)
    yield from left_out(drafted(paper), found)
    yield from layout.remarks(paper, found)
    yield from control.notes(found)


def _comparison(paper: pd.DataFrame, layout: Layout, rows: list[Row]) -> Iterator[str]:
    """Who is ahead in our rows, and in which settings of its own table the paper's method is not."""
    first, second, *_ = (arm.header for arm in layout.arms)
    even = [row for row in rows if row.even(second)]
    ours = {metric: [row.leads.get((metric, second)) for row in even] for metric in against.HEADERS}
    yield from against.summary(ours, (first, second))
    if left := len(rows) - len(even):
        yield f"Settings in which the budgets of {first} and {second} differ are not counted: {left}."
    every = [Row(layout, who, of_setting) for who, of_setting in settings(paper, layout)]
    theirs = {metric: list(_both(every, metric, first, second)) for metric in against.HEADERS}
    yield from against.behind(theirs, (first, second))


def _both(rows: list[Row], metric: str, first: str, second: str) -> Iterator[tuple[str, float, float]]:
    """The settings of the paper's table and its numbers of two methods."""
    for row in rows:
        one, two = (row.published[header].get(METRICS[metric]) for header in (first, second))
        if one is not None and two is not None:
            yield f"{row.who['Dataset']} at temperature {row.who['temperature']}", one, two
