"""Where rounding decides: two logits so near to each other that forwards of different shapes may order them apart."""

import math

UNITS = {"float32": 64, "float16": 8, "bfloat16": 8}
"""Units in the last place by which two forwards may differ: both round in every layer. Products of 16 bits are summed
in float32, whose own sums are off by 10 units in the median of rows, and by 33 at most where it was measured."""
HALF = {"float16": 2**-10, "bfloat16": 2**-7}
EPSILONS = {"float32": 2**-23} | HALF
"""Of each dtype the unit in the last place of 1."""


def is_tie(gap: float, largest_logit: float, dtype: str) -> bool:
    """Whether a gap between two logits is within `UNITS` of the last place of the larger one, by absolute value."""
    if not (math.isfinite(gap) and math.isfinite(largest_logit)):
        return False
    exponent = math.frexp(largest_logit)[1] - 1
    return gap <= UNITS[dtype] * math.ldexp(EPSILONS[dtype], exponent)
