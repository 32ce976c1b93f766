"""Rows that a run writes on request, as `specdec_trees.results.rows` has the others: `record_<table>=true`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One drafted node (written on request): what the draft thought of it and what became of it."""

    run_id: str
    prompt_id: str
    turn: int
    step: int
    node: int
    parent: int | None = None  # a node of the same step, 0 the root; None in files of before it was kept, like `rank`
    rank: int | None = None  # place among its siblings in draft order, from 0
    depth: int
    edge_prob: float | None  # q(node | parent); of target-initialised trees 0 behind a stop token; None without a draft
    path_prob: float | None
    target_prob: float  # p(node | parent) at the run's temperature; at temperature 0: of the untempered target
    parent_accepted: bool
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRow:
    """The attention mask of one decoding step's tree in one node order (written on request), root included.

    A virtual root is not fed to the target, so that it is part of the prefix here.
    """

    run_id: str
    prompt_id: str
    turn: int
    step: int
    num_nodes: int  # rows of the mask
    num_prefix: int  # cached tokens before the tree, which all of them see
    order: str  # heap | creation | dfs | heavy_path
    block: int  # rows and columns of a block
    num_blocks: int  # with an entry that is seen, key blocks counted from the first cached token (`full`)
    num_tree_blocks: int  # of the nodes among themselves (`tree`)
    parents: list[int]  # of every row, in this order; -1 where it is no row


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationRow:
    """One decoding step under a rule that is not lossless (written on request): how far its distribution is off.

    Where trees are drawn, the distribution is a mean over trees: there is one row per answer, of its first step, and
    `num_trees` says over how many.
    """

    run_id: str
    prompt_id: str
    turn: int
    step: int
    total_variation: float  # of the step's first token: the rule's distribution for the drafted tree, and p
    num_trees: int | None = None  # that were drawn for it
    noise: float | None = None  # what so many trees would show if the distribution were the target's


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """What a rule accepts of one decoding step's tree in the mean over its coins (written on request)."""

    run_id: str
    prompt_id: str
    turn: int
    step: int
    rule: str  # a yaml of conf/verifier whose rule keeps the target's distribution for these draws
    expected_accepted: float  # drafted tokens, given the tree; the target's own is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """One answer in one arm, judged without a judge (written on request); None where there is nothing to compare."""

    run_id: str
    prompt_id: str
    turn: int
    arm: str  # method | autoregressive
    num_words: int
    rouge1: float | None = None  # F1 of ROUGE-1, ROUGE-2 and ROUGE-L, words stemmed; first turns only
    rouge2: float | None = None
    rouge_l: float | None = None
    # ROUGE against the target's own greedy answer to the same prompt
    greedy_rouge1: float | None = None
    greedy_rouge2: float | None = None
    greedy_rouge_l: float | None = None
    log_likelihood: float | None = None  # nats, mean over tokens of log p under the target at the cell's temperature


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One answer as text (written on request), to be judged later or by hand.

    The target's answers are of a conversation of its own: in later turns it sees its own answers, not the method's.
    """

    run_id: str
    prompt_id: str
    turn: int
    arm: str  # method | autoregressive
    question: str  # the user's words in this turn
    answer: str
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementRow:
    """What a judge said of one answer (`python -m specdec_trees.judge`); no score where it gave none."""

    run_id: str
    prompt_id: str
    turn: int
    arm: str  # method | autoregressive
    judge: str  # the model, by the name that its endpoint knows
    prompt_version: str  # of the judge's prompts
    score: float | None  # from 1 to 10
    error: str | None  # why there is no score
    reply: str | None  # all that the judge wrote
    created_utc: str
