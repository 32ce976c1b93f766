"""Planted pairs: agreement that one number sets, weights that all count, the shapes of the real models."""

import pytest
import torch
from transformers import LlamaConfig, OPTConfig

from specdec_core import generate
from specdec_core.drafters import Autoregressive, OptTree, StaticTree
from specdec_core.errors import LoadError, PairError
from specdec_core.models import EagleHead, ModelSpec, Pair
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.memory import weight_bytes
from specdec_core.models.planted.bigrams import Planting, draw_bigrams
from specdec_core.models.planted.pair import plant_pair
from specdec_core.models.planted.tokenizer import planted_tokenizer
from specdec_core.shapes import chain
from specdec_core.verifiers import Greedy
from specdec_trees.measure.hub_configs import config_of

VOCAB = 1024
CPU = torch.device("cpu")
TEXTS = (
    "Write a docstring for `copy_tree`.\n",
    "Où est-ce ? 你好 🙂",
    "  two  spaces\tand a tab",
    "def f(x):\n    return x",
)
PARAMETERS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "lmsys/vicuna-33b-v1.3": 32_528_943_616,
    "JackFram/llama-68m": 68_030_208,
}


def shape(hidden: int, layers: int, vocab: int = VOCAB) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )


def planted(
    private: float = 0.3, *, eagle: bool = False, offload: bool = False, dtype: torch.dtype = torch.float32, **changes
) -> Pair:
    specs = [ModelSpec(id="t", offload=offload), ModelSpec(id="d", kind="eagle" if eagle else "causal_lm")]
    configs = [shape(96, 3), shape(96, 1) if eagle else shape(48, 1)]
    return plant_pair(specs, configs, Planting(private=private, **changes), device=CPU, dtype=dtype)


def prompt(number: int, length: int = 12) -> list[int]:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(number)).tolist()


def mal(pair: Pair, prompts: int = 6) -> float:
    done = [
        generate(pair.target, OptTree(draft=pair.draft, n=20), Greedy(), prompt(number), max_new_tokens=48)
        for number in range(prompts)
    ]
    steps = [step for generation in done for step in generation.steps]
    return sum(step.acceptance_length for step in steps) / len(steps)


def greedy(pair: Pair, drafter) -> list[int]:
    return generate(pair.target, drafter, Greedy(), prompt(0), max_new_tokens=40).tokens


@pytest.mark.long
@pytest.mark.parametrize("eagle", [False, True])
def test_mal_falls_as_the_target_knows_more_alone(eagle):
    found = [mal(planted(private, eagle=eagle)) for private in (0.0, 0.5, 2.0)]
    assert found[0] > found[1] + 0.5
    assert found[1] > found[2] + 0.5
    assert found[2] > 1


@pytest.mark.parametrize("eagle", [False, True])
def test_without_noise_and_a_distribution_of_its_own_the_target_says_what_the_draft_says(eagle):
    pair = planted(0.0, eagle=eagle, noise=0.0)
    ids = torch.tensor(prompt(1, 9))
    pair.target.keep_hidden = FINAL
    pair.target.reset(16)
    first = pair.target.prefill(ids[:1])
    ours = pair.target.extend(ids[1:])
    pair.draft.reset(16)
    if eagle:
        features = torch.cat((first.hidden, ours.hidden))[:-1]
        theirs = pair.draft.extend(ids[1:], features).logits[-1:]
    else:
        pair.draft.prefill(ids[:1])
        theirs = pair.draft.extend(ids[1:]).logits
    torch.testing.assert_close(ours.logits[-len(theirs) :], theirs, atol=2e-3, rtol=0)


@pytest.mark.parametrize("private", [0.0, 1.0])
def test_logits_are_spread_as_asked_for_whatever_is_private(private):
    pair = planted(private, spread=4.0)
    logits = pair.target.model(torch.tensor([prompt(2, 64)])).logits
    assert float(logits.std()) == pytest.approx(4.0, rel=0.1)
    bigrams = draw_bigrams(Planting(private=private, spread=4.0), [96, 48], VOCAB)
    target = bigrams.target(96)
    exact = torch.nn.functional.rms_norm(target.embedding, (96,)) @ target.output.T
    assert float(exact.std()) == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("eagle", [False, True])
def test_every_weight_has_a_say(eagle):
    pair = planted(eagle=eagle)
    ids = torch.tensor([prompt(3)])
    with torch.enable_grad():
        for model in (pair.target.model, pair.draft.model):
            model.requires_grad_(True)
            out = (
                model.predict(ids, torch.randn(1, 12, 96))
                if isinstance(pair.draft, EagleHead) and model is pair.draft.model
                else model(ids).logits
            )
            out.square().sum().backward()
            silent = [
                name
                for name, parameter in model.named_parameters()
                if parameter.grad is None or not parameter.grad.any()
            ]
            assert silent == []


def test_a_seed_is_a_pair():
    one, same, other = planted(seed=1), planted(seed=1), planted(seed=2)
    for role in ("target", "draft"):
        weights = [getattr(pair, role).model.state_dict() for pair in (one, same, other)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        assert not any(torch.equal(weights[0][name], weights[2][name]) for name in weights[0] if "norm" not in name)
    layer = "model.layers.0.self_attn.k_proj.weight"
    assert not torch.equal(one.target.model.state_dict()[layer][:24, :48], one.draft.model.state_dict()[layer][:24])


@pytest.mark.parametrize("eagle", [False, True])
def test_greedy_output_is_the_targets_own(eagle):
    pair = planted(0.2, eagle=eagle)
    own = greedy(pair, Autoregressive())
    assert len(own) == 40, "nothing ends an answer"
    assert greedy(pair, OptTree(draft=pair.draft, n=15)) == own
    assert greedy(pair, StaticTree(draft=pair.draft, shape=chain(4))) == own


def test_an_offloaded_target_is_the_same():
    whole, streamed = planted(), planted(offload=True)
    assert streamed.offload is not None
    assert greedy(streamed, Autoregressive()) == greedy(whole, Autoregressive())


def test_weights_are_made_at_their_own_dtype():
    pair = planted(dtype=torch.bfloat16, eagle=True)
    for model in (pair.target.model, pair.draft.model):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert mal(pair, prompts=1) > 1


@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes_are_those_of_the_papers_models(name):
    assert weight_bytes(config_of(name), torch.bfloat16) == 2 * PARAMETERS[name]


@pytest.mark.parametrize("size", [256, 300, 2048, 32_000])
def test_any_text_has_ids_and_any_ids_have_a_text(size):
    tokenizer = planted_tokenizer(size)
    assert len(tokenizer) == size
    assert tokenizer.eos_token_id is None
    for text in TEXTS:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    ids = torch.arange(size).tolist()
    again = tokenizer(tokenizer.decode(ids))["input_ids"]
    assert 0 < len(again) <= 3 * size


def test_texts_have_about_as_many_tokens_as_with_a_trained_vocabulary():
    tokenizer = planted_tokenizer(32_000)
    text = "Describe how a binary search works and why the list has to be sorted before."
    assert len(tokenizer(text)["input_ids"]) < len(text) / 2


@pytest.mark.parametrize(
    ("error", "configs", "spec", "said"),
    [
        (LoadError, [OPTConfig(vocab_size=VOCAB), shape(48, 1)], {}, "only Llamas"),
        (LoadError, [shape(96, 1), shape(48, 1)], {"kind": "layer_skip"}, "only Llamas"),
        (LoadError, [shape(96, 1), shape(48, 1)], {"bits": 4}, "not quantised"),
        (PairError, [shape(96, 1), shape(48, 1, vocab=512)], {}, "vocabularies"),
        (PairError, [shape(96, 1), shape(48, 1)], {"kind": "eagle"}, "features of 48"),
        (LoadError, [shape(96, 1, vocab=100)] * 2, {}, "too few"),
    ],
)
def test_what_cannot_be_planted_is_refused(error, configs, spec, said):
    specs = [ModelSpec(id="t"), ModelSpec(id="d", **spec)]
    with pytest.raises(error, match=said):
        plant_pair(specs, configs, Planting(private=0.0), device=CPU, dtype=torch.float32)


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("specdec_core.models.fitting.free_bytes", lambda device: 1 << 20)
    with pytest.raises(LoadError, match="t and d need"):
        planted()
