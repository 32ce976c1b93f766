"""The tables and figures of improved MCSD (Lu et al., 2024)."""

from collections.abc import Mapping

from bench.artifacts.outputs import Artifact
from bench.papers.improving_mcsd import acceptance, bars, heat_map, methods, quality, scores, widths

ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(quality.answers_table),
    "fig4": Artifact(heat_map.heat_map),
    "fig6": Artifact(widths.FIG6),
    "fig7": Artifact(scores.scores),
    "fig8": Artifact(widths.FIG8),
    **{name: Artifact(bars.speedup_bars) for name in bars.LAYOUTS},
    **{name: Artifact(acceptance.acceptance_table) for name in acceptance.LAYOUTS},
}
ARMS = {
    "table1": [one.arm({}) for one in quality.METHODS.values() if one.rule == methods.LOSSY_RULE],
    **{
        name: [one.arm(one.params) for one in layout.methods if one.params]
        for name, layout in acceptance.LAYOUTS.items()
    },
}
"""The methods by which the plan finds an artifact's rows in the CSV; those of Table 1 state first tokens alone."""
