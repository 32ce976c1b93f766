"""Which method for which model: the methods of every setting that was run, by speed, MAL and what drafting costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specdec_trees.artifacts import findings, frame, tables
from specdec_trees.artifacts.metrics import (
    FORWARDS,
    IDENTICAL,
    IS_LOSSLESS,
    MAL,
    MEAN_SIZE,
    SPEEDUP,
    TOKENS_PER_S,
    Metric,
)
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.ties import BEST
from specdec_trees.papers.beyond import settings
from specdec_trees.papers.beyond.budget import CONVERSATIONS
from specdec_trees.statistics import samples
from specdec_trees.statistics.samples import Sample

TITLE = "Which method for which model: every setting that was run"
ROWS = ("pair", "setting", "name", "rule")
NOTES = (
    "Of several runs of one method with the same arguments and rule the one with most conversations is shown. Replays "
    "have MAL and no times.",
    "Marks compare the lossless methods of one setting over the conversations that all of them have. A method with "
    "fewer than half as many as another is left out of that, and says so. Speeds of one machine may be of several "
    "days; each speedup is over plain decoding of its own run.",
    "Rows stand by their speedup, or by MAL where times are too noisy or there are none.",
)
LEFT_OUT = " (left out)"
"""What stands behind a value that is not ranked, since it is of too few conversations."""


def _inverse(sample: Sample) -> Sample:
    return replace(sample, over=sample.under, under=sample.over)


def _conversations(run: Any) -> str:
    """How many MAL and the speedup are of."""
    return " / ".join(dict.fromkeys(str(len(sample.sums)) for sample in (run.length, run.gain) if len(sample.sums)))


LENGTH = replace(MAL, of=lambda run: run.length)
SPEED = replace(TOKENS_PER_S, ranked=False, of=lambda run: Sample(run.gain.sums, ("tokens",), ("seconds",)))
DRAFTING = Metric(
    "drafting_ms", "drafting, ms", "milliseconds of a step that draft and tree take", lambda run: run.drafting
)
A_STEP = replace(FORWARDS, header="forwards", of=lambda run: samples.interval(run.forwards).value)
COUNTS = replace(CONVERSATIONS, of=_conversations)
METRICS = (MEAN_SIZE, LENGTH, SPEEDUP, SPEED, DRAFTING, A_STEP, IS_LOSSLESS, IDENTICAL, COUNTS)
CHEAPEST = Metric("per_drafting", "", "", lambda run: _inverse(run.drafting), timed=True)
FEWEST = Metric("per_forward", "", "", lambda run: _inverse(run.forwards))
INVERSES = (CHEAPEST, FEWEST)
"""What is largest where drafting is cheapest."""


def read(folder: Path, pair: str | None) -> pd.DataFrame:
    """The rows of all experiments beside `folder`."""
    return settings.rows(folder.parent, pair)


def which(name: str, rows: pd.DataFrame) -> list[Output]:
    """A row per setting and method, and for each setting the fastest, the longest and the cheapest to draft."""
    long = _compared(_in_order(frame.measure(rows, (*METRICS, *INVERSES))))
    answers = {str(setting): answer(_told_apart(own)) for setting, own in long.groupby("setting", sort=False)}
    shown = long[long["metric"].isin(METRICS)]
    ranked = frame.rank(shown, only=shown["compared"])
    few = ranked["metric"].map(lambda metric: metric.ranked).astype(bool) & ranked["interval"].notna()
    few &= ranked["lossless"].astype(bool) & ~ranked["compared"].astype(bool)
    ranked["mark"] = ranked["mark"].mask(few, LEFT_OUT)
    made = table(name, TITLE, ranked, ROWS, METRICS, notes=NOTES)
    return [replace(made, answers=answers, findings=tuple(f"{setting}: {words}" for setting, words in answers.items()))]


def _in_order(long: pd.DataFrame) -> pd.DataFrame:
    """The rows of each setting by speedup, or by MAL where times are too noisy or there are none."""
    length = long[long["metric"].isin([LENGTH])]
    speed = long.loc[long["metric"].isin([SPEEDUP]), "value"].astype(float).to_numpy()
    keys = {
        "block": pd.factorize(length["block"])[0],
        "speed": np.where(length["busy"].astype(bool), np.nan, -speed),
        "length": -length["value"].astype(float).to_numpy(),
    }
    order = pd.DataFrame(keys).sort_values([*keys], kind="stable").index
    place = np.tile(order.argsort(), len(long) // len(length))
    return long.assign(place=place).sort_values("place", kind="stable", ignore_index=True)


def _compared(long: pd.DataFrame) -> pd.DataFrame:
    """With the lossless rows that have at least half the conversations of the one that has most, metric by metric."""
    counts = long["sample"].map(lambda sample: 0 if sample is None else len(sample.sums))
    lossless = long["lossless"].astype(bool)
    most = counts.where(lossless, 0).groupby([long["metric"].map(lambda metric: metric.key), long["block"]])
    return frame.put(long, compared=lossless & (2 * counts >= most.transform("max")))


def _told_apart(long: pd.DataFrame) -> pd.DataFrame:
    """With the rule in the names of methods that stand there under several."""
    several = long.groupby("name")["rule"].transform("nunique") > 1
    return frame.put(long, name=long["name"].where(~several, long["name"] + " (rule: " + long["rule"] + ")"))


def answer(long: pd.DataFrame) -> str:
    """What the lossless methods of a setting show, in sentences."""
    if not long["lossless"].astype(bool).any():
        return "No method here is lossless, and others are not ranked."
    kept = long[long["compared"]]
    speeds = tuple(findings.fastest(_of(kept, SPEEDUP))) or ("No speedup was measured.",)
    return " ".join((*speeds, *findings.longest(_of(kept, LENGTH)), *_cheapest(kept)))


def _cheapest(long: pd.DataFrame) -> Iterator[str]:
    """By time where there are times, else by forwards of the draft."""
    timed = findings.first(_of(long, CHEAPEST))
    free = [row.name for row in tables.named_rows(_of(long, A_STEP)) if row.value == 0]
    if free and not timed:
        yield f"Cheapest to draft: {', '.join(free)}, without a forward of a draft."
        return
    first, metric, unit = (timed, DRAFTING, "ms") if timed else (findings.first(_of(long, FEWEST)), A_STEP, "forwards")
    if first and first.sign == BEST:
        value = metric.text(1 / first.value.value)
        yield f"Cheapest to draft: {first.run.name}, {value} {unit} a step{first.others}."


def _of(long: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    return long[long["metric"].isin([metric])]
