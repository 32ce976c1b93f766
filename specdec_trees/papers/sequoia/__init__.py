"""The tables and figures of the Sequoia paper."""

from collections.abc import Mapping
from functools import partial

from specdec_trees.artifacts.latency import forward_time
from specdec_trees.artifacts.outputs import Artifact
from specdec_trees.papers.sequoia import bounds, speedups, tables, tokens, vectors

FIG4 = "Sequoia Figure 4: time of one forward against the number of tokens"
TITLE = "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding (arXiv:2402.12374)"
ARTIFACTS: Mapping[str, Artifact] = {
    "table1": Artifact(bounds.table1),
    "table2": Artifact(bounds.table2),
    **{name: Artifact(tables.paper_table) for name in tables.TITLES},
    "fig1": Artifact(tokens.tokens_by_size),
    "fig2": Artifact(tokens.tokens_by_size),
    "fig3": Artifact(vectors.rejection_rates),
    "fig4": Artifact(partial(forward_time, title=FIG4)),
    "fig5a": Artifact(tokens.tokens_by_size),
    "fig5b": Artifact(speedups.speedup_by_temperature),
    "fig5c": Artifact(speedups.speedup_by_size),
}
ARMS = tables.ARMS | {"fig5b": tables.ARMS["table6"]}
"""The methods by which the plan finds an artifact's rows in the CSV."""
