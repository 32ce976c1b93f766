"""GSD's methods as arms of its tables."""

from __future__ import annotations

from dataclasses import replace

from bench.artifacts.speedups.arms import Arm

TARGETS = ("target_sample", "greedy")
"""Rules that ask the target alone."""
DRAWN = ("spec_infer", "chain")
"""Rules for what was drawn from q; of one child per node they are speculative sampling."""
LOSSY = ("gsd_nondeterministic",)
SSD = Arm("SSD", ("ssd",), "ssd", rules=TARGETS)
SSD_NO_EXIT = Arm("SSD, no exit", ("ssd_noexit",), "", rules=TARGETS)
SSD_DRAWN = Arm("SSD, drawn", ("ssd_iid",), "", rules=DRAWN)
TSD = Arm("TSD", ("tsd",), "tsd", rules=TARGETS)
TSD_SIB = Arm("TSD, sibling pruning", ("tsd_sib",), "", rules=TARGETS)
GSD = Arm("GSD", ("gsd",), "gsd", rules=TARGETS)
MEDUSA = Arm("Medusa", (), "medusa")
SELF = Arm("Self SSD", ("ssd",), "self_ssd", rules=TARGETS)


def self_drafting(arm: Arm) -> Arm:
    """The same method where the target drafts for itself."""
    return SELF if arm is SSD else replace(arm, header=f"Self {arm.header}", paper="")


def lossy(arm: Arm) -> Arm:
    """The same method under the paper's non-deterministic rule."""
    return replace(arm, header=f"{arm.header} (lossy)", rules=LOSSY)


def unprinted(arm: Arm) -> Arm:
    """The same method without the paper's numbers."""
    return replace(arm, paper="")
