"""Packed weights: the same products but for rounding, the same tokens, and what cannot be packed is said."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specdec_core import generate, load_pair
from specdec_core.drafters import Autoregressive, Eagle2, OptTree
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, fitting, graphs, packed
from specdec_core.models.graphs import usable
from specdec_core.models.placement import Placement
from specdec_core.verifiers import Greedy

CPU = torch.device("cpu")
TARGET = "specdec_trees/tiny/target"
DRAFTS = (
    ModelSpec(id="specdec_trees/tiny/draft"),
    ModelSpec(id="specdec_trees/tiny/eagle", kind="eagle"),
    ModelSpec(id="specdec_trees/tiny/eagle3", kind="eagle3"),
    ModelSpec(id="specdec_trees/tiny/medusa", kind="medusa"),
    ModelSpec(id=TARGET, kind="layer_skip", skipped_layers=(2, 4)),
)

pytestmark = pytest.mark.skipif(not packed.packs(), reason="this torch has no operators that pack")


@pytest.mark.parametrize("maker", ["GenuineIntel", "AuthenticAMD", ""])
@pytest.mark.parametrize("bias", [False, True])
def test_products_are_those_of_a_linear_layer(maker, bias, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_CPUINFO", tmp_path / "cpuinfo")
    packed._CPUINFO.write_text(f"vendor_id : {maker}\n")
    layer, least = nn.Linear(40, 24, bias=bias), packed.least_rows()
    weights = packed.Packed([nn.Sequential(layer, nn.ReLU())])
    weights.use(True)
    with torch.inference_mode():
        for rows in (1, 2, 3, 4, 7, 26, 64, 65, 200):
            inputs = torch.randn(rows, 40, dtype=torch.float64)
            exact = F.linear(inputs, layer.weight.double(), layer.bias.double() if bias else None)
            for shaped in (inputs.float(), inputs.float()[None], inputs.float().repeat(1, 2)[:, :40]):
                torch.testing.assert_close(layer(shaped).view(rows, 24), exact.float())
            as_before = torch.equal(layer(inputs.float()), F.linear(inputs.float(), layer.weight, layer.bias))
            assert as_before or least <= rows <= 64, "a row alone and long prompts are not touched"
    weights.use(False)
    assert "forward" not in vars(layer)


@pytest.mark.few(2)
@pytest.mark.parametrize("draft", DRAFTS, ids=lambda spec: spec.kind)
def test_the_same_tokens_as_eager(draft):
    """On this pair no two logits of its answers are within rounding of each other."""
    decoded = {}
    for how in ("eager", "packed"):
        pair = load_pair(TARGET, draft, graphs=how)
        assert not pair.graphs
        prompt = pair.tokenizer("def read_file(path):\n")["input_ids"]
        trees = (Eagle2(draft=pair.draft, total=7, depth=3), OptTree(draft=pair.draft, n=25, delta=0.2))
        decoded[how] = [
            generate(pair.target, each, Greedy(), prompt, max_new_tokens=48).tokens
            for each in (Autoregressive(), *trees)
        ]
        layers = {part for model in pair.modules for part in model.modules() if type(part) is nn.Linear}
        assert {"forward" in vars(layer) for layer in layers} == {how == "packed"}
    assert decoded["packed"] == decoded["eager"]


def test_what_cannot_be_packed_is_said(monkeypatch):
    with pytest.raises(LoadError, match="is for a CPU"):
        usable("packed", "sdpa", torch.device("cuda"), [], whole=True)
    with pytest.raises(LoadError, match="whole on one device"):
        load_pair(ModelSpec(id=TARGET, offload=True), graphs="packed")
    for other in (nn.Linear(4, 4).bfloat16(), nn.Embedding(4, 4)):
        with pytest.raises(LoadError, match="have none"):
            packed.Packed([other])
    monkeypatch.setattr(graphs, "packs", lambda: False)
    with pytest.warns(UserWarning, match="cannot pack"):
        assert usable("packed", "sdpa", CPU, [], whole=True) == "eager"


def test_weights_count_twice_in_memory(monkeypatch):
    spec, config = ModelSpec(id=TARGET), load_pair(TARGET).target.config
    need = fitting.needed([spec], [config], Placement(device=CPU), torch.float32)[CPU,]
    monkeypatch.setattr(fitting, "free_bytes", lambda device: sum(need))
    fitting.check_memory([spec], [config], Placement(device=CPU), torch.float32)
    with pytest.raises(LoadError):
        fitting.check_memory([spec], [config], Placement(device=CPU), torch.float32, copies=2)
