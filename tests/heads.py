"""Heads of random weights in the public formats, their equations in plain torch, and a walk over whole trees."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from checkpoints import word_tokenizer
from doubles import random_tree
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, load_pair
from specdec_core.drafters import Context, DraftModel
from specdec_core.models import ModelOutput, ModelSpec, Pair
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree, Verdict

VOCAB, HIDDEN, HEADS, KV_HEADS, DIM, INNER, EPS = 31, 48, 4, 2, 12, 40, 1e-5
KNOWN = torch.tensor([0, 2, 3, 5, 8, 13, 21, 22, 29, 30])
"""The tokens that an EAGLE-3 head predicts."""
LAYERS = (1, 3, 6)
TARGET_LAYERS = 7
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
SHAPE = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "intermediate_size": INNER,
    "rms_norm_eps": EPS,
    "max_position_embeddings": 256,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
}


def write_target(folder: Path) -> Path:
    """A random target that transformers saved, with a tokenizer of words."""
    torch.manual_seed(0)
    shape = SHAPE | {"num_hidden_layers": TARGET_LAYERS, "initializer_range": 1.5 * HIDDEN**-0.5}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder / "target")
    word_tokenizer([f"w{number}" for number in range(VOCAB)]).save_pretrained(folder / "target")
    return folder


def matrix(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns) / math.sqrt(columns)


def eagle_3_tensors(norms: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Under the names of EAGLE's own format."""
    torch.manual_seed(1)
    tensors = {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN),
        "midlayer.self_attn.q_proj.weight": matrix(HEADS * DIM, 2 * HIDDEN),
        "midlayer.self_attn.k_proj.weight": matrix(KV_HEADS * DIM, 2 * HIDDEN),
        "midlayer.self_attn.v_proj.weight": matrix(KV_HEADS * DIM, 2 * HIDDEN),
        "midlayer.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * DIM),
        "midlayer.mlp.gate_proj.weight": matrix(INNER, HIDDEN),
        "midlayer.mlp.up_proj.weight": matrix(INNER, HIDDEN),
        "midlayer.mlp.down_proj.weight": matrix(HIDDEN, INNER),
        "lm_head.weight": 2 * matrix(len(KNOWN), HIDDEN),
        "d2t": KNOWN - torch.arange(len(KNOWN)),
        "t2d": torch.isin(torch.arange(VOCAB), KNOWN),
    }
    names = ["norm", *(f"midlayer.{name}" for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"))]
    names += ["fc_norm.0", "fc_norm.1", "fc_norm.2"] * ("fc_norm" in norms)
    tensors |= {f"{name}.weight": torch.rand(HIDDEN) + 0.5 for name in names}
    if "norm_before_fc" in norms:
        tensors["input_norm.weight"] = torch.rand(3 * HIDDEN) + 0.5
    return tensors


def write_eagle_3(
    folder: Path, layout: str = "eagle", norms: tuple[str, ...] = (), said: dict | None = None, **changes: Tensor | None
) -> Path:
    """A head in one of three layouts; `changes` replaces tensors under EAGLE's names, None removes one."""
    tensors = {name: each for name, each in (eagle_3_tensors(norms) | changes).items() if each is not None}
    config: dict = SHAPE | {"draft_vocab_size": len(KNOWN)} | dict.fromkeys(norms, True)
    head = folder / "head"
    head.mkdir(parents=True)
    if layout == "eagle":
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": LAYERS}
        torch.save(tensors, head / "pytorch_model.bin")
    elif layout == "speculators":
        tensors = {name.replace("midlayer", "layers.0"): each for name, each in tensors.items()}
        parts = {"speculators_model_type": "eagle3", "speculators_config": {"algorithm": "eagle3"}}
        ids = {"eagle_aux_hidden_state_layer_ids": LAYERS, "target_hidden_size": None, "draft_vocab_size": len(KNOWN)}
        config = {"transformer_layer_config": SHAPE} | parts | ids | {"norm_before_residual": False}
        config |= dict.fromkeys(norms, True)
        save_file(tensors, head / "model.safetensors")
    else:  # saved inside of another module; what is EAGLE's stands in a part of its own and counts layers from 0
        tensors = {f"model.eagle_module.{name}": each for name, each in tensors.items()}
        part = {"target_layer_ids": [layer - 1 for layer in LAYERS]} | dict.fromkeys(norms, True)
        config = SHAPE | {"draft_vocab_size": len(KNOWN), "eagle_config": part}
        save_file(tensors, head / "model.safetensors")
    (head / "config.json").write_text(json.dumps(config | (said or {})))
    return folder


def write_medusa(folder: Path, count: int = 3, blocks: int = 1, file: str = "medusa_lm_head.pt") -> Path:
    """Medusa's heads, with a config that is wrong about their number as published ones are."""
    torch.manual_seed(2)
    tensors = {}
    for head in range(count):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = matrix(HIDDEN, HIDDEN)
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(HIDDEN) / 3
        tensors[f"{head}.{blocks}.weight"] = 2 * matrix(VOCAB, HIDDEN)
    folder = folder / "head"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 2, "medusa_num_layers": 1}))
    if file.endswith(".pt"):
        torch.save(tensors, folder / file)
    else:
        save_file(tensors, folder / file)
    return folder.parent


BLOCK, MASK, THETA = 5, 30, 1e6
DFLASH = SHAPE | {
    "model_type": "qwen3",
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 2,
    "num_target_layers": TARGET_LAYERS,
    "rope_theta": THETA,
    "block_size": BLOCK,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 3, 6]},
}
"""The config of a published head, which counts layers from 0; vocab_size is the target's."""


def dflash_tensors() -> dict[str, Tensor]:
    torch.manual_seed(6)
    w = {"fc.weight": matrix(HIDDEN, 3 * HIDDEN)}
    w |= {f"{name}.weight": torch.rand(HIDDEN) + 0.5 for name in ("hidden_norm", "norm")}
    for layer in range(2):
        w |= {f"layers.{layer}.{name}": each for name, each in layer_tensors().items()}
        w |= {f"layers.{layer}.self_attn.{name}_norm.weight": torch.rand(DIM) + 0.5 for name in "qk"}
    return w


def write_dflash(folder: Path, said: dict | None = None, **changes: Tensor | None) -> Path:
    """A head whose config says besides what is `said`; `changes` replaces tensors, None removes one."""
    head = folder / "head"
    head.mkdir(parents=True)
    (head / "config.json").write_text(json.dumps(DFLASH | (said or {})))
    tensors = {name: each for name, each in (dflash_tensors() | changes).items() if each is not None}
    save_file(tensors, head / "model.safetensors")
    return folder


def write_mtp(folder: Path, style: str = "qwen") -> Path:
    """The layer alone, in parts as large checkpoints are."""
    head, tensors = folder / "head", mtp_tensors(style)
    head.mkdir(parents=True)
    other = {"model.layers.0.mlp.up_proj.weight": torch.ones(3)}
    save_file(other, head / "model-00001-of-00002.safetensors")
    save_file(tensors, head / "model-00002-of-00002.safetensors")
    places = dict.fromkeys(other, "model-00001-of-00002.safetensors")
    places |= dict.fromkeys(tensors, "model-00002-of-00002.safetensors")
    (head / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def load(folder: Path, kind: str, **options: object) -> Pair:
    """The head in a folder with the target in it."""
    spec = ModelSpec(id=str(folder / "head"), kind=kind, **options)
    return load_pair(str(folder / "target"), spec, device="cpu", dtype="float32")


def features_of(target: CausalLM, text: list[int], layers: tuple[int, ...]) -> Tensor:
    """The target's features by plain text, from its decoder alone."""
    with torch.no_grad():
        output = target.model.get_decoder()(torch.tensor([text]), output_hidden_states=True)
    places = {-1: output.last_hidden_state}
    return torch.cat([places.get(layer, output.hidden_states[layer])[0] for layer in layers], -1)


class Eagle3Equations:
    """Section 3 of EAGLE-3 in plain torch and float64, over whole sequences, from the tensors as EAGLE names them."""

    def __init__(self, tensors: dict[str, Tensor], embedding: Tensor, norms: tuple[str, ...] = ()) -> None:
        self.w = {name: tensor.double() for name, tensor in tensors.items()}
        self.embedding, self.norms = embedding.double(), norms

    def normed(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.w[f"{name}.weight"]

    def joined(self, features: Tensor) -> Tensor:
        """In the order of the speculators library: the norm of all, those of each layer, `fc` as a sum over layers."""
        if "norm_before_fc" in self.norms:
            features = self.normed(features, "input_norm")
        columns, read = self.w["fc.weight"].split(HIDDEN, -1), features.new_zeros(len(features), HIDDEN)
        for layer, part in enumerate(features.split(HIDDEN, -1)):
            read += (self.normed(part, f"fc_norm.{layer}") if "fc_norm" in self.norms else part) @ columns[layer].T
        return read

    def outputs(self, tokens: Tensor, read: Tensor) -> Tensor:
        """Of the one layer, before the last norm, at positions 0, 1, ..."""
        w, length = self.w, len(tokens)
        hidden = self.normed(read, "midlayer.hidden_norm")
        x = torch.cat((self.normed(self.embedding[tokens], "midlayer.input_layernorm"), hidden), -1)
        q, k, v = ((x @ w[f"midlayer.self_attn.{n}_proj.weight"].T).view(length, -1, DIM) for n in "qkv")
        seen = attended(rotated(q), rotated(k), v)
        h = (hidden if "norm_before_residual" in self.norms else read) + seen @ w["midlayer.self_attn.o_proj.weight"].T
        n = self.normed(h, "midlayer.post_attention_layernorm")
        gate, up = (n @ w[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return h + (F.silu(gate) * up) @ w["midlayer.mlp.down_proj.weight"].T

    def logits(self, text: list[int], true: Tensor, path: list[int]) -> Tensor:
        """Over the target's tokens, behind committed `text` with features `true` and then the drafted `path`."""
        read = self.joined(true.double())
        for length in range(len(path) + 1):
            last = self.outputs(torch.tensor([*text[1:], *path[:length]]), read)[-1:]
            normed = self.normed(last, "norm")
            read = torch.cat((read, normed if "norm_output" in self.norms else last))
        wide = read.new_full((VOCAB,), -torch.inf)
        wide[KNOWN] = (normed @ self.w["lm_head.weight"].T)[0]
        return wide


def mtp_tensors(style: str = "qwen") -> dict[str, Tensor]:
    """The layer's tensors as Qwen3-Next names them, or as DeepSeek-V3 does."""
    torch.manual_seed(5)
    w = {f"layers.0.{name}": each for name, each in layer_tensors().items()}
    w["fc.weight"] = matrix(HIDDEN, 2 * HIDDEN)
    w |= {f"{n}.weight": torch.rand(HIDDEN) + 0.5 for n in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")}
    if style == "qwen":
        return {f"mtp.{name}": each for name, each in w.items()}
    names = {
        "norm": "shared_head.norm",
        "pre_fc_norm_hidden": "hnorm",
        "pre_fc_norm_embedding": "enorm",
        "fc": "eh_proj",
    }
    last = f"model.layers.{TARGET_LAYERS}."
    return {
        last + (name.removeprefix("layers.0.") if name.startswith("layers") else f"{names[name[:-7]]}.weight"): each
        for name, each in w.items()
    } | {f"{last}shared_head.head.weight": torch.ones(3), f"{last}embed_tokens.weight": torch.ones(3)}


def layer_tensors() -> dict[str, Tensor]:
    """Of one decoder layer of the target's shape."""
    found = {
        "self_attn.q_proj.weight": matrix(HEADS * DIM, HIDDEN),
        "self_attn.k_proj.weight": matrix(KV_HEADS * DIM, HIDDEN),
        "self_attn.v_proj.weight": matrix(KV_HEADS * DIM, HIDDEN),
        "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * DIM),
        "mlp.gate_proj.weight": matrix(INNER, HIDDEN),
        "mlp.up_proj.weight": matrix(INNER, HIDDEN),
        "mlp.down_proj.weight": matrix(HIDDEN, INNER),
    }
    norms = ("input_layernorm", "post_attention_layernorm")
    return found | {f"{name}.weight": torch.rand(HIDDEN) + 0.5 for name in norms}


class MtpEquations:
    """Section 2.2 of DeepSeek-V3 in plain torch, features being behind the final norm, with a layer of Llama's."""

    def __init__(self, tensors: dict[str, Tensor], embedding: Tensor, output: Tensor) -> None:
        self.w = {name.removeprefix("mtp."): each for name, each in tensors.items()}
        self.embedding, self.output = embedding, output

    def normed(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.w[f"{name}.weight"]

    def features(self, tokens: Tensor, read: Tensor) -> Tensor:
        """At positions 0, 1, ..."""
        w, length = self.w, len(tokens)
        both = self.normed(self.embedding[tokens], "pre_fc_norm_embedding"), self.normed(read, "pre_fc_norm_hidden")
        h = torch.cat(both, -1) @ w["fc.weight"].T
        x = self.normed(h, "layers.0.input_layernorm")
        q, k, v = ((x @ w[f"layers.0.self_attn.{n}_proj.weight"].T).view(length, -1, DIM) for n in "qkv")
        h = h + attended(rotated(q), rotated(k), v) @ w["layers.0.self_attn.o_proj.weight"].T
        n = self.normed(h, "layers.0.post_attention_layernorm")
        gate, up = (n @ w[f"layers.0.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return self.normed(h + (F.silu(gate) * up) @ w["layers.0.mlp.down_proj.weight"].T, "norm")

    def logits(self, text: list[int], true: Tensor, path: list[int]) -> Tensor:
        """Behind committed `text` with features `true` and then the drafted tokens of `path`."""
        read = true
        for length in range(len(path) + 1):
            last = self.features(torch.tensor([*text[1:], *path[:length]]), read)[-1:]
            read = torch.cat((read, last))
        return (last @ self.output.T)[0]


class DFlashEquations:
    """DFlash in plain torch and float64: every block anew from all committed features, with nothing kept."""

    def __init__(self, embedding: Tensor, output: Tensor) -> None:
        self.w = {name: tensor.double() for name, tensor in dflash_tensors().items()}
        self.embedding, self.output = embedding.double(), output.double()

    def normed(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.w[f"{name}.weight"]

    def attention(self, block: Tensor, context: Tensor, name: str) -> Tensor:
        """Each row of the block over all of the context and all of the block."""
        w, rows = self.w, torch.cat((context, block))
        q, k, v = ((rows @ w[f"{name}.{n}_proj.weight"].T).view(len(rows), -1, DIM) for n in "qkv")
        q, k = rotated(self.normed(q, f"{name}.q_norm"), THETA), rotated(self.normed(k, f"{name}.k_norm"), THETA)
        k, v = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q[len(context) :], k) / math.sqrt(DIM)
        seen = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(len(block), -1)
        return seen @ w[f"{name}.o_proj.weight"].T

    def block(self, root: int, true: Tensor) -> Tensor:
        """Logits of all rows of the block behind positions with features `true`."""
        context = self.normed(true.double() @ self.w["fc.weight"].T, "hidden_norm")
        x = self.embedding[[root] + [MASK] * (BLOCK - 1)]
        for layer in ("layers.0", "layers.1"):
            x = x + self.attention(self.normed(x, f"{layer}.input_layernorm"), context, f"{layer}.self_attn")
            n = self.normed(x, f"{layer}.post_attention_layernorm")
            gate, up = (n @ self.w[f"{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (F.silu(gate) * up) @ self.w[f"{layer}.mlp.down_proj.weight"].T
        return self.normed(x, "norm") @ self.output.T

    def logits(self, text: list[int], true: Tensor, path: list[int]) -> Tensor:
        """Of the mask behind `path`; `true` are features of all of `text` but its last token."""
        depth = len(path) + 1
        return self.block(text[-1], true)[depth] if depth < BLOCK else torch.zeros(VOCAB)


class MedusaEquations:
    """Section 2.1.1 of Medusa in plain torch."""

    def __init__(self, tensors: dict[str, Tensor], blocks: int) -> None:
        self.w, self.blocks = tensors, blocks

    def logits(self, text: list[int], true: Tensor, path: list[int]) -> Tensor:
        """Of the head that is as deep as `path` is long; `true` are features of all of `text` but its last token."""
        x, head = true[-1], len(path)
        if f"{head}.{self.blocks}.weight" not in self.w:
            return torch.zeros(VOCAB)
        for block in range(self.blocks):
            weight, bias = (self.w[f"{head}.{block}.linear.{name}"] for name in ("weight", "bias"))
            x = x + F.silu(x @ weight.T + bias)
        return x @ self.w[f"{head}.{self.blocks}.weight"].T


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of [length, heads, DIM] with grouped keys and values; [length, HEADS * DIM]."""
    length = len(q)
    k, v = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(DIM)
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    return torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(length, -1)


def rotated(x: Tensor, base: float = 10000.0) -> Tensor:
    """Rotary positions 0, 1, ... of [length, heads, DIM]."""
    half = DIM // 2
    angles = torch.arange(len(x))[:, None, None] * base ** (-torch.arange(half).to(x) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


@torch.no_grad()
def worst_over_trees(
    pair: Pair, draft: DraftModel, expected: Callable[[list[int], Tensor, list[int]], Tensor]
) -> tuple[float, float]:
    """The largest error of a draft's rows over whole random trees and three commits, and the largest logit."""
    rng, layers = torch.Generator().manual_seed(3), draft.needs_hidden
    text, worst, scale = [3, 7, 11, 2, 9], 0.0, 0.0
    draft.reset(torch.tensor(text), ModelOutput(torch.zeros(1, VOCAB), features_of(pair.target, text, layers)))
    text.append(4)
    context = Context(text, rng, Clock(torch.device("cpu")))
    for accepted in (2, 0, 3):
        tree = random_tree(12, VOCAB, rng)
        rows, slots = rows_of(draft, context, tree)
        true = features_of(pair.target, text, layers)[:-1]
        for path, row in rows.items():
            goal = expected(text, true, list(path))
            assert torch.equal(row.isfinite(), goal.isfinite())
            worst = max(worst, float((row - goal)[goal.isfinite()].abs().max()))
            scale = max(scale, float(goal[goal.isfinite()].abs().max()))
        path = tree.ancestor_mask[int(tree.depths.argmax())].nonzero().flatten()[: accepted + 1]
        verdict = Verdict(path, tuple(tree.tokens[path[1:]].tolist()), int(torch.randint(VOCAB, (1,), generator=rng)))
        whole = features_of(pair.target, [*text, *tree.tokens[path[1:]].tolist()], layers)
        hidden = torch.full((tree.num_nodes, whole.shape[1]), torch.nan)
        hidden[path] = whole[len(text) - 1 :]
        kept = torch.tensor([slots[node] for node in path[1:].tolist()], dtype=torch.long)
        draft.commit(kept, verdict, ModelOutput(torch.zeros(tree.num_nodes, VOCAB), hidden))
        context.advance(verdict)
    return worst, scale


def rows_of(
    draft: DraftModel, context: Context, tree: TokenTree
) -> tuple[dict[tuple[int, ...], Tensor], dict[int, int]]:
    """A draft's logits at every node of a tree, by its path below the root, and every node's slot."""
    rows = {(): draft.begin(context).logits[0]}
    slots, paths = {0: -1}, {0: ()}
    for depth in range(1, int(tree.depths.max()) + 1):
        layer = (tree.depths == depth).nonzero().flatten()
        parents = tree.parents[layer].tolist()
        found = draft.expand(tree.tokens[layer], torch.tensor([slots[parent] for parent in parents])).logits
        for row, node, parent in zip(found, layer.tolist(), parents, strict=True):
            slots[node], paths[node] = len(slots) - 1, (*paths[parent], int(tree.tokens[node]))
            rows[paths[node]] = row
    return rows, slots
