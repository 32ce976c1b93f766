"""MAL, and what the draft itself expects, against the temperature of the draft; where they meet it is as sure as it is
right.
"""

from bench.artifacts.metric import EXPECTED, MAL, SPEEDS, SPEEDUP
from bench.artifacts.sweep import Sweep, bare, curve

DRAFT_TEMPERATURE = Sweep(
    "MAL and E(A) against the temperature of the draft",
    "draft_temperature",
    "draft temperature (the papers: 1; DySpec: 0.6)",
    [[curve(MAL), bare(EXPECTED)]],
    (MAL, EXPECTED, *SPEEDS, SPEEDUP),
    ranked=[MAL],
)
