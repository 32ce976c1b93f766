"""Sequoia's rule for children drawn without replacement (Chen et al., 2024, Algorithm 1)."""

from specdec_core.verifiers.multi_round import InRounds


class WithoutReplacement(InRounds):
    """Rounds in which a rejected token leaves q; behind q's support the draft is uniform (`uniform_fallback`).

    It has the optimal transport property (one child) and the cover property (as many children as q has tokens), which
    SpecInfer's and SpecTr's rules have not both (Theorem 3.7).
    """

    lossless_for = frozenset({"without_replacement"})
    remove = True

    def __init__(self, *, uniform_fallback: bool = True) -> None:
        self.uniform_fallback = uniform_fallback
