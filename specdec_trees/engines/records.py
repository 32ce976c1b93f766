"""What an engine counts of some text, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from specdec_trees.statistics import positions

ENGINES = ("vllm", "llama.cpp", "aiperf")
NAMES: Mapping[str, Mapping[str, str]] = {
    "steps": {"vllm": "num_drafts", "llama.cpp": "num_drafts", "aiperf": "num_spec_steps"},
    "drafted": {
        "vllm": "num_draft_tokens",
        "llama.cpp": "n_drafted",
        "aiperf": "num_draft_tokens",
        "llama-server": "draft_n",
    },
    "accepted": {
        "vllm": "num_accepted_tokens",
        "llama.cpp": "n_accept",
        "aiperf": "num_accepted_draft_tokens",
        "llama-server": "draft_n_accepted",
    },
    "reached": {"vllm": "num_accepted_tokens_per_pos", "llama.cpp": "num_accepted_tokens_per_pos"},
    "counts": {"aiperf": "acceptance_histogram"},
    "depth": {"vllm": "num_spec_tokens", "aiperf": "num_spec_tokens"},
    "length": {
        "vllm": "mean_acceptance_length",
        "llama.cpp": "mean acceptance length",
        "aiperf": "mean_acceptance_length",
    },
    "rate": {
        "vllm": "draft_acceptance_rate",
        "llama.cpp": "draft acceptance rate",
        "aiperf": "draft_acceptance_rate",
    },
    "joint": {"llama.cpp": "acceptance rate per position"},
}
"""What each engine calls a quantity: all are written, the first six are read. vLLM's responses have AIPerf's names."""
SHARP = 0.02
"""A mean acceptance length is a number where what the record allows is no wider: it then has about two decimals."""


class EngineError(Exception):
    """Nothing can be written or compared; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Record:
    """What an engine counts of some text: `reached[i - 1]` steps accepted at least i drafted tokens.

    Steps without a draft are not counted. `steps` and `reached` are None where they are not told. Where they follow
    from rounded numbers they are estimates, and `between` has the fewest and the most steps that those numbers allow.
    EngineError where the counts contradict each other.
    """

    drafted: int
    accepted: int
    steps: int | None = None
    reached: tuple[int, ...] | None = None
    between: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.accepted <= self.drafted:
            raise EngineError(f"a record has {self.accepted} accepted tokens, but {self.drafted} drafted ones")
        if self.steps is not None and (self.steps < 0 or (self.accepted and not self.steps)):
            raise EngineError(f"a record has {self.accepted} accepted tokens, but {self.steps} steps")

    def __add__(self, other: Record) -> Record:
        drafted, accepted = self.drafted + other.drafted, self.accepted + other.accepted
        if not (self.drafted or self.steps) or not (other.drafted or other.steps):
            return self if self.drafted or self.steps else other
        if self.steps is None or other.steps is None:
            return Record(drafted, accepted)
        steps, reached = self.steps + other.steps, None
        if self.reached is not None and other.reached is not None:
            reached = tuple(a + b for a, b in zip_longest(self.reached, other.reached, fillvalue=0))
        ends = [one.between or (one.steps, one.steps) for one in (self, other)]
        fewest, most = (sum(end[place] or 0 for end in ends) for place in (0, 1))
        return Record(drafted, accepted, steps, reached, None if fewest == most else (fewest, most))

    @property
    def length(self) -> float | None:
        """Mean acceptance length as engines have it: 1 + accepted / steps."""
        return 1 + self.accepted / self.steps if self.steps else None

    @property
    def lengths(self) -> tuple[float, float] | None:
        """The least and the greatest mean acceptance length that the record allows; None where steps are known."""
        return (1 + self.accepted / self.between[1], 1 + self.accepted / self.between[0]) if self.between else None

    @property
    def rate(self) -> float | None:
        """Draft acceptance rate: accepted / drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def joint(self) -> list[float]:
        """P(at least i accepted); empty where it is not told."""
        return positions.joint(self.reached or (), self.steps or 0)

    @property
    def conditional(self) -> list[float]:
        """P(at least i accepted | at least i - 1); empty where it is not told."""
        return positions.conditional(self.reached or (), self.steps or 0)

    def deeper(self, depth: int) -> Record:
        """With positions up to this depth: no step accepts a token at one that it cannot have."""
        if self.reached is None:
            return self
        more = (0,) * (depth - len(self.reached))
        return Record(self.drafted, self.accepted, self.steps, self.reached + more, self.between)


def total(records: list[Record]) -> Record | None:
    """All added up; None where there are none."""
    return sum(records[1:], records[0]) if records else None
