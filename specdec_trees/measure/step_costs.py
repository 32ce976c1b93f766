"""What a decoding step asks a GPU for: how often the host waits for it, and what it launches."""

import re
import warnings
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import profiler

STEPS = 4
"""Steps that are counted, behind the first: from one judgement to another."""
TOKENS = 64
"""Of the answer in which they are."""
_LAUNCH = re.compile("cu(da)?(LaunchKernel|LaunchCooperativeKernel|GraphLaunch)")
"""Calls of the CUDA runtime and driver, by the profiler's names."""


class StepCosts:
    """A watch of a decoding, as a context manager; without so many steps it says nothing."""

    def __init__(self, *, launches: bool) -> None:
        """`launches` has them counted, by a profiler; what runs behind it in this process may then be slower."""
        self.waits_per_step: float | None = None
        self.launches_per_step: float | None = None
        """Kernels, and graphs as one each."""
        self._profile = profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) if launches else None
        self._counting, self._seen = ExitStack(), 0
        self._caught: list[warnings.WarningMessage] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._counting.close()

    def __call__(self, *step: Any) -> None:
        """Take one step."""
        if self._seen == STEPS:
            self._counting.close()
            self.waits_per_step = len(self._caught or ()) / STEPS
            if self._profile:
                calls = sum(bool(_LAUNCH.match(event.name)) for event in self._profile.events())
                self.launches_per_step = calls / STEPS
        if self._seen == 0:
            if self._profile:
                self._counting.enter_context(self._profile)
            self._counting.callback(torch.cuda.set_sync_debug_mode, torch.cuda.get_sync_debug_mode())
            self._caught = self._counting.enter_context(warnings.catch_warnings(record=True))
            warnings.filterwarnings("ignore")
            warnings.filterwarnings("always", message=".*synchronizing CUDA operation.*")
            torch.cuda.set_sync_debug_mode("warn")
        self._seen += 1
