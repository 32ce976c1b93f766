"""Multi-candidate speculative decoding (Yang et al., 2024), with and without replacement."""

from specdec_core.verifiers.multi_round import InRounds


class MultiCandidate(InRounds):
    """With `replacement` SpecInfer's rule, without it rounds in which a rejected token leaves q.

    There is no fallback: children drawn when q's support was exhausted are never accepted.
    """

    remove = True

    def __init__(self, *, replacement: bool = False) -> None:
        self.remove = not replacement
        self.lossless_for = frozenset({"iid" if replacement else "without_replacement"})
