"""The kinds of draft, one class each: what it has of its own, what it takes of the memory, how it is loaded."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM
from specdec_core.models.dflash import DFlash
from specdec_core.models.dflash_checkpoint import DFlashCheckpoint, dflash_bytes, dflash_config, read_dflash
from specdec_core.models.draft_vocabulary import FILE as MAP
from specdec_core.models.draft_vocabulary import ReducedLM, check_map, of_vocabulary
from specdec_core.models.eagle import EagleHead
from specdec_core.models.eagle_checkpoint import EagleCheckpoint, read_eagle, read_eagle_3, read_tensors
from specdec_core.models.feature_layers import settle
from specdec_core.models.fetch import fetch_config, fetch_weights, quantisation
from specdec_core.models.head_formats import EAGLE3, algorithm_of, llama_config, read_config
from specdec_core.models.layer_skip import LayerSkip, kept_bytes
from specdec_core.models.medusa import Medusa
from specdec_core.models.medusa_checkpoint import medusa_bytes, medusa_config, medusa_of, read_medusa
from specdec_core.models.memory import eagle_3_bytes, eagle_bytes, quantised_bytes, weight_bytes
from specdec_core.models.mtp import MtpCheckpoint, mtp_bytes, mtp_config, read_mtp
from specdec_core.models.placement import (
    Placement,
    head_device,
    hook_again,
    resolve_dtype,
    with_embedding,
)
from specdec_core.models.spec import ModelSpec


class Kind(ABC):
    """A kind of model; `spec` is the draft's."""

    whole = False
    """Whether it is a language model of its own, with a tokenizer and weights that may be quantised."""
    own_dtype = False
    """Whether it may compute in another dtype than the target."""
    own_weights = True
    """Whether it has files and a cache of its own, or is the target under another name."""
    needs_hidden = False
    """Whether it reads the target's features."""
    words: tuple[str, ...] = ()
    """What the names of such models have in them."""
    off_tensors: tuple[str, ...] = ()
    """What its config.json may be wrong about, since it is read off the tensors."""
    launches = 20
    """Kernels of a forward in 16 bits without graphs, beside those of its layers; counted in `tests/fake_cuda`."""
    launches_per_layer = 40
    """And those of a layer, which are a Llama's."""

    @property
    def alone(self) -> bool:
        """Whether it drafts without the target's weights."""
        return self.own_dtype

    def check(self, spec: ModelSpec, target: ModelSpec, where: Placement) -> None:
        """LoadError where it does not go with the target or its place."""
        return

    def config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        """Its config.json, without weights; LoadError if it is malformed. `options` are those of the loader."""
        with _in_a_sentence(spec):
            return self._config(spec, target_config, **options)

    def read(self, spec: ModelSpec, config: Any, target_config: Any) -> Any:
        """What is read before it is known whether the pair fits; LoadError if it is malformed or not the target's."""
        with _in_a_sentence(spec):
            return self._read(spec, config, target_config)

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        return fetch_config(spec, **options)

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> Any:
        return None

    @abstractmethod
    def load(self, spec: ModelSpec, read: Any, target: CausalLM, where: Placement, **options: Any) -> Any:
        """The model on its device. `read` is what `read` gave, `options` are `from_pretrained`'s."""

    @abstractmethod
    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        """Bytes of its weights beside the target's."""

    def settle(self, spec: ModelSpec, draft: Any, read: Any, target: CausalLM, tokenizer: Any) -> None:
        """Find out by trying what its files do not say; LoadError where they say what cannot be."""
        return

    def forward_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        """Bytes of the weights that a forward reads."""
        return self.weight_bytes(spec, config, dtype)


class _Whole(Kind):
    """A causal language model."""

    whole = own_dtype = True

    def load(self, spec: ModelSpec, read: Any, target: CausalLM, where: Placement, **options: Any) -> CausalLM:
        device = where.draft or target.device
        options["dtype"] = precision(spec, options["dtype"])
        options |= quantisation(spec, options["dtype"])
        return of_vocabulary(fetch_weights(spec, **options, device_map={"": device}), target.vocab_size)

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        dtype = precision(spec, dtype)
        return quantised_bytes(config, dtype, spec.bits) if spec.bits else weight_bytes(config, dtype)


class _Reduced(Kind):
    """A causal language model over some of the target's tokens, with a map of ids and no tokenizer."""

    own_dtype = True

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> Tensor:
        found = read_tensors(spec, (MAP,)).get("d2t")
        return check_map(spec.id, found, config.vocab_size, target_config.vocab_size)

    def load(self, spec: ModelSpec, read: Tensor, target: CausalLM, where: Placement, **options: Any) -> ReducedLM:
        device = where.draft or target.device
        options["dtype"] = precision(spec, options["dtype"])
        return ReducedLM(fetch_weights(spec, **options, device_map={"": device}), read.to(device), target.vocab_size)

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return weight_bytes(config, precision(spec, dtype))


class _Eagle(Kind):
    """A head that reads the target's last features and its output matrix (EAGLE-1)."""

    needs_hidden = True
    words: tuple[str, ...] = ("eagle", "hass")
    off_tensors: tuple[str, ...] = ("num_key_value_heads", "intermediate_size")
    launches = 7

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> EagleCheckpoint | MtpCheckpoint:
        return read_eagle(spec, config, target_config)

    def load(
        self,
        spec: ModelSpec,
        read: EagleCheckpoint | MtpCheckpoint,
        target: CausalLM,
        where: Placement,
        **options: Any,
    ) -> EagleHead:
        device, head = head_device(spec, read, target, where), with_embedding(read, target)
        return head.head(target, device=device, dtype=options["dtype"])

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return eagle_bytes(config, dtype)


class _Eagle3(_Eagle):
    """A head that joins the features of several layers and has an output matrix of its own (EAGLE-3)."""

    words: tuple[str, ...] = ("eagle3", "eagle-3", "eagle_3")
    launches = 32

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        return llama_config(spec, read_config(spec, **options), target_config.vocab_size)

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> EagleCheckpoint:
        return read_eagle_3(spec, config, target_config)

    def settle(
        self, spec: ModelSpec, draft: EagleHead, read: EagleCheckpoint, target: CausalLM, tokenizer: Any
    ) -> None:
        if read.joins and spec.feature_layers is None:
            settle(spec, draft, read.layers, target, tokenizer)

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return eagle_3_bytes(config, dtype)


class _Speculators(_Eagle3):
    """A folder in the speculators format, which says itself which of the two it holds."""

    words = ("speculator",)

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        said = read_config(spec, **options)
        config = llama_config(spec, said, target_config.vocab_size)
        config.update({"algorithm": algorithm_of(spec, said)})
        return config

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> EagleCheckpoint:
        if config.algorithm == EAGLE3:
            return super()._read(spec, config, target_config)
        return read_eagle(spec, config, target_config)

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        joins = getattr(config, "algorithm", EAGLE3) == EAGLE3
        return eagle_3_bytes(config, dtype) if joins else eagle_bytes(config, dtype)


class _Mtp(_Eagle):
    """The target's own layer for the token after next, in its files or in a folder of its own."""

    words = ("-mtp", "_mtp")
    off_tensors = ()
    launches = 32

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        return mtp_config(target_config)

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> MtpCheckpoint:
        return read_mtp(spec, config, target_config)

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return mtp_bytes(config, dtype)


class _Medusa(Kind):
    """Heads that each predict one of the next tokens from the target's last feature (Medusa)."""

    needs_hidden = True
    words = ("medusa",)
    off_tensors = ("medusa_num_heads",)
    launches = 17

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        return medusa_config(spec, read_config(spec, **options), target_config)

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> Any:
        return read_medusa(spec, target_config)

    def load(self, spec: ModelSpec, read: Any, target: CausalLM, where: Placement, **options: Any) -> Medusa:
        return medusa_of(read, where.draft or target.device, options["dtype"])

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return medusa_bytes(config, dtype)


class _DFlash(Kind):
    """A head that fills a block of masks in one forward, behind features of several layers (DFlash)."""

    needs_hidden = True
    words = ("dflash",)
    launches = 34
    launches_per_layer = 57

    def _config(self, spec: ModelSpec, target_config: Any, **options: Any) -> Any:
        return dflash_config(spec, read_config(spec, **options), target_config)

    def _read(self, spec: ModelSpec, config: Any, target_config: Any) -> DFlashCheckpoint:
        return read_dflash(spec, config, target_config)

    def load(
        self, spec: ModelSpec, read: DFlashCheckpoint, target: CausalLM, where: Placement, **options: Any
    ) -> DFlash:
        device, head = head_device(spec, read, target, where), with_embedding(read, target)
        return head.head(target, device=device, dtype=options["dtype"])

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return dflash_bytes(config, dtype)

    def forward_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return self.weight_bytes(spec, config, dtype) + config.vocab_size * config.hidden_size * dtype.itemsize


class _LayerSkip(Kind):
    """The target without some layers or sublayers, on its weights and cache."""

    own_weights = False

    def check(self, spec: ModelSpec, target: ModelSpec, where: Placement) -> None:
        if spec.source != target.source or target.offload:
            raise LoadError(f"{spec.id}: a layer_skip draft is the target itself, by the same id and not offloaded")
        if where.draft is not None:
            raise LoadError(f"{spec.id}: a layer_skip draft is where the target is; leave draft_device out")

    def load(self, spec: ModelSpec, read: Any, target: CausalLM, where: Placement, **options: Any) -> LayerSkip:
        draft = LayerSkip(target, spec.skipped_layers, attention=spec.skipped_attention, mlp=spec.skipped_mlp)
        hook_again(draft.model)
        return draft

    def weight_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return 0

    def forward_bytes(self, spec: ModelSpec, config: Any, dtype: torch.dtype) -> int:
        return kept_bytes(config, dtype, spec.skipped_layers, spec.skipped_attention, spec.skipped_mlp)


_MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, StrictDataclassError)
"""What a config of wrong types or sizes raises, here and in transformers."""


@contextlib.contextmanager
def _in_a_sentence(spec: ModelSpec) -> Iterator[None]:
    """What malformed files raise inside becomes a LoadError, with the folder and the cause."""
    try:
        yield
    except _MALFORMED as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise LoadError(
            f"the files of {spec.source} cannot be read as those of a draft of kind {spec.kind} ({cause}); correct its "
            "config.json, or fetch it again"
        ) from error


def precision(spec: ModelSpec, dtype: torch.dtype) -> torch.dtype:
    """What a draft computes in: the pair's `dtype`, unless it has its own. LoadError for a word that is none."""
    return resolve_dtype(spec.dtype, torch.device("cpu")) if spec.dtype else dtype


TARGET = "causal_lm"
"""The kind of every target."""
KINDS: Mapping[str, Kind] = {
    TARGET: _Whole(),
    "reduced_lm": _Reduced(),
    "eagle": _Eagle(),
    "eagle3": _Eagle3(),
    "speculators": _Speculators(),
    "medusa": _Medusa(),
    "dflash": _DFlash(),
    "mtp": _Mtp(),
    "layer_skip": _LayerSkip(),
}


def kind_of(spec: ModelSpec) -> Kind:
    """The kind that a spec names; LoadError if there is none of that name."""
    if spec.kind not in KINDS:
        *most, last = KINDS
        raise LoadError(f"{spec.id}: a draft is of kind {', '.join(most)} or {last}, not {spec.kind!r}")
    return KINDS[spec.kind]


def likely_kind(name: str, config: Mapping[str, Any]) -> str:
    """The kind of draft that a folder or hub id seems to be: by the longest word of a kind in its name and config.json.

    Of the latter `architectures` and the first words of keys are looked at, such as `medusa` in `medusa_num_heads`.
    """
    keys = (key.partition("_")[0] for key in config)
    text = " ".join((name, *(config.get("architectures") or ()), *keys)).lower()
    found = {word: kind for kind, one in KINDS.items() for word in one.words if word in text}
    return found[max(found, key=len)] if found else TARGET
