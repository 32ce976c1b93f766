"""The tables and figures of the DySpec paper."""

from collections.abc import Mapping
from functools import partial

from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.dyspec import figures, masks, tables

TITLE = "DySpec: Faster Speculative Decoding with Dynamic Token Tree Structure (arXiv:2410.11744)"
ARTIFACTS: Mapping[str, Artifact] = {
    **{name: Artifact(tables.paper_table) for name in tables.TITLES},
    "fig2": Artifact(figures.fig2),
    "fig4": Artifact(figures.fig4),
    "fig5": Artifact(figures.fig5),
    "fig6": Artifact(partial(masks.tree_masks, orders=("heap", "dfs"), block=8)),
    "fig7": Artifact(partial(masks.tree_masks, orders=tuple(masks.ORDERS), block=32)),
    "table5": Artifact(masks.attention_table),
    "fig8": Artifact(masks.attention_figure),
    "fig9": Artifact(masks.blocks_by_prefix),
}
ARMS = tables.ARMS
"""The methods by which the plan finds an artifact's rows in the CSV."""
