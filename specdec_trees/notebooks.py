"""`python -m specdec_trees.notebooks`: run the notebooks on a results folder; write them and pages of HTML.

`--in-place` writes the committed notebooks: the tour with small outputs, the others without any.
"""

from __future__ import annotations

import argparse
import base64
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import zmq
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from PIL import Image

from specdec_trees.report.notebook import REFERENCE, VARIABLE

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
TIMEOUT_S = 300
MOST_PX, MOST_COLOURS = 900, 64
"""Of an image in a committed notebook: about as wide as code hosts show it."""
WITH_OUTPUTS = ("tour",)
"""Notebooks that code hosts show: committed with their outputs, which are of the bundled models alone."""
_STYLE = re.compile(r'(<(?!iframe)\w+[^>]*?) style="[^"]*"')  # code hosts leave it out
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "PYTHONWARNINGS": "ignore:IProgress not found",  # progress bars of notebooks, which need another package
    "TOKENIZERS_PARALLELISM": "false",
}


class OwnKernel(AsyncKernelManager):
    """Kernels of this very interpreter, whichever Jupyter knows as `python3`; encrypted where that can be had."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.has_trait("transport_encryption") and zmq.has("curve"):
            self.transport_encryption = "auto"

    @property
    def kernel_spec(self) -> KernelSpec:
        """What `python -m ipykernel install` would write."""
        return KernelSpec(**get_kernel_dict())


def execute(path: Path, results: Path) -> Any:
    """The notebook with its outputs, run in its own folder on a folder of results; it stops at the first error.

    CellExecutionError says which cell failed and how, CellTimeoutError which took longer than five minutes.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_manager_class=OwnKernel,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute(env={**_QUIET, **os.environ, VARIABLE: str(results.resolve())})
    except AssertionError as error:
        if client.km is None:  # nbclient hears Ctrl-C itself, ends the kernel, and then misses it
            logging.getLogger("asyncio").disabled = True  # it would tell what became of the kernel's sockets
            raise KeyboardInterrupt from error
        raise
    return notebook


def committed(notebook: Any) -> Any:
    """The same notebook as it is committed: tables without style, small images, no times."""
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.metadata.clear()
        for output in cell.outputs:
            data, about = output.get("data", {}), output.get("metadata", {})
            if "text/html" in data:
                data.pop("text/plain", None)
                data["text/html"] = _STYLE.sub(r"\1", data["text/html"])
            if "image/png" in data:
                data["image/png"] = _shrunk(data["image/png"])
                about["image/png"] = {"width": min(about.get("image/png", {}).get("width", MOST_PX), MOST_PX)}
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    return nbformat.from_dict(notebook)


def bare(notebook: Any) -> Any:
    """The same notebook without outputs."""
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs, cell.execution_count = [], None
    return committed(notebook)


def _shrunk(png: str) -> str:
    """An image in base64, narrower and with a palette; one that is small already is left as it is."""
    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        share = min(1.0, MOST_PX / image.width)
        narrow = image.convert("RGB").resize((round(image.width * share), round(image.height * share)))
    narrow = narrow.quantize(MOST_COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    file = io.BytesIO()
    narrow.save(file, "PNG", optimize=True)
    found = base64.b64encode(file.getvalue()).decode()
    return min(found, png, key=len)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write all, or those that are named; 0, or 1 with a line on stderr for each that failed."""
    options = _parser().parse_args(arguments)
    paths = [FOLDER / f"{name}.ipynb" for name in options.names] or sorted(FOLDER.glob("*.ipynb"))
    strangers = [path.stem for path in paths if not path.exists()]
    if strangers or not options.results.is_dir():
        what = f"no notebook {strangers[0]!r} in {FOLDER}" if strangers else f"no folder {options.results}"
        print(f"there is {what}", file=sys.stderr)
        return 2
    failed = 0
    for path in paths:
        try:
            written = (
                _rewrite(path, options.results) if options.in_place else _write(path, options.results, options.out)
            )
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            failed += 1
            print(f"{path.name} failed: {_COLOURS.sub('', str(error))}", file=sys.stderr)
            continue
        print("\n".join(map(str, written)), flush=True)
    return min(failed, 1)


def _rewrite(path: Path, results: Path) -> list[Path]:
    """A committed notebook itself."""
    shown = path.stem in WITH_OUTPUTS
    nbformat.write(committed(execute(path, results)) if shown else bare(nbformat.read(path, as_version=4)), path)
    return [path]


def _write(path: Path, results: Path, out: Path) -> list[Path]:
    """A notebook with its outputs, and its page."""
    notebook = execute(path, results)
    out.mkdir(parents=True, exist_ok=True)
    copy = out / path.name
    nbformat.write(notebook, copy)
    page = copy.with_suffix(".html")
    page.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    return [copy, page]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", help="such as opt_tree (default: all)")
    shown = Path(os.environ.get(VARIABLE) or FOLDER.parent / REFERENCE)
    parser.add_argument("--results", type=Path, default=shown, help="what they show (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("results/notebooks"), help="where to write (default: %(default)s)"
    )
    parser.add_argument("--in-place", action="store_true", help="write the notebooks themselves, as they are committed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
