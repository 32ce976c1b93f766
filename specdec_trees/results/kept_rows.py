"""The rows of what is measured once and kept for all that use it: recordings, times, acceptance vectors.

Written by `specdec_trees.calibrate.kept` and `specdec_trees.measure.record`. Units and words are those of
`specdec_trees.results.rows`, which lists all tables.
"""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "calibration"
"""The experiment of a results folder that has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """Time of one forward of a model over a number of tokens behind a cached prefix."""

    run_id: str
    pair: str
    role: str  # target | draft
    model_id: str
    device_name: str
    dtype: str
    num_tokens: int
    num_prefix: int
    repeat: int
    forward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRow:
    """Time of one attention of a batch of one over a random tree, and the blocks of its mask.

    Block counts are named as in `MaskRow`.
    """

    run_id: str
    device_name: str
    dtype: str
    torch_version: str
    kernel: str  # tree_triton | sdpa | manual | flex_attention
    num_nodes: int  # queries: the tree's nodes, root included
    num_prefix: int
    order: str  # creation | dfs | heavy_path
    block: int
    heads: int
    kv_heads: int
    head_dim: int
    tree: int  # its number; the generator's seed is the grid's and this
    num_blocks: int
    num_tree_blocks: int
    repeats: int
    prepare_s: float  # what is done once per forward for its mask, whatever the number of layers
    forward_s: float  # median of the repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRow:
    """What the rows of a measured acceptance vector and of the trees for it have in common."""

    run_id: str  # of the vector
    pair: str
    dataset: str
    device_name: str
    verifier: str
    draws: str
    temperature: float
    top_p: float
    target_revision: str | None = None  # of the weights, as in `runs`; None in older files, like the next one
    draft_revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRow(VectorRow):
    """One position of an acceptance vector: child k of an accepted node."""

    draft_temperature: float
    draft_top_p: float
    estimator: str  # analytic | counts
    width: int
    num_prompts: int
    num_positions: int
    k: int  # from 1, in draw order
    p: float  # probability that child k is the accepted one
    p_low: float  # 95% interval over prompts, nan below six (specdec_trees.statistics.intervals)
    p_high: float
    rejection: float  # probability that k children are all rejected; nan where it was not measured
    rejection_low: float
    rejection_high: float
    exponent: float | None  # b of rejection ~ k^-b over the whole vector


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRow(VectorRow):
    """Expected tokens per step of one tree structure at one size, for a measured acceptance vector."""

    structure: str  # sequoia | k_sequences | k_ary | binary | sequence
    n: int  # drafted nodes, root excluded
    num_branches: int | None  # K or k, the best for this n
    depth: int
    expected_tokens: float  # F(T), root counted
    parents: list[int]  # of every node, the root (-1) among them


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """What a decision model says of one drafted token that it was not trained on, and what became of the token."""

    run_id: str  # of the model
    pair: str
    dataset: str
    device_name: str
    kind: str  # hidden | topk
    temperature: float
    num_prompts: int  # that it was trained on
    prompt_id: str
    label: float  # min(1, p/q)
    accepted: bool  # drawn with that probability; at temperature 0: the token is the target's best
    score: float  # in (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRow:
    """The target's own answer to one turn of a conversation (`specdec_core.replay`)."""

    run_id: str  # of the recording: all answers of a target to a dataset
    pair: str
    target_id: str
    target_revision: str | None
    dataset: str
    device_name: str
    dtype: str
    torch_version: str
    prompt_id: str
    turn: int
    prompt_ids_sha256: str
    prompt_ids: list[int]
    answer_ids: list[int]  # with what stands behind the output, so that the last step's tree can be judged
    gaps: list[
        float
    ]  # of each token of the answer, the best logit less the second best; none of an engine's or of drawn ones
    ended: bool  # in an end-of-sequence token
    eos_ids: list[int]
    vocab_size: int
    max_positions: int | None
    layers: list[int]  # whose features lie in `features/<run_id>`, in a file named by the digest of prompt and answer
    error: str | None  # why the prompt was refused
    distributions: bool | None = None  # whether what it was drawn from lies beside the features; None in older files
    series: str | None = None  # of recordings that differ in how many prompts and tokens they have; None in older files
    git_revision: str | None = None  # of the code that decoded it; None in older files
