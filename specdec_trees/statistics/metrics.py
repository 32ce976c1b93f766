"""Metrics of one cell: pure functions from the `steps`, `prompts` and `nodes` frames to a number, a Series or a frame.

Ratios are pooled (ratio of sums) unless the name says `prompt_mean`. Nothing to measure gives nan (or an empty frame),
never an exception. Definitions: `acceptance_length` is A, `expected_acceptance` is E(A), the root counted in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specdec_trees.results.rows import AUTOREGRESSIVE

PHASES = ("tree", "draft", "score", "judge", "commit")
PARTS = ("choice", "sampling", "layout")
"""Of the phase tree, where a drafter records them (DySpec, Figure 4)."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well E(A) foretells A: `gap` = mean E(A) - MAL in tokens, `correlation` = Pearson's over steps."""

    gap: float
    correlation: float


def mal(steps: pd.DataFrame) -> float:
    """Mean acceptance length: new tokens per decoding step, pooled over prompts, every step counted."""
    return _ratio(_sum(steps, "acceptance_length"), len(steps))


def mal_prompt_mean(steps: pd.DataFrame) -> float:
    """Mean over prompts (conversation and turn) of each prompt's own mean acceptance length."""
    if steps.empty:
        return math.nan
    return float(steps.groupby(["prompt_id", "turn"])["acceptance_length"].mean().mean())


def accepted_per_step(steps: pd.DataFrame) -> float:
    """Accepted drafted tokens per decoding step: the bonus or recovered token is left out."""
    return _ratio(_sum(steps, "num_accepted"), len(steps))


def knowing(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps of the conversations that know E(A), which replays by ranks or distributions do not; all if none does."""
    if steps.empty:
        return steps
    known = _expected(steps).notna().groupby(steps["prompt_id"]).transform("any")
    return steps[known] if known.any() else steps


def expected_acceptance(steps: pd.DataFrame) -> float:
    """Mean E(A) over steps that know it, root counted; nan where the drafter has no probabilities."""
    steps = knowing(steps)
    return _ratio(float(_expected(steps).sum(skipna=False)), len(steps))


def calibration(steps: pd.DataFrame) -> Calibration:
    """E(A) against A over all steps that know it; the correlation is nan where either of them does not vary."""
    steps = knowing(steps)
    gap, found = expected_acceptance(steps) - mal(steps), _expected(steps)
    if steps.empty or min(found.nunique(), steps["acceptance_length"].nunique()) < 2:
        return Calibration(gap, math.nan)
    return Calibration(gap, float(found.corr(steps["acceptance_length"])))


def acceptance_rate_depth(steps: pd.DataFrame) -> float:
    """Accepted tokens / drafted depth; nan where nothing was drafted, as in autoregressive decoding."""
    return _ratio(_sum(steps, "num_accepted"), _sum(steps, "depth"))


def acceptance_rate_node(steps: pd.DataFrame) -> float:
    """Accepted tokens / drafted nodes; nan where nothing was drafted."""
    return _ratio(_sum(steps, "num_accepted"), _sum(steps, "num_drafted"))


def accepted_drafts(steps: pd.DataFrame, *, virtual: bool = False) -> pd.Series:
    """Accepted tokens of the draft in every step, m. `virtual`: the first accepted token is the target's own."""
    return _column(steps, "num_accepted") - int(virtual)


def drafted_levels(steps: pd.DataFrame, *, virtual: bool = False) -> pd.Series:
    """Levels of every step's tree that the draft added. `virtual`: the first level is the target's own."""
    return _column(steps, "depth") - int(virtual)


def alpha(steps: pd.DataFrame, levels: int, *, virtual: bool = False) -> float:
    """Acceptance rate of improved MCSD: accepted draft tokens / (steps x `levels`), the most that the draft may add.

    MAL = 1 + alpha x levels, but for paths that end in EOS, which have no bonus token. nan without levels. Source: Lu
    et al. (2024), Tables 2 to 4: longest accepted draft length / maximum draft length, the target's first token
    excluded.
    """
    return _ratio(float(accepted_drafts(steps, virtual=virtual).sum()), len(steps) * levels)


def alpha_drafted(steps: pd.DataFrame, *, virtual: bool = False) -> float:
    """Accepted draft tokens / draft levels that were there: `alpha` for static trees, above it for what ends early."""
    levels = drafted_levels(steps, virtual=virtual)
    return _ratio(float(accepted_drafts(steps, virtual=virtual).sum()), float(levels.sum()))


def acceptance_by_depth(steps: pd.DataFrame) -> pd.Series:
    """Share of steps that accepted at least d tokens, of those whose tree reaches depth d; index d = 1, 2, ..."""
    deepest = 0 if steps.empty else int(steps["depth"].max())
    index = pd.RangeIndex(1, deepest + 1, name="depth")
    shares = []
    for depth in index:
        reached = steps[steps["depth"] >= depth]
        shares.append(_ratio(float((reached["num_accepted"] >= depth).sum()), len(reached)))
    return pd.Series(shares, index=index, dtype="float64", name="acceptance")


def untimed(prompts: pd.DataFrame) -> pd.Series:
    """Which rows no time is of: what was replayed, and all of a conversation in which a CPU or GPU was disturbed.

    Disturbed is a GPU that was throttled or shared, a CPU that stalled. Runs are compared by whole conversations, which
    must be of the same turns in both. `prompts.assign(contaminated=False)` brings the disturbed back in.
    """
    if prompts.empty:
        return pd.Series(False, index=prompts.index)
    replayed = prompts["decode_s"].isna()
    if "contaminated" not in prompts:
        return replayed
    disturbed = prompts["contaminated"].eq(True).fillna(False).astype(bool)
    if disturbed.any():
        disturbed = disturbed.groupby([prompts["run_id"], prompts["prompt_id"]]).transform("any")
    return replayed | disturbed


def timed(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps whose times are all known, as those of replays are not."""
    return steps if steps.empty else steps[steps[[f"{phase}_s" for phase in PHASES]].notna().all(axis=1)]


def joules_per_token(prompts: pd.DataFrame, arm: str) -> float:
    """Energy of the GPU per new token of an arm, prefill included; nan where a row does not know."""
    rows = _timed(prompts, arm)
    if rows.empty or rows["energy_j"].isna().any():
        return math.nan
    return _ratio(_sum(rows, "energy_j"), _sum(rows, "num_new_tokens"))


def tokens_per_s(prompts: pd.DataFrame, arm: str) -> float:
    """Decoded tokens per second of an arm, without the prefill and the first new token, which is drawn from it."""
    rows = _timed(prompts, arm)
    return _ratio(_sum(rows, "num_decoded_tokens"), _sum(rows, "decode_s"))


def tokens_per_s_with_prefill(prompts: pd.DataFrame, arm: str) -> float:
    """New tokens per second of an arm, prefill and the token drawn from it included."""
    rows = _timed(prompts, arm)
    return _ratio(_sum(rows, "num_new_tokens"), _sum(rows, "prefill_s") + _sum(rows, "decode_s"))


def repeated_4grams(prompts: pd.DataFrame, arm: str) -> float:
    """Share of the 4-grams of an arm's outputs that stood earlier in the same output; nan where none has four tokens.

    What loops is foreseen by any draft: near 1 it tells nothing of other text.
    """
    grams = repeated = 0
    for ids in _ok(prompts, arm).get("output_ids", ()):
        tokens = np.asarray(ids).tolist()
        found = [*zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)]
        grams, repeated = grams + len(found), repeated + len(found) - len(set(found))
    return _ratio(repeated, grams)


def target_step_s(prompts: pd.DataFrame) -> float:
    """Seconds of one autoregressive decoding step of the target."""
    rows = _timed(prompts, AUTOREGRESSIVE)
    return _ratio(_sum(rows, "decode_s"), _sum(rows, "num_steps"))


def draft_forward_s(steps: pd.DataFrame) -> float:
    """Seconds of one draft forward; nan where the drafter runs none."""
    steps = timed(steps)
    return _ratio(_sum(steps, "draft_s"), _sum(steps, "draft_forwards"))


def cost_ratio(prompts: pd.DataFrame, steps: pd.DataFrame) -> float:
    """Cost ratio mu: time of a draft forward / of an autoregressive step of the target (OPT-Tree: mu < delta < 1)."""
    return _ratio(draft_forward_s(steps), target_step_s(prompts))


def phase_times(steps: pd.DataFrame) -> pd.Series:
    """Mean seconds per step of the phases tree, draft, score, judge and commit (OPT-Tree Figure 7), nan if replayed.

    Of the tree also its parts choice, sampling and layout, 0 where they were not recorded, and `grown`, what is left.
    """
    steps = timed(steps)
    means = {phase: _ratio(_sum(steps, f"{phase}_s"), len(steps)) for phase in PHASES}
    parts = {part: _ratio(_sum(steps, f"{part}_s") if f"{part}_s" in steps else 0, len(steps)) for part in PARTS}
    found = means | parts | {"grown": means["tree"] - sum(parts.values())}
    return pd.Series(found, dtype="float64", name="seconds").rename_axis("phase")


def acceptance_frequency(nodes: pd.DataFrame, bins: int = 10) -> pd.DataFrame:
    """Share accepted among the nodes whose parent was accepted, by draft probability (OPT-Tree Figure 11).

    One row per bin of equal width over [0, 1]: `bin_centre`, `count`, `frequency` (nan in an empty bin). A probability
    on a border belongs to the bin above it, 1 to the last. Nodes without a probability are in none.
    """
    tested = nodes if nodes.empty else nodes[nodes["parent_accepted"].astype(bool) & nodes["edge_prob"].notna()]
    probs = np.asarray(tested.get("edge_prob", ()), dtype=float)
    accepted = np.asarray(tested.get("accepted", ()), dtype=float)
    index = np.clip((probs * bins).astype(int), 0, bins - 1)
    count = np.bincount(index, minlength=bins)
    hits = np.bincount(index, weights=accepted, minlength=bins)
    frequency = np.divide(hits, count, out=np.full(bins, np.nan), where=count > 0)
    return pd.DataFrame({"bin_centre": (np.arange(bins) + 0.5) / bins, "count": count, "frequency": frequency})


def expected_vs_actual(steps: pd.DataFrame) -> pd.DataFrame:
    """Number of steps for each A (rows) and E(A) rounded half up (columns), without gaps (OPT-Tree Figure 5)."""
    known = _expected(steps).notna()
    if not known.any():
        return pd.DataFrame(dtype="int64")
    found, actual = _expected(steps)[known], steps.loc[known, "acceptance_length"]
    expected = np.floor(found + 0.5).astype("int64")
    counts = pd.crosstab(actual, expected)
    return counts.reindex(index=_span(actual), columns=_span(expected), fill_value=0)


def _expected(steps: pd.DataFrame) -> pd.Series:
    """E(A) of every step, nan where the drafter has no probabilities."""
    return _column(steps, "expected_acceptance").astype(float)


def _span(values: pd.Series) -> pd.RangeIndex:
    return pd.RangeIndex(min(1, int(values.min())), int(values.max()) + 1, name=values.name)


def _ok(prompts: pd.DataFrame, arm: str) -> pd.DataFrame:
    return prompts if prompts.empty else prompts[(prompts["arm"] == arm) & (prompts["status"] == "ok")]


def _timed(prompts: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Those of them whose times count."""
    return _ok(prompts[~untimed(prompts)], arm)


def _sum(frame: pd.DataFrame, column: str) -> float:
    return 0.0 if frame.empty else float(frame[column].sum())


def _column(frame: pd.DataFrame, column: str) -> pd.Series:
    return pd.Series(dtype="int64") if frame.empty else frame[column]


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
