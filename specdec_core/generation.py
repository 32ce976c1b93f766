"""What a decoding run yields: tokens under the stop rules, and one record per step."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_core.errors import NonFiniteLogitsError
from specdec_core.timing import Clock, Tally
from specdec_core.tree import TokenTree, Verdict

SPANS = ("grow", "draft", "layout", "score", "judge", "commit")
"""What every step measures; draft forwards lie inside `grow`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decoding step. Seconds are disjoint and sum to the step's."""

    num_drafted: int
    depth: int
    draft_forwards: int
    draft_tokens: int
    expected_acceptance: float | None
    """E(A): the root stands for the token that the target adds, and counts if it is pending. None where the drafter
    gives no probabilities."""
    num_accepted: int
    """Drafted tokens of the accepted path, up to an EOS; below a virtual root the target's own first one among them."""
    acceptance_length: int
    """A: `num_accepted` + 1, or `num_accepted` where the path ends in EOS or the root was virtual. Not clipped by
    `max_new_tokens`."""
    kept: int
    """Tokens of A that are part of the output."""
    draft_s: float
    tree_s: float
    score_s: float
    judge_s: float
    commit_s: float
    layout_s: float = 0.0
    """The target's mask and positions, a part of `tree_s`."""
    accepted_ranks: list[int] = field(default_factory=list)
    """Place among its siblings in draft order, from 0, of each of the `num_accepted` tokens."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the tree's origin tells, and `<name>_calls` and `<name>_s` of a drafter's own spans, parts of `tree_s`."""

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.draft_s + self.tree_s + self.score_s + self.judge_s + self.commit_s


@dataclass(frozen=True, slots=True)
class Generation:
    """What `generate` returns."""

    tokens: list[int]
    """New tokens; the first is drawn from the prefill and belongs to no step (unless the root is virtual)."""
    finish: str
    """`eos` or `length`."""
    steps: list[Step]
    prefill_s: float
    """Reading the prompt by target and draft."""
    decode_s: float
    """All decoding steps: the sum of their spans."""
    wall_s: float = 0.0
    """The decode loop by the wall clock, what lies between spans and what a watch takes among it."""


class Output:
    """The stop rules: nothing after EOS, nothing beyond `max_new_tokens`; `sink` gets what enters, as it does."""

    def __init__(
        self, max_new_tokens: int, eos_token_ids: Collection[int], sink: Callable[[list[int]], None] | None = None
    ) -> None:
        self.tokens: list[int] = []
        self.finish = "length"
        self._max, self._eos, self._sink = max_new_tokens, frozenset(eos_token_ids), sink

    @property
    def finished(self) -> bool:
        """Whether decoding ends here."""
        return self.finish == "eos" or len(self.tokens) >= self._max

    def extend(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Append up to the first EOS; how many tokens that were before and after clipping to the length."""
        end = next((i + 1 for i, token in enumerate(tokens) if token in self._eos), None)
        tokens = tokens[:end]
        kept = tokens[: self._max - len(self.tokens)]
        self.tokens.extend(kept)
        if self._sink is not None and kept:
            self._sink(list(kept))
        if end is not None and len(kept) == end:
            self.finish = "eos"
        return len(tokens), len(kept)


class Trace:
    """What is remembered of every step; evaluated after the last one, so that no instrument is in the measured time."""

    def __init__(self) -> None:
        self._steps: list[tuple[TokenTree, list[int], int, int, bool]] = []

    def add(self, tree: TokenTree, verdict: Verdict, length: int, kept: int) -> None:
        """Remember a step of `length` new tokens, of which `kept` are in the output.

        Roots are of one kind in all steps: where a distribution is left for the next, this step's root was virtual too.
        """
        path = verdict.path[1 : 1 + min(len(verdict.tokens), length)].tolist()
        self._steps.append((tree.without_draft_probs(), path, length, kept, verdict.next_token is None))

    def generation(self, output: Output, clock: Clock) -> Generation:
        """Evaluate. NonFiniteLogitsError with the step where the draft's probabilities are no numbers."""
        tallies = clock.read()
        steps = [_step(*traced, tallies[number]) for number, traced in enumerate(self._steps)]
        for number, step in enumerate(steps):
            if step.expected_acceptance is not None and not step.expected_acceptance < float("inf"):
                raise NonFiniteLogitsError(f"step {number}: the draft returned NaN or infinite logits")
        prefill_s = tallies[-1]["prefill"].seconds
        decode_s = sum(step.seconds for step in steps)
        return Generation(output.tokens, output.finish, steps, prefill_s, decode_s, clock.wall_s)


def _step(tree: TokenTree, accepted: list[int], length: int, kept: int, virtual: bool, times: dict[str, Tally]) -> Step:
    draft, expected = times["draft"], tree.expected_acceptance
    own = {name: tally for name, tally in times.items() if name not in SPANS}
    return Step(
        num_drafted=tree.num_drafted,
        depth=int(tree.depths.max()),
        draft_forwards=draft.calls,
        draft_tokens=draft.tokens,
        expected_acceptance=None if expected is None else float(expected) - virtual,
        num_accepted=len(accepted),
        acceptance_length=length,
        kept=kept,
        draft_s=draft.seconds,
        tree_s=times["grow"].seconds - draft.seconds + times["layout"].seconds,
        score_s=times["score"].seconds,
        judge_s=times["judge"].seconds,
        commit_s=times["commit"].seconds,
        layout_s=times["layout"].seconds,
        accepted_ranks=_ranks(tree, accepted),
        facts={
            **(tree.origin.told(accepted) if tree.origin else {}),
            **{f"{name}_calls": tally.calls for name, tally in own.items()},
            **{f"{name}_s": tally.seconds for name, tally in own.items()},
        },
    )


def _ranks(tree: TokenTree, nodes: list[int]) -> list[int]:
    """How many earlier siblings each of these nodes has."""
    parents = tree.parents.cpu()
    return [int((parents[:node] == parents[node]).sum()) for node in nodes]
