"""From features to logits: heads draft from the logits that the target's own forward would make of a feature."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import word_tokenizer
from heads import layer_tensors, matrix, mtp_tensors
from safetensors.torch import save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, load_pair
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, Pair
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.layer_skip import LayerSkip
from specdec_core.models.output import TargetOutput, output_of

VOCAB, HIDDEN = 31, 48
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 256,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
CHANGED = {
    "granite": {"logits_scaling": 8.0},
    "granitemoe": {"logits_scaling": 4.0, "num_local_experts": 2, "num_experts_per_tok": 1},
    "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.25},
    "gemma2": {"final_logit_softcapping": 3.0},
    "vaultgemma": {"final_logit_softcapping": 2.0},
    "nanochat": {"final_logit_softcapping": 5.0},
}
"""Model types whose forward does something to logits behind its output matrix, and how much of it."""
PLAIN = ("llama", "qwen2", "qwen3", "mistral", "phi", "gptj")
"""Those of which the output matrix is all; the last two have a bias in it."""
KNOWN = torch.tensor([0, 2, 3, 5, 8, 13, 21, 22, 29, 30])
TOKENS = torch.tensor([5, 6, 7, 9, 3])


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    options = SHAPE | CHANGED.get(kind, {}) | ({"rotary_dim": 4} if kind == "gptj" else {})
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def both(target: CausalLM) -> tuple[Tensor, Tensor]:
    """Features and logits of a text by the target's forward."""
    target.reset(16)
    target.keep_hidden = FINAL
    found = target.extend(TOKENS)
    return found.hidden, found.logits


def close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-5 * theirs.abs().max())


@pytest.mark.parametrize("kind", [*CHANGED, *PLAIN])
@torch.inference_mode()
def test_features_become_the_logits_of_the_targets_own_forward(kind):
    target = CausalLM(model_of(kind))
    features, logits = both(target)
    output, matrix_alone = output_of(target), target.model.get_output_embeddings()
    assert close(output(features), logits)
    assert (output is matrix_alone) == (kind in PLAIN)
    assert close(matrix_alone(features), logits) == (kind in PLAIN)
    assert close(output_of(target, KNOWN)(features), logits[:, KNOWN])
    assert output(features[0]).shape == (VOCAB,)


class DividedFeatures(LlamaForCausalLM):
    """As MiniCPM's own code: features are divided before the output matrix."""

    def forward(self, *args, **kwargs):
        kwargs.pop("logits_to_keep", None)
        found = self.model(*args, **kwargs)
        found["logits"] = self.lm_head(found.last_hidden_state / 12)
        return found


class ReadsTokens(LlamaForCausalLM):
    """Its logits depend on more than the features."""

    def forward(self, input_ids=None, **kwargs):
        found = super().forward(input_ids, **kwargs)
        found.logits = found.logits + input_ids[..., None] % 3
        return found


class OtherDecoder(LlamaForCausalLM):
    """As Llama 4's text model, which calls itself so: what it leaves are logits, no features."""

    def get_decoder(self):
        return self


def unknown(made: type) -> CausalLM:
    torch.manual_seed(1)
    return CausalLM(made(LlamaConfig(**SHAPE, initializer_range=0.3)))


@torch.inference_mode()
def test_a_type_that_nobody_knows_is_tried():
    target = unknown(DividedFeatures)
    features, logits = both(target)
    assert close(output_of(target)(features), logits)
    assert close(target.model.lm_head(features) / 12, logits)


@pytest.mark.parametrize("made", [ReadsTokens, OtherDecoder])
def test_what_cannot_be_known_is_refused(made):
    with pytest.raises(LoadError, match=made.__name__) as refusal:
        output_of(unknown(made))
    assert "\n" not in str(refusal.value)


@torch.inference_mode()
def test_a_copy_for_another_device_has_a_matrix_of_its_own_and_nothing_else():
    target = CausalLM(model_of("granite"))
    output = output_of(target)
    assert isinstance(output, TargetOutput)
    moved = copy.deepcopy(output)
    assert [tuple(each.shape) for each in moved.parameters()] == [(VOCAB, HIDDEN)]
    assert moved.matrix is not target.model.lm_head
    before = moved(torch.ones(2, HIDDEN))
    target.model.lm_head.weight.zero_()
    assert torch.equal(moved(torch.ones(2, HIDDEN)), before)


def written(folder: Path, kind: str, head: str) -> Pair:
    """A target and a random head in their public formats, loaded."""
    model = model_of(kind)
    model.save_pretrained(folder / "target")
    word_tokenizer([f"w{number}" for number in range(VOCAB)]).save_pretrained(folder / "target")
    (folder / "head").mkdir()
    layer = {f"layers.0.{name}": each for name, each in layer_tensors().items() if name != "input_layernorm.weight"}
    tensors = {"fc.weight": matrix(HIDDEN, 2 * HIDDEN), "fc.bias": torch.randn(HIDDEN)} | layer
    said = SHAPE | {"model_type": "llama", "num_hidden_layers": 1}
    if head == "reduced":
        tensors["d2t"], said = KNOWN - torch.arange(len(KNOWN)), said | {"draft_vocab_size": len(KNOWN)}
    save_file(mtp_tensors() if head == "mtp" else tensors, folder / "head" / "model.safetensors")
    (folder / "head" / "config.json").write_text(json.dumps(said))
    spec = ModelSpec(id=str(folder / "head"), kind="mtp" if head == "mtp" else "eagle")
    return load_pair(str(folder / "target"), spec, device="cpu", dtype="float32")


@pytest.mark.parametrize("kind", ["granite", "llama"])
@pytest.mark.parametrize("head", ["eagle", "reduced", "mtp"])
@torch.inference_mode()
def test_a_heads_logits_are_the_targets_of_what_it_predicts(head, kind, tmp_path):
    pair = written(tmp_path, kind, head)
    features, _ = both(pair.target)
    pair.draft.reset(8)
    found = pair.draft(TOKENS[1:], pair.draft.inward(features[:-1]), pair.draft.causal_layout(len(TOKENS) - 1))
    scale = CHANGED.get(kind, {}).get("logits_scaling", 1.0)
    wanted = pair.target.model.lm_head(found.hidden) / scale
    known = KNOWN if head == "reduced" else torch.arange(VOCAB)
    assert close(found.logits[:, known], wanted[:, known])
    assert int(found.logits.isfinite().sum(-1).max()) == len(known)


@pytest.mark.parametrize("kind", ["granite", "gemma2", "cohere"])
@torch.inference_mode()
def test_a_target_without_some_layers_scales_as_the_target_does(kind):
    target = CausalLM(model_of(kind))
    features, logits = both(LayerSkip(target, skipped=[1]))
    assert close(output_of(target)(features), logits)
