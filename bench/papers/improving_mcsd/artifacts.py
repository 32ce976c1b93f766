"""The artifacts of improved MCSD by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact
from bench.papers.improving_mcsd import acceptance
from bench.papers.improving_mcsd.bars import FIG3, FIG5, speedup_bars
from bench.papers.improving_mcsd.heat_map import heat_map
from bench.papers.improving_mcsd.quality import answers_table
from bench.papers.improving_mcsd.scores import scores
from bench.papers.improving_mcsd.widths import FIG6, FIG8

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(partial(answers_table, "table1")),
    "fig4": Artifact(partial(heat_map, "fig4")),
    "fig6": Artifact(partial(FIG6, "fig6")),
    "fig7": Artifact(partial(scores, "fig7")),
    "fig8": Artifact(partial(FIG8, "fig8")),
    **{layout.name: Artifact(partial(speedup_bars, layout)) for layout in (FIG3, FIG5)},
    **{
        name: Artifact(partial(acceptance.acceptance_table, name, layout))
        for name, layout in acceptance.LAYOUTS.items()
    },
}
