"""EAGLE-1's draft head (Li et al., 2024): one decoder layer that predicts the target's next feature from its last."""

import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from specdec_core.cache import KVCache
from specdec_core.layout import Layout, causal_layout
from specdec_core.models.causal_lm import ModelOutput


class EagleModel(LlamaModel):
    """`fc(cat(embed(t), f))`, then one decoder layer without input norm; no final norm.

    A stock one-layer Llama whose two norms are replaced by identities, so that its parameters have exactly the names
    of the published checkpoints.
    """

    def __init__(self, config: LlamaConfig, bias: bool) -> None:
        super().__init__(config)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=bias)
        self.norm = nn.Identity()
        for layer in self.layers:
            layer.input_layernorm = nn.Identity()

    def predict(
        self, tokens: Int[Tensor, "batch new"], features: Float[Tensor, "batch new hidden"], **options: Any
    ) -> Float[Tensor, "batch new hidden"]:
        """Predicted features g behind the pairs (f_i, t_{i+1}); `options` are those of a stock model's forward."""
        fused = self.fc(torch.cat((self.embed_tokens(tokens), features), -1))
        predicted: Tensor = self(inputs_embeds=fused, **options).last_hidden_state
        return predicted


class EagleHead:
    """An `EagleModel` with its own cache and the target's output matrix: (tokens, features, layout) -> logits, hidden.

    Slot i of the cache holds the pair (f_i, t_{i+1}): the target's feature at position i and the token behind it, at
    position id i. `hidden` of what it returns are predicted features, to be read in place of the target's.
    """

    def __init__(self, model: EagleModel, output: nn.Module) -> None:
        """`output` is the target's output matrix; it is copied if the head is to work on another device."""
        self.model = model.eval()
        self.config = model.config
        self.vocab_size = int(model.embed_tokens.weight.shape[0])
        self.max_positions = getattr(self.config, "max_position_embeddings", None)
        self.cache = KVCache(self.config.num_hidden_layers, capacity=0)
        here = all(parameter.device == self.device for parameter in output.parameters())
        self._output = output if here else copy.deepcopy(output).to(self.device)

    @property
    def device(self) -> torch.device:
        """Where token ids and features go in and logits come out."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, features and mask."""
        return self.model.dtype

    def reset(self, capacity: int) -> None:
        """Empty the cache and make room for `capacity` pairs; it grows if that was too little."""
        self.cache.truncate(0)
        self.cache.reserve(capacity)

    def causal_layout(self, new: int) -> Layout:
        """Of so many plain successive pairs."""
        prefix, bound = self.cache.length, self.max_positions
        return causal_layout(new, prefix=prefix, device=self.device, max_positions=bound, dtype=self.dtype)

    def extend(self, tokens: Int[Tensor, " new"], features: Float[Tensor, "new hidden"]) -> ModelOutput:
        """Append plain successive pairs; logits of the last one only, predicted features of all."""
        return self._run(tokens, features, self.causal_layout(tokens.shape[0]), logits_to_keep=1)

    def __call__(
        self, tokens: Int[Tensor, " new"], features: Float[Tensor, "new hidden"], layout: Layout
    ) -> ModelOutput:
        """One forward over pairs, appended to the cache."""
        return self._run(tokens, features, layout)

    @torch.inference_mode()
    def _run(self, tokens: Tensor, features: Tensor, layout: Layout, logits_to_keep: int = 0) -> ModelOutput:
        self.cache.reserve(self.cache.length + tokens.shape[0])
        hidden = self.model.predict(
            tokens[None],
            features[None],
            past_key_values=self.cache,
            use_cache=True,
            attention_mask=layout.mask,
            position_ids=layout.positions,
        )[0]
        self.cache.advance(tokens.shape[0])
        return ModelOutput(self._output(hidden[-logits_to_keep:]), hidden)
