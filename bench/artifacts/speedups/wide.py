"""A row of a table in the paper's layout: a column per arm, the published value beside it."""

from __future__ import annotations

from bench.artifacts import tables
from bench.artifacts.runs import Run
from bench.artifacts.speedups import against
from bench.artifacts.speedups.rows import PLAIN, Row, printed
from bench.statistics.intervals import Interval


def wide(row: Row) -> dict[str, str]:
    """The cells of a row by column."""
    layout, first = row.layout, row.layout.arms[0].header
    cells = dict(row.who)
    if layout.tree:
        chosen, paper = row.cells[first], row.published[first]
        cells["Tree"] = _tree(chosen.nodes, chosen.levels) if chosen else tables.ABSENT
        cells["Tree published"] = _tree(paper.get("tree_size"), paper.get("tree_depth"))
    for arm in layout.arms:
        run, paper = row.cells[arm.header], row.published[arm.header]
        cells[arm.header] = _ours(row, run)
        cells[beside(arm.header)] = _published(row, arm.header)
        if arm.header == first and layout.tree:
            cells[f"{first} predicted"] = _times(
                *(run.predicted(metric) if run else None for metric in ("speedup", "mal"))
            )
        if arm.header == first and layout.seconds:
            cells["s/token"] = tables.number(_value(run.seconds if run else None), 4)
            cells["s/token published"] = tables.number(paper.get("latency_s_per_token"))
    if layout.in_seconds and layout.plain:
        cells[PLAIN] = tables.number(_value(row.plain), layout.digits)
        cells[beside(PLAIN)] = printed(row.plain_published)
    return cells | (_against(row) if layout.against else {})


def beside(header: str) -> str:
    """The header of the column with the paper's numbers."""
    return f"{header} published"


def ratio_header(row: Row, metric: str) -> str:
    """The header of the ratio of the first two arms."""
    first, second, *_ = (arm.header for arm in row.layout.arms)
    return f"{first} / {second}: {against.HEADERS[metric]}"


def _against(row: Row) -> dict[str, str]:
    first, second, *_ = (arm.header for arm in row.layout.arms)
    cells = {}
    for metric in against.HEADERS:
        header = ratio_header(row, metric)
        cells[header] = against.words(row.leads.get((metric, second)), (first, second), even=row.even(second))
        cells[beside(header)] = against.words(row.published_ratio(metric, second), (first, second))
    return cells


def _ours(row: Row, run: Run | None) -> str:
    if run is None or not run.ok:
        return run.status if run else tables.ABSENT
    mal = _value(run.mal)
    if row.layout.in_seconds:
        return _with_mal(tables.number(_value(run.seconds), row.layout.digits), mal)
    return _times(_value(run.speedup), mal)


def _published(row: Row, header: str) -> str:
    if header in row.hidden:
        return f"{tables.ABSENT} (ours: {row.hidden[header]} nodes)"
    paper = row.published[header]
    mal = paper.get("tokens_per_step")
    if row.layout.in_seconds:
        return _with_mal(printed(paper.get("latency_s_per_token")), mal)
    return _times(paper.get("speedup"), mal)


def _times(speedup: float | None, mal: float | None) -> str:
    """`2.31x (3.40)`: speedup and tokens per step, as the papers print them."""
    return _with_mal(f"{tables.number(speedup)}{'' if speedup is None else 'x'}", mal)


def _with_mal(text: str, mal: float | None) -> str:
    return tables.ABSENT if text == tables.ABSENT and mal is None else f"{text} ({tables.number(mal)})"


def _tree(nodes: float | None, levels: float | None) -> str:
    return tables.ABSENT if nodes is None else f"({nodes:g}, {tables.number(levels, 0)})"


def _value(interval: Interval | None) -> float | None:
    return interval.value if interval else None
