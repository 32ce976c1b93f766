"""Published EAGLE heads: config.json beside pytorch_model.bin or model.safetensors (yuhuili/EAGLE-*)."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.utils import cached_file

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import FINAL, CausalLM, Layers
from specdec_core.models.draft_vocabulary import FILE as MAP
from specdec_core.models.draft_vocabulary import ReducedOutput, check_map, ids_of
from specdec_core.models.eagle import Eagle3Model, EagleHead, EagleModel
from specdec_core.models.fetch import fetch
from specdec_core.models.head_formats import EAGLE, EAGLE3, conventions, norms_of, plain_names
from specdec_core.models.output import output_of
from specdec_core.models.spec import ModelSpec

FILES = ("model.safetensors", "pytorch_model.bin")
EMBEDDING, MATRIX, _KEYS, _GATE = (
    "embed_tokens.weight",
    "lm_head.weight",
    "layers.0.self_attn.k_proj.weight",
    "layers.0.mlp.gate_proj.weight",
)


@dataclass(frozen=True, slots=True)
class EagleCheckpoint:
    """A head on the host, checked against the target's config."""

    config: Any
    tensors: dict[str, Tensor]
    d2t: Tensor | None = None
    """Which tokens it predicts, if not all."""
    layers: tuple[Layers, ...] = (FINAL,)
    """Of which of the target's layers it may read features; several where its config does not say."""
    joins: bool = False
    """Whether it joins several layers' features and has an output matrix of its own (EAGLE-3)."""

    def head(self, target: CausalLM, *, device: torch.device, dtype: torch.dtype) -> EagleHead:
        """The head on its device; what it lacks of embedding and output matrix it takes of the target."""
        tensors = {EMBEDDING: target.model.get_input_embeddings().weight.detach()} | self.tensors
        config = copy.deepcopy(self.config)
        config._attn_implementation = target.config._attn_implementation
        model = self.outline(config, tensors)
        model.load_state_dict({name: tensor.to(device, dtype) for name, tensor in tensors.items()}, assign=True)
        model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
        model.requires_grad_(False)
        return EagleHead(model, self._output(model, target), self.layers[0])

    def outline(self, config: Any, tensors: Mapping[str, Tensor]) -> EagleModel | Eagle3Model:
        """The model on the meta device: shapes, but no numbers."""
        return _outline_3(config, tensors) if self.joins else _outline(config, tensors)

    def _output(self, model: EagleModel | Eagle3Model, target: CausalLM) -> Any:
        """To logits in the target's vocabulary."""
        ids = None if self.d2t is None else ids_of(self.d2t)
        matrix = model.lm_head if MATRIX in self.tensors else output_of(target, ids)
        if self.d2t is not None:
            matrix = ReducedOutput(matrix, self.d2t, target.vocab_size)
        return model.output(matrix) if isinstance(model, Eagle3Model) else matrix


def read_eagle(spec: ModelSpec, config: Any, target_config: Any) -> EagleCheckpoint:
    """Read an EAGLE-1 head for a target of this config. LoadError says which file, tensor or shape is wrong.

    Whether `fc` has a bias, the number of key/value heads and the intermediate size are read off the tensors: published
    configs are silent or wrong about them. Where the config has EAGLE-3's `draft_vocab_size`, a map of ids says which
    tokens it predicts. HASS's heads (Zhang et al., 2025) are EAGLE-1's, trained otherwise.
    """
    _check_family(spec, config, config.hidden_size, target_config.hidden_size)
    tensors, d2t = plain_names(spec, read_tensors(spec), EAGLE), None
    if size := getattr(config, "draft_vocab_size", None):
        found = tensors.pop("d2t", None)
        found = read_tensors(spec, (MAP,)).get("d2t") if found is None else found
        d2t = check_map(spec.id, found, size, target_config.vocab_size)
    tensors.pop("t2d", None)
    config = _fitted(config, tensors, target_config.vocab_size)
    _check_tensors(spec, "EAGLE-1", _outline(config, tensors).state_dict(), tensors)
    return EagleCheckpoint(config, tensors, d2t)


def read_eagle_3(spec: ModelSpec, config: Any, target_config: Any) -> EagleCheckpoint:
    """Read an EAGLE-3 head for a target of this config, in any of its formats. LoadError as for `read_eagle`."""
    hidden, vocab = target_config.hidden_size, target_config.vocab_size
    _check_family(spec, config, getattr(config, "target_hidden_size", None) or config.hidden_size, hidden)
    tensors = plain_names(spec, read_tensors(spec), EAGLE3)
    size = getattr(config, "draft_vocab_size", None) or vocab
    d2t = _map_of(spec, size, vocab, tensors.pop("d2t", None), tensors.pop("t2d", None))
    config = _fitted(config, tensors, vocab)
    config.update({"target_hidden_size": hidden, "draft_vocab_size": size})
    lacking = [name for name in (EMBEDDING, MATRIX) if name not in tensors]
    if lacking and config.hidden_size != hidden:
        raise LoadError(
            f"{spec.id} lacks {' and '.join(lacking)}, and the target's has {hidden} numbers a token where the head "
            f"has {config.hidden_size}; fetch the head again"
        )
    _check_tensors(spec, "EAGLE-3", _outline_3(config, tensors).state_dict(), tensors)
    return EagleCheckpoint(config, tensors, d2t, _layers_of(spec, config, tensors, target_config), joins=True)


def _layers_of(spec: ModelSpec, config: Any, tensors: Mapping[str, Tensor], target_config: Any) -> tuple[Layers, ...]:
    """What was asked for, or what the config says, or what heads read whose config says nothing."""
    joined, count = tensors["fc.weight"].shape[1] // config.target_hidden_size, target_config.num_hidden_layers
    stated = (tuple(spec.feature_layers),) if spec.feature_layers else config.feature_layers
    given = stated or (conventions(count) if joined == 3 else (FINAL,) * (joined == 1))
    found = tuple(one for one in given if len(one) == joined and all(-1 <= layer <= count for layer in one))
    if not found:
        ids = " or ".join(str(list(one)) for one in stated) or "no ids"
        raise LoadError(
            f"{spec.id} joins the features of {joined} layers, and {ids} are given of a target of {count}; give "
            f"feature_layers in the pair's yaml, where 0 is the embedding and {count} the last"
        )
    return found


def _map_of(spec: ModelSpec, size: int, vocab: int, d2t: Tensor | None, t2d: Tensor | None) -> Tensor | None:
    """The offsets; LoadError unless ids ascend with the head's own, and are those that `t2d` marks.

    None for a head that predicts all tokens: EAGLE's own code drops the maps of such a head, which may be of zeros.
    """
    if size == vocab:
        if d2t is not None and d2t.numel() != vocab:
            raise LoadError(
                f"{spec.id} holds d2t, a map of {d2t.numel()} tokens, which its config.json does not say that it "
                f"predicts; write draft_vocab_size: {d2t.numel()} there"
            )
        return None
    d2t = check_map(spec.id, d2t, size, vocab)
    ids = ids_of(d2t)
    if not bool((ids.diff() > 0).all()):
        raise LoadError(
            f"d2t of {spec.id} does not ascend, as published maps do: its entries were shuffled, and the head would "
            "propose wrong tokens; fetch it again"
        )
    if t2d is not None and not torch.equal(t2d.nonzero().flatten(), ids):
        raise LoadError(f"d2t and t2d of {spec.id} name different tokens: one of them is of another head")
    return d2t


def read_tensors(spec: ModelSpec, files: Sequence[str] = FILES) -> dict[str, Tensor]:
    """All tensors of the checkpoint on the host. Nothing but tensors is unpickled: LoadError for a file with code."""
    options = {"_raise_exceptions_for_missing_entries": False}
    paths = (fetch(cached_file, spec, filename=name, **options) for name in files)
    path = next(filter(None, paths), None)
    if path is None:
        raise LoadError(f"{spec.source} lacks {' or '.join(files)}, a file of tensors")
    return tensors_in(path)


def tensors_in(path: str, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The tensors in a file, or of one in safetensors those of some names that it has. LoadError if it is damaged."""
    try:
        if path.endswith(".safetensors"):
            with safe_open(path, "pt") as opened:
                return {name: opened.get_tensor(name) for name in opened.keys() if names is None or name in names}  # noqa: SIM118
        found = torch.load(path, "cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # truncated and foreign files raise errors of many kinds
        raise LoadError(
            f"{path} cannot be read as tensors alone ({type(error).__name__}): it is truncated, or holds "
            "other objects, which are never unpickled; fetch it again"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise LoadError(f"{path} is not a dictionary of tensors; fetch it again")
    return found


def _check_family(spec: ModelSpec, config: Any, made_for: int, hidden: int) -> None:
    if getattr(config, "model_type", None) != "llama":
        raise LoadError(f"{spec.id} is a head of family {config.model_type!r}; only Llama's is supported")
    if made_for != hidden:
        raise LoadError(f"{spec.id} was made for a target of hidden size {made_for}, not {hidden}")


def _fitted(config: Any, tensors: Mapping[str, Tensor], vocab: int) -> Any:
    """The config, with what the target and the tensors know better."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    known = {"num_hidden_layers": 1, "vocab_size": vocab, "tie_word_embeddings": False, "pad_token_id": None}
    if _KEYS in tensors:
        known["num_key_value_heads"] = tensors[_KEYS].shape[0] // head_dim
    if _GATE in tensors:
        known["intermediate_size"] = tensors[_GATE].shape[0]
    if positions := getattr(config, "max_sequence_length", None):
        known["max_position_embeddings"] = positions
    if "sliding_attention" not in (getattr(config, "layer_types", None) or ()):
        known["sliding_window"] = None  # as vLLM has it: a window counts where the layer is said to slide
    fitted = copy.deepcopy(config)
    fitted.update(known)
    return fitted


def _outline(config: Any, tensors: Mapping[str, Tensor]) -> EagleModel:
    """An EAGLE-1 head's model on the meta device: shapes, but no numbers."""
    with torch.device("meta"):
        return EagleModel(config, bias="fc.bias" in tensors)


def _outline_3(config: Any, tensors: Mapping[str, Tensor]) -> Eagle3Model:
    """An EAGLE-3 head's; how many layers it joins is read off `fc`."""
    fc, hidden = tensors.get("fc.weight"), config.target_hidden_size
    joined = 3 if fc is None else max(1, fc.shape[-1] // hidden)
    shape = {"target_hidden": hidden, "vocab": config.draft_vocab_size, "joined": joined, "norms": norms_of(config)}
    with torch.device("meta"):
        model = Eagle3Model(config, **shape, bias="fc.bias" in tensors)
    if MATRIX not in tensors:
        del model.lm_head
    return model


def _check_tensors(spec: ModelSpec, what: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    missing = sorted(expected.keys() - found.keys() - {EMBEDDING})
    foreign = sorted(found.keys() - expected.keys())
    if missing or foreign:
        said = [f"lacks {', '.join(missing[:3])}"] if missing else []
        said += [f"has {', '.join(foreign[:3])} besides"] if foreign else []
        raise LoadError(f"{spec.id} is not an {what} head: it {' and '.join(said)}")
    for name, tensor in found.items():
        if tensor.shape != expected[name].shape:
            raise LoadError(
                f"{name} of {spec.id} has shape {list(tensor.shape)}, but {list(expected[name].shape)} fits the target "
                "and the head's config.json"
            )
