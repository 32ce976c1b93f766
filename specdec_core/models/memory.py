"""How much memory a model takes, known before it is loaded."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def weight_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of all parameters at `dtype`, from the config alone: the model is laid out on the meta device."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return sum(p.numel() * p.element_size() for p in model.parameters())


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device; of the machine for a CPU; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024
