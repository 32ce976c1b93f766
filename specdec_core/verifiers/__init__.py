"""Rules of acceptance, one file each."""

from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.block import Block
from specdec_core.verifiers.chain import Chain
from specdec_core.verifiers.eagle1 import Eagle1
from specdec_core.verifiers.gbv import GreedyMultiPath
from specdec_core.verifiers.greedy import Greedy
from specdec_core.verifiers.greedy_one import GreedyOne
from specdec_core.verifiers.gsd_nondeterministic import GsdNondeterministic
from specdec_core.verifiers.k_seq import KSeq
from specdec_core.verifiers.longest import IndependentLongest, LongestSubtree
from specdec_core.verifiers.multi_candidate import MultiCandidate
from specdec_core.verifiers.rounds import ChildByChild, Rounds
from specdec_core.verifiers.spec_infer import SpecInfer
from specdec_core.verifiers.target_sample import TargetSample
from specdec_core.verifiers.traversal import Traversal
from specdec_core.verifiers.without_replacement import WithoutReplacement

__all__ = [
    "Block",
    "Chain",
    "ChildByChild",
    "Eagle1",
    "Greedy",
    "GreedyMultiPath",
    "GreedyOne",
    "GsdNondeterministic",
    "IndependentLongest",
    "KSeq",
    "LongestSubtree",
    "MultiCandidate",
    "Rounds",
    "SpecInfer",
    "TargetSample",
    "Traversal",
    "Verifier",
    "WithoutReplacement",
]
