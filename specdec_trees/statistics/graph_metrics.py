"""Metrics of token graphs as GSD's tables define them: pure functions from the `steps` frame of one run.

A sample is a prompt (conversation and turn). Where the paper leaves a definition open, the one taken is in the
docstring and in the header of its column (`specdec_trees.artifacts.definitions`). Steps without a graph give nan.
"""

from __future__ import annotations

import math
from itertools import zip_longest

import pandas as pd

SAMPLE = ["prompt_id", "turn"]
PER_TOKENS = 512
"""Drafted tokens are told for so many generated ones (GSD, appendix A)."""
OPERATIONS = {"draft": ("draft_s", "tree_s"), "verification": ("score_s", "judge_s"), "others": ("commit_s",)}
"""Table 3: draft forwards and graph work; target forward and judging; the rest, mostly the caches."""


def samples(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per sample, `prompt_id` and `turn` first, with what GSD's tables average over samples.

    `acceptance_rate`: accepted drafted tokens / draft forwards, bonus excluded; may exceed 1 behind merge edges.
    `accepted_per_step`: accepted drafted tokens / decoding steps. The counts are sums over steps, scaled to
    `PER_TOKENS` generated tokens: `created` = live + pruned by probability + pruned beside a sibling, root excluded;
    `drafted` = live + pruned by probability + one root per step, the paper's Drafted Token Num as far as its numbers
    tell; `aliases` = redundant candidates, which are merge edges; `sib_leaves` = pruned beside a sibling; `verified` =
    nodes of the trees that the target judged, root excluded.
    """
    columns = ["num_accepted", "draft_forwards", "kept", "num_live", "num_prob_leaf", "num_sib_leaf", "num_alias"]
    grouped = steps.groupby(SAMPLE, sort=False)
    sums = grouped[[*columns, "num_drafted"]].sum(min_count=1).astype(float)
    rounds, scale = grouped.size(), PER_TOKENS / (sums["kept"] + 1)  # the first new token is the prefill's
    live_or_improbable = sums["num_live"] + sums["num_prob_leaf"]
    frame = pd.DataFrame(
        {
            "acceptance_rate": sums["num_accepted"] / sums["draft_forwards"].where(sums["draft_forwards"] > 0),
            "accepted_per_step": sums["num_accepted"] / rounds,
            "created": (live_or_improbable + sums["num_sib_leaf"]) * scale,
            "drafted": (live_or_improbable + rounds) * scale,
            "aliases": sums["num_alias"] * scale,
            "sib_leaves": sums["num_sib_leaf"] * scale,
            "verified": sums["num_drafted"] * scale,
        }
    )
    return frame.reset_index()


def capped_share(steps: pd.DataFrame) -> float:
    """Share of the steps whose verified tree lacks nodes of the graph for its cap; nan without a graph."""
    known = steps["capped"].dropna().astype(float)
    return float(known.mean()) if len(known) else math.nan


def accepted_children(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per accepted drafted token: `prompt_id`, `turn` and `child`, its rank among its siblings from 1."""
    found = steps[[*SAMPLE, "accepted_ranks"]].explode("accepted_ranks").dropna()
    return found.assign(child=found["accepted_ranks"].astype(int) + 1).drop(columns="accepted_ranks")


def visited_nodes(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per visited node: `prompt_id`, `turn`, `children` and `accepted`, the rank from 1 of the accepted child.

    The root and every accepted token are visited; `accepted` is 0 where no child was. The share of nodes by `accepted`
    is GSD's Figures 7 and 8.
    """
    columns = ["visited_children", "accepted_ranks"]
    known = steps.reindex(columns=[*SAMPLE, *columns]).dropna(subset=columns)
    rows = [
        (prompt_id, turn, count, taken + 1)
        for prompt_id, turn, counts, ranks in zip(*(known[name] for name in known), strict=True)
        for count, taken in zip_longest(counts, ranks, fillvalue=-1)
    ]
    return pd.DataFrame(rows, columns=[*SAMPLE, "children", "accepted"])


def recurrences(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per graph and length n of which it has a path: `prompt_id`, `turn`, `n` and two shares (Figure 3).

    `recurring` is the share of its n-grams that recur, `in_recurring` that of its tokens which are part of one;
    `draft_forwards` are the levels that were drafted.
    """
    shares = ["recurring", "in_recurring"]
    known = steps.reindex(columns=[*SAMPLE, "draft_forwards", *shares]).dropna(subset=shares)
    found = known.explode(shares)
    found["n"] = found.groupby(level=0).cumcount() + 1
    return found.astype(dict.fromkeys(shares, float)).dropna(subset="recurring")


def merge_divergences(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per merge edge that was measured: `prompt_id`, `turn`, `kl` in nats (GSD, Table 5)."""
    if not len(steps):
        return pd.DataFrame(columns=[*SAMPLE, "kl"])
    found = steps.loc[steps["merge_kl"].notna(), [*SAMPLE, "merge_kl"]].explode("merge_kl")
    return found.dropna().rename(columns={"merge_kl": "kl"}).astype({"kl": float}).reset_index(drop=True)
