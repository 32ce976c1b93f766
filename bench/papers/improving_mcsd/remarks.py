"""What is said below the tables and figures of improved MCSD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from bench.artifacts.blocks import Block, every_run
from bench.artifacts.speedups import settings
from bench.artifacts.wording import scale
from bench.papers.improving_mcsd.methods import words
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results

LOSSY = (
    "(lossy): the output law is not the target's. Of several first tokens the one below which more is accepted wins, "
    "and the paper's rule tests every node alone (Table 1). Such rows are not to be set against lossless ones."
)
NOT_LOSSLESS = (
    "Where lossless says no, the output law is not the target's: such rows are not to be set against lossless ones."
)
BUDGETS = (
    "The paper sets 82 verified nodes (2 first tokens and 40 draft nodes below each) against MCSD's 44; MCSD, equal "
    "budget (ours) drafts 80 nodes, as wide at every level as the draft's levels of 2x4x3x1x1."
)
CONTROL = (
    "TI-MCSD, one first token (ours) is MCSD's own rule below a token drawn from the target's law: lossless, and alpha "
    "has the law of MCSD's with the same k-configuration, 4x3x1x1."
)
DYNAMIC_BUDGETS = (
    "Budgets differ, sequences do not (16): MCSD drafts 60 nodes, dynamic MCSD 80 below 16 first tokens, which the "
    "target reads too."
)
OF_DYNAMIC = (
    "No decision model: all levels are drafted. The paper's section 1 calls its framework, whose results are these, a "
    "combination with early stopping; its appendix does not say whether trees ended early here. With decision models "
    "see Figure 8.",
    "The paper's appendix, which has these numbers, leaves the loss of quality by W first tokens aside.",
    LOSSY,
)


def said(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """What was run, what stands in, what was not run."""
    for block in found:
        yield scale(block)
    yield from settings.stand_ins(found)
    yield from settings.left_out(settings.drafted(paper), found)


def left_out(results: Results, shown: Iterable[str]) -> Iterator[str]:
    """A sentence on the runs that are not shown; `shown` are the run ids of the rows."""
    ids = set(shown)
    groups: dict[str, list[str]] = {}
    for run in every_run(results):
        if run.method != AUTOREGRESSIVE and run["run_id"] not in ids:
            groups.setdefault(words(run), []).append(run.run_id)
    listed = (f"{what} ({'run' if len(own) == 1 else 'runs'} {', '.join(own)})" for what, own in groups.items())
    if groups:
        yield (
            f"Not shown: {'; '.join(listed)}: other methods, rules, configurations or decodings than what is shown, "
            "or another run of the same."
        )
