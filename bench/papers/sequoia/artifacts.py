"""The artifacts of the Sequoia paper by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact
from bench.artifacts.latency import forward_time
from bench.papers.sequoia.bounds import formula_table
from bench.papers.sequoia.layouts import LAYOUTS
from bench.papers.sequoia.rejection import rejection_rates
from bench.papers.sequoia.speedups import speedup_by_size, speedup_by_temperature
from bench.papers.sequoia.tokens import tokens_by_size

FIG4 = "Sequoia Figure 4: time of one forward against the number of tokens"
ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(formula_table, "table1")),
    "table2": Artifact(partial(formula_table, "table2")),
    **{name: Artifact(partial(layout, name)) for name, layout in LAYOUTS.items()},
    "fig1": Artifact(partial(tokens_by_size, "fig1")),
    "fig2": Artifact(partial(tokens_by_size, "fig2")),
    "fig3": Artifact(partial(rejection_rates, "fig3")),
    "fig4": Artifact(partial(forward_time, "fig4", title=FIG4)),
    "fig5a": Artifact(partial(tokens_by_size, "fig5a")),
    "fig5b": Artifact(partial(speedup_by_temperature, "fig5b")),
    "fig5c": Artifact(partial(speedup_by_size, "fig5c")),
}
