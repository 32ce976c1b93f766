"""A table as a value, and its renderings: Markdown, LaTeX (booktabs), CSV, JSON, and HTML for notebooks."""

from __future__ import annotations

import json
import math
import textwrap
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.artifacts.markdown import bold, escaped
from specdec_trees.results.parquet import replace_text
from specdec_trees.statistics.intervals import FEWEST, Interval

SETTING = "setting"
"""The column that says which of several settings a row is of."""
PUBLISHED, VERDICT = "_published", "_verdict"
"""What the keys of the paper's numbers and of the verdicts on them end with."""
WIDTH = 120
"""Characters of a line in a terminal."""
_NARROW = 11
"""Characters of a header that are not broken."""
ABSENT = "–"
"""What stands in a cell that has no value."""
_MANY = 100_000
"""Conversations; how many more than these would be needed is not said."""

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        **{char: "\\" + char for char in "&%$#_{}"},
    }
)
_SMALL = "font-size: 0.85em; max-width: 75em; white-space: normal"
_CELL = "text-align: left; vertical-align: top; padding: 0.2em 0.6em"
_LONG = 26
"""Characters from which a cell of a notebook may wrap: numbers with their intervals do not."""


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of strings, whose columns are keys.

    `headers` has what stands above columns, if not the key; `legend` what they mean. `notes` are sentences about the
    whole, `runs` names each row's run ("" for none).
    """

    name: str
    title: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""
    """What its intervals cannot tell; it stands above the rows."""
    findings: tuple[str, ...] = ()
    """What it shows, in sentences: the first of the notes, and all that a terminal prints below the rows."""
    aside: tuple[str, ...] = ()
    """Columns that stand in a second grid below the first, and not in LaTeX."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What each setting shows, by its words in the column `SETTING`: pages have a grid for each, below its answer."""
    lead: int = 0
    """How many of the first columns say what a row is of."""
    long: pd.DataFrame | None = None
    """The long frame (`specdec_trees.artifacts.frame`) that its cells are written from, a row per run and metric."""

    @property
    def run_ids(self) -> set[str]:
        """All runs behind its rows, of which one may have several."""
        return {run_id for runs in self.runs for run_id in runs.split()}

    @property
    def main(self) -> pd.DataFrame:
        """The columns that answer its question."""
        return self.frame.drop(columns=list(self.aside))

    @property
    def details(self) -> pd.DataFrame:
        """The columns that stand aside, behind those that say what a row is of; without columns if there are none."""
        lead = [name for name in self.frame.columns[: self.lead] if name not in self.aside]
        return self.frame[[*lead, *self.aside] if self.aside else []]

    def header(self, column: str) -> str:
        """What stands above a column."""
        return self.headers.get(column, column)

    def write(self, folder: Path) -> list[Path]:
        """Write `<name>.md`, `.tex`, `.csv` and `.json` into `folder`."""
        texts = {"md": to_markdown(self), "tex": to_latex(self), "csv": to_csv(self), "json": to_json(self)}
        paths = [folder / f"{self.name}.{suffix}" for suffix in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            replace_text(path, text)
        return paths


def _with_verdicts(table: Table) -> Table:
    """The table with each verdict behind the paper's number, in one column."""
    judged = [
        (column.removesuffix(VERDICT) + PUBLISHED, column)
        for column in map(str, table.frame)
        if column.endswith(VERDICT)
    ]
    judged = [(printed, column) for printed, column in judged if printed in table.frame]
    frame, headers, legend = table.frame.copy(), dict(table.headers), dict(table.legend)
    for printed, column in judged:
        both = zip(frame[printed], frame.pop(column), strict=True)
        frame[printed] = [f"{number}: {words}" if words else number for number, words in both]
        headers[printed] = f"{table.header(printed)}: verdict"
        legend |= {printed: legend.pop(column)} if column in legend else {}
    columns = {column for _, column in judged}
    aside = tuple(column for column in table.aside if column not in columns)
    return replace(table, frame=frame, headers=headers, legend=legend, aside=aside)


def to_markdown(table: Table) -> str:
    """Title, table, notes, then the meaning of the headers; columns are padded so that it reads in a terminal too."""
    table = _with_verdicts(table)
    same, main, details = _without_constants(table)
    parts = [f"### {escaped(table.title)}", *[bold(table.warning)] * bool(table.warning)]
    parts += [*[escaped(same)] * bool(same), _grid(table, main)]
    parts += ["Details:", _grid(table, details)] if table.aside else []
    legend = [f"{bold(header)}: {escaped(meaning)}" for header, meaning in _legend(table)]
    parts += ["\n".join(f"- {line}" for line in lines) for lines in ([*map(escaped, _notes(table))], legend) if lines]
    return "\n\n".join(parts) + "\n"


def to_text(table: Table, *said: str) -> str:
    """Title, warning, rows, what is `said` of them and findings, for a terminal.

    Rows of several settings fall into a table for each. Columns for which there is no room are named, from the right;
    where what a row is of takes all of it, lines are longer.
    """
    table = _with_verdicts(table)
    same, main, _ = _without_constants(table)
    for name in [str(name) for name in main if str(name).endswith(PUBLISHED)]:
        main = main.assign(**{name: main[name].map(_without_reason)})
    parts, left = [wrapped(line) for line in (table.title, table.warning, same) if line], dict[str, None]()
    several, lead = SETTING in main, table.lead - (len(table.main.columns) - len(main.columns))
    for setting, rows in main.groupby(SETTING, sort=False) if several else [("", main)]:
        rows = rows.drop(columns=SETTING, errors="ignore")
        shown = _fitting(table, rows, lead - several)
        left |= dict.fromkeys(table.header(str(column)) for column in rows if column not in shown)
        parts += [wrapped(f"{setting!s}:")] * several + ["\n".join(_text_grid(table, shown))]
    narrow = f"In the files, for want of room: {', '.join(left)}." if left else ""
    return "\n\n".join([*parts, "\n".join(map(wrapped, filter(None, (*said, narrow, *table.findings))))]) + "\n"


def _fitting(table: Table, rows: pd.DataFrame, lead: int) -> pd.DataFrame:
    """As many of the first columns as a terminal has room for; all, if there is none for one behind the `lead`."""
    for number in range(len(rows.columns), lead, -1):
        if len(_text_grid(table, rows.iloc[:, :number])[0]) <= WIDTH:
            return rows.iloc[:, :number]
    return rows


def _without_reason(text: str) -> str:
    """`2.08: differs` of `2.08: differs (vs autoregressive)`."""
    number, colon, verdict = text.partition(": ")
    return f"{number}{colon}{verdict.partition(' (')[0]}" if colon else text


def _text_grid(table: Table, frame: pd.DataFrame) -> list[str]:
    """Lines of headers and rows: headers go on below where they are wider than what stands under them."""
    cells = [[_cell(text) for text in frame[name]] for name in frame]
    widths = [max(_NARROW, *map(len, column)) if column else _NARROW for column in cells]
    headers = [
        textwrap.wrap(_cell(table.header(str(name))), width, break_long_words=False)
        for name, width in zip(frame, widths, strict=True)
    ]
    widths = [max(map(len, (*header, *column))) for header, column in zip(headers, cells, strict=True)]
    above = [_row(row, widths) for row in zip_longest(*headers, fillvalue="")]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [*above, rule, *(_row(row, widths) for row in zip(*cells, strict=True))]


def to_latex(table: Table) -> str:
    """A floating table with booktabs rules (needs `booktabs` and `graphicx`); notes stand below, in small print."""
    table = _with_verdicts(table)
    header, *rows = [" & ".join(map(_latex, cells)) + r" \\" for cells in _lines(table)]
    legend = [f"{header}: {meaning}" for header, meaning in _legend(table, table.main)]
    small = map(_latex, (*[table.warning] * bool(table.warning), *_notes(table), *legend))
    lines = [
        r"\begin{table*}",
        r"\centering",
        rf"\caption{{{_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.main.columns)}}}",
        *(r"\toprule", header, r"\midrule", *rows, r"\bottomrule"),
        r"\end{tabular}}",
        *(rf"\par\raggedright\footnotesize {line}" for line in small),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Keys and rows alone, with the run behind each row as the last column; no word of a header stands in it."""
    return _keyed(table).to_csv(index=False, lineterminator="\n")


def to_json(table: Table) -> str:
    """The same rows as objects, beside the title, the notes and what the keys mean."""
    words: dict[str, object] = {"title": table.title, "warning": table.warning, "notes": _notes(table)}
    words |= {"headers": {name: table.header(name) for name in map(str, table.frame)}, "legend": dict(table.legend)}
    return json.dumps(words | {"rows": _keyed(table).to_dict("records")}, indent=1, ensure_ascii=False) + "\n"


def _keyed(table: Table) -> pd.DataFrame:
    return table.frame.assign(run_id=table.runs) if table.runs else table.frame


def to_html(table: Table) -> str:
    """Title, rows, notes; the meaning of the columns and the runs unfold, and so does all of an artifact's details.

    Pages of notebooks have a style of their own, so that every style stands in its element.
    """
    table = _with_verdicts(table)
    same, *frames = _without_constants(table)
    grid, more = (_html_grid(frame.rename(columns=table.header)) for frame in frames)
    legend = [f"<b>{escape(header)}</b>: {escape(meaning)}" for header, meaning in _legend(table)]
    runs = _runs(table)
    content = (
        (f"<p>{escape(table.warning)}</p>" if table.warning else "")
        + (f'<p style="{_SMALL}">{escape(same)}</p>' if same else "")
        + grid
        + _folded("More columns", more if table.aside else "")
        + _html_list(map(escape, (*table.findings, *table.notes)))
        + _folded("What the columns are", _html_list(legend))
        + _folded("Runs", f'<p style="{_SMALL}">{escape(runs)}</p>' if runs else "")
    )
    return f"<p><b>{escape(table.title)}</b></p>{content}"


def wrapped(line: str) -> str:
    """A sentence in lines of a terminal."""
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def number(value: float | None, digits: int = 2) -> str:
    """A number with fixed digits, or the sign for an absent one."""
    return ABSENT if value is None or pd.isna(value) else f"{value:.{digits}f}"


def printed(value: float | None, digits: int) -> str:
    """A published number: a count whole, others with two digits or more, as many as are not 0, at most `digits`."""
    whole, point, places = number(value, digits and max(digits, 2)).partition(".")
    return f"{whole}{point}{places[:2]}{places[2:].rstrip('0')}"


def percent(share: float | None) -> str:
    """A share as a percentage; rounded down below 100, so that 100% means all."""
    if share is None or pd.isna(share):
        return ABSENT
    return "100%" if share == 1 else f"{min(share * 100, 99.9):.1f}%"


def interval(value: Interval | None, digits: int = 2) -> str:
    """A value with its 95% interval, such as `2.58 [2.51, 2.66]`; the range of few as `2.58 (2.51 to 2.66)`."""
    if value is None:
        return ABSENT
    return with_ends(value, *(number(end, digits) for end in (value.value, value.low, value.high)))


MACHINE = "the machine's speed differed between the runs"
"""Why two runs are not told apart whose interval alone would tell."""


def needed_words(n: int, needed: float) -> str:
    """`about 240 needed`: the conversations that a comparison needs where `n` were too few; two digits, rounded up."""
    if math.isinf(needed):
        return "more conversations would not tell"
    scale = 10.0 ** max(math.floor(math.log10(max(needed, n + 1))) - 1, 0)
    count = int(math.ceil(round(max(needed, n + 1) / scale, 6)) * scale)
    return f"about {count:,} needed" if count <= _MANY else f"over {_MANY:,} needed"


def ratio(value: Interval | None) -> str:
    """One run's metric over another's with its 95% interval, such as `1.053 [0.981, 1.127]`; absent where it is nan."""
    return ABSENT if value is None or pd.isna(value.value) else interval(value, 3)


def signed(value: Interval, digits: int = 3) -> str:
    """A difference with its 95% interval, such as `+0.012 [-0.003, +0.027]`."""
    first, low, high = (ABSENT if end != end else f"{end:+.{digits}f}" for end in (value.value, value.low, value.high))
    return with_ends(value, first, low, high)


def with_ends(value: Interval, first: str, low: str, high: str) -> str:
    """An interval in brackets; from where to where fewer conversations than have one reach; of one the value alone."""
    if math.isnan(value.low + value.high):
        return first
    few = value.n < FEWEST and math.isfinite(value.low + value.high)
    return f"{first} ({low} to {high})" if few else f"{first} [{low}, {high}]"


def frame(rows: Iterable[Mapping[str, str]], columns: Iterable[str]) -> pd.DataFrame:
    """Rows of strings as a frame with exactly these columns, also when there is no row."""
    return pd.DataFrame(list(rows), columns=list(columns), dtype=str)


def named_rows(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as named tuples, of whatever types; faster than `itertuples` where it has many columns."""
    row = namedtuple("row", ["Index", *map(str, frame.columns)], rename=True)  # type: ignore[misc]
    return map(row._make, zip(frame.index, *frame.to_numpy(dtype=object).T.tolist(), strict=True))


def leading_constants(frame: pd.DataFrame) -> dict[str, str]:
    """The first columns, as far as they say the same in every row: target, draft."""
    constant = takewhile(lambda name: frame[name].nunique() == 1, frame.columns[:-1]) if len(frame) > 1 else ()
    return {str(name): str(frame[name].iloc[0]) for name in constant}


def _without_constants(table: Table) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """A sentence on what the first columns say in every row, and the main columns and the details without these."""
    same = leading_constants(table.main)
    words = ", ".join(f"{table.header(name)} {value}" for name, value in same.items())
    main, details = (grid.drop(columns=list(same), errors="ignore") for grid in (table.main, table.details))
    return f"In all rows: {words}." if same else "", main, details


def _lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Headers and rows of the main columns."""
    yield tuple(table.header(str(column)) for column in table.main)
    yield from table.main.itertuples(index=False, name=None)


def _runs(table: Table) -> str:
    return ", ".join(dict.fromkeys(run for run in table.runs if run))


def _notes(table: Table) -> list[str]:
    return [*table.findings, *table.notes]


def _legend(table: Table, shown: pd.DataFrame | None = None) -> list[tuple[str, str]]:
    """What stands above the columns that have a meaning, with it; of those that are `shown`, or of all."""
    known = [str(column) for column in (table.frame if shown is None else shown) if column in table.legend]
    return [(table.header(column), table.legend[column]) for column in known]


def _grid(table: Table, frame: pd.DataFrame) -> str:
    """Headers and rows, padded."""
    columns = [[escaped(text) for text in (table.header(str(name)), *frame[name])] for name in frame]
    widths = [max(3, *map(len, column)) for column in columns]
    lines = [_row(cells, widths) for cells in zip(*columns, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _row(cells: Iterable[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def _html_grid(frame: pd.DataFrame) -> str:
    lines = _html_row(frame, "th") + "".join(_html_row(row, "td") for row in frame.itertuples(index=False, name=None))
    return f'<div style="overflow-x: auto"><table>{lines}</table></div>'


def _html_row(texts: Iterable[object], tag: str) -> str:
    cells = (f'<{tag} style="{_html_style(str(text), tag)}">{escape(str(text))}</{tag}>' for text in texts)
    return f"<tr>{''.join(cells)}</tr>"


def _html_style(cell: str, tag: str) -> str:
    if tag == "th":
        return _CELL
    return f"{_CELL}; min-width: {min(20, len(cell) // 3)}em" if len(cell) > _LONG else f"{_CELL}; white-space: nowrap"


def _html_list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul style="{_SMALL}">{lines}</ul>' if lines else ""


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>" if content else ""
