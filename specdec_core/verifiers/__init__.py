"""Rules of acceptance, one file each."""

from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.greedy import Greedy
from specdec_core.verifiers.target_sample import TargetSample

__all__ = ["Greedy", "TargetSample", "Verifier"]
