"""Where the time of a decoding step goes, by the parts that a paper draws: OPT-Tree's Figure 7, DySpec's Figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees.artifacts import draw, notes, style
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.statistics import metrics

Parts = Mapping[str, tuple[int, str, tuple[str, ...]]]
"""Of each part of a step its colour, what it means, and its phases."""


def times(run: Any, parts: Parts) -> dict[str, float]:
    """Mean milliseconds of a step by part."""
    phases = metrics.phase_times(run.steps) * 1000
    return {part: float(phases[[*members]].sum(skipna=False)) for part, (_, _, members) in parts.items()}


def columns(parts: Parts) -> tuple[Metric, ...]:
    """The share of each part, the milliseconds of a step, and of each part."""
    shares = [
        Metric(_key(part, "share"), f"{part} share", "", partial(_share, parts, part), percent=True) for part in parts
    ]
    spans = [Metric(_key(part, "ms"), f"{part} ms", parts[part][1], partial(_time, parts, part)) for part in parts]
    return (*shares, Metric("step_ms", "step ms", "", lambda run: sum(times(run, parts).values())), *spans)


def aside(parts: Parts) -> list[str]:
    """What stands aside: milliseconds of each part."""
    return [_key(part, "ms") for part in parts]


def _key(part: str, unit: str) -> str:
    return f"{part}_{unit}".replace(",", "").replace(" ", "_")


def pies(name: str, title: str, loaded: pd.DataFrame, runs: pd.DataFrame, parts: Parts) -> style.Figure:
    """A pie for each run; its columns `beside` may have words by part, which stand behind the share."""
    size = (4.6, 2.75 + 0.15 * len(parts))
    return draw.per_run(name, (title, notes.setting(loaded)), partial(_pie, parts), runs, panel=size)


def _time(parts: Parts, part: str, run: Any) -> float:
    return times(run, parts)[part]


def _share(parts: Parts, part: str, run: Any) -> float:
    return times(run, parts)[part] / sum(times(run, parts).values())


def _pie(parts: Parts, axes: Axes, run: Any) -> None:
    colours = [colour for colour, _, _ in parts.values()]
    style.pie(axes, f"{run.setting}, {run.name}", times(run, parts), colours, getattr(run, "beside", {}))
