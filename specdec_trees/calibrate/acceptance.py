"""Acceptance vectors: how probable it is that child k of a node is the accepted one (Sequoia, section 3.1).

`analytic` follows text sampled from the target alone, whose distribution is that of every lossless method, and averages
at each new token the probabilities that the rule gives to drawn children. `text` follows the dataset's own text in its
place, as Sequoia's tools do: that is another distribution, but an offloaded target is read once a prompt. `counts`
decodes with a star of children and counts. They differ in noise (`analytic` has less) and in where they look: a
decoding step never starts at the token behind an accepted child, and the first token belongs to no step. Where
acceptance does not depend on what was accepted before, which is the positional acceptance assumption, both have the
same expectation.
"""

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from tqdm import tqdm

from specdec_core.errors import PromptError
from specdec_core.models import Pair
from specdec_core.search import check_acceptance, isotonic
from specdec_core.verifiers import Verifier
from specdec_core.verifiers.rounds import EPS
from specdec_trees.calibrate.estimators import AcceptanceRequest, Estimator, Sums
from specdec_trees.results.kept_rows import AcceptanceRow
from specdec_trees.statistics.intervals import ratio_of_sums

__all__ = ["AcceptanceRequest", "AcceptanceVector", "measure", "rows"]

log = logging.getLogger(__name__)
CURVES = ("p", "low", "high", "rejection", "rejection_low", "rejection_high")
COLUMNS = ("p", "p_low", "p_high", *CURVES[3:])
"""Their columns in the table `acceptance`."""
ORIGIN = ("pair", "dataset", "device_name")
WEIGHTS = ("target_revision", "draft_revision")
"""Facts that older vectors lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceVector:
    """A measured vector; entry k - 1 of every list belongs to k children. Bounds are nan below six prompts."""

    request: AcceptanceRequest
    p: list[float]
    """Probability that child k is the accepted one, unconditional and as measured."""
    low: list[float]
    """95% intervals over prompts, nan below six."""
    high: list[float]
    rejection: list[float]
    """Probability that k children are all rejected. SpecTr's rule judges a child by the number of its siblings, so that
    this is no sum over `p`; `counts` knows it of `width` children only, and has nan elsewhere."""
    rejection_low: list[float]
    rejection_high: list[float]
    exponent: float | None
    """b of rejection ~ k^-b; None where fewer than two points lie above rounding."""
    num_prompts: int
    num_positions: int
    facts: dict[str, str]
    """Where it comes from: pair, dataset and device_name."""

    def __post_init__(self) -> None:
        check_acceptance(self.p)
        if {len(getattr(self, name)) for name in CURVES} != {len(self.p)}:
            raise ValueError(f"{', '.join(CURVES)} must have one entry per child position, all of them")
        if self.num_prompts < 1 or self.num_positions < 1:
            raise ValueError("an acceptance vector needs at least one prompt and one position")

    @property
    def reject(self) -> float:
        """Probability that all children are rejected."""
        return 1 - sum(self.p)

    @property
    def vector(self) -> list[float]:
        """What a tree search is given: `p` smoothed as the request says, with the same sum."""
        return isotonic(self.p).tolist() if self.request.smooth == "isotonic" else list(self.p)

    @classmethod
    def from_rows(cls, request: AcceptanceRequest, found: pd.DataFrame) -> Self:
        """What `rows` made rows of, in any order. ValueError where they are not those of one vector."""
        found = found.sort_values("k")
        if found["k"].tolist() != [*range(1, len(found) + 1)] or found["run_id"].nunique() != 1:
            raise ValueError("no acceptance vector: it needs one row for each of its children")
        first = found.iloc[0]
        return cls(
            request=request,
            **{name: found[column].tolist() for name, column in zip(CURVES, COLUMNS, strict=True)},
            exponent=None if pd.isna(first["exponent"]) else float(first["exponent"]),
            num_prompts=int(first["num_prompts"]),
            num_positions=int(first["num_positions"]),
            facts={name: str(first[name]) for name in (*ORIGIN, *WEIGHTS) if not pd.isna(first[name])},
        )


def measure(
    pair: Pair,
    prompts: list[list[int]],
    rule: Verifier,
    request: AcceptanceRequest,
    *,
    eos_token_ids: Collection[int] = (),
    num_prompt: int | None = None,
    progress: bool = True,
    facts: dict[str, str] | None = None,
) -> AcceptanceVector:
    """The acceptance vector of a pair, a rule and its draws over prompts (token ids), texts for the estimator `text`.

    A prompt that does not fit is passed over, as in cells. PairError for a rule that is not lossless for the draws,
    PromptError where no prompt fits, ValueError where there is nothing to measure.
    """
    estimate = Estimator(pair, rule, request, eos_token_ids, num_prompt)
    bar = tqdm(prompts, desc=f"acceptance {request.verifier}", unit="prompt", disable=not progress)
    sums, problems = [], []
    for index, prompt in enumerate(bar):
        try:
            sums.append(estimate(index, prompt))
        except PromptError as problem:
            problems.append(problem)
    if problems and not sums:
        raise problems[0]
    if problems:
        log.warning("%d of %d prompts were passed over; the first: %s", len(problems), len(prompts), problems[0])
    positions = sum(found.num_positions for found in sums)
    if not positions:
        raise ValueError("no position to measure at: give prompts whose answers take more than one token")
    curves = _curves(sums)
    return AcceptanceVector(
        request=request,
        **curves,
        exponent=power_law(curves["rejection"]),
        num_prompts=len(sums),
        num_positions=positions,
        facts=dict(facts or {}),
    )


def _curves(sums: list[Sums]) -> dict[str, list[float]]:
    """Means over positions and their intervals, by the names of the vector's fields."""
    curves: dict[str, list[float]] = {name: [] for name in CURVES}
    frame = pd.DataFrame({"positions": [found.num_positions for found in sums]}).rename_axis("prompt_id").reset_index()
    for kind, names in (("accepted", CURVES[:3]), ("rejected", CURVES[3:])):
        for column in np.stack([getattr(found, kind) for found in sums], 1):
            known = not np.isnan(column).any()
            interval = ratio_of_sums(frame.assign(sum=column), "sum", "positions", scale="logit") if known else None
            for name, bound in zip(names, ("value", "low", "high"), strict=True):
                sound = interval is not None and (bound == "value" or interval.known)
                curves[name].append(getattr(interval, bound) if sound else math.nan)
    return curves


def power_law(rejection: list[float]) -> float | None:
    """The b of r_k ~ k^-b: least squares of log r_k on log k where r_k is not just rounding; None below two points."""
    values = np.array(rejection)
    (found,) = np.nonzero(values > EPS)
    if len(found) < 2:
        return None
    slope, _ = np.polyfit(np.log(found + 1), np.log(values[found]), 1)
    return -float(slope)


def rows(vector: AcceptanceVector, run_id: str) -> list[AcceptanceRow]:
    """One row per number of children, for the table `acceptance`."""
    request = vector.request
    asked: dict[str, Any] = {
        name: getattr(request, name) for name in ("verifier", "draws", "temperature", "top_p", "estimator")
    }
    asked |= {"draft_temperature": request.draft_temperature, "draft_top_p": request.draft_top_p}
    origin: dict[str, Any] = {name: vector.facts.get(name, "") for name in ORIGIN}
    origin |= {name: vector.facts.get(name) for name in WEIGHTS}
    return [
        AcceptanceRow(
            run_id=run_id,
            **origin,
            **asked,
            width=len(vector.p),
            num_prompts=vector.num_prompts,
            num_positions=vector.num_positions,
            k=k,
            **dict(zip(COLUMNS, entries, strict=True)),
            exponent=vector.exponent,
        )
        for k, entries in enumerate(zip(*(getattr(vector, name) for name in CURVES), strict=True), 1)
    ]
