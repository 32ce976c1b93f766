"""The rule of greedy decoding."""

from torch import Generator

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import ALL_DRAWS, follow, target_choices


class Greedy:
    """Accept the child that is the target's arg max, down to the first node without such a child (temperature 0)."""

    lossless_for = ALL_DRAWS

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """PairError if the decoding is not greedy."""
        if not sampling.greedy:
            raise PairError(
                f"verifier=greedy judges at temperature 0 only, not at {sampling.temperature}; "
                "use verifier=target_sample"
            )
        return follow(tree, target_choices(target, sampling, rng))
