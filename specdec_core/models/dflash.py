"""DFlash's heads (Chen et al., 2026, arXiv 2602.06036): a block of masks, filled in one forward behind features."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3Attention,
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    rotate_half,
)

from specdec_core.cache import KVCache
from specdec_core.models.causal_lm import FINAL, Layers, ModelOutput, max_positions_of
from specdec_core.models.head import Head
from specdec_core.sending import sent

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of rows, `[batch, rows, head_dim]` each."""


def rotated(
    x: Float[Tensor, "batch heads rows head_dim"], rotary: Rotary
) -> Float[Tensor, "batch heads rows head_dim"]:
    """At the rows' positions."""
    cosines, sines = (each[:, None] for each in rotary)
    turned: Tensor = x * cosines + rotate_half(x) * sines
    return turned


class _Attention(Qwen3Attention):
    """The block's queries, over keys and values of context features and of the whole block: nothing is masked."""

    def stored(self, rows: Float[Tensor, "rows hidden"], rotary: Rotary, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Their keys and values, written behind those that the cache holds; all of them."""
        shape = (1, rows.shape[0], -1, self.head_dim)
        keys = rotated(self.k_norm(self.k_proj(rows).view(shape)).transpose(1, 2), rotary)
        stored: tuple[Tensor, Tensor] = cache.layers[self.layer_idx].update(
            keys, self.v_proj(rows).view(shape).transpose(1, 2)
        )
        return stored

    def forward(
        self,
        block: Float[Tensor, "block hidden"],
        context: Float[Tensor, "new hidden"],
        rotary: Rotary,
        cache: KVCache,
    ) -> Float[Tensor, "block hidden"]:
        """`context` is what the cache lacks; both are written behind what it holds."""
        size = block.shape[0]
        keys, values = self.stored(torch.cat((context, block)), rotary, cache)
        queries = self.q_norm(self.q_proj(block).view(1, size, -1, self.head_dim)).transpose(1, 2)
        cosines, sines = (each[:, -size:] for each in rotary)
        queries = rotated(queries, (cosines, sines))
        seen = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
        out: Tensor = self.o_proj(seen.transpose(1, 2).reshape(size, -1))
        return out


class _Layer(Qwen3DecoderLayer):
    """A decoder layer of Qwen3's whose attention reads context features too, as they are: no norm comes before."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.self_attn = _Attention(config, layer_idx)

    def forward(self, block: Tensor, context: Tensor, rotary: Rotary, cache: KVCache) -> Tensor:
        """The block's hidden states, of the same shape."""
        block = block + self.self_attn(self.input_layernorm(block), context, rotary, cache)
        out: Tensor = block + self.mlp(self.post_attention_layernorm(block))
        return out


class DFlashModel(nn.Module):
    """`hidden_norm(fc(features))` of committed positions, and layers over a block that attends to them and to itself.

    Parameters are named as in the published checkpoints. Embedding and output matrix are the target's.
    """

    def __init__(self, config: Any, joined: int) -> None:
        """`joined` of the target's layers give `hidden_size` numbers each."""
        super().__init__()
        self.config, width = config, config.hidden_size
        self.fc = nn.Linear(joined * width, width, bias=False)
        self.hidden_norm, self.norm = (Qwen3RMSNorm(width, config.rms_norm_eps) for _ in range(2))
        self.layers: Any = nn.ModuleList(_Layer(config, number) for number in range(config.num_hidden_layers))
        self.rotary_emb = Qwen3RotaryEmbedding(config)

    def inward(self, features: Float[Tensor, "*rows features"]) -> Float[Tensor, "*rows hidden"]:
        """The target's features, joined into what the layers read."""
        joined: Tensor = self.hidden_norm(self.fc(features))
        return joined

    def store(self, context: Float[Tensor, "new hidden"], cache: KVCache) -> None:
        """Write keys and values of the next positions, without a block."""
        rotary = self._rotary(context, context.shape[0], cache)
        for layer in self.layers:
            layer.self_attn.stored(context, rotary, cache)

    def forward(self, block: Tensor, context: Tensor, cache: KVCache) -> Float[Tensor, "block hidden"]:
        """Hidden states of the block, which stands right behind the context."""
        rotary = self._rotary(block, context.shape[0] + block.shape[0], cache)
        for layer in self.layers:
            block = layer(block, context, rotary, cache)
        out: Tensor = self.norm(block)
        return out

    def _rotary(self, like: Tensor, rows: int, cache: KVCache) -> Rotary:
        """Of the positions behind those that the cache holds."""
        positions = torch.arange(cache.length, cache.length + rows, device=like.device)
        found: Rotary = self.rotary_emb(like, positions[None])
        return found


def layers_read(config: Any) -> Layers:
    """The target's layers, as places among hidden states: ids count layers, whose outputs are meant.

    In the reference, transformers has that of the last layer behind the final norm.
    """
    last = config.num_target_layers - 1
    return tuple(FINAL[0] if layer == last else layer + 1 for layer in config.dflash_config["target_layer_ids"])


class DFlash(Head):
    """A head's model with its cache: features of committed positions and the root's token -> logits of all depths.

    Slot i of the cache holds keys and values of the target's feature at position i, under position id i. The block is
    the root and masks behind it; what its mask at depth d predicts is the token there, whatever the others become.
    """

    def __init__(self, model: DFlashModel, embedding: nn.Module, output: nn.Module) -> None:
        """`embedding` and `output` are the target's, the latter from features behind the final norm to logits."""
        self.model, self.config = model.eval(), model.config
        self.layers = layers_read(self.config)
        self.block_size, self.mask_token_id = self.config.block_size, self.config.dflash_config["mask_token_id"]
        self.max_positions = max_positions_of(self.config)
        self.cache = KVCache(self.config.num_hidden_layers, capacity=0)
        self._embedding, self._output = embedding, output
        weight: Any = embedding.weight
        self.vocab_size = int(weight.shape[0])

    @property
    def device(self) -> torch.device:
        """Where features go in and logits come out."""
        return self.model.fc.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and features."""
        return self.model.fc.weight.dtype

    def reset(self, capacity: int) -> None:
        """Empty the cache and make room for `capacity` positions; it grows if that was too little."""
        self.cache.restart(capacity)

    @torch.inference_mode()
    def inward(self, features: Float[Tensor, "rows features"]) -> Float[Tensor, "rows hidden"]:
        """The target's features, moved here, as the layers read them."""
        return self.model.inward(features.to(self.device, self.dtype))

    @torch.inference_mode()
    def read(self, context: Float[Tensor, "new hidden"]) -> None:
        """Append the next committed positions to the cache."""
        if new := context.shape[0]:
            self.cache.reserve(self.cache.length + new)
            self.model.store(context, self.cache)
            self.cache.advance(new)

    @torch.inference_mode()
    def __call__(self, context: Float[Tensor, "new hidden"], root: int) -> Float[Tensor, "depths vocab"]:
        """Append the next committed positions, and propose below the root behind them; of the block nothing is kept."""
        new = context.shape[0]
        self.cache.reserve(self.cache.length + new + self.block_size)
        hidden = self.model(self._block(root), context, self.cache)
        self.cache.advance(new)
        logits: Tensor = self._output(hidden[1:])
        return logits

    def along(self, tokens: Int[Tensor, " text"], features: Tensor) -> Float[Tensor, "read vocab"]:
        """A block for each token, of which the first mask counts."""
        self.reset(tokens.shape[0] + self.block_size)
        rows = zip(self.inward(features[:-1]).split(1), tokens[1:].tolist(), strict=True)
        return torch.stack([self(context, root)[0] for context, root in rows])

    def blank(self, tokens: Int[Tensor, " new"]) -> ModelOutput:
        """A step that reads so many committed positions, and its block."""
        context = torch.zeros(tokens.shape[0], self.config.hidden_size, device=self.device, dtype=self.dtype)
        return ModelOutput(self(context, 0))

    def _block(self, root: int) -> Float[Tensor, "block hidden"]:
        """The root and the masks, embedded where the target's embedding is."""
        weight: Any = self._embedding.weight
        tokens = sent(torch.tensor([root] + [self.mask_token_id] * (self.block_size - 1)), weight.device)
        embedded: Tensor = self._embedding(tokens)
        return embedded.to(self.device, self.dtype)
