"""The picture of the claims: every order's ratio on every pair, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter

from specdec_trees.artifacts import style
from specdec_trees.artifacts.style import GREY, Figure
from specdec_trees.papers.beyond.claim import Judged

SETTING = (
    "right of 1 the method that the paper has ahead is ahead; lines: 95% intervals over conversations; hollow: not "
    "comparable, or fewer than six conversations; GSD's drafted tokens, whose ratios are larger, are in the table alone"
)
SIDES = (
    "MAL, alpha, or GSD's accepted tokens a draft forward: first method / second",
    "speedup: first method / second (each may be below 1)",
)
PUBLISHED: Any = {"color": GREY, "marker": "|", "markersize": 7, "markeredgewidth": 2, "linestyle": "none"}


def figure(name: str, title: str, judged: Sequence[Judged], runs: Sequence[str]) -> Figure:
    """What a step gives and speedups, a panel each; drafted nodes are left out, whose ratios are ten times as large."""
    pairs = sorted({one.where[:2] for one in judged})
    shown = [one for one in judged if one.claim.metric.key != "drafted"]
    sides = [[one for one in shown if one.claim.metric.timed is timed] for timed in (False, True)]
    panels = [(side, pairs, words) for side, words in zip(sides, SIDES, strict=True) if side]
    return style.drawn(name, title, SETTING, _panel, panels, " ".join(runs).split(), panel=(7.6, 6.2))


def _panel(axes: Axes, judged: Sequence[Judged], pairs: Sequence[tuple[str, str]], words: str) -> None:
    lines: dict[str, list[Judged]] = {}
    for one in judged:
        where = f"{one.claim.artifact}: {one.claim.words}, T = {one.where[2]}"
        lines.setdefault(where, []).append(one)
    for place, rows in enumerate(lines.values()):
        for one in rows:
            number = pairs.index(one.where[:2])
            look, y = style.look(number), place + 0.18 * (number - (len(pairs) - 1) / 2)
            axes.plot(one.lead, y, **PUBLISHED | {"color": look["color"]})
            hollow = {} if one.comparable and one.ratio.known else {"markerfacecolor": "white"}
            axes.plot(one.ratio.value, y, linestyle="none", **look | hollow)
            axes.hlines(y, *one.ratio.ends, color=look["color"], linewidth=1)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.5, 2, 3, 4]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(lines)), list(lines), fontsize=7)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel(words)
    ours = [
        Line2D([], [], linestyle="none", **style.look(at), label=f"{name} ({kind})")
        for at, (kind, name) in enumerate(pairs)
    ]
    style.legend_below(
        axes, 2, handles=[Line2D([], [], label="the paper's, for the pair of its colour", **PUBLISHED), *ours]
    )
