"""Does a verification function keep the target's law? Cases from small to large, and a closer look at one of them.

A function is lossless if and only if, whatever it accepts, the token that it writes next has the target's law there:
for every text s, among the calls that accept a path beginning with s, the token behind s (accepted or added) is drawn
from p(. | s). With target sampling behind the step this is the same as: the first depth + 1 tokens have the target's
law. It needs no samples of what comes behind the step, and each s is a test of its own.
"""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec_trees.conformance.calls import ARRAYS, RETURNS, Calls, NonsenseError, Trees
from specdec_trees.conformance.cases import KINDS, Case, Drafted, Member, Text, cases
from specdec_trees.conformance.chains import NAMES, Chains
from specdec_trees.conformance.coins import exact
from specdec_trees.conformance.report import REFUSED, Failure, Report
from specdec_trees.names import unknown
from specdec_trees.statistics.fit import fit

SAMPLES, FEWEST_SAMPLES = 300_000, 1000
KEPT = (6, 1)
"""How many cases are asked anew behind the first round, and behind the second: those that fit least.

The smallest is always among them, since a bias that is everywhere shows there: p of its rare token is 0.05.
"""
ROUNDS = len(KEPT) + 1
"""Each has the same part of the calls, and of `REFUSED`; its calls are its own, so that its p is right."""
ROUNDING = 1e-9
"""How far exact probabilities may be apart."""
Counts = Mapping[tuple[Member, Text], Mapping[int, float]]
"""By text behind which a token was written, how often each token was."""
Place = tuple[Member, Text, int | None]
"""Behind a text; or in calls behind one that wrote this token first."""
Suspect = tuple[Case, Member | None]
"""A case, and the member that looked suspicious."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The test of a case with the smallest p, which counts no other test."""

    p: float
    failure: Failure


def check(
    verify: Callable[..., Any],
    draws: str,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    arrays: str = "torch",
    returns: str = "nodes",
) -> Report:
    """Ask a verification function for its law, case by case, and stop at the first that it fails.

    `verify(tokens, parents, draft_probs, target_probs, rng) -> (accepted, next token)`: the root is node 0, parents
    come before children, siblings stand in the order in which they were drawn, and both laws have a row per node.
    `accepted` are nodes below the root, or with `returns="tokens"` their tokens. `rng` is a seeded `torch.Generator`,
    with `arrays="numpy"` a numpy `Generator`; of the same seed and samples the same report comes. A last parameter
    that is named `coins` is a `Coins`, laws are float64, and what comes is exact. A function with a parameter
    `draft_token_ids` is called with chains of many requests (`chains.py`). `draws` is how children were drawn: one of
    `KINDS`.

    ValueError for options that are none, or a function that cannot be called so.
    """
    if draws not in KINDS:
        raise ValueError(unknown("kind of draws", draws, KINDS))
    if arrays not in ARRAYS or returns not in RETURNS or samples < FEWEST_SAMPLES:
        raise ValueError(f"arrays is one of {ARRAYS}, returns of {RETURNS}, samples at least {FEWEST_SAMPLES}")
    rng, names = np.random.default_rng(seed), parameters(verify)
    if "draft_token_ids" in names:
        if (draws, arrays, returns) != ("chain", ARRAYS[0], RETURNS[0]):
            raise ValueError("a sampler of chains takes torch tensors and returns token ids; its draws are chain")
        return sampled(Chains(verify, names, seed), [*cases(draws, rng, batched=True)], samples, rng)
    coins, asked = names[-1] == "coins", [*cases(draws, rng)]
    calls = Trees(verify, arrays, returns, seed, double=coins)
    return enumerated(calls, asked) if coins else sampled(calls, asked, samples, rng)


def parameters(verify: Callable[..., Any]) -> list[str]:
    """Names that the function must be given. NonsenseError where they are neither a sampler's nor five."""
    wanted = "verify(tokens, parents, draft_probs, target_probs, rng)"
    try:
        signature = inspect.signature(verify)
        if "draft_token_ids" in signature.parameters:
            return [one.name for one in signature.parameters.values() if one.name in NAMES or one.default is one.empty]
        return [*signature.bind(*range(5)).arguments]
    except (TypeError, ValueError) as error:
        raise NonsenseError(f"it is not callable as {wanted}: {error}") from error


def enumerated(calls: Trees, asked: list[Case]) -> Report:
    """The exact law in every case."""
    count = 0
    for number, case in enumerate(asked, 1):
        try:
            laws = {member: weighted(calls, member) for member in case.members}
        except NonsenseError as error:
            return Report(0.0, count, number, True, Failure(case, str(error)))
        count += sum(len(member.drafted) for member in case.members)
        failure = farthest(
            case, tables({(member, text): one for member, law in laws.items() for text, one in law.items()})
        )
        if failure:
            return Report(0.0, count, number, True, failure)
    return Report(1.0, count, len(asked), True)


def weighted(calls: Trees, member: Member) -> Mapping[Text, float]:
    """The probability of every text over all drafts and coins."""
    law: dict[Text, float] = defaultdict(float)
    for drafted in member.drafted:
        for text, chance in exact(calls, drafted).items():
            law[text] += drafted.prob * chance
    return law


def farthest(case: Case, counts: Counts) -> Failure | None:
    """The token whose probability is farthest off, if any is by more than rounding."""
    off = [
        (abs(p * reach - seen.get(token, 0.0)), member, after, token, p, seen.get(token, 0.0) / reach)
        for (member, after), seen in counts.items()
        for reach in [sum(seen.values())]
        for token, p in enumerate(member.model.p[after])
    ]
    distance, member, after, token, p, came = max(off, key=lambda one: one[0])
    return Failure(case, "", member, after, token, p, came) if distance > ROUNDING else None


def sampled(calls: Calls, asked: list[Case], samples: int, rng: np.random.Generator) -> Report:
    """All cases, then those of them that looked most suspicious, asked anew, and again; the smallest first."""
    suspects: list[Suspect] = [(case, None) for case in asked]
    least, count = 1.0, 0
    for kept in (*KEPT, 0):
        num_tests, findings = sum(case.num_tests for case, _ in suspects), []
        shares = [case.share if member is None else 1 for case, member in suspects]
        for (case, member), share in zip(suspects, shares, strict=True):
            drawn = case.drawn(max(1, int(samples * share / (ROUNDS * sum(shares)))), rng, member)
            finding, count = looked_at(calls, case, drawn), count + len(drawn)
            least = min(least, ROUNDS * num_tests * finding.p)
            if least < REFUSED:
                return Report(least, count, len(asked), False, finding.failure)
            findings.append(finding)
        fit_least = sorted(findings, key=lambda one: one.p)[:kept]
        chosen = {finding.failure.case: finding.failure.member for finding in fit_least}
        chosen.setdefault(asked[0], asked[0].members[-1])
        suspects = [(case, chosen[case]) for case in asked if case in chosen]
    return Report(least, count, len(asked), False)


def looked_at(calls: Calls, case: Case, drawn: Sequence[tuple[Member, Drafted]]) -> Finding:
    """What a function makes of these drafts, and where its next token fits the target's law least."""
    try:
        texts = [*calls.texts([tree for _, tree in drawn])]
    except NonsenseError as error:
        return Finding(0.0, Failure(case, str(error)))
    came = Counter(zip((member for member, _ in drawn), texts, strict=True))
    places: dict[Place, Mapping[int, float]] = {(*place, None): seen for place, seen in tables(came).items()}
    places |= in_turn([member for member, _ in drawn], texts)
    findings = []
    for (member, after, before), seen in places.items():
        fits, times = fit(dict(enumerate(member.model.p[after])), seen), int(sum(seen.values()))
        shares = fits.expected / times, fits.observed / times
        findings.append(Finding(fits.p, Failure(case, "", member, after, fits.worst, *shares, times, before)))
    return min(findings, key=lambda one: one.p)


def in_turn(members: Sequence[Member], texts: Sequence[Text]) -> dict[Place, Counter[int]]:
    """How often each token stood first, by the first token of the call before: random numbers must be fresh."""
    counts: dict[Place, Counter[int]] = defaultdict(Counter)
    for (member, text), before in zip(zip(members[1:], texts[1:], strict=True), texts, strict=False):
        counts[member, (), before[0]][text[0]] += 1
    return counts


def tables(came: Mapping[tuple[Member, Text], float]) -> Counts:
    """By text that was accepted, how often each token stood behind it."""
    counts: dict[tuple[Member, Text], Counter[int]] = defaultdict(Counter)
    for (member, text), count in came.items():
        for place, token in enumerate(text):
            counts[member, text[:place]][token] += count  # type: ignore[assignment]
    return counts
