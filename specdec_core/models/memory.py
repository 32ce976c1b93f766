"""How much memory a model takes and where, known before it is loaded."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from specdec_core.errors import LoadError
from specdec_core.models.architectures import loader_of, text_config
from specdec_core.models.causal_lm import layer_stack
from specdec_core.models.eagle import Eagle3Model, EagleModel

_ALIGNMENT = 256
"""Bytes. Packed tensors start at multiples of it, as the allocators' own do: kernels may be chosen by alignment."""


def weight_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of all parameters at `dtype`, from the config alone: the model is laid out on the meta device."""
    return parameter_bytes(outline(config, dtype))


def eagle_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of an EAGLE-1 head with its own embedding; of the target's output matrix its copy of some rows.

    `config.bias` says whether its fc has one; it has unless said, as in the published code.
    """
    rows = getattr(config, "draft_vocab_size", None) or 0
    with torch.device("meta"):
        own = parameter_bytes(EagleModel(config, bias=getattr(config, "bias", True)).to(dtype))
    return own + rows * config.hidden_size * dtype.itemsize


def eagle_3_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of an EAGLE-3 head that joins three layers, with its own embedding and output matrix."""
    vocab, hidden = (getattr(config, f"{name}_size", None) for name in ("draft_vocab", "target_hidden"))
    sizes = {"target_hidden": hidden or config.hidden_size, "vocab": vocab or config.vocab_size}
    with torch.device("meta"):
        return parameter_bytes(Eagle3Model(config, **sizes).to(dtype))


def quantised_bytes(config: Any, dtype: torch.dtype, bits: int) -> int:
    """Bytes of all parameters where the linear layers inside the decoder take `bits` each and the others `dtype`.

    Scales are not counted: below a tenth of what is.
    """
    decoder = outline(config, dtype).get_decoder()
    linear = sum(part.weight.numel() for part in decoder.modules() if isinstance(part, nn.Linear | Conv1D))
    return weight_bytes(config, dtype) - linear * dtype.itemsize + linear * bits // 8


def kv_bytes(config: Any, dtype: torch.dtype, tokens: int) -> int:
    """Bytes of the keys and values of `tokens` tokens in all layers, one sequence.

    Families without grouped heads, such as OPT, GPT-2 and BLOOM, do not name their number or size. Latent attention
    caches keys and values unfolded, both as wide as the wider of them.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if getattr(config, "kv_lora_rank", None):
        heads = config.num_attention_heads
        dim = max(config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim)
    return 2 * int(config.num_hidden_layers) * int(heads) * int(dim) * tokens * dtype.itemsize


def tree_bytes(config: Any, dtype: torch.dtype, nodes: int, tokens: int) -> int:
    """Bytes of scoring `nodes` nodes, root counted, behind `tokens` cached tokens.

    The mask and the hidden states at `dtype`, the logits in float32; not what passes through one layer at a time.
    """
    mask, hidden = nodes * (tokens + nodes), nodes * int(config.hidden_size)
    return (mask + hidden) * dtype.itemsize + nodes * int(config.vocab_size) * torch.float32.itemsize


def offloaded_bytes(config: Any, dtype: torch.dtype, resident_layers: int) -> tuple[int, int]:
    """Bytes of an offloaded model's parameters and buffers on the device, and of its streamed layers on the host.

    LoadError as for `streamed_layers`.
    """
    model = outline(config, dtype)
    streamed = streamed_layers(model, resident_layers)
    outside = parameter_bytes(model) - sum(map(parameter_bytes, streamed))
    return outside + sum(buffer_bytes(streamed)), sum(map(packed_bytes, streamed))


def streamed_layers(model: Any, resident_layers: int) -> list[nn.Module]:
    """The decoder layers behind the first `resident_layers`; LoadError where the model cannot be split so."""
    count = text_config(model.config).num_hidden_layers
    stack = layer_stack(model)
    if stack is None:
        raise LoadError(f"{type(model).__name__} has no single list of {count} layers to offload; use offload=false")
    if not 0 <= resident_layers <= count:
        raise LoadError(f"resident_layers is from 0 to the target's {count} layers, not {resident_layers}")
    layers = list(stack[1])[resident_layers:]
    owners = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    if any(owners[id(parameter)] > 1 for layer in layers for parameter in layer.parameters()):
        raise LoadError(f"a layer of {type(model).__name__} shares weights with another part; use offload=false")
    return layers


def streamed_tensors(layer: nn.Module) -> list[Tensor]:
    """Parameters and, for some models, real numbers kept beside them. Index tables and masks stay on the device."""
    return [*layer.parameters(), *(buffer for buffer in layer.buffers() if buffer.is_floating_point())]


def padded_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor and of the gap behind it in a packed layer."""
    return -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT


def packed_bytes(layer: nn.Module) -> int:
    """Bytes of a streamed layer in one buffer."""
    return sum(map(padded_bytes, streamed_tensors(layer)))


def buffer_bytes(layers: Sequence[nn.Module]) -> list[int]:
    """Bytes of each buffer on the device: those of the largest layer, twice unless there is but one layer to stream."""
    return [max(map(packed_bytes, layers))] * min(2, len(layers)) if layers else []


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device; of the machine for a CPU; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def outline(config: Any, dtype: torch.dtype) -> Any:
    """The model on the meta device: shapes, but no numbers."""
    with torch.device("meta"):
        return loader_of(config).from_config(config, dtype=dtype)


def parameter_bytes(module: nn.Module) -> int:
    """Bytes of a module's parameters, shared ones once."""
    return sum(parameter.nbytes for parameter in module.parameters())
