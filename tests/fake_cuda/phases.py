"""What a decoding step asks a device for, phase by phase."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from fake_cuda.counting import Counts, counting
from specdec_core import Generation, engine, generate
from specdec_core.timing import Clock

PHASES = ("draft", "grow", "layout", "score", "judge", "commit")
"""The loop's spans. `grow` is without the draft's forwards, and with a drafter's own spans, which lie inside it."""
ASKED = ("launches", "waits", "uploads")


class CountingClock(Clock):
    """A clock whose spans count, too; what lies inside a draft's forward is no part of what is around it."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)

    @contextmanager
    def span(self, name: str, tokens: int = 0, device: Any = None) -> Iterator[None]:  # type: ignore[override]
        step = self.step
        with counting() as counts, super().span(name, tokens, device):
            yield
        if step < 0 or name not in PHASES:
            return
        self.counts[name].add(counts)
        if name == "draft":
            self.counts["grow"].subtract(counts)


def counted(*arguments: Any, **options: Any) -> tuple[Generation, Mapping[str, Counts]]:
    """What `generate` returns, and the counts of all its steps by phase."""
    clocks: list[CountingClock] = []

    def clock(device: Any) -> CountingClock:
        clocks.append(CountingClock(device))
        return clocks[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Clock", clock)
        done = generate(*arguments, **options)
    return done, clocks[0].counts


def per_step(steps: int, counts: Mapping[str, Counts]) -> dict[str, float]:
    """Launches, waits and uploads of a step by phase: `judge waits`, ...; those of all phases first."""
    sums = {f"{phase} {what}": getattr(counts[phase], what) for what in ASKED for phase in PHASES}
    whole = {what: sum(sums[f"{phase} {what}"] for phase in PHASES) for what in ASKED}
    return {name: round(number / steps, 2) for name, number in (whole | sums).items()}
