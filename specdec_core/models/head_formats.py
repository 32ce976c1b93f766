"""What the public formats of heads say in their config.json, and what they call the same tensors.

EAGLE's own (`midlayer`), the speculators library's (`layers.0`, a config in parts), and both inside another module.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import LlamaConfig, PreTrainedConfig

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import FINAL, Layers
from specdec_core.models.eagle import Norms
from specdec_core.models.fetch import fetch
from specdec_core.models.spec import ModelSpec

EAGLE, EAGLE3 = "eagle", "eagle3"
"""Algorithms, in the words of the speculators format."""
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_FORMAT = frozenset(("speculators_model_type", "speculators_config"))
"""Of these a config has one or both in the speculators format."""
_OUTER = frozenset(("model", "module", "eagle_module", "draft_model"))
"""Modules that a head may have been saved inside of."""
_NAMES = {"midlayer.": "layers.0.", "norm.": "final_norm."}
_NAMES_OF_EAGLE_1 = {"fusion_fc.": "fc.", "transformer.": "layers.0."}
_NORMS = {
    "before_residual": "norm_before_residual",
    "before_fc": "norm_before_fc",
    "each": "fc_norm",
    "output": "norm_output",
}


def read_config(spec: ModelSpec, **options: Any) -> dict[str, Any]:
    """config.json as it stands, empty where there is none. `options` are those of transformers' loader."""
    said, _ = fetch(PreTrainedConfig.get_config_dict, spec, **options)
    return dict(said)


def algorithm_of(spec: ModelSpec, said: Mapping[str, Any]) -> str:
    """Which head a folder in the speculators format holds. LoadError where it holds another one, or none."""
    parts = said.get("speculators_config") or {}
    found = said.get("speculators_model_type") or parts.get("algorithm")
    if found not in (EAGLE, EAGLE3):
        raise LoadError(
            f"{spec.id}: speculators_model_type in its config.json is {found!r}; of this format only {EAGLE} and "
            f"{EAGLE3} are supported"
        )
    return str(found)


def llama_config(spec: ModelSpec, said: Mapping[str, Any], vocab_size: int) -> LlamaConfig:
    """Of a head's one decoder layer, with what is said of the head beside it, however it was nested.

    `vocab_size` is the target's. LoadError where there is no config.json, or the layer is none of Llama's.
    """
    if not said:
        raise LoadError(f"{spec.source} has no config.json, or an empty one; fetch the head again")
    layer = dict(said.get("transformer_layer_config") or said)
    if layer.get("model_type") != "llama":
        raise LoadError(f"{spec.id} is a head of family {layer.get('model_type')!r}; only Llama's is supported")
    config = LlamaConfig.from_dict(layer)
    sizes = {name: _said(said, name) for name in ("draft_vocab_size", "target_hidden_size")}
    known = {name: found and int(found) for name, found in sizes.items()}
    known |= {name: _said(said, name) for name in _NORMS.values()}
    fixed = {"num_hidden_layers": 1, "vocab_size": vocab_size, "tie_word_embeddings": False, "pad_token_id": None}
    if known["norm_before_residual"] is None and _FORMAT & said.keys():
        known["norm_before_residual"] = True  # as vLLM reads such a config that does not say
    config.update({**known, **fixed, "feature_layers": stated_layers(said)})
    return config


def norms_of(config: Any) -> Norms:
    """Where a head normalises, as its config says."""
    return Norms(**{name: bool(getattr(config, word, False)) for name, word in _NORMS.items()})


def stated_layers(said: Mapping[str, Any]) -> tuple[Layers, ...]:
    """The target's layers whose features a head may read, as places among hidden states; none where nothing is said.

    Ids at the top count hidden states, the embedding being 0 (vLLM, speculators); `target_layer_ids` count layers,
    whose outputs are meant. Those in `eagle_config` are read in both ways (vLLM, SGLang), so that both are given.
    TypeError for what is no list of whole numbers.
    """
    if found := said.get(LAYER_IDS):
        return (_ids(found),)
    part = said.get("eagle_config") or {}
    if part.get("use_aux_hidden_state") is False:
        return (FINAL,)
    if found := part.get(LAYER_IDS):
        return _ids(found), _ids(found, 1)
    found = part.get("target_layer_ids") or said.get("target_layer_ids")
    return (_ids(found, 1),) if found else ()


def _ids(found: Any, offset: int = 0) -> Layers:
    if not isinstance(found, list | tuple) or not all(isinstance(layer, int) for layer in found):
        raise TypeError(f"layer ids are a list of whole numbers, not {found!r}")
    return tuple(layer + offset for layer in found)


def conventions(num_layers: int) -> tuple[Layers, Layers]:
    """What heads read that say nothing: the input of layers 2, N // 2 and N - 3 (EAGLE's code), or their output."""
    first = (2, num_layers // 2, num_layers - 3)
    return first, tuple(layer + 1 for layer in first)


def plain_names(spec: ModelSpec, tensors: Mapping[str, Tensor], algorithm: str) -> dict[str, Tensor]:
    """The tensors under the names of `Eagle3Model` or `EagleModel`, without the modules that they were saved inside of.

    What the target has is left out: the output matrix of an EAGLE-1 head in the speculators format. LoadError where
    two tensors have one name.
    """
    renamed = _NAMES if algorithm == EAGLE3 else _NAMES_OF_EAGLE_1
    found = {}
    for name, tensor in tensors.items():
        while name.partition(".")[0] in _OUTER:
            name = name.partition(".")[2]
        for theirs, ours in renamed.items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        if name in found:
            raise LoadError(f"{spec.source} holds {name} twice, under two names; remove the one that is not meant")
        found[name] = tensor
    if algorithm == EAGLE:
        found.pop("lm_head.weight", None)
    return found


def _said(said: Mapping[str, Any], name: str) -> Any:
    """What a config says of a head, at the top or in a part of its own."""
    parts = (said, said.get("eagle_config") or {}, said.get("transformer_layer_config") or {})
    return next((part[name] for part in parts if part.get(name) is not None), None)
