"""What `python -m specdec_trees.new paper` writes: a paper's package, experiments, numbers, notebook and section.

A table and a figure of two methods are there to be replaced. The CSV of published numbers has its columns alone.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

from specdec_trees import published
from specdec_trees.artifacts.markdown import escaped
from specdec_trees.locations import IN_CHECKOUT
from specdec_trees.papers.registry import PAPERS

ROOT = Path(__file__).parents[1]
PACKAGE = '''"""The tables and figures of {title}."""

from collections.abc import Mapping

from specdec_trees import published
from specdec_trees.locations import IN_CHECKOUT
from specdec_trees.artifacts import arms, draw, frame, notes
from specdec_trees.artifacts.arms import LENGTH, Arm
from specdec_trees.artifacts.metrics import LOSSLESS, MAL, SPEEDUP
from specdec_trees.artifacts.outputs import Artifact, Output
from specdec_trees.artifacts.table import table
from specdec_trees.results.store import Results

TITLE = "{title}"
ARMS = {{"table1": (Arm("OPT-Tree", ("opt_tree",), "opt_tree"), Arm("chain", ("chain4",), "chain"))}}
"""By table its methods: a header, our drafters, the paper's name in `specdec_trees/published/{name}.csv`."""
NAMES = {{"speedup": "speedup", "mal": LENGTH}}
"""The paper's metrics by the key of ours."""
METRICS = (SPEEDUP, MAL, LOSSLESS)
ROWS = ("target_words", "draft_words", "dataset", "label")


def table1(name: str, results: Results) -> list[Output]:
    """A row per method and setting, ours beside the paper's."""
    paper = published.find("{name}", name)
    runs = frame.standing_in(frame.load(results), paper)
    long = arms.judged(runs, paper, ARMS[name], ("dataset", "temperature"), METRICS, NAMES)
    below = [*notes.of_blocks(runs), *notes.not_run(paper, runs)]
    return [table(name, notes.titled("{short} Table 1: speedup and MAL", runs), long, ROWS, METRICS, notes=below)]


def fig1(name: str, results: Results) -> list[Output]:
    """MAL against the tree size n."""
    loaded = frame.finished(results)
    runs = draw.lines(loaded, "n")
    long = frame.measure(runs, [MAL])
    words = "{short} Figure 1: MAL against tree size", notes.setting(loaded), "tree size n"
    panels: list[list[draw.Drawing]] = [[(draw.curve, MAL)]]
    figure = draw.curves(name, words, long, panels)
    below = draw.below(loaded, runs)
    return [figure, table(name, figure.title, long.assign(n=long["point"]), (*draw.LINE_ROWS, "n"), [MAL], notes=below)]


ARTIFACTS: Mapping[str, Artifact] = {{"table1": Artifact(table1), "fig1": Artifact(fig1)}}
'''
TABLE = """# @package _global_
# {short}, Table 1: two methods, to be replaced by the paper's.
defaults:
  - override /dataset: mt_bench
  - override /decoding: greedy
  - override /verifier: greedy
name: {name}/table1
pairs: [llama2_7b_chat_jf68m]
hydra:
  sweeper:
    params:
      drafter: opt_tree,chain4
"""
FIGURE = """# @package _global_
# {short}, Figure 1: a tree size, to be replaced by what the paper sweeps.
defaults:
  - override /dataset: mt_bench
  - override /decoding: greedy
  - override /verifier: greedy
  - override /drafter: opt_tree
name: {name}/fig1
pairs: [llama2_7b_chat_jf68m]
hydra:
  sweeper:
    params:
      drafter.n: 10,25,50
"""
SECTION = """
## {short}

{title}.

| Artifact | The paper | Here | What differs, and why |
|---|---|---|---|
| <a id="{name}-table1"></a>Table 1 | what its text says | two methods | to be written |
| <a id="{name}-fig1"></a>Figure 1 | what its text says | a tree size | to be written |
"""
ARTIFACTS = (
    ("table1", "Section 1", "Speedup and MAL of two methods, to be replaced", ""),
    ("fig1", "Section 1", "MAL against tree size, to be replaced", ""),
)


def new_paper(title: str, *, name: str | None = None) -> str:
    """Write the files of a paper and say what to do next.

    ValueError for a name that is taken or cannot be one, and without a checkout, which these files are part of.
    """
    if not IN_CHECKOUT:
        raise ValueError("a paper's files are part of the repository: clone it, and run this there")
    short = title.partition(":")[0].strip()
    name = name or re.sub(r"[^a-z0-9]+", "_", short.lower()).strip("_")
    if not re.fullmatch(r"[a-z]\w*", name) or name in PAPERS or (ROOT / "specdec_trees" / "papers" / name).exists():
        raise ValueError(f'NAME="{name}": a paper\'s name is that of a Python package that is not there yet')
    if len(title) <= 30 or '"' in title:
        raise ValueError(
            f'TITLE="{title}": more than 30 characters without quotation marks, such as '
            '"Short: What It Is About (arXiv:2401.01234)"'
        )
    words = {"name": name, "title": title, "short": short}
    texts = {
        f"specdec_trees/papers/{name}/__init__.py": PACKAGE.format(**words),
        f"specdec_trees/published/{name}.csv": ",".join(published.COLUMNS) + "\n",
        f"conf/experiment/{name}/table1.yaml": TABLE.format(**words),
        f"conf/experiment/{name}/fig1.yaml": FIGURE.format(**words),
        f"notebooks/{name}.ipynb": json.dumps(_notebook(name, short, title), indent=1) + "\n",
    }
    for place, text in texts.items():
        path = ROOT / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with (ROOT / "docs" / "fidelity.md").open("a", encoding="utf-8") as page:
        page.write(SECTION.format(name=name, title=escaped(title), short=escaped(short)))
    with (ROOT / "specdec_trees" / "published" / "artifacts.csv").open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((name, *row) for row in ARTIFACTS)
    listed = "\n".join(f"  {place}" for place in (*texts, "docs/fidelity.md", "specdec_trees/published/artifacts.csv"))
    return (
        f"written:\n{listed}\n"
        f"next: make reproduce TABLE={name}/table1 PAIR=tiny LIMIT=2 RESULTS=results/try (DATA_DIR=folder without a "
        'network), then its numbers (CONTRIBUTING.md, "Add a paper")'
    )


def _notebook(name: str, short: str, title: str) -> dict[str, Any]:
    called = escaped(title.partition(" (")[0])
    about = f"# {escaped(short)}\n\n{called}.\n\nWhat the paper claims, and what carries it, is to be written."
    texts = [
        ("markdown", "about", about),
        ("code", "imports", "from specdec_trees.report.notebook import available, show"),
        ("code", "available", f'available("{name}")'),
        ("code", "shown", f'show("{name}/table1")'),
    ]
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "id": f"{name}-{label}", "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for kind, label, text in texts
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
