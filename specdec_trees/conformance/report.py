"""What `check` found, in values and in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_trees.conformance.cases import Case, Member, Text, depth

REFUSED = 1e-6
"""A function is refused below this p, which counts all tests of the check: at most so often if it is right."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The smallest case in which a function failed."""

    case: Case
    reason: str = ""
    """What it returned or raised; empty where its law differs."""
    member: Member | None = None
    after: Text = ()
    """The accepted tokens behind which its next token has another law than the target's."""
    token: int = 0
    """The token that is farthest off."""
    expected: float = 0.0
    observed: float = 0.0
    """The token's probability there, and its share of the times that the function came there; or its exact one."""
    times: int = 0
    """How often it came there; 0 where the law is exact."""
    before: int | None = None
    """The first token of the call before, where it should make no difference."""

    def lines(self) -> Iterator[str]:
        """The case, what came, and the laws."""
        member = self.member or self.case.members[-1]
        yield (
            f"smallest failing case: {len(member.parents) - 1} drafted nodes (parents {[*member.parents]}), "
            f"vocabulary {self.case.vocab}, draws {self.case.draws}"
        )
        if self.reason:
            yield self.reason
            return
        came = f"with {self.observed:.12g}"
        if self.times:
            came = f"{self.observed * self.times:.0f} of {self.times} times ({self.observed:.3f})"
        before = "" if self.before is None else f", right behind a call that wrote {self.before} first"
        yield (
            f"behind the accepted tokens {[*self.after]} token {self.token} has probability {self.expected:.12g}, "
            f"and came {came}{before}"
        )
        yield "the laws, target's | draft's"
        for text, p in member.model.p.items():
            if len(text) <= depth(member.parents):
                rows = (" ".join(f"{prob:.4g}" for prob in probs) for probs in (p, member.model.q[text]))
                yield f"    after {[*text]}: {' | '.join(rows)}"


@dataclass(frozen=True, slots=True)
class Report:
    """Whether a function keeps the target's law, as far as so many calls show."""

    p: float
    """Probability that a right function differs so much in any of the tests; 0 for what it can never return."""
    drafts: int
    """Drafted trees that it was asked about."""
    cases: int
    exact: bool
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return self.failure is None

    def __str__(self) -> str:
        """A line, and the smallest failing case below it."""
        how = "its exact law, all coins enumerated" if self.exact else f"p = {self.p:.2g}, refused below {REFUSED:.0e}"
        head = f"{'passed' if self.passed else 'REFUSED'}: {self.cases} cases, {self.drafts} drafted trees; {how}"
        return "\n".join([head, *(self.failure.lines() if self.failure else ())])
