"""Clocks: named spans of time per decoding step, read once at the end."""

import time
from collections import defaultdict
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
    start: float | torch.cuda.Event = 0.0
    end: float | torch.cuda.Event = 0.0

    def __enter__(self) -> None:
        self.start = self.clock.mark()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end = self.clock.mark()
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

    def span(self, name: str, tokens: int = 0) -> _Span:
        """`with clock.span("draft", tokens=4): ...` adds to that name in the present step."""
        return _Span(self, name, tokens, self.step)

    def next_step(self) -> None:
        """Spans that begin from now on belong to the next step. Those before the first belong to step -1."""
        self.step += 1

    def mark(self) -> float | torch.cuda.Event:
        """The present moment."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def read(self) -> dict[int, dict[str, Tally]]:
        """Tallies by step and name. Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        tallies: dict[int, dict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
        for span in self.spans:
            tally = tallies[span.step][span.name]
            tally.seconds += span.seconds()
            tally.calls += 1
            tally.tokens += span.tokens
        return tallies
