"""EAGLE's heads: a decoder layer that reads the next token beside the target's feature (Li et al., 2024 and 2025)."""

import copy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm

from specdec_core.cache import KVCache
from specdec_core.layout import Layout, causal_layout
from specdec_core.models.causal_lm import FINAL, Layers, ModelOutput, max_positions_of
from specdec_core.models.graphs import Graphs
from specdec_core.models.head import Head


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

    def inward(self, features: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        """The target's features as `predict` reads them: as they are."""
        return features

    def predict(
        self, tokens: Int[Tensor, "batch new"], features: Float[Tensor, "batch new hidden"], **options: Any
    ) -> Float[Tensor, "batch new hidden"]:
        """Predicted features g behind the pairs (f_i, t_{i+1}); `options` are those of a stock model's forward."""
        fused = self.fc(torch.cat((self.embed_tokens(tokens), features), -1))
        predicted: Tensor = self(inputs_embeds=fused, **options).last_hidden_state
        return predicted


@dataclass(frozen=True, slots=True)
class Norms:
    """Where an EAGLE-3 head normalises besides embedding, feature and output, in the speculators format's words."""

    before_residual: bool = False
    """What passes by the attention is the feature behind its norm (`norm_before_residual`)."""
    before_fc: bool = False
    """The target's features together, before all else (`norm_before_fc`)."""
    each: bool = False
    """Those of each layer alone, before `fc` (`fc_norm`)."""
    output: bool = False
    """The head reads its own predictions behind the final norm (`norm_output`)."""


class _WideLayer(nn.Module):
    """A decoder layer whose attention reads embedding and feature side by side; the feature alone passes by."""

    def __init__(self, config: LlamaConfig, before_residual: bool) -> None:
        super().__init__()
        self.before_residual = before_residual
        self.self_attn = LlamaAttention(config, layer_idx=0)
        for name in ("q_proj", "k_proj", "v_proj"):
            narrow = getattr(self.self_attn, name)
            wide = nn.Linear(2 * narrow.in_features, narrow.out_features, bias=narrow.bias is not None)
            setattr(self.self_attn, name, wide)
        self.mlp = LlamaMLP(config)
        self.hidden_norm, self.input_layernorm, self.post_attention_layernorm = (
            LlamaRMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(3)
        )

    def forward(self, hidden_states: Float[Tensor, "batch new both"], **options: Any) -> Tensor:
        """[.., 2 hidden] -> [.., hidden]."""
        embedded, passing = hidden_states.chunk(2, -1)
        normed = self.hidden_norm(passing)
        read = torch.cat((self.input_layernorm(embedded), normed), -1)
        hidden: Tensor = (normed if self.before_residual else passing) + self.self_attn(read, **options)[0]
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Model(LlamaModel):
    """EAGLE-3 (Li et al., 2025, section 3): `fc` joins the features of several layers, one wide decoder layer follows.

    Its output is no feature of the target: it goes through a norm into an output matrix of the head's own, and is read
    in place of a joined feature one token later. Parameters are named as in the speculators format (`layers.0`).
    """

    def __init__(
        self,
        config: LlamaConfig,
        *,
        target_hidden: int,
        vocab: int,
        joined: int = 3,
        norms: Norms | None = None,
        bias: bool = False,
    ) -> None:
        """`joined` of the target's layers give `target_hidden` numbers each; `vocab` tokens are predicted."""
        super().__init__(config)
        self.norms, features = norms or Norms(), joined * target_hidden
        self.fc = nn.Linear(features, config.hidden_size, bias=bias)
        self.layers = nn.ModuleList([_WideLayer(config, self.norms.before_residual)])
        self.norm = nn.Identity()
        self.final_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, vocab, bias=False)
        if self.norms.before_fc:
            self.input_norm = LlamaRMSNorm(features, config.rms_norm_eps)
        if self.norms.each:
            self.fc_norm = nn.ModuleList(LlamaRMSNorm(target_hidden, config.rms_norm_eps) for _ in range(joined))

    def inward(self, features: Float[Tensor, "*rows features"]) -> Float[Tensor, "*rows hidden"]:
        """The target's features, joined into what `predict` reads."""
        if self.norms.before_fc:
            features = self.input_norm(features)
        if self.norms.each:
            parts = features.chunk(len(self.fc_norm), -1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        joined: Tensor = self.fc(features)
        return joined

    def predict(
        self, tokens: Int[Tensor, "batch new"], features: Float[Tensor, "batch new hidden"], **options: Any
    ) -> Float[Tensor, "batch new hidden"]:
        """What is read next behind the pairs (f_i, t_{i+1}); `options` are those of a stock model's forward."""
        both = torch.cat((self.embed_tokens(tokens), features), -1)
        hidden: Tensor = self(inputs_embeds=both, **options).last_hidden_state
        return self.final_norm(hidden) if self.norms.output else hidden

    def output(self, matrix: nn.Module) -> nn.Sequential:
        """From predictions to the logits of `matrix`, which is the head's own or one made of it."""
        return nn.Sequential(nn.Identity() if self.norms.output else self.final_norm, matrix)


@runtime_checkable
class Predictor(Protocol):
    """A model that an `EagleHead` runs: it predicts what is read one token later."""

    config: Any

    @property
    def embed_tokens(self) -> Any:
        """The embedding, of the target's tokens."""

    @property
    def device(self) -> torch.device:
        """Of its weights."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""

    def eval(self) -> Any:
        """As it is used."""

    def inward(self, features: Tensor) -> Tensor:
        """The target's features as `predict` reads them."""

    def predict(self, tokens: Tensor, features: Tensor, **options: Any) -> Tensor:
        """What is read next behind the pairs (f_i, t_{i+1})."""


class EagleHead(Head):
    """A head's model with its own cache and an output matrix: (tokens, features, layout) -> logits, hidden.

    Slot i of the cache holds the pair (f_i, t_{i+1}): the target's feature at position i and the token behind it, at
    position id i. Features go in as `inward` gives them; `hidden` of what it returns are predicted ones, to be read in
    their place.
    """

    graphs: Graphs | None = None
    """In which its forwards run; None: eagerly."""
    keep_hidden = FINAL
    """It always gives what it predicts."""

    def __init__(self, model: Predictor, output: nn.Module, layers: Layers = FINAL) -> None:
        """`output`, such as the target's output matrix, is copied if the head is to work on another device."""
        self.model, self.layers = model.eval(), layers
        self.config = model.config
        self.vocab_size = int(model.embed_tokens.weight.shape[0])
        self.max_positions = max_positions_of(self.config)
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
        (self.graphs or self.cache).restart(capacity)

    def causal_layout(self, new: int) -> Layout:
        """Of so many plain successive pairs."""
        prefix, bound = self.cache.length, self.max_positions
        return causal_layout(new, prefix=prefix, device=self.device, max_positions=bound, dtype=self.dtype)

    @torch.inference_mode()
    def inward(self, features: Float[Tensor, "rows features"]) -> Float[Tensor, "rows hidden"]:
        """The target's features, moved here, as the head reads them."""
        return self.model.inward(features.to(self.device, self.dtype))

    def along(self, tokens: Tensor, features: Tensor) -> Tensor:
        """All pairs of the text in one forward."""
        self.reset(tokens.shape[0])
        pairs = tokens[1:].to(self.device)
        return self(pairs, self.inward(features[:-1]), self.causal_layout(pairs.shape[0])).logits

    def blank(self, tokens: Tensor) -> ModelOutput:
        """Pairs whose joined features are zero."""
        features = torch.zeros(tokens.shape[0], self.config.hidden_size, device=self.device, dtype=self.dtype)
        return self(tokens, features, self.causal_layout(tokens.shape[0]))

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
        graphs = self.graphs if self.cache.length else None  # prompts are of any length
        if graphs and (size := graphs.size(tokens.shape[0])):
            logits, hidden = graphs(tokens, layout, size, features)
            logits = logits[-logits_to_keep:]
        else:
            options = {"attention_mask": layout.mask, "position_ids": layout.positions}
            logits, hidden = self.whole(tokens[None], features[None], logits_to_keep, **options)
        self.cache.advance(tokens.shape[0])
        return ModelOutput(logits, hidden)

    def whole(self, tokens: Tensor, features: Tensor, logits_to_keep: int = 0, **options: Any) -> tuple[Tensor, Tensor]:
        """Logits of the last rows (0: of all) and predicted features, by one forward on the cache."""
        hidden = self.model.predict(tokens, features, past_key_values=self.cache, use_cache=True, **options)[0]
        return self._output(hidden[-logits_to_keep:]), hidden
