"""What notebooks call, so that they hold no logic: artifacts, published numbers and rows, shown where they are.

Results are those of the folder that the environment variable SPECDEC_RESULTS names, by default the committed
`results/reference`. A relative folder may stand below the working directory or any folder above it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from PIL import Image

from specdec_trees import published as papers
from specdec_trees.artifacts.outputs import Html, NoResultsError, Output
from specdec_trees.artifacts.tables import ABSENT, Table, frame, named_rows, to_html, to_markdown
from specdec_trees.papers.registry import ARTIFACTS, TITLES, build, command
from specdec_trees.report.site.facts import provenance
from specdec_trees.results import progress, store

VARIABLE = "SPECDEC_RESULTS"
REFERENCE = Path("results/reference")
_ROOT = Path(__file__).resolve().parents[2]
_CSS_DPI = 96
_SETTING = ("target", "draft", "dataset", "temperature", "method", "params", "hardware")
_REMARKS = "remarks"
_SEPARATOR = "; "


def results_folder() -> Path:
    """The results that notebooks show; ValueError if SPECDEC_RESULTS names no folder."""
    asked = os.environ.get(VARIABLE)
    wanted = Path(asked) if asked else REFERENCE
    here = Path.cwd()
    for base in (here, *here.parents, _ROOT):
        if (base / wanted).is_dir():
            return base / wanted
    if asked:
        raise ValueError(f"{VARIABLE} is {asked}, and there is no such folder; give one that `make reproduce` wrote")
    return here / wanted


def show(artifact: str, pair: str | None = None) -> None:
    """Display an artifact's tables, figures and pages; a sentence where it was not run or cannot be."""
    paper, _, name = artifact.partition("/")
    if artifact not in ARTIFACTS and (why := _absent(paper, name)):
        return _say(f"`{artifact}` is not measured: {why}")
    try:
        outputs = build(artifact, results_folder(), pair)
    except NoResultsError:
        whose = f" of pair `{pair}`" if pair else ""
        return _say(
            f"No results of `{artifact}`{whose} in `{_shown(results_folder())}`. Run `{command(artifact, pair)}`."
        )
    for output in outputs:
        _display(output)
    return None


def published(paper: str, artifact: str, **keys: str | float | list[str]) -> None:
    """Display what the paper prints under an artifact or section, of the rows whose columns equal `keys`."""
    _display(printed(paper, artifact, **keys))


def available(paper: str) -> None:
    """Display every table and figure of a paper: what it shows, what these results have of it, and of which pairs."""
    every, folder = papers.artifacts(), results_folder()
    columns = ("artifact", "where", "what it shows", "in these results", "pairs")
    rows = [
        dict(zip(columns, (row.artifact, row.place, row.title, *_state(folder, row)), strict=True))
        for row in named_rows(every[every["paper"] == paper])
    ]
    title = f"{TITLES[paper]}: its tables and figures, and what is in {_shown(folder)}"
    some = next(row["artifact"] for row in rows if f"{paper}/{row['artifact']}" in ARTIFACTS)
    note = f"What was not run is one command away: {command(f'{paper}/{some}').replace(some, 'ARTIFACT')}."
    _display(Table("available", title, frame(rows, columns), (note,)))


def results(experiment: str, pair: str | None = None, dataset: str | None = None) -> store.Results:
    """The rows behind an artifact: data frames `runs`, `prompts`, `steps`, ... (`specdec_trees.results.store.load`)."""
    folder = results_folder()
    first = progress.planned_runs(folder / experiment)
    return store.load(folder, experiment, pair=pair, dataset=dataset, first=first)


def _state(folder: Path, row: Any) -> tuple[str, str]:
    """What there is of an artifact, in words, and its pairs."""
    if row.absent:
        return f"not measured: {row.absent}", ABSENT
    artifact = f"{row.paper}/{row.artifact}"
    try:
        ARTIFACTS[artifact].read(folder / artifact, None)
    except NoResultsError:
        return "not run", ABSENT
    reached, pairs = progress.read(folder, artifact), provenance(folder, artifact).pairs
    cells = f", {reached.done} cell{'s' * (reached.done > 1)}" if reached.done else ""
    failed = f", {reached.failed} failed: {reached.detail}" if reached.failed else ""
    return f"yes{cells}{failed}", ", ".join(pairs) or ABSENT


def _absent(paper: str, name: str) -> str:
    every = papers.artifacts()
    return "".join(every[(every["paper"] == paper) & (every["artifact"] == name)]["absent"])


def _shown(folder: Path) -> str:
    """A folder of the repository by its path there."""
    return str(folder.relative_to(_ROOT)) if folder.is_relative_to(_ROOT) else str(folder)


def _display(output: Output) -> None:
    from IPython.display import display

    if isinstance(output, Table):
        display({"text/html": to_html(output), "text/plain": to_markdown(output)}, raw=True)
    elif isinstance(output, Html):
        display({"text/html": _framed(output), "text/plain": output.name}, raw=True)
    else:
        for png, width in _images(output):
            data = {"image/png": base64.b64encode(png).decode(), "text/plain": output.name}
            display(data, metadata={"image/png": {"width": width}}, raw=True)


def _say(sentence: str) -> None:
    from IPython.display import Markdown, display

    display(Markdown(sentence))


def _images(output: Output) -> Iterator[tuple[bytes, int]]:
    """The images that an output writes, with the width in CSS pixels at which their print has its size."""
    with TemporaryDirectory() as folder:
        for path in output.write(Path(folder)):
            if path.suffix == ".png":
                with Image.open(path) as image:
                    yield path.read_bytes(), round(image.width * _CSS_DPI / image.info["dpi"][0])


def _framed(output: Html) -> str:
    """A page in a frame of its own, so that its style stays there."""
    height = 32 * (8 + len(output.text) // 400)
    page = escape(output.text, quote=True)
    return f'<iframe srcdoc="{page}" style="width: 100%; height: {min(height, 640)}px; border: 0"></iframe>'


# what a paper prints: a row per setting and method, a column per metric, remarks numbered below


def printed(paper: str, artifact: str, **keys: str | float | list[str]) -> Table:
    """The published numbers of a table, figure or section, of the rows whose columns equal `keys` if any are given.

    Columns that are the same in all rows stand in the title. ValueError with the names there are for one that has no
    numbers.
    """
    rows = papers.find(paper, artifact, **keys)
    shared, rows["params"] = _split(rows["params"])
    if rows.empty:
        names = ", ".join(dict.fromkeys(papers.load(paper)["artifact"]))
        chosen = f" of {', '.join(f'{key}={value}' for key, value in keys.items())}" if keys else ""
        raise ValueError(f"no published numbers{chosen} under {artifact!r} of {paper}; there are some under {names}")
    varying = [column for column in _SETTING if rows[column].nunique(dropna=False) > 1]
    same = {column: _text(rows[column].iloc[0]) for column in _SETTING if column not in varying}
    same["params"] = "; ".join(shared) or same.get("params", ABSENT)
    setting = ", ".join(f"{column} {value}" for column, value in same.items() if value not in ("none", ABSENT))
    remarks = list(dict.fromkeys(remark for note in rows["notes"] for remark in _remarks(note)))
    frame = pd.DataFrame(_records(rows, varying, remarks)).fillna(ABSENT)
    columns = [*varying, *dict.fromkeys(_metrics(rows)), *([_REMARKS] if remarks else [])]
    title = f"As printed: {paper}/{artifact}" + (f" ({setting})" if setting else "")
    notes = tuple(f"{number}: {remark}." for number, remark in enumerate(remarks, 1))
    legend = dict(zip(_metrics(rows), rows["definition"], strict=True))
    return Table(artifact, title, frame[columns], notes, {name: text.rstrip(".") for name, text in legend.items()})


def _records(rows: pd.DataFrame, varying: Sequence[str], remarks: Sequence[str]) -> list[dict[str, str]]:
    """One for each setting, in the order of the rows; values of the same metric and setting stand side by side."""
    records: dict[tuple[str, ...], dict[str, str]] = {}
    numbers: dict[tuple[str, ...], set[int]] = {}
    for row, metric in zip(named_rows(rows), _metrics(rows), strict=True):
        key = tuple(_text(getattr(row, column)) for column in varying)
        record = records.setdefault(key, dict(zip(varying, key, strict=True)))
        record[metric] = f"{record[metric]} / {row.value:g}" if metric in record else f"{row.value:g}"
        numbers.setdefault(key, set()).update(remarks.index(remark) + 1 for remark in _remarks(row.notes))
    if remarks:
        for key, record in records.items():
            record[_REMARKS] = ", ".join(map(str, sorted(numbers[key]))) or ABSENT
    return list(records.values())


def _split(params: pd.Series) -> tuple[list[str], pd.Series]:
    """The `key=value` that all rows have, and what is left of each row's."""
    parts = [text.split(";") if text else [] for text in params]
    shared = [part for part in parts[0] if all(part in others for others in parts)] if parts else []
    left = [";".join(part for part in others if part not in shared) for others in parts]
    return shared, pd.Series(left, index=params.index, dtype=object)


def _metrics(rows: pd.DataFrame) -> list[str]:
    """The metric of every row, with its unit where the name does not say it."""
    return [
        metric if not unit or unit in ("unspecified", *metric.split("_")) else f"{metric} ({unit})"
        for metric, unit in zip(rows["metric"], rows["unit"], strict=True)
    ]


def _remarks(note: str) -> list[str]:
    return [remark.strip().rstrip(".") for remark in note.split(_SEPARATOR) if remark.strip()]


def _text(value: object) -> str:
    """A cell; `key=value;key=value` gets room to wrap."""
    if isinstance(value, float):
        return ABSENT if pd.isna(value) else f"{value:g}"
    return str(value).replace(";", "; ") or ABSENT
