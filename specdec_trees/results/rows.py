"""The rows that a run writes: one dataclass per table, from which the parquet schema is derived.

What each column of `runs` is to a comparison is in its type (`specdec_trees.results.roles`). Units are in the names
(`*_s` seconds); words are those of the glossary in `specdec_core`. Lists of token ids keep what was generated, so that
quality can be judged later without running again.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_trees.results.instrument_rows import (
    AnswerRow,
    JudgementRow,
    MaskRow,
    NodeRow,
    QualityRow,
    RuleRow,
    VariationRow,
)
from specdec_trees.results.kept_rows import (
    AcceptanceRow,
    AttentionRow,
    DecisionRow,
    GrowthRow,
    LatencyRow,
    RecordingRow,
)
from specdec_trees.results.roles import Label, Loaded, Machine, Method, Options, Result, Setting
from specdec_trees.results.schema import schema as schema

SCHEMA_VERSION = 1
METHOD, AUTOREGRESSIVE = "method", "autoregressive"
"""The two arms of a paired measurement."""
OK = "ok"
"""Status of a cell, or of a turn, that ended well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One cell: what was run, how it ended, its aggregates, where it ran."""

    run_id: Label[str]
    schema_version: Label[int]
    experiment: Label[str]
    status: Result[str]  # ok | oom | failed | interrupted
    error: Result[str | None]  # the last lines of what went wrong
    created_utc: Label[str]

    pair: Setting[str]
    target_id: Setting[str]
    target_revision: Loaded[str | None]  # the hub's commit, or the digest of a folder's files; None in older files
    draft_id: Setting[str | None]
    draft_revision: Loaded[str | None]
    dataset: Setting[str]
    dataset_id: Label[str]
    prompts_sha256: Loaded[str]  # over the ids and texts of the prompts that were run
    prompt_ids_sha256: Loaded[str | None] = None  # over the token ids of first turns; None in older files
    template_date: Loaded[str | None] = None  # that the tokenizer's template writes; None where it writes none
    drafter: Method[str]  # the name of the config, such as opt_tree_n50
    method: Label[str]  # its name in the papers' tables, such as opt_tree
    drafter_params: Method[str]  # canonical JSON of the constructor's arguments
    draws: Label[str]  # none, or one of sampling.DRAWS; autoregressive decoding said topk in older files
    verifier: Method[str]
    lossless: Label[bool]
    temperature: Setting[float]
    top_p: Setting[float]
    seed: Options[int]
    max_new_tokens: Options[int]
    config: Label[str]  # canonical JSON of the whole scientific config

    num_conversations: Result[int]  # of the cell's prompts, those that ended well
    num_failed: Result[int]
    mal: Result[float | None]
    mal_prompt_mean: Result[float | None]
    expected_acceptance: Result[float | None]  # mean E(A) over steps; None where the drafter has no probabilities
    acceptance_rate_depth: Result[float | None]
    acceptance_rate_node: Result[float | None]
    tokens_per_s: Result[float | None]  # decode only, prefill excluded
    autoregressive_tokens_per_s: Result[float | None]
    speedup: Result[float | None]
    speedup_low: Result[float | None]  # 95% interval over conversations, None below six
    speedup_high: Result[float | None]
    ignore_eos: Options[bool | None] = None  # answers go on behind EOS; None in older files
    node_order: Options[str | None] = None  # of a tree in the target's forward; None in older files
    graphs: Options[str | None] = None  # as forwards ran: specdec_core.models.graphs has the words; None in older files
    attention_kernels: Label[str | None] = None  # of torch's, that the warm-up met: flash, efficient, math, ...
    predicted_mal: Result[float | None] = None  # F(T) of a static tree for its measured acceptance vector
    predicted_speedup: Result[float | None] = None  # of the tree that was chosen by measured forward times
    excerpt: Result[str | None] = None  # the start of the first answer, the target's own where there is a baseline
    baseline_of: Result[str | None] = None  # the run whose autoregressive arm this one shares, if it has not its own
    recording: Label[str | None] = None  # of the target, on which the cell was replayed; such a run has no times
    other_load: Result[float | None] = None  # cores kept busy by other processes while prompts were decoded, mean
    joules_per_token: Result[float | None] = None  # of a GPU, with prefill; None where NVML is silent, as the next two
    autoregressive_joules_per_token: Result[float | None] = None
    num_contaminated: Result[int | None] = None  # outputs that no time is of: GPU throttled or shared, CPU stalled
    num_repeated: Result[int | None] = None  # turns that were decoded again, since a CPU was stalled
    num_starts: Result[int | None] = None  # above 1 the cell was killed or preempted, and resumed
    limit_tokens_per_s: Result[float | None] = None  # as fast as memory is read; None where a cache may do
    waits_per_step: Result[float | None] = None  # of the host for a GPU, over a few steps; None elsewhere, as the next
    launches_per_step: Result[float | None] = None  # kernels, and graphs as one each; of `runtime.count_launches` alone
    identical: Result[float | None]  # share of outputs equal to the autoregressive arm's, greedy decoding only

    device_name: Machine[str]
    dtype: Machine[str]
    num_threads: Machine[int]
    wait_policy: Machine[str | None] = None  # how OpenMP's threads wait; None where the environment does not say
    package_version: Machine[str]
    git_revision: Machine[str | None]
    git_dirty: Machine[bool | None]
    python_version: Machine[str]
    torch_version: Machine[str]
    transformers_version: Machine[str]
    cuda_version: Machine[str | None]
    driver_version: Machine[str | None]
    attention: Options[str]
    slurm_job_id: Label[str | None]
    slurm_array_task_id: Label[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One turn of one conversation in one arm, and its audit against the autoregressive arm."""

    run_id: str
    prompt_id: str
    category: str | None
    turn: int
    arm: str  # method | autoregressive
    status: str  # ok | failed
    error: str | None
    num_prompt_tokens: int
    num_new_tokens: int
    num_decoded_tokens: int  # of decoding steps; with a pending root all but the first, which the prefill gives
    num_steps: int
    finish: str  # eos | length | failed
    prefill_s: float
    decode_s: float
    output_sha256: str
    output_ids: list[int]
    identical: bool | None  # to the autoregressive output; None where decoding is random
    first_divergence: int | None  # index of the first new token that differs
    divergence_gap: float | None  # the target's best logit there less that of the worse of the two tokens
    wall_s: float | None = None  # of the decode loop, what `decode_s` leaves out between spans included
    # of the GPU, as NVML told before and behind this decoding; None where it did not
    sm_clock_mhz: int | None = None  # at the end, as temperature and power
    temperature_c: int | None = None
    power_w: float | None = None
    energy_j: float | None = None  # prefill included
    throttle_reasons: str | None = None  # comma-separated, "" for none
    foreign_processes: int | None = None  # that compute on it too
    contaminated: bool | None = None  # GPU throttled or shared, CPU stalled at every repetition: left out of times
    repeats: int | None = None  # how often the turn was decoded again for a stall; None on a GPU and in older files
    other_load: float | None = None  # cores that others took while this was decoded; None on a GPU and in older files
    prompt_ids_sha256: str | None = None  # of the token ids that were decoded; None in older files
    expected_steps: float | None = None  # mean over all draws, given the output (`renewal`); of replays that sample
    expected_length: float | None = None  # the same of the sum of their acceptance lengths
    start: int | None = None  # of its run's starts the one that decoded it; None of lent rows and in older files
    largest_logit: float | None = None  # the larger of these two, by absolute value; None in older files
    identical_float32: bool | None = (
        None  # both arms again in float32; None but for the first prompts in half precision
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One decoding step of the method arm. The five times sum to the step's."""

    run_id: str
    prompt_id: str
    turn: int
    step: int
    num_drafted: int  # tree size n, root excluded
    depth: int  # of the deepest drafted node
    draft_forwards: int
    draft_tokens: int  # tokens fed through the draft model
    expected_acceptance: float | None  # E(A), root counted; None where the drafter has no probabilities
    num_accepted: int  # drafted tokens on the accepted path
    acceptance_length: (
        int  # A = num_accepted + 1, or num_accepted below a virtual root or if the path ends in EOS; not clipped
    )
    kept: int  # tokens of A that are in the output
    draft_s: float  # draft forwards
    tree_s: float  # growing the tree, forwards excluded, and laying it out for the target
    score_s: float
    judge_s: float
    commit_s: float
    accepted_ranks: list[int] | None = None  # place among its siblings, from 0, of each accepted token
    # of trees that come from a token graph (GSD; see `specdec_core.graph`), None for others; root excluded
    num_live: int | None = None
    num_prob_leaf: int | None = None
    num_sib_leaf: int | None = None
    num_alias: int | None = None  # merge edges
    capped: bool | None = None  # nodes of the graph were left out of the verified tree for its cap
    num_behind_merge: int | None = None  # accepted tokens whose path crosses a merge edge
    num_in_shared_subtree: int | None = None  # accepted tokens below a node that others are merged into, by either path
    num_displaced: int | None = None  # accepted tokens whose place in the verified tree is not that in the graph
    visited_children: list[int] | None = None  # of the root and of each accepted token
    recurring: list[float] | None = None  # for n = 1, 2, ...: share of the records whose n-gram recurs in the graph
    in_recurring: list[float] | None = None  # share of the records inside such an n-gram
    merge_kl: list[float] | None = None  # nats, of every merge edge, where a MergeProbe drafted
    # of trees that a decision model may end early (`EarlyStop`), None where it was not asked
    decision_calls: int | None = None
    decision_s: float | None = None  # a part of `tree_s`
    # parts of `tree_s`, None in older files; the first two of DySpec's drafters with `record_parts`
    choice_s: float | None = None  # choosing nodes, and making the tree of them
    sampling_s: float | None = None  # the draft's probabilities, and drawing tokens from them
    layout_s: float | None = None  # the target's mask and positions


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRow:
    """How fast a machine would run a cell, by times of forwards there (`specdec_trees.speed.predicted`)."""

    run_id: str
    machine: str
    tokens_per_s: float | None
    speedup: float | None


TABLES: dict[str, type] = {
    "runs": RunRow,
    "prompts": PromptRow,
    "steps": StepRow,
    "nodes": NodeRow,
    "masks": MaskRow,
    "variation": VariationRow,
    "rules": RuleRow,
    "quality": QualityRow,
    "answers": AnswerRow,
    "judgements": JudgementRow,
    "predictions": PredictionRow,
    "latency": LatencyRow,
    "attention": AttentionRow,
    "acceptance": AcceptanceRow,
    "growth": GrowthRow,
    "decisions": DecisionRow,
    "recordings": RecordingRow,
}
RECORDED = ("nodes", "masks", "variation", "rules", "quality", "answers")
"""Tables of a cell that are written where `record_<table>` asks for them."""
OF_STEPS = ("steps", "nodes", "masks", "variation", "rules")
"""Tables that have a row for each step, or more."""
AFTERWARDS = ("judgements", "predictions")
"""Those that are made of a cell's rows when it has ended."""
