"""Models behind one call: (tokens, layout) -> logits, hidden."""

from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.models.dflash import DFlash
from specdec_core.models.eagle import EagleHead
from specdec_core.models.head import Head
from specdec_core.models.layer_skip import LayerSkip
from specdec_core.models.loading import load_pair
from specdec_core.models.medusa import Medusa
from specdec_core.models.spec import ModelSpec, Pair

__all__ = [
    "CausalLM",
    "DFlash",
    "EagleHead",
    "Head",
    "LayerSkip",
    "Medusa",
    "ModelOutput",
    "ModelSpec",
    "Pair",
    "load_pair",
]
