"""A stock transformers model that scores trees: (tokens, layout) -> logits, hidden."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from specdec_core.cache import KVCache
from specdec_core.layout import Layout, causal_layout
from specdec_core.models.adapters import adapt
from specdec_core.models.architectures import COMPARED, check_architecture, text_config
from specdec_core.models.graphs import Graphs
from specdec_core.models.trial import check_decoding
from specdec_core.models.windows import by_layer, spans

Layers = tuple[int, ...]
"""Places among a model's hidden states, whose features are wanted: 0 is the embedding, i what the i-th layer leaves."""
FINAL: Layers = (-1,)
"""What the output matrix reads: behind all layers, after the final norm."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What one forward returns for its tokens."""

    logits: Float[Tensor, "new vocab"]
    """As the model gives them; rows of the new tokens in order (of the last one only, after a prefill)."""
    hidden: Float[Tensor, "tokens hidden"] | None = None
    """Features of all new tokens, those of several layers side by side; None unless asked for (`keep_hidden`)."""
    root_probs: Float[Tensor, " vocab"] | None = None
    """Virtual root: its distribution, which stands in place of the first row of `logits`. Sampling settings are
    applied, but for temperature 0, at which it is the untempered one (`Sampling.open_probs`)."""


class CausalLM:
    """A decoder from transformers with its own cache. No modeling file is forked: trees enter by mask and positions."""

    graphs: Graphs | None = None
    """In which forwards over trees run; None: eagerly."""
    keep_hidden: Layers = ()
    """Of which layers features are kept; those of `FINAL` cost nothing, any others keep all layers' for a forward."""
    eos_token_ids: Collection[int] = ()
    """Tokens that end its answers, as `load_pair` finds them."""

    def __init__(self, model: Any, *, tried: bool = False, device: torch.device | None = None) -> None:
        """LoadError where the model does not decode trees; `tried` says that it is known to.

        `device` is in place of its own, which weights on the meta device do not tell.
        """
        check_architecture(model.config)
        self._device = device
        self.model = model.eval()
        self.config = text_config(model.config)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        compared = model.config.model_type in COMPARED
        self._spans = spans(self.config) if compared else {}
        self.max_positions = max_positions_of(self.config, windows=not compared)
        self.cache = KVCache(self.config.num_hidden_layers, capacity=0)
        self._hidden: Tensor | None = None
        self._last: Tensor | None = None
        model.get_decoder().register_forward_hook(self._remember_hidden)
        if stack := layer_stack(model):
            stack[1][-1].register_forward_hook(self._remember_last)
        adapt(model)
        if not (compared or tried):
            check_decoding(self)

    @contextmanager
    def keeping(self, layers: Layers) -> Iterator[None]:
        """Features of these layers are kept meanwhile; afterwards those that were kept before, errors or not."""
        before, self.keep_hidden = self.keep_hidden, layers
        try:
            yield
        finally:
            self.keep_hidden = before

    @property
    def device(self) -> torch.device:
        """Where token ids go in and logits come out."""
        if self._device is not None:
            return self._device
        device: torch.device = self.model.device
        # what accelerate streams from the host or the disk waits on the meta device; its hook knows where it runs
        return device if device.type != "meta" else torch.device(self.model._hf_hook.execution_device)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and mask."""
        return self.model.dtype

    @property
    def attention(self) -> str:
        """The implementation that runs, which is `eager` for models that have no other."""
        return str(self.config._attn_implementation)

    def reset(self, capacity: int) -> None:
        """Empty the cache and make room for `capacity` tokens; it grows if that was too little."""
        (self.graphs or self.cache).restart(capacity)

    def prefill(self, tokens: Int[Tensor, " prompt"]) -> ModelOutput:
        """Read a prompt into the cache; logits of its last token only."""
        return self._run(tokens, None, logits_to_keep=1) if not self.cache.length else self.extend(tokens)

    def extend(self, tokens: Int[Tensor, " new"]) -> ModelOutput:
        """Append a plain continuation."""
        layout = causal_layout(
            tokens.shape[0],
            prefix=self.cache.length,
            device=self.device,
            max_positions=self.max_positions,
            dtype=self.dtype,
        )
        return self(tokens, layout)

    def __call__(self, tokens: Int[Tensor, " new"], layout: Layout) -> ModelOutput:
        """One forward of the tokens, appended to the cache."""
        return self._run(tokens, layout)

    @torch.inference_mode()
    def _run(self, tokens: Tensor, layout: Layout | None, **options: Any) -> ModelOutput:
        self.cache.reserve(self.cache.length + tokens.shape[0])
        masks = None if layout is None else self._masks(layout, self.cache.length + tokens.shape[0])
        graphs = self.graphs if layout is not None and self.cache.settled and masks is layout.mask else None
        if graphs and layout is not None and (size := graphs.size(tokens.shape[0])):
            logits, self._hidden = graphs(tokens, layout, size)
        else:
            if layout is not None:
                options |= {"attention_mask": masks, "position_ids": layout.positions}
            logits, self._hidden = self.whole(tokens[None], **options)
        self.cache.advance(tokens.shape[0])
        hidden, self._hidden = self._hidden, None
        return ModelOutput(logits, hidden)

    def _masks(self, layout: Layout, slots: int) -> Any:
        """What the model is given as its mask: the layout's, until its layers see less than the whole text."""
        return by_layer(self._spans, layout.mask, slots, torch.empty(0, dtype=self.dtype, device=self.device))

    def whole(self, tokens: Int[Tensor, "1 new"], **options: Any) -> tuple[Tensor, Tensor | None]:
        """Logits and the features that are kept, by one forward of the stock model on the cache."""
        several = self.keep_hidden not in ((), FINAL)
        if several:
            options["output_hidden_states"] = True
        found = self.model(tokens, past_key_values=self.cache, use_cache=True, **options)
        if not several:
            return found.logits[0], self._hidden
        states, last = [*found.hidden_states], self.config.num_hidden_layers
        if last in self.keep_hidden and self._last is not None:
            states[last], self._last = self._last, None  # transformers has it behind the final norm
        return found.logits[0], torch.cat([states[layer][0].to(found.logits.device) for layer in self.keep_hidden], -1)

    def _remember_last(self, module: Any, args: Any, output: Any) -> None:
        if self.config.num_hidden_layers in self.keep_hidden:
            self._last = output if isinstance(output, Tensor) else output[0]

    def _remember_hidden(self, module: Any, args: Any, output: Any) -> None:
        if self.keep_hidden == FINAL:
            self._hidden = output[0][0]


def layer_stack(model: Any) -> tuple[str, nn.ModuleList] | None:
    """The decoder's one list of layers and its name there; None where the model has no such list, or several."""
    count, children = text_config(model.config).num_hidden_layers, model.get_decoder().named_children()
    found = [(name, child) for name, child in children if isinstance(child, nn.ModuleList) and len(child) == count]
    return found[0] if len(found) == 1 else None


_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")
"""What configs call the number of their positions."""
_NEAR = ("window_size", "attention_window_size", "local_attention", "attention_chunk_size")
"""What they call windows and chunks that are in no list of layers."""


def max_positions_of(config: Any, *, windows: bool = True) -> int | None:
    """Positions of the model: every limit that its config names.

    Where its masks let every token see the whole prefix (`windows`), a window or chunk ends them too. Rotations that
    change for the whole text once it has grown to some length (longrope) end them there: what is cached keeps its own.
    """
    bounds = [getattr(config, name, None) for name in _LENGTHS]
    if windows:
        bounds += [span.size for span in spans(config).values()]
        bounds += [getattr(config, name, None) for name in _NEAR]
    rotary = getattr(config, "rope_parameters", None) or {}
    for rope in (rotary, *(part for part in rotary.values() if isinstance(part, dict))):
        if rope.get("rope_type") == "longrope":
            bounds += [rope.get("original_max_position_embeddings")]
            bounds += [getattr(config, "original_max_position_embeddings", None)]
    return min(filter(None, bounds), default=None)
