"""Ways of growing a tree, one file each."""

from specdec_core.drafters.adaptive_exit import AdaptiveExit
from specdec_core.drafters.autoregressive import Autoregressive
from specdec_core.drafters.base import Context, Drafter, DraftModel
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.drafters.dflash_draft import DFlashDraft
from specdec_core.drafters.dyspec import DySpec, DySpecHeap, DySpecThreshold
from specdec_core.drafters.eagle2 import Eagle2
from specdec_core.drafters.eagle_draft import EagleDraft
from specdec_core.drafters.early_stop import EarlyStop, Stop
from specdec_core.drafters.fork_tree import fork_tree
from specdec_core.drafters.medusa_draft import MedusaDraft
from specdec_core.drafters.merge_probe import MergeProbe
from specdec_core.drafters.opt_tree import OptTree
from specdec_core.drafters.prompt_lookup import PromptLookup
from specdec_core.drafters.self_draft import SelfDraft
from specdec_core.drafters.sequoia import Sequoia
from specdec_core.drafters.static_tree import StaticTree
from specdec_core.drafters.suffix_decoding import SuffixDecoding
from specdec_core.drafters.target_init import TargetInit
from specdec_core.drafters.token_graph import TokenGraph
from specdec_core.drafters.tree_drafter import TreeDrafter

__all__ = [
    "AdaptiveExit",
    "Autoregressive",
    "CausalDraft",
    "Context",
    "DFlashDraft",
    "DraftModel",
    "Drafter",
    "DySpec",
    "DySpecHeap",
    "DySpecThreshold",
    "Eagle2",
    "EagleDraft",
    "EarlyStop",
    "MedusaDraft",
    "MergeProbe",
    "OptTree",
    "PromptLookup",
    "SelfDraft",
    "Sequoia",
    "StaticTree",
    "Stop",
    "SuffixDecoding",
    "TargetInit",
    "TokenGraph",
    "TreeDrafter",
    "fork_tree",
]
