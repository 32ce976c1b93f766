"""EAGLE's head against a plain statement of its equations, with random weights in the published format."""

import json
import math
import os
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from checkpoints import word_tokenizer
from doubles import random_tree
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, TokenTree, generate, load_pair, shapes
from specdec_core.drafters import Autoregressive, Context, Eagle2, EagleDraft, OptTree, StaticTree
from specdec_core.errors import LoadError, PairError
from specdec_core.models import EagleHead, ModelOutput, ModelSpec, Pair
from specdec_core.models.draft_vocabulary import FILE as MAP
from specdec_core.roots import Virtual
from specdec_core.timing import Clock
from specdec_core.tree import Verdict
from specdec_core.verifiers import Greedy

VOCAB = 31
EPS = 1e-5
"""(hidden, query heads, key/value heads, head dim, intermediate, bias of fc, file)"""
FORMS = {
    "bin_with_bias": (48, 4, 4, 12, 40, True, "bin"),
    "bin_without_bias": (48, 4, 2, 12, 40, False, "bin"),
    "safetensors": (48, 4, 1, 12, 72, True, "safetensors"),
    "8_kv_heads_of_64": (1024, 16, 8, 64, 96, False, "bin"),
    "13_kv_heads": (208, 26, 13, 8, 64, True, "safetensors"),
}


def write(folder: Path, form: str, config: dict | None = None, **changes: Tensor | None) -> Path:
    """Target (as transformers saves it) and head (as EAGLE's authors publish it) of random weights.

    `changes` replaces tensors of the head; None removes one.
    """
    hidden, heads, kv_heads, dim, inner, bias, file = FORMS[form]
    torch.manual_seed(0)
    shape = {"hidden_size": hidden, "num_attention_heads": heads, "rms_norm_eps": EPS, "max_position_embeddings": 256}
    target = LlamaConfig(
        vocab_size=VOCAB,
        num_hidden_layers=2,
        num_key_value_heads=heads,
        intermediate_size=50,
        initializer_range=hidden**-0.5,
        **shape,
    )
    LlamaForCausalLM(target).save_pretrained(folder / "target")
    word_tokenizer([f"w{number}" for number in range(VOCAB)]).save_pretrained(folder / "target")

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns) * 0.6 / math.sqrt(columns)

    tensors: dict[str, Tensor | None] = {
        "embed_tokens.weight": torch.randn(VOCAB, hidden),
        "fc.weight": matrix(hidden, 2 * hidden),
        "fc.bias": torch.randn(hidden) if bias else None,
        "layers.0.self_attn.q_proj.weight": matrix(heads * dim, hidden),
        "layers.0.self_attn.k_proj.weight": matrix(kv_heads * dim, hidden),
        "layers.0.self_attn.v_proj.weight": matrix(kv_heads * dim, hidden),
        "layers.0.self_attn.o_proj.weight": matrix(hidden, heads * dim),
        "layers.0.mlp.gate_proj.weight": matrix(inner, hidden),
        "layers.0.mlp.up_proj.weight": matrix(inner, hidden),
        "layers.0.mlp.down_proj.weight": matrix(hidden, inner),
        "layers.0.post_attention_layernorm.weight": torch.rand(hidden) + 0.5,
    }
    tensors |= changes
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    head = folder / "head"
    head.mkdir()
    if file == "bin":
        torch.save(kept, head / "pytorch_model.bin")
    else:
        save_file(kept, head / "model.safetensors")
    # as published: the family's own numbers of heads and widths, which the tensors may contradict; no word of a bias
    said = shape | {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "num_key_value_heads": heads,
        "intermediate_size": 999,
    }
    (head / "config.json").write_text(json.dumps(said | {"vocab_size": VOCAB} | (config or {})))
    return folder


def load(folder: Path, **options: str) -> Pair:
    head = ModelSpec(id=str(folder / "head"), kind="eagle")
    return load_pair(str(folder / "target"), head, **{"device": "cpu", "dtype": "float32"} | options)


class Equations:
    """The head of section 4.1 in plain torch, over whole sequences, from the file's tensors."""

    def __init__(self, folder: Path, form: str) -> None:
        _, self.heads, self.kv_heads, self.dim, *_ = FORMS[form]
        file = next(path for path in (folder / "head").iterdir() if path.suffix != ".json")
        if file.suffix == ".bin":
            self.w = torch.load(file, weights_only=True)
        else:
            from safetensors.torch import load_file

            self.w = load_file(file)
        target = LlamaForCausalLM.from_pretrained(folder / "target", dtype=torch.float32)
        self.output = target.lm_head.weight.detach()

    def features(self, tokens: Tensor, read: Tensor) -> Tensor:
        """g of the pairs (read[i], tokens[i]), at positions 0, 1, ..."""
        w, length = self.w, tokens.shape[0]
        h = torch.cat((w["embed_tokens.weight"][tokens], read), -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
        q, k, v = (h @ w[f"layers.0.self_attn.{name}_proj.weight"].T for name in "qkv")
        q, k = (self.rotated(x.view(length, -1, self.dim)) for x in (q, k))
        groups = self.heads // self.kv_heads
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v.view(length, -1, self.dim)))
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.dim)
        future = torch.ones(length, length).triu(1).bool()
        seen = torch.einsum("hij,jhd->ihd", scores.masked_fill(future, -torch.inf).softmax(-1), v)
        h = h + seen.reshape(length, -1) @ w["layers.0.self_attn.o_proj.weight"].T
        n = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * w["layers.0.post_attention_layernorm.weight"]
        gate, up = (n @ w[f"layers.0.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return h + (F.silu(gate) * up) @ w["layers.0.mlp.down_proj.weight"].T

    def rotated(self, x: Tensor) -> Tensor:
        half = self.dim // 2
        angles = torch.arange(x.shape[0])[:, None, None] * 10000.0 ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    def logits(self, text: list[int], true: Tensor, path: list[int]) -> Tensor:
        """Behind committed `text` with features `true` and then, one by one, the drafted tokens of `path`."""
        read = true
        for length in range(len(path) + 1):
            tokens = torch.tensor([*text[1:], *path[:length]])
            predicted = self.features(tokens, read)[-1:]
            read = torch.cat((read, predicted))
        return (predicted @ self.output.T)[0]


def features_of(target: CausalLM, text: list[int]) -> Tensor:
    """The target's features by plain text."""
    decoder = target.model.get_decoder()
    with torch.no_grad():
        return decoder(torch.tensor([text])).last_hidden_state[0]


@pytest.mark.parametrize("form", FORMS)
def test_logits_of_whole_trees_over_several_commits_are_those_of_the_equations(form, tmp_path):
    folder = write(tmp_path, form)
    pair, rng = load(folder), torch.Generator().manual_seed(3)
    assert isinstance(pair.draft, EagleHead)
    head, oracle, draft = pair.draft, Equations(folder, form), EagleDraft(pair.draft)
    text, commits, worst, scale = [3, 7, 11, 2, 9], [2, 0, 3], 0.0, 0.0
    draft.reset(torch.tensor(text), ModelOutput(torch.zeros(1, VOCAB), features_of(pair.target, text)))
    text.append(4)
    context = Context(text, rng, Clock(torch.device("cpu")))
    for accepted in commits:
        logits = {(): draft.begin(context).logits[0]}
        tree = random_tree(12, VOCAB, rng)
        slots = {0: -1}
        paths: dict[int, tuple[int, ...]] = {0: ()}
        for depth in range(1, int(tree.depths.max()) + 1):
            layer = (tree.depths == depth).nonzero().flatten()
            parents = tree.parents[layer].tolist()
            rows = draft.expand(tree.tokens[layer], torch.tensor([slots[parent] for parent in parents])).logits
            for row, node, parent in zip(rows, layer.tolist(), parents, strict=True):
                slots[node], paths[node] = len(slots) - 1, (*paths[parent], int(tree.tokens[node]))
                logits[paths[node]] = row
        true = features_of(pair.target, text)[:-1]
        for path, row in logits.items():
            expected = oracle.logits(text, true, list(path))
            worst = max(worst, float((row - expected).abs().max()))
            scale = max(scale, float(expected.abs().max()))
        worst_path = tree.ancestor_mask[int(tree.depths.argmax())].nonzero().flatten()[: accepted + 1]
        verdict = verdict_on(tree, worst_path, next_token=int(torch.randint(VOCAB, (1,), generator=rng)))
        whole = features_of(pair.target, [*text, *tree.tokens[worst_path[1:]].tolist()])
        hidden = torch.full((tree.num_nodes, whole.shape[1]), torch.nan)
        hidden[worst_path] = whole[len(text) - 1 :]
        kept = torch.tensor([slots[node] for node in worst_path[1:].tolist()], dtype=torch.long)
        draft.commit(kept, verdict, ModelOutput(torch.zeros(tree.num_nodes, VOCAB), hidden))
        context.advance(verdict)
    assert scale > 1
    assert worst < 1e-5
    assert head.cache.length == len(text) - 1 - (1 + commits[-1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("eagle"), "bin_with_bias", {"bias": False})


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def sentence(folder: Path) -> str:
    """What `load_pair` refuses with."""
    with pytest.raises(LoadError) as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


DRAFTERS = {
    "chain": lambda head: StaticTree(draft=head, shape=shapes.chain(4)),
    "eagle25": lambda head: StaticTree(draft=head, shape=shapes.eagle25()),
    "opt_tree": lambda head: OptTree(draft=head, n=12, delta=0.05),
    "eagle2": lambda head: Eagle2(draft=head, total=12, depth=3, k=4),
    "iid": lambda head: StaticTree(draft=head, shape=shapes.eagle25(), draws="iid"),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("prompt", [[3], [3, 7], [3, 7, 11, 2, 9]], ids=len)
def test_under_every_drafter_the_head_reads_true_features_and_outputs_are_the_targets(name, prompt, whole, monkeypatch):
    """Before each step the head's distribution at the root is that of the equations, whatever was accepted before."""
    pair, oracle, steps = load(whole), Equations(whole, "bin_with_bias"), []
    begin = EagleDraft.begin

    def checked(self: EagleDraft, context: Context) -> ModelOutput:
        output, text = begin(self, context), context.tokens
        expected = oracle.logits(text, features_of(pair.target, text)[:-1], [])
        steps.append(float((output.logits[0] - expected).abs().max()))
        return output

    monkeypatch.setattr(EagleDraft, "begin", checked)
    drafter = DRAFTERS[name](pair.draft)
    assert drafter.needs_hidden
    found = generate(pair.target, drafter, Greedy(), prompt, max_new_tokens=24)
    plain = generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=24)
    assert found.tokens == plain.tokens
    assert len(steps) == len(found.steps)
    assert max(steps) < 1e-5


KNOWN = torch.tensor([0, 2, 3, 5, 8, 13, 30])
OFFSETS = KNOWN - torch.arange(7)


def with_map(folder: Path, d2t: Tensor = OFFSETS, size: int = 7) -> Path:
    """The head of a folder predicts `KNOWN` alone from now on."""
    config = folder / "head" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"draft_vocab_size": size}))
    save_file({"d2t": d2t}, folder / "head" / MAP)
    return folder


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_head_of_some_tokens_has_the_whole_heads_logits_for_them(name, whole, broken):
    pair, stock = load(with_map(broken)), load(whole)
    tokens, features = torch.tensor([7, 11, 2]), torch.randn(3, 48, generator=torch.Generator().manual_seed(0))
    for head in (pair.draft, stock.draft):
        head.reset(8)
    found, expected = (head.extend(tokens, features).logits for head in (pair.draft, stock.draft))
    assert torch.equal(found.isfinite()[0].nonzero().flatten(), KNOWN)
    torch.testing.assert_close(found[:, KNOWN], expected[:, KNOWN])
    assert pair.draft.vocab_size == found.shape[1] == VOCAB

    def watch(tree: TokenTree, *_: object) -> None:
        assert set(tree.tokens[1:].tolist()) <= set(KNOWN.tolist())

    drafted = generate(pair.target, DRAFTERS[name](pair.draft), Greedy(), [3, 7], max_new_tokens=24, watch=watch)
    assert drafted.tokens == generate(pair.target, Autoregressive(), Greedy(), [3, 7], max_new_tokens=24).tokens


def test_a_wrong_map_of_a_head_is_a_sentence(broken):
    assert "must hold d2t, a whole offset for each of its 8 tokens" in sentence(with_map(broken, size=8))
    assert "does not map its tokens to different ids below 31" in sentence(with_map(broken, KNOWN))
    (broken / "head" / MAP).unlink()
    assert f"lacks {MAP}, a file of tensors" in sentence(broken)


def test_a_head_that_knows_the_targets_next_feature_has_every_chain_accepted(whole):
    """The negative control's other side: a head is only worth what its features are."""
    pair = load(whole)
    drafter = StaticTree(draft=pair.draft, shape=shapes.chain(3))
    known = generate(pair.target, Autoregressive(), Greedy(), [3, 7, 11], max_new_tokens=30).tokens

    class Knowing(EagleDraft):
        """Its logits are the target's own."""

        def expand(self, tokens: Tensor, parents: Tensor) -> ModelOutput:
            output = super().expand(tokens, parents)
            return ModelOutput(self.next_rows(len(tokens)), output.hidden)

        def begin(self, context: Context) -> ModelOutput:
            self.at = len(context.tokens) - 3
            return ModelOutput(self.next_rows(1), super().begin(context).hidden)

        def next_rows(self, count: int) -> Tensor:
            rows = F.one_hot(torch.tensor(known[self.at : self.at + 1] or [0]), VOCAB).float().repeat(count, 1)
            self.at += 1
            return rows

    drafter.draft = Knowing(pair.draft)
    found = generate(pair.target, drafter, Greedy(), [3, 7, 11], max_new_tokens=30)
    assert found.tokens == known
    assert [step.num_accepted for step in found.steps[:-2]] == [3] * (len(found.steps) - 2)


def test_the_dtype_is_the_targets_and_a_missing_embedding_is_the_targets(whole, broken):
    file = broken / "head" / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    del tensors["embed_tokens.weight"]
    torch.save(tensors, file)
    pair = load(broken)
    assert torch.equal(pair.draft.model.embed_tokens.weight, pair.target.model.get_input_embeddings().weight)
    assert load(whole, dtype="bfloat16").draft.dtype == torch.bfloat16
    assert not any(parameter.requires_grad for parameter in pair.draft.model.parameters())


def test_features_that_are_not_kept_are_a_sentence(whole):
    draft = EagleDraft(load(whole).draft)
    with pytest.raises(PairError, match="reads the target's hidden states"):
        draft.reset(torch.tensor([1, 2]), ModelOutput(torch.zeros(1, VOCAB)))


def test_a_virtual_root_of_one_token_has_no_distribution(whole):
    draft = EagleDraft(load(whole).draft)
    draft.reset(torch.tensor([3]), ModelOutput(torch.zeros(1, VOCAB), torch.zeros(1, 48)))
    context = Context([3], torch.Generator(), Clock(torch.device("cpu")), root=Virtual(torch.ones(VOCAB) / VOCAB))
    with pytest.raises(PairError, match="virtual root of a one-token prompt"):
        draft.begin(context)


class Code:
    """What a pickle must not be able to do."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


def test_damaged_heads_are_one_sentence_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = {
        "lacks layers.0.self_attn.o_proj.weight": {"layers.0.self_attn.o_proj.weight": None},
        "has midlayer.norm.weight besides": {"midlayer.norm.weight": torch.ones(3)},
        "embed_tokens.weight of .* has shape \\[30, 48\\], but \\[31, 48\\] fits": {
            "embed_tokens.weight": torch.ones(30, 48)
        },
        "fc.weight of .* has shape \\[48, 48\\], but \\[48, 96\\] fits": {"fc.weight": torch.ones(48, 48)},
        "down_proj.weight of .* has shape \\[48, 41\\]": {"layers.0.mlp.down_proj.weight": torch.ones(48, 41)},
        "k_proj.weight of .* has shape \\[25, 48\\]": {"layers.0.self_attn.k_proj.weight": torch.ones(25, 48)},
    }
    for number, (said, changes) in enumerate(cases.items()):
        folder = write(tmp_path / str(number), "bin_with_bias", **changes)
        assert re.search(said, sentence(folder)), sentence(folder)


def test_files_that_are_no_tensors_are_never_unpickled(broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = broken / "head" / "pytorch_model.bin"
    content = file.read_bytes()
    torch.save({"fc.weight": Code()}, file)
    assert "cannot be read as tensors alone" in sentence(broken)
    file.write_bytes(pickle.dumps({"fc.weight": Code()}))
    assert "cannot be read as tensors alone" in sentence(broken)
    assert not Path("executed").exists()
    for part in (0, 10, len(content) // 2, len(content) - 30):
        file.write_bytes(content[:part])
        assert "truncated" in sentence(broken)
    torch.save(torch.ones(3), file)
    assert "not a dictionary of tensors" in sentence(broken)
    file.unlink()
    assert "lacks model.safetensors or pytorch_model.bin" in sentence(broken)


def test_heads_for_other_targets_are_named(tmp_path):
    folder = write(tmp_path, "safetensors", {"hidden_size": 64})
    assert "made for a target of hidden size 64, not 48" in sentence(folder)
    config = folder / "head" / "config.json"
    config.write_text(json.dumps({"model_type": "mixtral", "vocab_size": VOCAB}))
    assert "a head of family 'mixtral'" in sentence(folder)


def verdict_on(tree: TokenTree, path: Tensor, next_token: int) -> Verdict:
    return Verdict(path, tuple(tree.tokens[path[1:]].tolist()), next_token, None)
