"""The rule of EAGLE-1 (Li et al., 2024, section 4.3 and its released code)."""

from specdec_core.verifiers.multi_round import InRounds


class Eagle1(InRounds):
    """Rounds against q without the siblings rejected before, renormalised; a sibling that q has not is passed over.

    In distribution this is multi-candidate decoding without replacement: EAGLE draws its children so when it samples.
    Its fixed tree with top-k children is lossy under this rule, and refused.
    """

    lossless_for = frozenset({"without_replacement"})
    remove = True
