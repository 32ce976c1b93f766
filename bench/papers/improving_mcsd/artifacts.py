"""The artifacts of improved MCSD by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact
from bench.papers.improving_mcsd import acceptance, bars
from bench.papers.improving_mcsd.by_width import by_width
from bench.papers.improving_mcsd.decisions import with_decisions
from bench.papers.improving_mcsd.heat_map import heat_map
from bench.papers.improving_mcsd.quality import answers_table
from bench.papers.improving_mcsd.scores import scores

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(answers_table, "table1")),
    "fig4": Artifact(partial(heat_map, "fig4")),
    "fig6": Artifact(partial(by_width, "fig6")),
    "fig7": Artifact(partial(scores, "fig7")),
    "fig8": Artifact(partial(with_decisions, "fig8")),
    **{name: Artifact(partial(bars.speedup_bars, layout)) for name, layout in bars.LAYOUTS.items()},
    **{
        name: Artifact(partial(acceptance.acceptance_table, name, layout))
        for name, layout in acceptance.LAYOUTS.items()
    },
}
