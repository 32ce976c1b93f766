"""Sequoia, Figure 5a: how many more tokens a step Sequoia's tree gives than k sequences of the same size."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from bench import published
from bench.artifacts import tables
from bench.artifacts.speedups.arms import params_of
from bench.papers.sequoia.panels import Panel, Point
from bench.papers.sequoia.structures import K_SEQUENCES, SEQUOIA, Structure
from bench.statistics import samples
from bench.statistics.samples import Sample

COLUMNS = ("gain predicted", "gain MAL", "gain published")
LEGEND = {
    "gain predicted": "F(T) of Sequoia's tree over that of the best k sequences of the same N: computed, so that there "
    "is no interval",
    "gain MAL": "MAL of Sequoia's tree over that of k sequences of the same N, paired over the conversations that both "
    "decoded; in brackets the 95% interval. Of several runs of one structure and size the one of most MAL is chosen "
    "before, which the interval does not know",
    "gain published": "the paper's text as a ratio, on average over 16 sequences of 512 tokens in all",
}


def gains(panel: Panel, nodes: int) -> dict[str, str]:
    """The columns of a row of Sequoia's tree with so many nodes, root counted."""
    printed = [1 + value / 100 for value, size in _pinned(panel) if nodes in (size, size + 1)]
    predicted = [expected_tokens(panel, structure, nodes) for structure in (SEQUOIA, K_SEQUENCES)]
    of_mal = samples.paired_ratio(*(_sample(panel, structure, nodes) for structure in (SEQUOIA, K_SEQUENCES)))
    cells = (_quotient(*predicted), tables.ratio(of_mal), tables.number(printed[0] if printed else None))
    return dict(zip(COLUMNS, cells, strict=True))


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
    best = _best(panel, structure, nodes)
    return best.mal.value if best and best.mal else None


def _best(panel: Panel, structure: Structure, nodes: int) -> Point | None:
    """Of the runs of a structure at one size the one of most MAL; None where none ended well."""
    found = {point.mal.value: point for point in panel.points(structure) if point.mal and point.run.nodes == nodes}
    return found[max(found)] if found else None


def _sample(panel: Panel, structure: Structure, nodes: int) -> Sample | None:
    """The sums over conversations behind its MAL."""
    best = _best(panel, structure, nodes)
    return best.run.sample("mal") if best else None


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


def _quotient(sequoia: float | None, sequences: float | None) -> str:
    return tables.number(None if sequoia is None or sequences is None else sequoia / sequences, 3)
