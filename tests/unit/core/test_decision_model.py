"""Decision models: layers, features against plain sums, what their files hold and what is refused."""

import math
import random
from itertools import pairwise

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_core.drafters import EarlyStop, Stop
from specdec_core.errors import PairError
from specdec_core.models import ModelOutput
from specdec_core.models.decision import DecisionModel

LAYERS = {
    ("hidden", 768): (768, 512, 256, 1),
    ("hidden", 2048): (2048, 1024, 512, 1),
    ("hidden", 128): (128, 85, 42, 1),  # the embedded pair's draft
    ("hidden", 32): (32, 21, 10, 1),
    ("topk", None): (11, 44, 1),
    ("topk", 768): (11, 44, 1),
}


def linears(model):
    return [module for module in model.modules() if isinstance(module, torch.nn.Linear)]


def given(kind, rows=3, hidden=32, vocab=50, seed=0):
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, vocab, generator=rng)
    return ModelOutput(logits, torch.randn(rows, hidden, generator=rng) if kind == "hidden" else None)


@pytest.mark.parametrize(("kind", "hidden"), LAYERS)
def test_layers_are_the_papers(kind, hidden):
    sizes, model = LAYERS[kind, hidden], DecisionModel.of(kind, hidden)
    assert [(layer.in_features, layer.out_features) for layer in linears(model)] == list(pairwise(sizes))
    assert all(layer.bias is not None for layer in linears(model))
    assert sum(isinstance(module, torch.nn.ReLU) for module in model.modules()) == len(sizes) - 2
    assert (model.kind, model.needs_hidden) == (kind, kind == "hidden")
    assert all(values.dtype == torch.float32 for values in model.parameters())


@pytest.mark.parametrize(("kind", "hidden"), [("hidden", 32), ("topk", None)])
def test_scores_are_what_the_layers_written_out_give(kind, hidden):
    """ReLU between, a sigmoid at the end; one score per row, whatever stands in the other rows."""
    torch.manual_seed(0)
    model, drafted = DecisionModel.of(kind, hidden), given(kind)
    wanted = []
    for row in model.features(drafted).tolist():
        for number, layer in enumerate(linears(model)):
            row = [sum(w * x for w, x in zip(weights, row, strict=True)) + bias for weights, bias in zip(
                layer.weight.tolist(), layer.bias.tolist(), strict=True,
            )]  # fmt: skip
            if number + 1 < len(linears(model)):
                row = [max(x, 0.0) for x in row]
        wanted.append(row[0])
    features = model.features(drafted)
    assert features.shape == (3, linears(model)[0].in_features)
    assert model(features).tolist() == pytest.approx(wanted, abs=1e-5)
    assert model.scores(drafted).tolist() == pytest.approx([1 / (1 + math.exp(-x)) for x in wanted], abs=1e-6)
    assert model.scores(drafted).shape == (3,)
    hidden_row = None if drafted.hidden is None else drafted.hidden[1:2]
    assert model.scores(ModelOutput(drafted.logits[1:2], hidden_row)).tolist() == pytest.approx(
        [model.scores(drafted)[1].item()], abs=1e-6
    )


@pytest.mark.parametrize(("kind", "hidden"), [("hidden", 768), ("hidden", 128), ("topk", None)])
def test_scores_lie_between_0_and_1(kind, hidden):
    for seed in range(5):
        torch.manual_seed(seed)
        model = DecisionModel.of(kind, hidden)
        scores = model.scores(given(kind, rows=40, hidden=hidden or 1, seed=seed))
        assert ((scores > 0) & (scores < 1)).all()
        assert len(set(scores.tolist())) > 30, "no constant"


def test_fresh_weights_follow_the_callers_seed():
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(DecisionModel.of("topk").state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert not all(torch.equal(models[0][name], models[2][name]) for name in models[0])


def plain_features(row):
    """The 10 largest of the softmax, descending, 0 where there are fewer tokens; -sum p log p in nats."""
    best = max(row)
    weights = [math.exp(x - best) for x in row]
    probs = sorted((weight / sum(weights) for weight in weights), reverse=True)
    entropy = -sum(p * math.log(p) for p in probs if p > 0)
    return [*(probs + [0.0] * 10)[:10], entropy]


@pytest.mark.parametrize("vocab", [1, 2, 9, 10, 11, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_topk_features_are_the_largest_probabilities_and_the_entropy(vocab, dtype):
    logits = (4 * torch.randn(5, vocab, generator=torch.Generator().manual_seed(vocab))).to(dtype)
    found = DecisionModel.of("topk").features(ModelOutput(logits))
    assert (found.dtype, found.shape) == (torch.float32, (5, 11))
    for row, wanted in zip(found.tolist(), logits.double().tolist(), strict=True):
        assert row == pytest.approx(plain_features(wanted), abs=2e-6)
        assert row[:10] == sorted(row[:10], reverse=True)


def test_topk_features_of_special_distributions():
    """Uniform: ln V. Certain, and tokens of logit -inf: nothing is added, and nothing becomes nan."""
    uniform, certain = torch.zeros(1, 20), torch.full((1, 20), -torch.inf)
    certain[0, 7] = 3.0
    two = torch.full((1, 20), -torch.inf)
    two[0, 3] = two[0, 9] = 0.0
    features = DecisionModel.of("topk").features
    assert features(ModelOutput(uniform))[0].tolist() == pytest.approx([0.05] * 10 + [math.log(20)], abs=1e-6)
    assert features(ModelOutput(certain))[0].tolist() == pytest.approx([1.0] + [0.0] * 10, abs=1e-7)
    assert features(ModelOutput(two))[0].tolist() == pytest.approx([0.5, 0.5] + [0.0] * 8 + [math.log(2)], abs=1e-6)
    steep = features(ModelOutput(torch.tensor([[0.0, -500.0, -1000.0]])))
    assert steep[0].tolist() == pytest.approx([1.0] + [0.0] * 10, abs=1e-7)


def test_topk_features_know_no_temperature_and_no_hidden_states():
    """Of the untempered distribution, however drafting tempers it; hidden states beside it are not looked at."""
    drafted = given("hidden")
    model = DecisionModel.of("topk")
    assert torch.equal(model.features(drafted), model.features(ModelOutput(drafted.logits)))
    assert torch.allclose(model.features(ModelOutput(drafted.logits + 5)), model.features(drafted), atol=1e-5)
    assert not torch.allclose(model.features(ModelOutput(drafted.logits / 2)), model.features(drafted), atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hidden_features_are_the_hidden_states(dtype):
    drafted = given("hidden")
    model, hidden = DecisionModel.of("hidden", 32), drafted.hidden.to(dtype)
    found = model.features(ModelOutput(drafted.logits, hidden))
    assert found.dtype == torch.float32
    assert torch.equal(found, hidden.float())


def test_hidden_states_of_another_size_or_none_are_refused_in_a_sentence():
    model = DecisionModel.of("hidden", 48)
    message = "the decision model reads hidden states of size 48, and this draft's have 32; train one for this draft"
    with pytest.raises(PairError, match=message):
        model.scores(given("hidden", hidden=32))
    with pytest.raises(PairError, match="of kind hidden reads the draft's hidden states, and this draft keeps none"):
        model.scores(given("topk"))


@pytest.mark.parametrize(("kind", "hidden"), [("mlp", 32), ("Hidden", 32), ("", None), ("hidden", None)])
def test_what_is_no_kind_is_refused(kind, hidden):
    with pytest.raises(ValueError, match=rf"of kind hidden or topk \(with a hidden size\), not '{kind}'"):
        DecisionModel.of(kind, hidden)


@pytest.mark.parametrize(("kind", "hidden"), [("hidden", 768), ("hidden", 2048), ("hidden", 33), ("topk", None)])
def test_a_file_gives_back_the_model_and_its_facts(kind, hidden, tmp_path):
    torch.manual_seed(4)
    model, path = DecisionModel.of(kind, hidden), tmp_path / "model.safetensors"
    model.facts = {"draft": "some/draft", "examples": "1234", "loss": "0.25", "note": 'ü, "quoted"\n2nd line'}
    model.save(path)
    found, drafted = DecisionModel.load(path), given(kind, hidden=hidden or 1)
    assert (found.kind, found.facts, found.sizes) == (kind, model.facts, model.sizes)
    assert not found.training
    assert torch.equal(found.scores(drafted), model.scores(drafted))
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["kind"] == kind
        assert {tuple(file.get_tensor(name).shape) for name in file.keys()} == {  # noqa: SIM118
            tuple(values.shape) for values in model.parameters()
        }
    again = tmp_path / "again.safetensors"
    found.save(again)
    assert DecisionModel.load(again).facts == model.facts
    assert isinstance(EarlyStop(found), Stop)


def broken(path, how):
    """A file that is no decision model."""
    torch.manual_seed(0)
    model = DecisionModel.of("topk")
    model.save(path)
    weights = model.state_dict()
    facts = {"kind": "topk", "sizes": "11,44"}
    if how == "text":
        path.write_text("not a model")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "other_weights":
        save_file({"lm_head.weight": torch.zeros(3, 4)}, path)
    elif how == "no_kind":
        save_file(weights, path, {"sizes": "11,44"})
    elif how == "sizes":
        save_file(weights, path, facts | {"sizes": "11,many"})
    elif how == "shapes":
        save_file(weights, path, facts | {"sizes": "11,45"})
    elif how == "missing_layer":
        save_file({name: values for name, values in weights.items() if "linear1" not in name}, path, facts)
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()


@pytest.mark.parametrize(
    "how",
    ["text", "empty", "cut", "other_weights", "no_kind", "sizes", "shapes", "missing_layer", "folder", "absent"],
)
def test_a_file_that_is_no_model_is_refused_in_a_sentence(how, tmp_path):
    path = tmp_path / "model.safetensors"
    broken(path, how)
    with pytest.raises(ValueError, match=rf"{path} is no decision model \(\w+\); train one for this pair"):
        DecisionModel.load(path)


def test_a_separable_set_is_learnt():
    """By plain steps of Adam: the layers can tell a sharp distribution from a flat one."""
    torch.manual_seed(0)
    sharp, flat = (scale * torch.randn(60, 40) for scale in (6.0, 0.5))
    model, labels = DecisionModel.of("topk"), torch.cat((torch.ones(60), torch.zeros(60)))
    features = model.features(ModelOutput(torch.cat((sharp, flat))))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(features), labels).backward()
        optimizer.step()
    scores = model.scores(ModelOutput(torch.cat((sharp, flat))))
    assert ((scores > 0.5) == labels.bool()).float().mean() > 0.97


def test_a_stop_trains_nothing_and_keeps_no_graph():
    """Scores of frozen weights; as many answers as questions, and the same each time."""
    torch.manual_seed(0)
    model = DecisionModel.of("hidden", 32)
    stop = EarlyStop(model, 0.5)
    drafted = given("hidden", seed=random.Random(0).randint(0, 9))
    assert not model.scores(drafted).requires_grad
    assert stop.goes_on(drafted) == bool((model.scores(drafted) > 0.5).any()) == stop.goes_on(drafted)
    assert stop.needs_hidden
    assert not EarlyStop(DecisionModel.of("topk")).needs_hidden
    assert EarlyStop(DecisionModel.of("topk")).beta == 0.4


@pytest.mark.parametrize(("kind", "sizes"), [("mlp", (11, 44)), ("topk", (5, 44)), ("hidden", (8, 5))])
def test_a_model_of_no_kind_or_of_other_layers_is_refused(kind, sizes, tmp_path):
    path = tmp_path / "model.safetensors"
    DecisionModel(kind, sizes).save(path)
    with pytest.raises(ValueError, match="is no decision model"):
        DecisionModel.load(path)
