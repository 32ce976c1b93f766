"""Trains two heads for SmolLM2 on the same text: `python -m specdec_trees.smollm2.train_heads eagle3`, or `dflash`.

Both read the same three of the target's layers, and its embedding and output matrix, which stay as they are. EAGLE-3's
head reads its own predictions, one token after another (Li et al., 2025, section 3.2); DFlash's fills a block of masks
in one forward (Chen et al., 2026, arXiv 2602.06036). Both learn the target's distributions behind each token.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config

from specdec_core.models.dflash import DFlashModel, rotated
from specdec_core.models.eagle import Eagle3Model
from specdec_trees.smollm2.__main__ import FOLDER
from specdec_trees.smollm2.text import OUT, read_layers
from specdec_trees.smollm2.train import HERE, frequent
from specdec_trees.tiny.train import train
from specdec_trees.tiny.train_heads import divergence, evaluate, passes_of, save, save_eagle_3, weighted

LAYERS = (2, 15, 27)
"""Of the target's 30, as places among hidden states: the inputs of layers 2, N // 2 and N - 3, as in EAGLE's code."""
HIDDEN = 576
BLOCK, MASK = 8, 16
"""A block is the root and seven masks; the token of that id is in the text nowhere."""
GAMMA = 4.0
"""A mask at depth d counts exp(-(d - 1) / GAMMA): DFlash's value for blocks of 8."""
DEPTHS = {"num_hidden_layers": 2, "intermediate_size": 768}
"""Of DFlash's head: as many parameters as EAGLE-3's one layer has."""
RIDGE = 1e-3
OTHERS = 2048
"""So many tokens stand for all that are not among the frequent ones, drawn anew for each batch."""


class Conversations(NamedTuple):
    """A batch: tokens [batch, length], features of three layers and those behind the final norm."""

    tokens: Int[Tensor, "batch length"]
    features: Float[Tensor, "batch length three_layers"]
    final: Float[Tensor, "batch length hidden"]


class Scaled(nn.Linear):
    """A head's `fc` while it is trained: each input has a mean square of 1, whatever the features' are."""

    @torch.no_grad()
    def __init__(self, inputs: Float[Tensor, "positions features"], goal: Float[Tensor, "positions hidden"]) -> None:
        """It begins as the best linear map of these inputs onto the goal, by ridge regression."""
        super().__init__(inputs.shape[1], goal.shape[1], bias=False)
        self.scale = inputs.square().mean(0).sqrt()
        x = inputs / self.scale
        self.weight.copy_(torch.linalg.solve(x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1]), x.T @ goal).T)

    def forward(self, inputs: Tensor) -> Tensor:
        """The same as `folded` on the inputs as they are."""
        return super().forward(inputs / self.scale)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """An ordinary layer, the scale in its weights."""
        plain = nn.Linear(self.in_features, self.out_features, bias=False)
        plain.weight.copy_(self.weight / self.scale)
        return plain


def fc_of(target: LlamaForCausalLM, batch: Conversations, ahead: int) -> Scaled:
    """From features to what the target's final norm reads, but for its length, so many tokens ahead."""
    length = batch.tokens.shape[1] - ahead
    goal = batch.final[:, ahead:] / target.model.norm.weight
    return Scaled(batch.features[:, :length].flatten(0, 1), goal.flatten(0, 1))


def new_eagle_3(target: LlamaForCausalLM, known: Tensor, batch: Conversations) -> Eagle3Model:
    """A head whose embedding, output matrix and final norm are the target's; the former two are frozen."""
    config = LlamaConfig(**target.config.to_dict() | {"num_hidden_layers": 1, "tie_word_embeddings": False})
    head = Eagle3Model(config, target_hidden=HIDDEN, vocab=len(known))
    head.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight)
    head.lm_head.weight.data.copy_(target.lm_head.weight[known])
    head.final_norm.weight.data.copy_(target.model.norm.weight)
    for frozen in (head.embed_tokens, head.lm_head):
        frozen.requires_grad_(False)
    head.fc = fc_of(target, batch, 1)
    return head


def new_dflash(target: LlamaForCausalLM, batch: Conversations) -> DFlashModel:
    """A head of random layers, whose final norm begins as the target's."""
    shape = {name: getattr(target.config, name) for name in ("hidden_size", "rms_norm_eps", "vocab_size")}
    shape |= {name: getattr(target.config, name) for name in ("num_attention_heads", "num_key_value_heads")}
    shape |= {"head_dim": target.config.head_dim, "rope_parameters": target.config.rope_parameters}
    shape |= {"max_position_embeddings": target.config.max_position_embeddings, "bos_token_id": None}
    config = Qwen3Config(**shape, **DEPTHS, tie_word_embeddings=False, eos_token_id=None)
    part = {"mask_token_id": MASK, "target_layer_ids": [layer - 1 for layer in LAYERS]}
    layers = target.config.num_hidden_layers
    config.update({"block_size": BLOCK, "num_target_layers": layers, "dflash_config": part})
    head = DFlashModel(config, len(LAYERS))
    head.norm.weight.data.copy_(target.model.norm.weight)
    head.fc = fc_of(target, batch, 0)
    return head


def filled_blocks(
    head: DFlashModel, embedding: nn.Module, batch: Conversations, anchors: Int[Tensor, "batch blocks"]
) -> Float[Tensor, "batch blocks masks hidden"]:
    """What the head makes of the masks behind the token at each anchor: it has the features of all earlier ones."""
    rows, length = batch.tokens.shape
    inside = torch.full((*anchors.shape, BLOCK), MASK)
    inside[..., 0] = batch.tokens.gather(1, anchors)
    block = embedding(inside.flatten(1))
    places = torch.arange(length).expand(rows, -1)
    positions = torch.cat((places, (anchors[..., None] + torch.arange(BLOCK)).flatten(1)), 1)
    begins, number = (each.repeat_interleave(BLOCK, 1) for each in (anchors, torch.arange(anchors.shape[1])[None]))
    same = (number[0][:, None] == number[0][None]).expand(rows, -1, -1)
    seen = torch.cat((places[:, None] < begins[..., None], same), -1)[:, None]
    cosines, sines = head.rotary_emb(block, positions)
    context = head.inward(batch.features)
    for layer in head.layers:
        attention = layer.self_attn
        shape = (rows, -1, attention.head_dim)
        read = torch.cat((context, layer.input_layernorm(block)), 1)
        keys = attention.k_norm(attention.k_proj(read).unflatten(-1, shape[1:])).transpose(1, 2)
        values = attention.v_proj(read).unflatten(-1, shape[1:]).transpose(1, 2)
        queries = attention.q_norm(attention.q_proj(read[:, length:]).unflatten(-1, shape[1:])).transpose(1, 2)
        queries = rotated(queries, (cosines[:, length:], sines[:, length:]))
        attended = F.scaled_dot_product_attention(
            queries, rotated(keys, (cosines, sines)), values, attn_mask=seen, enable_gqa=True
        )
        block = block + attention.o_proj(attended.transpose(1, 2).flatten(2))
        block = block + layer.mlp(layer.post_attention_layernorm(block))
    return head.norm(block).unflatten(1, (-1, BLOCK))[:, :, 1:]


def finals_behind(batch: Conversations, anchors: Int[Tensor, "batch blocks"]) -> Float[Tensor, "batch blocks masks h"]:
    """The target's features that predict what the masks stand for."""
    places = (anchors[..., None] + torch.arange(BLOCK - 1)).flatten(1)
    rows = torch.arange(len(places))[:, None]
    return batch.final[rows, places].unflatten(1, (-1, BLOCK - 1))


def random_anchors(batch: Conversations, blocks: int) -> Int[Tensor, "batch blocks"]:
    """Places of roots whose whole block is in the text."""
    rows, length = batch.tokens.shape
    return torch.stack([1 + torch.randperm(length - BLOCK)[:blocks] for _ in range(rows)])


def dflash_loss(
    head: DFlashModel, target: LlamaForCausalLM, known: Tensor, blocks: int
) -> Callable[[Conversations], Tensor]:
    """KL(target || head) over the frequent tokens, by depth; all others have their share in the head's sum."""
    matrix, embedding = target.lm_head.weight, target.model.embed_tokens
    rest = torch.arange(len(matrix))[~torch.isin(torch.arange(len(matrix)), known)]
    weights = torch.exp(-torch.arange(BLOCK - 1) / GAMMA)

    def loss(batch: Conversations) -> Tensor:
        anchors = random_anchors(batch, blocks)
        hidden = filled_blocks(head, embedding, batch, anchors).flatten(0, 2)
        with torch.no_grad():
            log_p = F.linear(finals_behind(batch, anchors).flatten(0, 2), matrix[known]).log_softmax(-1)
        few = rest[torch.randperm(len(rest))[:OTHERS]]
        others = F.linear(hidden, matrix[few]) + torch.tensor(len(rest) / len(few)).log()
        logits = F.linear(hidden, matrix[known])
        log_q = logits - torch.cat((logits, others), -1).logsumexp(-1, keepdim=True)
        by_depth = (log_p.exp() * (log_p - log_q)).sum(-1).view(-1, BLOCK - 1).mean(0)
        return (by_depth * weights).sum() / weights.sum()

    return loss


def eagle_3_loss(
    head: Eagle3Model, target: LlamaForCausalLM, known: Tensor, passes: int
) -> Callable[[Conversations], Tensor]:
    """KL(target || head) over the head's tokens, in every pass."""
    matrix = target.lm_head.weight[known]

    def loss(batch: Conversations) -> Tensor:
        goal = F.linear(batch.final[:, 1:], matrix)
        logits = passes_of(head, batch.tokens, batch.features, passes)
        return weighted([divergence(each[:, k:], goal[:, k:]) for k, each in enumerate(logits)])

    return loss


def of_eagle_3(
    head: Eagle3Model, target: LlamaForCausalLM, known: Tensor, passes: int
) -> Callable[[Conversations], list[tuple[Tensor, Tensor]]]:
    """Logits of head and target, of all tokens, by pass."""

    def logits(batch: Conversations) -> list[tuple[Tensor, Tensor]]:
        p, pairs = target.lm_head(batch.final), []
        for k, each in enumerate(passes_of(head, batch.tokens, batch.features, passes)):
            q = each.new_full((*each.shape[:2], p.shape[-1]), -torch.inf)
            q[..., known] = each
            pairs.append((q[:, k:], p[:, 1 + k :]))
        return pairs

    return logits


def of_dflash(head: DFlashModel, target: LlamaForCausalLM) -> Callable[[Conversations], list[tuple[Tensor, Tensor]]]:
    """Logits of head and target, of all tokens, by depth, behind every 16th token."""

    def logits(batch: Conversations) -> list[tuple[Tensor, Tensor]]:
        anchors = torch.arange(1, batch.tokens.shape[1] - BLOCK, 16).expand(len(batch.tokens), -1)
        q = target.lm_head(filled_blocks(head, target.model.embed_tokens, batch, anchors))
        p = target.lm_head(finals_behind(batch, anchors))
        return [(q[:, :, depth], p[:, :, depth]) for depth in range(BLOCK - 1)]

    return logits


def save_dflash(head: DFlashModel, folder: Path) -> None:
    """As DFlash's authors publish them: config.json and tensors, without embedding and output matrix."""
    config = head.config.to_dict() | {"architectures": ["DFlashDraftModel"]}
    save(folder, "model.safetensors", head.state_dict(), config)


def main() -> None:
    """Train, report and write one head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("eagle3", "dflash"))
    parser.add_argument("--text", type=Path, default=OUT)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=4, help="conversations of 512 tokens")
    parser.add_argument("--passes", type=int, default=3, help="how often EAGLE-3's head reads its own predictions")
    parser.add_argument("--blocks", type=int, default=96, help="of DFlash's head, in each conversation")
    parser.add_argument("--rate", type=float, default=4e-3, help="of Muon")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    target = AutoModelForCausalLM.from_pretrained(FOLDER).requires_grad_(False)
    tokens, features = read_layers(target, args.text, (*LAYERS, target.config.num_hidden_layers), every=2)
    held = len(tokens) // 25
    known = frequent(tokens[held:])
    print(f"{len(tokens)} conversations, {tokens.numel():,} tokens; {held} are held out")

    def batch_of(rows: Tensor) -> Conversations:
        return Conversations(tokens[rows], *features[rows].float().split((HIDDEN * len(LAYERS), HIDDEN), -1))

    def draw(rng: torch.Generator) -> Conversations:
        return batch_of(torch.randint(held, len(tokens), (args.batch,), generator=rng))

    some = batch_of(torch.arange(held, len(tokens), 20))
    head: Eagle3Model | DFlashModel
    if args.kind == "eagle3":
        head = new_eagle_3(target, known, some)
        loss = eagle_3_loss(head, target, known, args.passes)
        logits = of_eagle_3(head, target, known, args.passes)
    else:
        head = new_dflash(target, some)
        loss, logits = dflash_loss(head, target, known, args.blocks), of_dflash(head, target)
    began = time.process_time()
    train(head, loss, draw, steps=args.steps, seed=args.seed, rate=args.rate)
    print(f"{args.steps} steps in {time.process_time() - began:.0f} CPU seconds")
    assert isinstance(head.fc, Scaled)
    head.fc = head.fc.folded()
    if isinstance(head, Eagle3Model):
        save_eagle_3(head, known, args.out / "eagle3", len(target.lm_head.weight), LAYERS, left_out=("lm_head.weight",))
    else:
        save_dflash(head, args.out / "dflash")
    rest = [batch_of(rows) for rows in torch.arange(held).split(4)]
    for depth, (same, overlap) in enumerate(evaluate(logits, rest), 1):
        print(f"depth {depth}: same arg max {same:.4f}, overlap {overlap:.4f}")


if __name__ == "__main__":
    main()
