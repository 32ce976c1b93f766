"""OPT-Tree's sweeps: Figures 6 (tree size), 8 (threshold), 9 (temperature)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bench import published
from bench.artifacts import definitions, style
from bench.artifacts.metric import EXPECTED, MAL, SPEEDS, SPEEDUP, TOKENS_PER_S
from bench.artifacts.names import method_label
from bench.artifacts.runs import cost_ratio
from bench.artifacts.sweep import Mark, Panel, Sweep, curve, twin
from bench.artifacts.tables import named_rows
from bench.published import params_of
from bench.results.store import Results

_FACTS = {
    "mal_growth_until_nodes": "paper: grows until",
    "mal_slow_growth_from_nodes": "paper: slow growth from",
    "mal_saturates_from_nodes": "paper: saturates from",
}


def _facts(panel: Panel, artifact: str) -> list[Any]:
    """What the paper says of these models."""
    target, draft = panel.block.published_as or ("", "")
    return list(named_rows(published.find("opt_tree", artifact, target=target, draft=draft)))


def _sizes(panel: Panel) -> Iterator[Mark]:
    for index, fact in enumerate(_facts(panel, "section4_3")):
        if fact.metric in _FACTS and fact.value <= max(panel.x):
            whose = "" if "|" in fact.method else f" ({method_label(fact.method)})"
            words = f"{_FACTS[fact.metric]} {fact.value:g}{whose}"
            yield Mark(words, fact.value, look={"linestyle": ":" if index % 2 else "--"})
        if fact.metric == "mal":
            size = float(params_of(fact.params)["nodes"])
            yield Mark(f"paper: MAL {fact.value:g} at {size:g}", size, fact.value)


def _sizes_said(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    for dataset, rows in results.acceptance.groupby("dataset"):
        prompts = " / ".join(str(count) for count in sorted(set(rows["num_prompts"])))
        yield f"Sequoia's trees are made for {dataset} (prompts: {prompts}); the paper's: for 200 samples of C4."
    facts = (fact for panel in panels for fact in _facts(panel, "section4_3"))
    yield from dict.fromkeys(f"The paper on {one.target} + {one.draft}, {one.method}: {one.notes}." for one in facts)


def _deltas(panel: Panel) -> Iterator[Mark]:
    if not math.isnan(mu := cost_ratio(panel.runs)):
        yield Mark(f"measured mu = {mu:.2f}", mu, look={"linewidth": 1.2})
    for fact in _facts(panel, "fig8"):
        look = {"color": style.COLOURS[2], "linestyle": ":", "linewidth": 2}
        yield Mark(f"paper's best delta = {fact.value:g} ({fact.target} + {fact.draft})", fact.value, look=look)


def _deltas_said(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    for panel in panels:
        best, _ = max(zip(panel.x, panel.runs, strict=True), key=lambda point: point[1].rank)
        said = [f"largest speedup at delta = {best:g}."]
        if not math.isnan(mu := cost_ratio(panel.runs)):
            said.append(f"measured mu = {mu:.3f} (draft forward / autoregressive step of the target).")
        said += [f"{mark.words}." for mark in _deltas(panel) if mark.words.startswith("paper")]
        yield from (f"{panel.block.name}: {text}" for text in said)


_POINT = (MAL, EXPECTED, *SPEEDS, SPEEDUP)
FIG6 = Sweep(
    "OPT-Tree Figure 6: mean acceptance length against tree size",
    "n",
    "tree size n (drafted nodes)",
    [[curve(MAL)]],
    (MAL, EXPECTED, *SPEEDS),
    header="Tree size n",
    means=definitions.SIZE,
    marks=_sizes,
    remarks=_sizes_said,
)
FIG8 = Sweep(
    "OPT-Tree Figure 8: MAL and tokens/s against the threshold delta",
    "delta",
    "threshold delta",
    [[twin(MAL, TOKENS_PER_S)]],
    _POINT,
    marks=_deltas,
    remarks=_deltas_said,
    ranked=[MAL],
)
FIG9 = Sweep(
    "OPT-Tree Figure 9: MAL and tokens/s against the temperature",
    "temperature",
    "temperature",
    [[twin(MAL, TOKENS_PER_S)]],
    _POINT,
    read=lambda run: float(run["temperature"]),
    across=("temperature",),
    ranked=[MAL],
)
