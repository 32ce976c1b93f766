"""The artifacts of the DySpec paper by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.artifacts.artifact import Artifact
from bench.papers.dyspec.attention import attention_figure, attention_table
from bench.papers.dyspec.layouts import LAYOUTS
from bench.papers.dyspec.masks import ORDERS, blocks_by_prefix, tree_masks
from bench.papers.dyspec.probabilities import probabilities
from bench.papers.dyspec.steps import FIG4, tree_sizes

ARTIFACTS: Mapping[str, Artifact] = {
    **{name: Artifact(partial(layout, name)) for name, layout in LAYOUTS.items()},
    "fig2": Artifact(partial(probabilities, "fig2")),
    "fig4": Artifact(partial(FIG4, "fig4")),
    "fig5": Artifact(partial(tree_sizes, "fig5")),
    "fig6": Artifact(partial(tree_masks, "fig6", orders=("heap", "dfs"), block=8)),
    "fig7": Artifact(partial(tree_masks, "fig7", orders=tuple(ORDERS), block=32)),
    "table5": Artifact(partial(attention_table, "table5")),
    "fig8": Artifact(partial(attention_figure, "fig8")),
    "fig9": Artifact(partial(blocks_by_prefix, "fig9")),
}
