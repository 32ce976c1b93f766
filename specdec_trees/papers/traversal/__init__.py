"""The tables and figures of the paper on Traversal Verification, and the numbers of SpecHub beside it."""

from collections.abc import Mapping

from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.traversal import by_size, lines, spechub, tables

TITLE = "Traversal Verification for Speculative Tree Decoding (arXiv:2505.12398)"
ARTIFACTS: Mapping[str, Artifact] = {
    **{name: Artifact(tables.paper_table) for name in tables.TITLES},
    "fig3": Artifact(by_size.fig3),
    "spechub": Artifact(spechub.tokens_per_step),
}
ARMS = lines.ARMS
"""The methods by which the plan finds an artifact's rows in the CSV."""
