"""Sequoia, Figure 5a: how many more tokens a step Sequoia's tree gives than k sequences of the same size."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.report import tables
from bench.report.sequoia.panels import Panel
from bench.report.sequoia.structures import K_SEQUENCES, SEQUOIA, Structure
from bench.report.speedups.arms import params_of

COLUMNS = ("gain F(T)", "gain MAL", "gain published")
LEGEND = {
    "gain F(T)": "F(T) of Sequoia's tree over that of the best k sequences of the same N, less 1",
    "gain MAL": "the same for MAL; of several runs of one structure and size the one of most MAL counts",
    "gain published": "the paper's text, on average over 16 sequences of 512 tokens in all",
}


def gains(panel: Panel, nodes: int) -> dict[str, str]:
    """The columns of a row of Sequoia's tree with so many nodes, root counted."""
    printed = [value for value, size in _pinned(panel) if nodes in (size, size + 1)]
    ours = [
        _percent(of(panel, SEQUOIA, nodes), of(panel, K_SEQUENCES, nodes)) for of in (expected_tokens, measured_tokens)
    ]
    return dict(zip(COLUMNS, [*ours, f"+{printed[0]:g}%" if printed else tables.ABSENT], strict=True))


def gain_notes(panel: Panel) -> Iterator[str]:
    """What the paper's text says of a panel's setting."""
    for fact in tables.named_rows(_facts(panel)):
        yield (
            f"The paper's text on {fact.target} + {fact.draft}: {fact.value:g}% more tokens a step than "
            f"{_baseline(fact.params)} ({fact.notes})."
        )


def draw_published(axes: Axes, panel: Panel) -> None:
    """A star where Sequoia's tree would be, were it as far above our k sequences as the paper says."""
    for value, size in _pinned(panel):
        found = [
            of(panel, K_SEQUENCES, nodes) for of in (measured_tokens, expected_tokens) for nodes in (size, size + 1)
        ]
        ours = [tokens for tokens in found if tokens is not None]
        if ours:
            words = f"paper: {value:g}% above k sequences at {size}"
            axes.plot(size, ours[0] * (1 + value / 100), "*", color="black", markersize=9, label=words)


def expected_tokens(panel: Panel, structure: Structure, nodes: int) -> float | None:
    """F(T) of a structure at one size; None where there is no growth row."""
    line = panel.line(structure)
    values = line.loc[line["N"] == nodes, "expected_tokens"]
    return float(values.iloc[0]) if len(values) else None


def measured_tokens(panel: Panel, structure: Structure, nodes: int) -> float | None:
    """The largest MAL of a structure at one size; None where no run of it ended well."""
    return max((mal.value for size, mal in panel.measured(structure) if size == nodes), default=None)


def _facts(panel: Panel) -> pd.DataFrame:
    """What the paper's text says of these models, prompts and temperature."""
    facts, first = published.find("sequoia", "fig_text", metric="tokens_per_step_gain"), panel.first
    target, draft = (panel.block.standing_in(facts).published_as if panel.block else None) or ("", "")
    for column, wanted in (("target", target), ("draft", draft)):
        facts = facts[facts[column] == wanted]
    return facts[(facts["dataset"] == first["dataset"]) & (facts["temperature"] == first["temperature"])]


def _pinned(panel: Panel) -> list[tuple[float, int]]:
    """Gains in percent that the paper states for one size, with it."""
    facts = [(fact.value, params_of(fact.params)) for fact in tables.named_rows(_facts(panel))]
    return [(value, int(params["size"])) for value, params in facts if "size" in params]


def _baseline(params: str) -> str:
    return params_of(params)["baseline"].replace("_", " ")


def _percent(sequoia: float | None, sequences: float | None) -> str:
    return tables.ABSENT if sequoia is None or sequences is None else f"{sequoia / sequences - 1:+.1%}"
