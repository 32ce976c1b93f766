"""GSD, Table 5: how far the draft's law behind a merge edge is from what it would be without merging."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import pandas as pd

from bench import published
from bench.artifacts import tables
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.gsd import settings
from bench.papers.gsd.vocabulary import vocabulary
from bench.results.store import Results
from bench.statistics import graph_metrics, intervals
from bench.statistics.intervals import Interval

TITLE = "GSD Table 5: KL divergence of merging, by k and tau"
UNLIMITED = 32
"""The k that stands for the paper's unlimited one: no node has so many children that pass the thresholds."""
_NOT_RUN = "not run"
_KL = "KL(law on the redundant node's own path || law at the node it is merged into), the draft's, in nats"
_LAW = "the printed values look like a mean over the vocabulary's elements, which is our inference"
DETAILS = ("Pair", "k", "tau", "n-gram", "merges", "KL", "V", "KL / V", "KL published")
LEGEND = {
    "tau 0": f"mean of {_KL} over merge edges, divided by the size V of the vocabulary ({_LAW}); in parentheses not "
    "divided. tau counts the tokens of context that are alike beside the redundant token itself",
    "tau": "tokens of context that are alike beside the redundant token itself",
    "n-gram": "length of the n-gram whose recurrence makes a node redundant, tau + 1; the paper's text calls that tau",
    "merges": "merge edges",
    "KL": f"{_KL}; mean over merge edges, in brackets the 95% interval (bootstrap over conversations)",
    "V": "size of the draft's vocabulary",
    "KL / V": f"the mean divided by V: {_LAW}",
}


@dataclass(frozen=True)
class _Run(Run):
    """A run that compared laws, or was to."""

    @property
    def k(self) -> int:
        return int(self.params["k"])

    @property
    def gram(self) -> int:
        """Length of the n-gram whose recurrence makes a node redundant."""
        params = self.params
        return int(params["tau"]) + bool(params.get("tau_as_context"))

    @cached_property
    def merges(self) -> pd.DataFrame:
        """A row per merge edge."""
        return graph_metrics.merge_divergences(self.steps)

    @cached_property
    def kl(self) -> Interval | None:
        """Mean over merge edges, in nats; None without one."""
        return intervals.ratio_of_sums(self.merges, "kl") if len(self.merges) else None

    @property
    def vocabulary(self) -> int | None:
        """Size V of the draft's."""
        return vocabulary(str(self["draft_id"]))

    @property
    def per_element(self) -> float | None:
        """`kl` over the size of the vocabulary; None where one of them is not known."""
        return self.kl.value / self.vocabulary if self.kl and self.vocabulary else None


def merge_kl(name: str, results: Results) -> list[Output]:
    """The paper's layout, a row per k and a column per tau; and a row per run with intervals and counts."""
    found = [(block, _probes(block)) for block in map(settings.of_main_pair, drafted_blocks(results))]
    found = [(block, runs) for block, runs in found if any(run.ok for run in runs)]
    if not found:
        raise NoResultsError("no run compared the draft's laws with and without merging")
    title = f"{TITLE} ({setting(block for block, _ in found)})"
    runs = [run for _, runs in found for run in runs]
    said = draft_temperatures(runs)
    notes = (*(scale(block) for block, _ in found), *_notes(), *said)
    frame = tables.frame(map(_detail, runs), DETAILS)
    details = Table(f"{name}_details", f"{title}, details", frame, notes, LEGEND, tuple(run.run_id for run in runs))
    return [_wide(name, title, found, notes), details]


def _probes(block: Block) -> list[_Run]:
    """The runs whose drafter merges and compares, by k and tau; of those that failed: merges."""
    runs = [_Run(block, run.row) for run in block.every if run.params.get("tau") is not None]
    compared = [run for run in runs if run["status"] != "ok" or _compares(run)]
    return sorted(compared, key=lambda run: (run.k, run.gram))


def _compares(run: _Run) -> bool:
    return bool(run.steps["merge_kl"].notna().any())


def _wide(name: str, title: str, found: list[tuple[Block, list[_Run]]], notes: tuple[str, ...]) -> Table:
    taus = sorted({run.gram - 1 for _, runs in found for run in runs} | {tau for _, tau in _published()})
    rows, ids = [], []
    for block, runs in found:
        for k in sorted({run.k for run in runs} | {k for k, _ in _published()}):
            cells = {"Pair": block.name, "k": _k(k)}
            for tau in taus:
                here = [run for run in runs if (run.k, run.gram - 1) == (k, tau)]
                cells[f"tau {tau}"] = " / ".join(map(_cell, here)) or _NOT_RUN
                cells[f"tau {tau} published"] = _scientific(_published().get((k, tau)))
            rows.append(cells)
            ids.append(" ".join(run.run_id for run in runs if run.k == k))
    return Table(name, title, tables.frame(rows, rows[0]), notes, LEGEND, tuple(ids))


def _cell(run: _Run) -> str:
    if run["status"] != "ok":
        return str(run["status"])
    return f"{_scientific(run.per_element)} ({tables.number(run.kl.value, 3)})" if run.kl else tables.ABSENT


def _detail(run: _Run) -> dict[str, str]:
    ok, tau = run.ok, run.gram - 1
    return {
        "Pair": run.block.name,
        "k": _k(run.k),
        "tau": str(tau),
        "n-gram": str(run.gram),
        "merges": str(len(run.merges)) if ok else tables.ABSENT,
        "KL": tables.interval(run.kl, 3) if ok else str(run["status"]),
        "V": str(run.vocabulary or tables.ABSENT),
        "KL / V": _scientific(run.per_element),
        "KL published": _scientific(_published().get((run.k, tau))),
    }


def _k(k: int) -> str:
    return f"unlimited ({k})" if k == UNLIMITED else str(k)


def _scientific(value: float | None) -> str:
    return tables.ABSENT if value is None else f"{value:.2e}"


@cache
def _published() -> dict[tuple[int, int], float]:
    """The printed values by k and tau."""
    found = {}
    for row in tables.named_rows(published.find("gsd", "table5", metric="kl")):
        params = dict(part.split("=") for part in row.params.split(";"))
        found[int(params["k"].replace("inf", str(UNLIMITED))), int(params["tau"])] = float(row.value)
    return found


def _notes() -> Iterator[str]:
    count = published.find("gsd", "table5", metric="setting_examples")["value"].iloc[0]
    yield (
        f"The paper: means of {count:g} examples; it states neither models nor data, direction nor unit, nor what it "
        "divides by."
    )
    yield (
        "Its tau = 0 can only count tokens of context (by its text a single token is tau = 1), and so do the columns "
        "here: they are the text's tau 1, 2, 3, ..."
    )
