"""DySpec, Figure 4: the components of a decoding step, and the share that the paper says some of them stay below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench import published
from bench.artifacts import tables
from bench.artifacts.blocks import Block
from bench.artifacts.phases import time_by_phase
from bench.artifacts.runs import Run
from bench.statistics import intervals
from bench.statistics.intervals import Interval
from bench.statistics.metrics import PHASES

_BUILDING = "tree construction"
_FORWARDS = ("draft", "score")
_PARTS = {
    "tree_construction_time_share": (_BUILDING, ("tree",)),
    "other_components_time_share": ("all but the forwards", tuple(set(PHASES) - set(_FORWARDS))),
}
"""What the paper bounds, by the metric of its rows."""
LEGEND = {
    f"{_BUILDING} ms": "growing the tree without its draft forwards, and the target's mask and positions",
    "judging ms": "the rule of acceptance, its random draws among them",
    "committing ms": "keeping the accepted path in the caches",
    "bounded share": "share of the time of all steps that the paper states a bound for; in brackets the 95% interval "
    "(bootstrap over conversations)",
    "within": "whether the whole interval lies below the paper's bound (yes), above it (no), or on both sides (open)",
}


def _facts(block: Block) -> pd.DataFrame:
    """What the paper's text says of these models."""
    rows = published.find("dyspec", "fig_text", metric=list(_PARTS))
    target, draft = block.standing_in(rows).published_as or ("", "")
    return rows[(rows["target"] == target) & (rows["draft"] == draft)]


def _bounded(run: Run) -> dict[str, str]:
    """The share that the paper bounds for these models, and whether ours is within; of other models nothing."""
    row = dict.fromkeys(("bounded part", "bounded share", "published", "within"), tables.ABSENT)
    for fact in tables.named_rows(_facts(run.block)):
        part, phases = _PARTS[str(fact.metric)]
        share = _share(run.steps, phases)
        return {
            "bounded part": part,
            "bounded share": _percent(share),
            "published": f"< {fact.value:g}%",
            "within": _within(share, fact.value / 100),
        }
    return row


def _share(steps: pd.DataFrame, phases: Sequence[str]) -> Interval:
    """Of the time of all steps."""
    part, whole = (steps[[f"{phase}_s" for phase in names]].sum(axis=1) for names in (phases, PHASES))
    return intervals.ratio_of_sums(steps.assign(part=part, whole=whole), "part", "whole")


def _within(share: Interval, bound: float) -> str:
    if not share.low <= share.high:  # a single conversation has no interval
        return "open"
    return "yes" if share.high < bound else "no" if share.low >= bound else "open"


def _percent(share: Interval) -> str:
    low, high = (tables.ABSENT if end != end else f"{end:.1%}" for end in (share.low, share.high))
    return f"{share.value:.1%} [{low}, {high}]"


def _beside(run: Run, group: str) -> str:
    """The bound on tree construction, where the paper has one for these models."""
    if group != _BUILDING:
        return ""
    facts = _facts(run.block)
    values = facts.loc[facts["metric"] == "tree_construction_time_share", "value"]
    return f", the paper: < {values.iloc[0]:g}%" if len(values) else ""


def _notes(found: Sequence[Block]) -> Iterator[str]:
    yield (
        "The paper's text: tree construction (in C++) takes less than 2% with JF68M; with the offloaded Llama-2-70B "
        "all but the two models' forwards together does. It states neither prompts nor temperature of Figure 4."
    )
    for pair in dict.fromkeys(block.pair for block in found if block.stand_in):
        yield (f"{pair} stands in for the paper's models: with forwards this short all else has a larger share.")


FIG4 = time_by_phase(
    "DySpec Figure 4: mean time of a decoding step by component",
    {_BUILDING: ["tree"], "draft forwards": ["draft"], "target forward": ["score"], "judging": ["judge"]}
    | {"committing": ["commit"]},
    (4, 5, 0, 2, 3),
    LEGEND,
    _notes,
    more=_bounded,
    beside=_beside,
)
