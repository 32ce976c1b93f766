"""SpecInfer's multi-step speculative sampling (Miao et al., 2024, Algorithm 2)."""

from specdec_core.verifiers.multi_round import InRounds


class SpecInfer(InRounds):
    """Rounds against the unchanged q, for children that were drawn independently."""

    lossless_for = frozenset({"iid"})
    remove = False
