"""The tables and figures of improved MCSD (Lu et al., 2024)."""

from collections.abc import Mapping
from dataclasses import replace

from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.improving_mcsd import comparison, decisions, heat_map, quality, scores, widths

TITLE = "Improving Multi-candidate Speculative Decoding (arXiv:2409.10644)"
ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(quality.answers_table),
    "fig4": Artifact(heat_map.heat_map),
    "fig6": Artifact(widths.fig6),
    "fig7": Artifact(scores.scores, decisions.read_beside("fig8")),
    "fig8": Artifact(widths.fig8, decisions.read_beside("fig7")),
    **{name: Artifact(comparison.speedup_bars) for name in comparison.FIGURES},
    **{name: Artifact(comparison.acceptance_table) for name in comparison.TABLES},
}
ARMS = {
    "table1": [replace(one, params={}) for one in quality.METHODS if one.paper],
    **{name: [one for one in layout.methods if one.paper] for name, layout in comparison.TABLES.items()},
}
"""The methods by which the plan finds an artifact's rows in the CSV; those of Table 1 state first tokens alone."""
