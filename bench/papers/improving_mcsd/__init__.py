"""The tables and figures of improved MCSD (Lu et al., 2024)."""

from collections.abc import Mapping

from bench.artifacts.outputs import Artifact
from bench.papers.improving_mcsd import acceptance, bars, heat_map, quality, scores, widths

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(quality.answers_table),
    "fig4": Artifact(heat_map.heat_map),
    "fig6": Artifact(widths.FIG6),
    "fig7": Artifact(scores.scores),
    "fig8": Artifact(widths.FIG8),
    **{name: Artifact(bars.speedup_bars) for name in bars.LAYOUTS},
    **{name: Artifact(acceptance.acceptance_table) for name in acceptance.LAYOUTS},
}
