"""What a GPU says of itself around each prompt, through NVML: energy, clock, temperature, power, throttling, strangers.

It is asked before and behind a decoding, never within. It needs `nvidia-ml-py` (the extra `gpu`); without it, without a
GPU, or with models on several devices the columns are empty.
"""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import asdict, dataclass
from typing import Any

import torch

REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""Why clocks are lower than they could be, by NVML's bit; idleness and chosen clocks are no reasons of this kind."""
SPOILING = {"hardware slowdown", "software thermal", "hardware thermal", "power brake"}
"""Of these the ones that come and go between two prompts of one work; a power cap is how a card runs under load."""


@dataclass(frozen=True, slots=True)
class Look:
    """A moment of a GPU; None where the card does not tell."""

    energy_j: float | None
    """Since the driver was loaded."""
    sm_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    reasons: frozenset[str] | None
    foreign: int | None
    """Other processes that compute on it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Columns of a prompt's row about the GPU that decoded it."""

    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    throttle_reasons: str | None = None
    foreign_processes: int | None = None
    contaminated: bool | None = None

    def columns(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


def between(before: Look | None, after: Look | None) -> Facts:
    """A decoding's facts: what holds at its end, what was spent in between, and whatever disturbed at either end."""
    if before is None or after is None:
        return Facts()
    reasons = None if before.reasons is None or after.reasons is None else before.reasons | after.reasons
    strangers = [look.foreign for look in (before, after) if look.foreign is not None]
    energy = None if before.energy_j is None or after.energy_j is None else after.energy_j - before.energy_j
    known = reasons is not None or bool(strangers)
    return Facts(
        sm_clock_mhz=after.sm_clock_mhz,
        temperature_c=after.temperature_c,
        power_w=after.power_w,
        energy_j=energy,
        throttle_reasons=None if reasons is None else ", ".join(sorted(reasons)),
        foreign_processes=max(strangers, default=None),
        contaminated=bool(SPOILING & (reasons or set())) or max(strangers, default=0) > 0 if known else None,
    )


class Gpu:
    """One GPU, asked through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @classmethod
    def of(cls, device: torch.device) -> Gpu | None:
        """That of a torch device; None where there is none or nobody to ask."""
        nvml = _nvml() if device.type == "cuda" else None
        if nvml is None:
            return None
        try:
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}"))
        except nvml.NVMLError:  # a slice of a card, for instance
            return None

    def look(self) -> Look:
        """Ask it now."""
        nvml = self._nvml
        energy, power = self._ask("nvmlDeviceGetTotalEnergyConsumption"), self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Look(
            energy_j=None if energy is None else energy / 1000,
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_c=self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            reasons=None if bits is None else frozenset(name for bit, name in REASONS.items() if bits & bit),
            foreign=self._foreign(),
        )

    def _foreign(self) -> int | None:
        """Processes but this one, which in a container goes by another number: it is then one of those listed."""
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if listed is None:
            return None
        others = [one.pid for one in listed if one.pid != os.getpid()]
        return len(others) if len(others) < len(listed) else max(len(others) - 1, 0)

    def _ask(self, name: str, *arguments: Any) -> Any:
        with contextlib.suppress(self._nvml.NVMLError):
            return getattr(self._nvml, name)(self._handle, *arguments)
        return None


@functools.cache
def _nvml() -> Any:
    """NVML, begun; None where it is not installed or finds no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
