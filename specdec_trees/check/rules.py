"""What rows must hold among themselves, a rule each: a name, a sentence, the columns it holds, and what breaks it.

Rules read whole frames (`joined`). A rule that honest rows break is wrong: all of the committed results keep these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specdec_trees.check.joined import LENT, Joined
from specdec_trees.results.rows import OK
from specdec_trees.results.ties import HALF
from specdec_trees.statistics.metrics import PHASES

ROUNDING = 1e-9
"""Sums over the same numbers in another order."""
CLOCKS = 1e-3
"""By what share spans on a GPU's own clock may exceed the wall's."""
FAR, FAR_ARM = 0.25, 0.1
"""How far a turn's share of the loop's wall time in spans may be from its arm's, and an arm's from its neighbours'."""
SHORT = 4
"""Steps of a turn whose share of time tells little."""
REPEATS = 2
"""Times that a stalled turn was decoded again before it is given up."""
SHOWN = 3
"""Rows of a rule that are named."""
FIXED = ("StaticTree", "Sequoia")
"""Drafters whose trees are all of one shape."""
NO_DRAFT = ("Autoregressive", "PromptLookup", "SuffixDecoding")
LEAST_PREFILL = 0.5
"""Of the target's own prefill, which the method's has too."""
GRAPH = (
    *("num_live", "num_prob_leaf", "num_sib_leaf", "num_alias", "capped", "recurring", "in_recurring", "merge_kl"),
    *("num_behind_merge", "num_in_shared_subtree", "num_displaced", "visited_children"),
)
DECISION, PARTS = ("decision_calls", "decision_s"), ("choice_s", "sampling_s")
GPU = ("sm_clock_mhz", "temperature_c", "power_w", "energy_j", "throttle_reasons", "foreign_processes")
LAUNCHES = ("launches_per_step", "waits_per_step", "joules_per_token", "autoregressive_joules_per_token")

Frame = pd.DataFrame
Broken = Callable[[Frame], "pd.Series[bool]"]


def everywhere(frame: Frame) -> pd.Series:
    """All rows."""
    return pd.Series(True, frame.index)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that rows must hold."""

    name: str
    says: str
    table: str
    columns: Sequence[str]
    broken: Broken
    where: Broken = field(default=everywhere)
    """The rows that it can look at."""


def differing(frame: Frame, keys: Sequence[str], column: str) -> pd.Series:
    """Whether rows of the same keys have several values; a missing one tells nothing."""
    return frame.groupby(list(keys), dropna=False)[column].transform("nunique") > 1


def _several(frame: Frame, key: str, column: str) -> pd.Series:
    """The same of numbers that all rows have."""
    groups = frame.groupby(key)[column]
    return groups.transform("min") != groups.transform("max")


def unnumbered(frame: Frame, keys: Sequence[str], column: str) -> pd.Series:
    """Whether numbers within keys are not 0, 1, 2, ..."""
    groups = frame.groupby(list(keys))[column]
    return (groups.transform("size") != groups.transform("max") + 1) | (frame[column] < 0)


def unlike(frame: Frame, column: str) -> pd.Series:
    """Whether a column differs from that of the method's turn, or of the target's."""
    there, alone = frame[f"{column}_method"], frame[f"{column}_alone"]
    return _apart(frame[column], there) | _apart(frame[column], alone)


def _apart(left: pd.Series, right: pd.Series) -> pd.Series:
    known = left.notna().to_numpy(bool) & right.notna().to_numpy(bool)
    found = np.zeros(len(left), bool)
    found[known] = left[known].to_numpy(object) != right[known].to_numpy(object)
    return pd.Series(found, left.index)


def _bool(values: pd.Series) -> pd.Series:
    return values.fillna(False).astype(bool)


def _length(s: Frame) -> pd.Series:
    cut = s["kept"] < s["acceptance_length"]  # before the EOS that ends the path
    ends = s["last"] & ((s["finish"] == "eos") | cut) & (s["beyond"] == 0)
    return (s["beyond"] != 1 - s["virtual"].astype(int)) & ~ends


def _kept(s: Frame) -> pd.Series:
    whole = ~s["last"] | (s["finish"] == "eos")
    return (s["kept"] < 1) | (s["kept"] > s["acceptance_length"]) | (whole & (s["kept"] != s["acceptance_length"]))


def _ranks(s: Frame) -> pd.Series:
    wrong = s["ranked"] & ((s["num_ranks"] != s["num_accepted"]) | (s["depth"] + s["sum_ranks"] > s["num_drafted"]))
    return wrong | _several(s, "cell", "ranked") | (s["recent"] & ~s["ranked"])


def _tree(s: Frame) -> pd.Series:
    order = (s["num_accepted"] >= 0) & (s["num_accepted"] <= s["depth"]) & (s["depth"] <= s["num_drafted"])
    fixed = s["class"].isin(FIXED) & (_several(s, "cell", "num_drafted") | _several(s, "cell", "depth"))
    none = (s["class"] == "Autoregressive") & (s["num_drafted"] != 0)
    return ~order | fixed | none | (s["num_drafted"] > s["size"])


def _expected(s: Frame) -> pd.Series:
    least, most = 1 - 1e-6, s["depth"] + 1 - s["virtual"].astype(int) + 1e-5
    known = s["expected_acceptance"].notna()
    return (known & ~s["expected_acceptance"].between(least, most)) | _several(
        s.assign(known=known), "turn_code", "known"
    )


def _same_steps(s: Frame) -> pd.Series:
    """Turns of other prompts whose E(A), which depends on the text, is that of another turn in its cell."""
    known = s.loc[s["prompt"] >= 0, ["turn_code", "cell", "prompt", "expected_acceptance"]]
    turns = known.drop_duplicates("turn_code").set_index("turn_code")
    turns = turns.join(known.groupby("turn_code")["expected_acceptance"].agg(["sum", "min", "max"]))
    key = ["cell", "sum", "min", "max"]
    turns = turns[(turns["min"] < turns["max"]) & turns.duplicated(key, keep=False)]
    return s["turn_code"].isin(turns.index[differing(turns, key, "prompt")])


def _drafting(s: Frame) -> pd.Series:
    none = s["draft_forwards"] == 0
    counts = (s["draft_forwards"] < 0) | (s["draft_tokens"] < s["draft_forwards"]) | (none & (s["draft_tokens"] != 0))
    return (
        counts
        | (s["draft_s"].notna() & (none != (s["draft_s"] == 0)))
        | (~s["foreign"] & (none != s["class"].isin(NO_DRAFT)))
    )


def _phases(s: Frame) -> pd.Series:
    times = s[[f"{phase}_s" for phase in PHASES]]
    known, parts = times.notna().all(axis=1), s[["decision_s", "choice_s", "sampling_s", "layout_s"]]
    wrong = (times < 0).any(axis=1) | (parts < 0).any(axis=1) | (s["score_s"] == 0) | (s["tree_s"] == 0)
    return (known != s["timed"]) | (times.notna().any(axis=1) != known) | wrong


def _parts(s: Frame) -> pd.Series:
    called = s["decision_calls"].notna() != s["decision_s"].notna()
    untold = (s["cpu"] & (s["layout_s"] == 0)) | (s["recent"] & s["layout_s"].isna())
    return (s["parts"] > s["tree_s"] * (1 + ROUNDING)) | ((called | untold) & s["timed"])


def _of_others(s: Frame) -> pd.Series:
    wrong = pd.Series(False, s.index)
    for may, columns in (("has_graph", GRAPH), ("has_decision", DECISION), ("has_parts", PARTS)):
        rows = s.loc[~s[may], list(columns)]
        wrong |= rows.notna().any(axis=1).reindex(s.index, fill_value=False)
    return wrong


def _graph(s: Frame) -> pd.Series:
    counts = s[["num_behind_merge", "num_in_shared_subtree", "num_displaced"]].astype(float)
    wrong = counts.gt(s["num_accepted"].astype(float), axis=0).any(axis=1) | counts.lt(0).any(axis=1)
    wrong |= _bool(s[["num_live", "num_prob_leaf", "num_sib_leaf", "num_alias"]].astype(float).lt(0).any(axis=1))
    told = s["num_visited"] >= 0
    return wrong | (told & ((s["num_visited"] != s["num_accepted"] + 1) | (s["sum_visited"] > s["num_drafted"])))


def _alone(p: Frame) -> pd.Series:
    steps = (p["num_steps"] != p["num_decoded_tokens"]) | (p["num_new_tokens"] != p["num_decoded_tokens"] + 1)
    return steps & ~p["method"]


def _first(p: Frame) -> pd.Series:
    return p["method"] & (p["num_new_tokens"] - p["num_decoded_tokens"] != 1 - p["virtual"].astype(int))


def _most(p: Frame) -> pd.Series:
    """The tokens that a turn may have."""
    room = (p["room"] - p["num_prompt_tokens"]).astype(float)
    return pd.Series(np.fmin(p["max_new_tokens"].astype(float), room), p.index)


def _finish(p: Frame) -> pd.Series:
    length, most = p["finish"] == "length", _most(p)
    wrong = (length & (p["num_new_tokens"] != most)) | (p["num_new_tokens"] > most) | (p["num_new_tokens"] < 1)
    return wrong | ~p["finish"].isin(["eos", "length"]) | (_bool(p["ignore_eos"]) & ~length)


def _ends(p: Frame) -> pd.Series:
    """The tokens that end answers are those that answers of the target ended with; elsewhere they stand in none."""
    asked = ~_bool(p["ignore_eos"])
    last = pd.Series([int(ids[-1]) if len(ids) else -1 for ids in p["output_ids"]], p.index)
    ended = asked & (p["finish"] == "eos")
    stops = {target: set(last[ended & (p["target_id"] == target)]) for target in p.loc[ended, "target_id"].unique()}
    rows = zip(p["output_ids"], p["target_id"], p["finish"], strict=True)
    early = [
        bool(stops.get(target)) and not stops[target].isdisjoint(ids[: len(ids) - (finish == "eos")].tolist())
        for ids, target, finish in rows
    ]
    return (asked & pd.Series(early, p.index, dtype=bool)) | (_bool(p["identical_turn"]) & unlike(p, "finish"))


def _times(p: Frame) -> pd.Series:
    known = p[["prefill_s", "decode_s"]].notna().all(axis=1)
    any_known = p[["prefill_s", "decode_s", "wall_s"]].notna().any(axis=1)
    still = (p["decode_s"] > 0) != (p["num_steps"] > 0)
    wrong = (p["prefill_s"] <= 0) | still | (p["wall_s"] < p["decode_s"] * (1 - CLOCKS))
    wrong |= p["recent"] & p["wall_s"].isna()
    return (p["timed"] & (~known | wrong)) | (~p["timed"] & p["ok"] & any_known)


def _share(p: Frame) -> pd.Series:
    usual = p.groupby(["run_id", "arm"])["share"].transform("median")
    of_arms = p.groupby(["device_name", "target_id", "arm"], dropna=False)["share"].transform("median")
    of_cpu = p.groupby(["device_name", "target_id"], dropna=False)["share"].transform("median")
    near = pd.Series(np.where(p["driver_version"].isna(), of_cpu, of_arms), p.index)
    return ((p["share"] - usual).abs() > FAR) | ((usual - near).abs() > FAR_ARM)


def _prefill(p: Frame) -> pd.Series:
    shares = (p["prefill_s"] / p["prefill_s_alone"]).groupby(p["run_id"])
    return (shares.transform("median") < LEAST_PREFILL) & (shares.transform("size") >= SHORT)


def _stalled(p: Frame) -> pd.Series:
    """Turns that were disturbed in either arm."""
    return _bool(p["contaminated_method"]) | _bool(p["contaminated_alone"])


def _longer(p: Frame) -> pd.Series:
    order = p.sort_values("turn", kind="stable")
    return (order.groupby(["run_id", "prompt_id", "arm"])["num_prompt_tokens"].diff() <= 0).reindex(p.index)


def _prompt(p: Frame) -> pd.Series:
    wrong = unlike(p, "prompt_ids_sha256") | unlike(p, "num_prompt_tokens") | (p["num_prompt_tokens"] < 1)
    wrong |= p["target_revision"].notna() & p["prompt_ids_sha256"].isna()
    first = p["turn"] == 0
    key = ["target_id", "template", "data", "prompt_id"]
    wrong |= first & (differing(p[first], key, "num_prompt_tokens").reindex(p.index, fill_value=False))
    return wrong | differing(p, ["prompt_ids_sha256"], "num_prompt_tokens") & p["prompt_ids_sha256"].notna()


def _targets_own(p: Frame) -> pd.Series:
    key = ["target_id", "target_revision", "dtype", "device_name", "max_new_tokens", "ignore_eos", "prompt_ids_sha256"]
    return differing(p, key, "output_sha256")


def _of_target(p: Frame) -> pd.Series:
    return p["ok"] & p["greedy"] & ~p["method"] & ~p["dtype"].isin(HALF) & p["prompt_ids_sha256"].notna()


def _lent(p: Frame) -> pd.Series:
    """A lender none of whose turns agree was measured again; a later turn may be a cell's that answered alike."""
    lent = p["start"].isna()
    apart = pd.concat([_apart(p[column], p[f"{column}_lender"]) for column in LENT], axis=1).any(axis=1) & lent
    again = apart.where(lent).groupby([p["run_id"], p["baseline_of"]]).transform("all").fillna(False).astype(bool)
    turns = pd.MultiIndex.from_frame(p[["prompt_id", "turn", "prompt_ids_sha256", *LENT]])
    return apart & ~again & ~((p["turn"] > 0) & turns.isin(turns[~lent]))


def _copied(p: Frame) -> pd.Series:
    own = p["method"] | p["baseline_of"].isna() | p["start"].notna()
    rows = p[p["timed"] & own & (p["num_steps"] > 0)]
    lenders = rows["run_id"].isin(p["baseline_of"].dropna().unique()) & ~rows["method"]
    return (
        rows.duplicated(["prefill_s", "decode_s"], keep=False).where(~lenders, False).reindex(p.index, fill_value=False)
    )


def _failed(p: Frame) -> pd.Series:
    later = p["turn"] < p.groupby(["run_id", "prompt_id"])["turn"].transform("max")
    counts = p[["num_new_tokens", "num_decoded_tokens", "num_steps"]].astype(bool).any(axis=1)
    wrong = ~p["ok"] & (counts | later | p["error"].isna() | ~p["method"] | (p["finish"] != "failed"))
    return wrong | (p["ok"] & p["error"].notna())


def _disturbed(p: Frame) -> pd.Series:
    cpu = p["driver_version"].isna() & _bool(p["contaminated"]) & ~_bool(p["repeats"] >= REPEATS)
    together = p["start_method"].notna().to_numpy(bool) & p["start_alone"].notna().to_numpy(bool)
    wrong = unlike(p, "repeats") | (unlike(p, "contaminated") & p["driver_version"].isna())
    return cpu | (wrong & together) | _bool((p["repeats"] < 0) | (p["repeats"] > REPEATS))


def _audit(p: Frame) -> pd.Series:
    left = ~_bool(p["identical"]) & p["identical"].notna()
    wrong = (p["divergence_gap"].notna() != left) | _bool(p["divergence_gap"] < 0) | _bool(p["largest_logit"] < 0)
    told = p["largest_logit"].notna() & ~left
    return wrong | told | (p["identical_float32"].notna() & ~p["dtype"].isin(HALF))


def _expected_draws(p: Frame) -> pd.Series:
    known = p["expected_steps"].notna()
    drawn = p["recording"].notna() & ~p["greedy"] & p["method"]
    return known & (~drawn | (p["expected_steps"] < 1) | (p["expected_length"] < p["expected_steps"] * (1 - 1e-6)))


def _settings(r: Frame) -> pd.Series:
    wrong = differing(r, ["data", "limit"], "prompts_sha256")
    wrong |= r["target_revision"].notna() & r["prompt_ids_sha256"].isna() & (r["status"] == OK)
    key = ["data", "limit", "target_id", "target_revision", "template", "template_date"]
    return wrong | differing(r, key, "prompt_ids_sha256") | differing(r, ["data"], "dataset_id")


def _limit(r: Frame) -> pd.Series:
    count = (r["num_conversations"] + r["num_failed"]).astype(float)
    short = count < r["limit"]
    whole = count.groupby(r["data"]).transform("max")
    return (count > r["limit"]) | (short & (count < whole)) | (count < 1)


def _draws(r: Frame) -> pd.Series:
    asked = [
        "none" if kind == "Autoregressive" else parameters.get("draws", "topk")
        for kind, parameters in zip(r["class"], r["parameters"], strict=True)
    ]
    fits = [
        draws.endswith(one) or (one == "none" and draws == "topk") for draws, one in zip(r["draws"], asked, strict=True)
    ]
    return ~pd.Series(fits, r.index, dtype=bool)


def _origin(r: Frame) -> pd.Series:
    known = r["git_revision"].isna() | r["git_revision"].str.fullmatch("[0-9a-f]{40}")
    moments = pd.to_datetime(r["created_utc"], utc=True, errors="coerce", format="ISO8601")
    return ~_bool(known) | ~_bool(moments <= pd.Timestamp.now("UTC") + pd.Timedelta("1D"))


def _weights(r: Frame) -> pd.Series:
    return _apart(r["target_revision"], r["target_files"]) | _apart(r["draft_revision"], r["draft_files"])


def _interval(r: Frame) -> pd.Series:
    low, value, high = (r[name].astype(float) for name in ("speedup_low", "speedup", "speedup_high"))
    return (low > value * (1 + ROUNDING)) | (high < value * (1 - ROUNDING)) | (low.isna() != high.isna())


def _ended(r: Frame) -> pd.Series:
    return (r["status"] == OK) == r["error"].notna()


def _nodes(n: Frame) -> pd.Series:
    return (
        (n["num_nodes"] != n["num_drafted"]) | (n["accepted_nodes"] != n["num_accepted"]) | (n["deepest"] != n["depth"])
    )


RULES = (
    Rule(
        "acceptance length",
        "A is one more than what was accepted, but where EOS ends it, or the root was the target's",
        "steps",
        ("acceptance_length", "num_accepted"),
        _length,
    ),
    Rule(
        "kept", "all of A is in the output, but for a turn's last step", "steps", ("kept", "acceptance_length"), _kept
    ),
    Rule(
        "ranks",
        "each accepted token has a rank, older files apart, and its earlier siblings are in the tree",
        "steps",
        ("accepted_ranks",),
        _ranks,
    ),
    Rule(
        "trees",
        "accepted <= depth <= drafted <= the config's size; fixed trees are all alike",
        "steps",
        ("num_accepted", "depth", "num_drafted"),
        _tree,
    ),
    Rule("expected acceptance", "1 <= E(A) <= depth + 1", "steps", ("expected_acceptance",), _expected),
    Rule(
        "answers of their own",
        "no turn has the E(A) of another prompt's, step by step",
        "steps",
        ("expected_acceptance",),
        _same_steps,
    ),
    Rule(
        "drafting",
        "who drafts has draft forwards, tokens and seconds",
        "steps",
        ("draft_forwards", "draft_tokens"),
        _drafting,
    ),
    Rule(
        "phases",
        "no phase is negative, and replays have none",
        "steps",
        tuple(f"{phase}_s" for phase in PHASES),
        _phases,
    ),
    Rule(
        "parts of the tree's time",
        "they are no longer than the whole, and laying a tree out takes time",
        "steps",
        ("decision_s", "decision_calls", "choice_s", "sampling_s", "layout_s"),
        _parts,
    ),
    Rule(
        "columns of drafters",
        "only token graphs, decision models and DySpec's recorded parts have their columns",
        "steps",
        (*GRAPH, *DECISION, *PARTS),
        _of_others,
    ),
    Rule(
        "token graphs",
        "what is behind merges was accepted, and what was visited was drafted",
        "steps",
        ("num_behind_merge", "num_in_shared_subtree", "num_displaced", "visited_children"),
        _graph,
        lambda s: s["num_live"].notna(),
    ),
    Rule(
        "steps in order",
        "steps are numbered from 0",
        "steps",
        ("step",),
        lambda s: unnumbered(s, ["turn_code"], "step"),
    ),
    Rule(
        "turns in order",
        "turns are numbered from 0",
        "prompts",
        ("turn",),
        lambda p: unnumbered(p, ["run_id", "prompt_id", "arm"], "turn"),
    ),
    Rule(
        "target alone",
        "a step of the target alone is a token",
        "prompts",
        ("num_steps", "num_decoded_tokens"),
        _alone,
        lambda p: p["ok"],
    ),
    Rule(
        "first token",
        "the prefill gives one token, or the first tree",
        "prompts",
        ("num_new_tokens", "num_decoded_tokens"),
        _first,
        lambda p: p["ok"],
    ),
    Rule(
        "finish",
        "who was not ended by EOS has all tokens that were asked for",
        "prompts",
        ("finish", "num_new_tokens"),
        _finish,
        lambda p: p["ok"],
    ),
    Rule(
        "last token",
        "answers end with EOS where they say so, and have none elsewhere",
        "prompts",
        ("finish", "output_ids"),
        _ends,
        lambda p: p["ok"],
    ),
    Rule(
        "times",
        "0 < decode <= wall, which older files alone lack, and replays have none",
        "prompts",
        ("prefill_s", "decode_s", "wall_s"),
        _times,
    ),
    Rule(
        "prefill",
        f"a cell's prefills take at least {LEAST_PREFILL:g} of the target's alone, in the median",
        "prompts",
        ("prefill_s",),
        _prefill,
        lambda p: p["method"] & p["timed"] & p["prefill_s_alone"].notna() & p["start_alone"].notna() & ~_stalled(p),
    ),
    Rule(
        "GPU",
        "only a GPU has clocks, temperature, power and energy",
        "prompts",
        GPU,
        lambda p: p["cpu"] & p[list(GPU)].notna().any(axis=1),
    ),
    Rule(
        "launches",
        "only a GPU has launches, waits and joules",
        "runs",
        LAUNCHES,
        lambda r: r["cpu"] & r[list(LAUNCHES)].notna().any(axis=1),
    ),
    Rule(
        "starts",
        "a cell was started at least once, and older files alone do not say",
        "runs",
        ("num_starts",),
        lambda r: _bool(r["num_starts"] < 1) | (r["recent"] & r["num_starts"].isna()),
        lambda r: r["status"] == OK,
    ),
    Rule(
        "share of time",
        f"the spans' share of the wall time is within {FAR:g} of its arm's, and an arm's within {FAR_ARM:g} "
        "of its neighbours'",
        "prompts",
        ("decode_s", "wall_s"),
        _share,
        lambda p: p["timed"] & p["wall_s"].notna() & (p["num_steps"] >= SHORT),
    ),
    Rule(
        "same prompt",
        "both arms read the same tokens, and all cells of one setting; older files alone have no digests",
        "prompts",
        ("prompt_ids_sha256", "num_prompt_tokens"),
        _prompt,
        lambda p: p["ok"],
    ),
    Rule(
        "longer prompts",
        "a later turn's prompt is longer than the one before",
        "prompts",
        ("num_prompt_tokens",),
        _longer,
        lambda p: p["ok"],
    ),
    Rule(
        "target's answer",
        "a greedy target answers one prompt alike in all cells",
        "prompts",
        ("output_ids", "output_sha256"),
        _targets_own,
        _of_target,
    ),
    Rule(
        "lent baseline",
        "a lent turn is the lender's or, if a later one, another cell's, unless all of the lender's are others",
        "prompts",
        ("decode_s", "output_ids"),
        _lent,
        lambda p: ~p["method"] & (p["start"].notna() | p["num_steps_lender"].notna()),
    ),
    Rule("measured once", "no two turns took the very same times", "prompts", ("prefill_s", "decode_s"), _copied),
    Rule(
        "failures", "a failed turn has an error, no tokens and no later turn", "prompts", ("status", "error"), _failed
    ),
    Rule(
        "disturbances",
        "only what was decoded again and again is left out of times, in both arms",
        "prompts",
        ("repeats", "contaminated"),
        _disturbed,
    ),
    Rule(
        "audit",
        "outputs that part have a gap, others none",
        "prompts",
        ("divergence_gap", "largest_logit", "identical_float32"),
        _audit,
        lambda p: p["method"],
    ),
    Rule(
        "means over draws",
        "only replays that sample have them",
        "prompts",
        ("expected_steps", "expected_length"),
        _expected_draws,
    ),
    Rule(
        "category",
        "a prompt is of one category",
        "prompts",
        ("category",),
        lambda p: differing(p, ["data", "prompt_id"], "category"),
    ),
    Rule(
        "same settings",
        "cells of the same settings are of the same prompts",
        "runs",
        ("prompts_sha256", "prompt_ids_sha256", "dataset_id"),
        _settings,
        lambda r: r["prompts_sha256"] != "",  # no prompt was read
    ),
    Rule(
        "limit",
        "conversations are as many as the limit, or the dataset, has",
        "runs",
        ("num_conversations", "num_failed"),
        _limit,
        lambda r: r["status"] == OK,
    ),
    Rule("draws", "trees are drawn as the config says", "runs", ("draws",), _draws, lambda r: r["status"] == OK),
    Rule(
        "origin",
        "code's revisions are commits, and no cell is of tomorrow",
        "runs",
        ("git_revision", "created_utc"),
        _origin,
    ),
    Rule(
        "weights",
        "they are the files that the config names",
        "runs",
        ("target_revision", "target_files", "draft_revision", "draft_files"),
        _weights,
    ),
    Rule("interval", "the speedup is within its interval", "runs", ("speedup_low", "speedup_high"), _interval),
    Rule("end", "only what did not end well has an error", "runs", ("status", "error"), _ended),
    Rule("nodes", "a step's nodes are as many as were drafted and accepted", "nodes", ("num_nodes",), _nodes),
)


def broken(frames: Joined) -> Iterator[tuple[Rule, int, list[str]]]:
    """Of each rule the number of rows that have what it holds, and sentences about those that break it."""
    for rule in RULES:
        frame: Frame = getattr(frames, rule.table)
        rows = frame if rule.where is everywhere or frame.empty else frame[rule.where(frame)]
        wrong = np.flatnonzero(_bool(rule.broken(rows))) if len(rows) else np.zeros(0, int)
        yield (
            rule,
            _filled(rows, rule.columns),
            [*_sentences(rule, rows.iloc[wrong[:SHOWN]]), *_more(rule, len(wrong) - SHOWN)] if len(wrong) else [],
        )


def _filled(rows: Frame, columns: Sequence[str]) -> int:
    """Rows in which any of these columns has a value."""
    filled = np.zeros(len(rows), bool)
    for column in columns:
        if not filled.all():
            filled |= rows[column].notna().to_numpy(bool)
    return int(filled.sum())


def _more(rule: Rule, count: int) -> list[str]:
    return [f"{rule.name}: {count} more rows"] if count > 0 else []


def _sentences(rule: Rule, wrong: Frame) -> Iterator[str]:
    keys = [key for key in ("prompt_id", "turn", "arm", "step") if key in wrong and key not in rule.columns]
    columns = [column for column in rule.columns if column in wrong and column != "output_ids"]
    for row in wrong.to_dict("records"):
        place = ", ".join(f"{key} {row[key]}" for key in keys)
        values = ", ".join(f"{column} {row[column]}" for column in columns)
        yield f"cell {row['run_id']}{f', {place}' if place else ''}: {rule.name} ({rule.says}): {values}"
