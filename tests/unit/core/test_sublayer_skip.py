"""A target drafting for itself without some attention and MLP sublayers, against a Llama's arithmetic written out."""

import pytest
import torch
from architectures import CONFIGS, both
from checkpoints import checkpoint
from doubles import context_for, random_llama
from torch import Tensor

from specdec_core import CausalLM, generate, load_pair, shapes
from specdec_core.drafters import Autoregressive, OptTree, SelfDraft, StaticTree
from specdec_core.errors import LoadError
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.models.layer_skip import kept_bytes
from specdec_core.verifiers import Greedy

PROMPT = [5, 9, 11, 3, 7]
LAYERS = 5
SKIPPED = [
    {"attention": [0]},
    {"mlp": [0, 3]},
    {"skipped": [2], "attention": [0, 1], "mlp": [4]},
    {"attention": [0, 1, 2, 3, 4]},
    {"attention": [1, 3], "mlp": [3, 4]},
]
"""The first and the fourth leave layer 0 without attention; the last one leaves out all of layer 3."""
REFUSED = [name for name in CONFIGS if name.startswith(("opt", "bloom"))]
"""Families whose layers are not two parts that add to the residual stream."""


class ByHand:
    """A Llama from its weights, one token at a time, in lists: no module, no cache, no mask."""

    def __init__(self, model: CausalLM) -> None:
        self.config, self.weights = model.config, dict(model.model.state_dict())
        self.past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(self.config.num_hidden_layers)]
        self.position = 0

    def read(self, token, *, skipped=(), attention=(), mlp=()) -> Tensor:
        """The logits behind a token; what attends remembers it."""
        x = self.weights["model.embed_tokens.weight"][token]
        for number in range(self.config.num_hidden_layers):
            if number not in skipped and number not in attention:
                x = x + self.attended(number, self.normal(x, f"model.layers.{number}.input_layernorm"))
            if number not in skipped and number not in mlp:
                normed = self.normal(x, f"model.layers.{number}.post_attention_layernorm")
                gate, up = (self.of(number, f"mlp.{name}_proj") @ normed for name in ("gate", "up"))
                x = x + self.of(number, "mlp.down_proj") @ (gate * gate.sigmoid() * up)
        self.position += 1
        return self.weights["lm_head.weight"] @ self.normal(x, "model.norm")

    def of(self, layer: int, name: str) -> Tensor:
        return self.weights[f"model.layers.{layer}.{name}.weight"]

    def normal(self, x: Tensor, name: str) -> Tensor:
        return self.weights[f"{name}.weight"] * x / (x.square().mean() + self.config.rms_norm_eps).sqrt()

    def attended(self, layer: int, normed: Tensor) -> Tensor:
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        dim = self.config.hidden_size // heads
        query, key, value = ((self.of(layer, f"self_attn.{name}_proj") @ normed).view(-1, dim) for name in "qkv")
        self.past[layer].append((self.turned(key), value))
        mixed = []
        for head, asked in enumerate(self.turned(query)):
            group = head * groups // heads
            scores = torch.stack([asked @ keys[group] for keys, _ in self.past[layer]]) / dim**0.5
            mixed.append(scores.softmax(0) @ torch.stack([values[group] for _, values in self.past[layer]]))
        return self.of(layer, "self_attn.o_proj") @ torch.cat(mixed)

    def turned(self, heads: Tensor) -> Tensor:
        """Rotary position embedding: dimension i turns with dimension i + half."""
        half = heads.shape[-1] // 2
        turns = self.position * self.config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
        one, other = heads[:, :half], heads[:, half:]
        return torch.cat((one * turns.cos() - other * turns.sin(), other * turns.cos() + one * turns.sin()), -1)


def plain(target: CausalLM, new: int = 20) -> list[int]:
    return generate(target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=new).tokens


def alone(draft: CausalLM, tokens: list[int]) -> Tensor:
    """Logits behind each token of a text that the draft reads by itself."""
    draft.reset(64)
    return draft.extend(torch.tensor(tokens)).logits


@pytest.mark.parametrize("skips", SKIPPED, ids=str)
def test_logits_are_those_of_the_arithmetic_without_the_residual_branches(skips):
    """The whole text by the draft alone."""
    target = random_llama(0, layers=LAYERS)
    by_hand, whole = ByHand(target), ByHand(target)
    found = alone(LayerSkip(target, **skips), PROMPT)
    wanted = torch.stack([by_hand.read(token, **skips) for token in PROMPT])
    assert torch.allclose(found, wanted, atol=1e-4)
    full = torch.stack([whole.read(token) for token in PROMPT])
    assert not torch.allclose(full, wanted, atol=1e-2), "skipping changes nothing: the test cannot fail"


@pytest.mark.parametrize("skips", SKIPPED, ids=str)
def test_it_drafts_on_the_targets_own_prefix(skips):
    """The whole target reads the prompt; root and a chain of nodes behind it are the draft's."""
    target = random_llama(0, layers=LAYERS)
    by_hand, draft = ByHand(target), SelfDraft(LayerSkip(target, **skips))
    target.reset(64)
    target.prefill(torch.tensor(PROMPT))
    with torch.inference_mode():
        found = [draft.begin(context_for(8, tuple(PROMPT))).logits[0]]
        for depth, token in enumerate((2, 6)):
            found.append(draft.expand(torch.tensor([token]), torch.tensor([depth - 1])).logits[0])
    for token in PROMPT:
        by_hand.read(token)
    for token, ours in zip((8, 2, 6), found, strict=True):
        assert torch.allclose(ours, by_hand.read(token, **skips), atol=1e-4)


@pytest.mark.parametrize("skips", SKIPPED, ids=str)
@pytest.mark.parametrize("shape", [shapes.chain(4), shapes.eagle25()], ids=["chain", "eagle25"])
def test_outputs_are_the_targets_and_so_is_its_cache(skips, shape):
    """Every drafted tree leaves what is committed untouched, and what is committed is the target's own."""
    target, alone = random_llama(0, layers=LAYERS), random_llama(0, layers=LAYERS)
    drafter, unchanged = StaticTree(draft=LayerSkip(target, **skips), shape=shape), []
    grow = drafter.grow

    def watched(context):
        length = target.cache.length
        before = [layer.keys[:, :, :length].clone() for layer in target.cache.layers]
        tree = grow(context)
        after = [layer.keys[:, :, :length] for layer in target.cache.layers]
        unchanged.append(all(map(torch.equal, before, after)))
        return tree

    drafter.grow = watched
    found = generate(target, drafter, Greedy(), PROMPT, max_new_tokens=20)
    assert found.tokens == plain(alone)
    assert unchanged
    assert all(unchanged)
    length = min(alone.cache.length, target.cache.length)
    for ours, theirs in zip(target.cache.layers, alone.cache.layers, strict=True):
        assert torch.allclose(ours.keys[:, :, :length], theirs.keys[:, :, :length], atol=1e-4)
        assert torch.allclose(ours.values[:, :, :length], theirs.values[:, :, :length], atol=1e-4)


def test_both_sublayers_are_the_layer():
    target = random_llama(0, layers=LAYERS)
    twice, whole = LayerSkip(target, attention=[1, 2], mlp=[2, 1]), LayerSkip(target, [1, 2])
    assert len(twice.model.model.layers) == len(whole.model.model.layers) == LAYERS - 2
    assert torch.equal(alone(twice, PROMPT), alone(whole, PROMPT))


def test_weights_are_shared_and_the_target_keeps_its_parts():
    target = random_llama(0, layers=LAYERS)
    before = [*target.model.named_modules()]
    draft = LayerSkip(target, [4], attention=[0], mlp=[1])
    ours = {parameter.data_ptr() for parameter in draft.model.parameters()}
    assert ours < {parameter.data_ptr() for parameter in target.model.parameters()}
    assert [*target.model.named_modules()] == before
    assert draft.model.model.layers[2] is target.model.model.layers[2]


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in REFUSED])
def test_a_branch_left_out_is_one_whose_output_is_zero(name):
    """In families of residual branches: the stock model with that output projection at 0 gives the same logits."""
    own, target = both(name)
    ends = {"attention": ("self_attn.o_proj", "attn.c_proj"), "mlp": ("mlp.down_proj", "mlp.c_proj")}
    for sublayer, projections in ends.items():
        draft = LayerSkip(target, **{sublayer: [1]})
        with torch.no_grad():
            kept = {key: value.clone() for key, value in own.state_dict().items()}
            for key, value in own.named_parameters():
                if "1." in key and key.rsplit(".", 1)[0].endswith(tuple(f"1.{name}" for name in projections)):
                    value.zero_()
            wanted = own(torch.tensor([PROMPT])).logits[0]
            own.load_state_dict(kept)
            full = own(torch.tensor([PROMPT])).logits[0]
        found = alone(draft, PROMPT)
        assert torch.allclose(found, wanted, atol=1e-5)
        assert not torch.allclose(found, full, atol=1e-2)


@pytest.mark.parametrize("name", REFUSED)
def test_other_families_are_refused_in_a_sentence(name):
    _, target = both(name)
    for skips in ({"attention": [1]}, {"mlp": [0]}):
        with pytest.raises(LoadError, match=r"is not two residual branches.*give whole layers, skipped_layers"):
            LayerSkip(target, **skips)
    LayerSkip(target, [1], attention=[1]).reset(8)  # a whole layer is left out in every family


@pytest.mark.parametrize(
    ("skips", "words"),
    [
        ({"attention": [2]}, r"skipped_attention=\[2\]: give numbers from 0 to 1"),
        ({"mlp": [-1], "skipped": [0]}, r"skipped_layers=\[0\], skipped_mlp=\[-1\]: give numbers from 0 to 1"),
        ({"mlp": [0, 1], "attention": [1, 0]}, "leave at least one layer"),
        ({"mlp": [0], "attention": [0], "skipped": [1]}, "leave at least one layer"),
    ],
)
def test_sublayers_that_cannot_be_skipped_are_named(skips, words):
    with pytest.raises(LoadError, match=words):
        LayerSkip(random_llama(0), **skips)


def test_bytes_are_those_of_the_weights_that_are_read():
    """Counted from shapes: a Llama's matrices and norms, by hand."""
    config = random_llama(0, layers=LAYERS).config
    hidden, inner, vocab, kv = 32, 48, 61, 16
    attention, mlp = 2 * hidden * hidden + 2 * hidden * kv + hidden, 3 * hidden * inner + hidden
    whole = 2 * vocab * hidden + hidden + LAYERS * (attention + mlp)
    assert kept_bytes(config, torch.bfloat16) == 2 * whole
    assert kept_bytes(config, torch.bfloat16, [2], [0, 1], [4]) == 2 * (whole - (attention + mlp) - 2 * attention - mlp)
    assert kept_bytes(config, torch.float32, [1], [1, 2], [2]) == 4 * (whole - 2 * (attention + mlp))


def test_by_its_spec_in_a_pair(tmp_path):
    folder = str(checkpoint(tmp_path / "model", num_hidden_layers=3))
    spec = ModelSpec(id=folder, kind="layer_skip", skipped_attention=(0, 2), skipped_mlp=(1,))
    pair = load_pair(folder, spec, device="cpu")
    assert isinstance(pair.draft, LayerSkip)
    wanted = LayerSkip(pair.target, attention=[0, 2], mlp=[1])
    assert torch.equal(alone(pair.draft, [3, 7]), alone(wanted, [3, 7]))
    found = generate(pair.target, OptTree(draft=pair.draft, n=8), Greedy(), [3, 7], max_new_tokens=12)
    assert found.tokens == generate(pair.target, Autoregressive(), Greedy(), [3, 7], max_new_tokens=12).tokens
