"""GSD, Tables 2, 4 and 6 to 9: a row per method and dataset, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import SPEEDUP
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.papers.gsd import methods, metrics
from specdec_trees.papers.gsd.methods import GREEDY, GSD, LARGE, SAMPLED, SMALL, SSD, SSD_DRAWN, TSD, both_rules, bound
from specdec_trees.papers.gsd.metrics import ROWS
from specdec_trees.results.store import Results

_RULES = (
    methods.LOSSY_RULE,
    "Lossless: the target's own sample decides (SSD, TSD, GSD), or min(1, p/q) and the residual distribution for a "
    "sequence that was drawn from q (SSD, drawn).",
)
_GREEDY = (
    "The paper states no decoding of this table: greedy here. Its caption's thresholds: k = 4, tau = 1, theta_prob = "
    "0.4, theta_sib = 0.1.",
    methods.READINGS,
)
_MEDUSA = (
    "The paper gives no settings of its Medusa heads, and there are none in public for Llama-2-70B. Of the embedded "
    "target there are: four heads, and the tree of the 63 most probable nodes by their distributions.",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the tables; its speedup is the mean over its decodings, all else is of the first."""

    title: str
    arms: tuple[Arm, ...]
    notes: tuple[str, ...]
    decodings: tuple[int, ...] = (GREEDY,)
    drafts_apart: bool = False
    """Whether its methods have drafts of different kinds: a pair then has no row of those run with another alone."""


def _bound(thresholds: Mapping[str, float], *arms: Arm) -> tuple[Arm, ...]:
    return tuple(bound(arm, thresholds) for arm in arms)


TABLES: Mapping[str, Kind] = {
    "table2": Kind(
        "GSD Table 2: speedup of non-deterministic decoding",
        both_rules(*_bound(LARGE, SSD, SSD_DRAWN, TSD, GSD)),
        _RULES,
        (SAMPLED,),
    ),
    "table4": Kind(
        "GSD Table 4: speedup beside Medusa's",
        _bound(LARGE, methods.MEDUSA, GSD),
        _MEDUSA,
        (GREEDY, SAMPLED),
        drafts_apart=True,
    ),
    **{
        f"table{number}": Kind(
            f"GSD Table {number}: acceptance rate and speedup, {models}",
            _bound(SMALL, SSD, TSD, GSD, methods.GSD_LEAVES, methods.GSD_CODE),
            _GREEDY,
        )
        for number, models in ((6, "BLOOM-7B1"), (7, "OPT-13B"), (8, "Llama-2-7B"))
    },
    "table9": Kind(
        "GSD Table 9: acceptance rate and speedup of non-deterministic decoding, Llama-2-7B",
        both_rules(*_bound(SMALL, SSD, SSD_DRAWN, GSD)),
        _RULES,
        (SAMPLED,),
    ),
}


def by_dataset(name: str, results: Results) -> list[Output]:
    """One of the tables."""
    kind, paper = TABLES[name], published.find("gsd", name)
    runs = methods.load(results, paper, kind.decodings)
    parts = methods.lines(runs, paper, kind.arms, kind.decodings)
    if kind.drafts_apart:
        ran, labels = parts[0]["run_id"] != "", parts[0]["label"]
        parts = [part[ran | ~labels.isin(labels[ran])] for part in parts]
    counts = (*metrics.COUNTS, *[metrics.VARIATION] * (kind.decodings == (SAMPLED,)))
    several = len(kind.decodings) > 1
    speedup = metrics.MEAN if several else SPEEDUP
    own = [frame.measure(part, [SPEEDUP]) for part in parts]
    first = metrics.mean_of(own, speedup) if several else own[0]
    shown = (metrics.RANKED_RATE, *counts)
    long = methods.judged(pd.concat([first, frame.measure(parts[0], shown)], ignore_index=True), metrics.NAMES)
    below = [
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        methods.NO_HARDWARE,
        *kind.notes,
        *methods.unshown(results, parts[0], kind.arms),
        *[methods.MEANS_TIED] * several,
    ]
    title = notes.titled(kind.title, runs, but=["dataset", *["temperature"] * several])
    aside = [one.key for one in counts]
    return [table(name, title, long, ROWS, (speedup, *shown), aside=aside, notes=below)]
