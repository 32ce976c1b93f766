"""Clocks: named spans of time per decoding step, read once at the end."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import torch


@dataclass(slots=True)
class Tally:
    """What one name took in one step: seconds, number of spans, tokens fed."""

    seconds: float = 0.0
    calls: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Span:
    """One measured stretch, as a context manager. Marks are perf_counter values, or CUDA events on a GPU."""

    clock: "Clock"
    name: str
    tokens: int
    step: int
    device: torch.device
    start: float | torch.cuda.Event = 0.0
    end: float | torch.cuda.Event = 0.0

    def __enter__(self) -> None:
        self.start = self.clock.mark(self.device)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end = self.clock.mark(self.device)
        self.clock.spans.append(self)

    def seconds(self) -> float:
        if isinstance(self.start, float) or isinstance(self.end, float):
            return float(self.end) - float(self.start)  # type: ignore[arg-type]
        return self.start.elapsed_time(self.end) / 1e3


class Clock:
    """Collects spans. On a GPU the marks are CUDA events in the stream, so that measuring waits for nothing."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spans: list[_Span] = []
        self.step = -1
        self.wall_s = 0.0

    @contextmanager
    def wall(self) -> Iterator[None]:
        """`with clock.wall(): ...` makes `wall_s` the seconds that pass, between spans too; devices are waited for."""
        self._wait()
        start = time.perf_counter()
        yield
        self._wait()
        self.wall_s = time.perf_counter() - start

    def span(self, name: str, tokens: int = 0, device: torch.device | None = None) -> _Span:
        """`with clock.span("draft", tokens=4): ...` adds to that name in the present step.

        What runs on another device than the clock's is to be measured there.
        """
        return _Span(self, name, tokens, self.step, device or self.device)

    def next_step(self) -> None:
        """Spans that begin from now on belong to the next step. Those before the first belong to step -1."""
        self.step += 1

    def mark(self, device: torch.device | None = None) -> float | torch.cuda.Event:
        """The present moment, on the clock's device unless another is named."""
        device = device or self.device
        if device.type != "cuda":
            return time.perf_counter()
        with torch.cuda.device(device):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return event

    def read(self) -> dict[int, dict[str, Tally]]:
        """Tallies by step and name. Waits for the devices."""
        self._wait()
        tallies: dict[int, dict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
        for span in self.spans:
            tally = tallies[span.step][span.name]
            tally.seconds += span.seconds()
            tally.calls += 1
            tally.tokens += span.tokens
        return tallies

    def _wait(self) -> None:
        for device in {self.device, *(span.device for span in self.spans)}:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
