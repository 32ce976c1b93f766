"""Planted pairs: random weights of any Llama's shape whose target and draft agree as often as one number says.

A synthetic pair has the cost of a real one, since every matrix is read and multiplied, and an agreement that is real:
both models read the same bigram distribution off their embeddings, and the target has a distribution of its own
besides.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specdec_core.errors import LoadError, PairError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.eagle import EagleHead, EagleModel
from specdec_core.models.fitting import check_memory
from specdec_core.models.kinds import KINDS, kind_of
from specdec_core.models.memory import streamed_layers
from specdec_core.models.offload import Offload
from specdec_core.models.output import output_of
from specdec_core.models.placement import Placement, leave_out_cudnn_attention
from specdec_core.models.planted.bigrams import Bigrams, Planting, draw_bigrams
from specdec_core.models.planted.tokenizer import planted_tokenizer
from specdec_core.models.spec import ModelSpec, Pair
from specdec_core.models.tree_attention import check_attention

SHARPNESS = 2.0
"""Of attention scores, in standard deviations: a few tokens get most of the weight, so that the context matters."""
_WRITERS = ("o_proj.weight", "down_proj.weight")
"""What the layers write into the residual stream with."""


def plant_pair(
    specs: Sequence[ModelSpec],
    configs: Sequence[PreTrainedConfig],
    planting: Planting,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str = "sdpa",
) -> Pair:
    """Target and, if there are two of each, draft of these shapes, made where they are to run, with their tokenizer.

    Of the specs only `kind` (causal_lm | eagle) and the target's `offload` are followed; nothing is fetched. The
    bigrams are drawn on the host and are the same on every device. LoadError before anything is made where there is too
    little memory or a shape is no Llama's, PairError where the vocabularies differ.
    """
    _check(specs, configs, device, dtype)
    check_attention(attention, [device], configs)
    leave_out_cudnn_attention()
    bigrams = draw_bigrams(planting, [config.hidden_size for config in configs], configs[0].vocab_size)
    options: dict[str, Any] = {"device": device, "dtype": dtype, "attention": attention}
    target, offload = _target(specs[0], configs[0], bigrams, **options)
    tokenizer = planted_tokenizer(configs[0].vocab_size)
    draft: CausalLM | EagleHead | None = None
    if len(specs) == 2 and kind_of(specs[1]).needs_hidden:
        draft = _head(configs[1], target, bigrams, **options)
    elif len(specs) == 2:
        draft = CausalLM(_draft(configs[1], bigrams, **options))
    return Pair(target, draft, tokenizer, offload)


def _check(
    specs: Sequence[ModelSpec], configs: Sequence[PreTrainedConfig], device: torch.device, dtype: torch.dtype
) -> None:
    for spec, config in zip(specs, configs, strict=True):
        if spec.bits:
            raise LoadError(f"{spec.id}: planted weights are not quantised; leave bits out")
        kind = kind_of(spec)
        plantable = kind.own_weights and (not kind.needs_hidden or kind is KINDS["eagle"])
        if config.model_type != "llama" or not plantable:
            raise LoadError(
                f"{spec.id}: only Llamas and EAGLE-1 heads are planted, not {config.model_type}, {spec.kind}"
            )
    if len({config.vocab_size for config in configs}) > 1:
        raise PairError(f"{' and '.join(spec.id for spec in specs)} differ in the size of their vocabularies")
    check_memory(list(specs), list(configs), Placement(device=device), dtype)


def _target(
    spec: ModelSpec, config: PreTrainedConfig, bigrams: Bigrams, *, device: torch.device, **options: Any
) -> tuple[CausalLM, Offload | None]:
    model = _outline(config, **options)
    for layer in streamed_layers(model, spec.resident_layers) if spec.offload else ():
        layer.to_empty(device="cpu")
    _materialise(model, device, bigrams, writes=bigrams.target_writes(config.hidden_size))
    hidden = bigrams.target(config.hidden_size)
    _fill(model.get_input_embeddings(), hidden.embedding)
    _fill(model.get_output_embeddings(), hidden.output)
    offload = Offload(model, device, spec.resident_layers) if spec.offload else None
    return CausalLM(model), offload


def _draft(config: PreTrainedConfig, bigrams: Bigrams, *, device: torch.device, **options: Any) -> Any:
    """A model that knows the shared distribution alone."""
    model, matrices = _outline(config, **options), bigrams.draft(config.hidden_size)
    _materialise(model, device, bigrams, writes=bigrams.draft_writes(config.hidden_size), stream=1)
    _fill(model.get_input_embeddings(), matrices.embedding)
    _fill(model.get_output_embeddings(), matrices.output)
    return model


def _head(
    config: PreTrainedConfig,
    target: CausalLM,
    bigrams: Bigrams,
    *,
    device: torch.device,
    dtype: torch.dtype,
    attention: str,
) -> EagleHead:
    """A head whose `fc` keeps the shared part of the target's embedding, which the target's output matrix reads."""
    config, embedding = _plain(config), target.model.get_input_embeddings().weight
    if config.hidden_size != embedding.shape[1]:
        raise PairError(
            f"the head reads features of {config.hidden_size} numbers, the target's have {embedding.shape[1]}"
        )
    config._attn_implementation = attention
    with torch.device("meta"):
        model = EagleModel(config, bias=getattr(config, "bias", True)).to(dtype)
    writes = bigrams.target_writes(config.hidden_size)
    _materialise(model, device, bigrams, writes=writes, stream=1)
    _fill(model.embed_tokens, embedding)
    kept, features = model.fc.weight.detach().split(config.hidden_size, dim=1)
    kept.copy_(bigrams.projection(config.hidden_size))
    features.mul_(writes * 2**0.5)  # drawn for both halves together
    return EagleHead(model, output_of(target))


def _plain(config: PreTrainedConfig) -> Any:
    """A copy of its own whose answers never end and whose two matrices are two."""
    config = copy.deepcopy(config)
    nothing = dict.fromkeys(("eos_token_id", "bos_token_id", "pad_token_id"))
    config.update({"tie_word_embeddings": False, **nothing})
    return config


def _outline(config: PreTrainedConfig, *, dtype: torch.dtype, attention: str) -> Any:
    """The model without numbers."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(_plain(config), dtype=dtype, attn_implementation=attention)


@torch.no_grad()
def _materialise(model: Any, device: torch.device, bigrams: Bigrams, *, writes: float, stream: int = 0) -> None:
    """Draw all matrices where they stand, at their own dtype; what is on the meta device goes to `device` first.

    Outputs of every matrix have variance 1 for inputs of variance 1, but for those that write into the residual stream:
    the layers together add `writes` to its unit variance, as a standard deviation.
    """
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                setattr(module, name, nn.Parameter(torch.empty_like(parameter, device=device), requires_grad=False))
    model.base_model.rotary_emb = LlamaRotaryEmbedding(model.config).to(device)
    places = {parameter.device for parameter in model.parameters()}
    rngs = {place: Generator(place).manual_seed(2 * bigrams.seed + stream) for place in places}
    share = writes / (2 * model.config.num_hidden_layers) ** 0.5
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        gain = share if name.endswith(_WRITERS) else SHARPNESS if name.endswith("q_proj.weight") else 1.0
        parameter.normal_(0.0, gain * parameter.shape[1] ** -0.5, generator=rngs[parameter.device])
    model.requires_grad_(False)


def _fill(module: Any, matrix: Float[Tensor, "rows columns"]) -> None:
    module.weight.detach().copy_(matrix)
