"""What notebooks call, so that they hold no logic: artifacts, published numbers and rows, shown where they are.

Results are those of the folder that the environment variable SPECDEC_RESULTS names, by default the committed
`results/reference`. A relative folder may stand below the working directory or any folder above it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from bench import published as papers
from bench.artifacts.outputs import Html, NoResultsError, Output
from bench.artifacts.table_html import table_html
from bench.artifacts.tables import Table, frame, named_rows, to_markdown
from bench.papers.registry import ARTIFACTS, build, command
from bench.report.printed import printed
from bench.results import progress, store

VARIABLE = "SPECDEC_RESULTS"
REFERENCE = Path("results/reference")
_ROOT = Path(__file__).resolve().parents[2]
_CSS_DPI = 96


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
    """Display every table and figure of a paper: what it shows, and what these results have of it."""
    every, folder = papers.artifacts(), results_folder()
    columns = ("artifact", "where", "what it shows", "in these results")
    rows = [
        dict(zip(columns, (row.artifact, row.place, row.title, _state(folder, row)), strict=True))
        for row in named_rows(every[every["paper"] == paper])
    ]
    title = f"{papers.TITLES[paper]}: its tables and figures, and what is in {_shown(folder)}"
    note = f"What was not run is one command away: {command(f'{paper}/ARTIFACT')}."
    _display(Table("available", title, frame(rows, columns), (note,)))


def results(experiment: str, pair: str | None = None, dataset: str | None = None) -> store.Results:
    """The rows behind an artifact: data frames `runs`, `prompts`, `steps`, ... (`bench.results.store.load`)."""
    folder = results_folder()
    first = progress.planned_runs(folder / experiment)
    return store.load(folder, experiment, pair=pair, dataset=dataset, first=first)


def _state(folder: Path, row: Any) -> str:
    """What there is of an artifact, in words."""
    if row.absent:
        return f"not measured: {row.absent}"
    artifact = f"{row.paper}/{row.artifact}"
    try:
        ARTIFACTS[artifact].read(folder / artifact, None)
    except NoResultsError:
        return "not run"
    found = progress.read(folder, artifact)
    cells = f", {found.done} cell{'s' * (found.done > 1)}" if found.done else ""
    return f"yes{cells}" + (f", {found.failed} failed: {found.detail}" if found.failed else "")


def _absent(paper: str, name: str) -> str:
    every = papers.artifacts()
    return "".join(every[(every["paper"] == paper) & (every["artifact"] == name)]["absent"])


def _shown(folder: Path) -> str:
    """A folder of the repository by its path there."""
    return str(folder.relative_to(_ROOT)) if folder.is_relative_to(_ROOT) else str(folder)


def _display(output: Output) -> None:
    from IPython.display import display

    if isinstance(output, Table):
        display({"text/html": table_html(output), "text/plain": to_markdown(output)}, raw=True)
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
