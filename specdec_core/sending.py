"""What the host has made, on its way to a device."""

import torch
from torch import Tensor


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values on a device, where they are already or without waiting for it: by way of pinned memory.

    What comes from another GPU follows in its stream's order. What comes from a GPU to the host is waited for.
    """
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
