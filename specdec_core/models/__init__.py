"""Models behind one call: (tokens, layout) -> logits, hidden."""

from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.models.loading import ModelSpec, Pair, load_pair

__all__ = ["CausalLM", "ModelOutput", "ModelSpec", "Pair", "load_pair"]
