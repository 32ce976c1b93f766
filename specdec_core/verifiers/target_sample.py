"""The rule that lets the target sample and looks whether the draft had guessed it."""

from torch import Generator

from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import ALL_DRAWS, follow, target_choices


class TargetSample:
    """Draw one token from p at every node; accept the child that has it (OPT-Tree, section 4.1; "naive sampling").

    The token is drawn without looking at the children, so the output law is p for any draft. At temperature 0 this is
    greedy verification. Nodes off the path are drawn for as well: one batched race instead of one read per level.
    """

    lossless_for = ALL_DRAWS

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """One race over all nodes, then the walk."""
        return follow(tree, target_choices(target, sampling, rng))
