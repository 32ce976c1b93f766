"""The lines of Traversal's artifacts: a tree under a rule of acceptance, ours beside the paper's numbers.

Rules of one tree stand in a block of their own, so that each is marked and judged against those of its tree alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, frame, tables
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, TOKENS_PER_S, Metric
from specdec_trees.artifacts.notes import model_words
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

PAPER = "traversal"
ALL = "all"
"""What stands for the tasks of a number that is of all of them."""
APART = ", "
"""Between rule and tree in an arm's header."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree in words, our method, the shape that its runs must have, and what the params of the paper's rows say."""

    words: str
    method: str
    shape: Mapping[str, Any]
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of acceptance as the paper calls it, ours, and the method of the paper's rows."""

    words: str
    verifier: str
    paper: str


def _of_depth(words: str, method: str, depth: int, **shape: Any) -> Tree:
    return Tree(words, method, {**shape, "depth": depth}, {"tree": method, "depth": str(depth)})


def chain(depth: int) -> Tree:
    """A sequence of so many tokens."""
    return _of_depth(f"chain of {depth}", "chain", depth, _target_="specdec_core.shapes.chain")


def binary(depth: int) -> Tree:
    """The complete binary tree of so many levels below its root."""
    return _of_depth(f"binary, depth {depth}", "binary", depth, _target_="specdec_core.shapes.kary", branching=2)


EAGLE = Tree("EAGLE's sparse tree", "eagle_tree", {"_target_": "specdec_core.shapes.eagle25"}, {"tree": "eagle_tree"})
TREES = (chain(5), binary(5), EAGLE)
CHAINS = tuple(map(chain, (2, 4, 6, 8)))
BINARIES = tuple(map(binary, (2, 3, 4, 5)))
TOKEN_LEVEL = Rule("token-level", "without_replacement", "token_level")
TRAVERSAL = Rule("Traversal", "traversal", "traversal")
RRS, RRSW = Rule("RRS", "spec_infer", "rrs"), Rule("RRSw", "without_replacement", "rrsw")
SPEC_HUB = Rule("SpecHub", "greedy_one", "spec_hub")


def _arms(trees: Sequence[Tree], *rules: Rule) -> tuple[Arm, ...]:
    return tuple(_arm(tree, rule) for tree in trees for rule in rules)


def _arm(tree: Tree, rule: Rule) -> Arm:
    header, given = f"{rule.words}{APART}{tree.words}", {"shape": tree.shape}
    return Arm(header, (tree.method,), rule.paper, tree.params, given=given, rules=(rule.verifier,))


ARMS: Mapping[str, Sequence[Arm]] = {
    **{name: _arms(TREES, TOKEN_LEVEL, TRAVERSAL) for name in ("table2", "table3", "table4", "table6")},
    "fig3": _arms((*CHAINS, *BINARIES), TOKEN_LEVEL, TRAVERSAL),
    "spechub": _arms(tuple(map(binary, (1, 2, 3, 4))), RRS, RRSW, SPEC_HUB),
}
"""By artifact its trees under its rules."""


def by_item(steps: pd.DataFrame) -> Sample:
    """The mean over conversations of each one's new tokens a step, as the paper's Appendix D has it."""
    pooled = samples.mal(steps)
    each = samples.mean(pooled.sums["tokens"] / pooled.sums["steps"])
    return replace(each, least=pooled.least, most=pooled.most)


BY_ITEM = Metric(
    "mal_by_item",
    "MAL by item",
    "new tokens / decoding steps of each conversation, mean over conversations, bonus token counted: as the paper "
    "counts (Appendix D), so that long answers count no more than short ones",
    lambda run: by_item(run.steps),
    ranked=True,
)
GAIN = Metric(
    "gain",
    "over token-level",
    "MAL by item of Traversal / that of the token-level rule on trees of the same shape, paired over conversations; in "
    "brackets the 95% interval. The paper's: of its printed values",
    lambda run: None,
    3,
    judged=False,
)
METRICS = (BY_ITEM, MAL, TOKENS_PER_S, SPEEDUP)
NAMES = {
    BY_ITEM.key: "acceptance_length",
    MAL.key: "acceptance_length_by_token",
    TOKENS_PER_S.key: "tokens_per_s",
    SPEEDUP.key: "speedup",
}
"""The paper's metrics by the key of ours."""


def of_runs(
    runs: pd.DataFrame,
    paper: pd.DataFrame,
    methods: Sequence[Arm],
    on: Sequence[str],
    metrics: Sequence[Metric],
    names: Mapping[str, str] = NAMES,
) -> pd.DataFrame:
    """The long frame of these arms beside the paper's rows; a block for each tree, `rule` and `tree` in words.

    `on` has the columns that the paper states of a setting.
    """
    rows = arms.rows(runs, paper, methods, on)
    words = [model_words(row, ("dataset", "temperature")) for row in named_rows(rows)]
    rule, tree = zip(*(label.split(APART, 1) for label in rows["label"]), strict=True)
    rows = frame.put(rows, target_words=[one for one, _ in words], draft_words=[one for _, one in words])
    rows = frame.put(rows, rule=rule, tree=tree)
    rows = frame.put(rows, block=rows.groupby(["block", "tree"], sort=False).ngroup())
    return arms.beside(frame.measure(rows, metrics), names)


def lead(long: pd.DataFrame, metric: Metric, gain: Metric, first: Rule, other: Rule, **how: Any) -> pd.DataFrame:
    """Rows of `gain`: in those of the first rule what it has over the other on its tree; `how` is of `frame.over`."""
    firsts, others = (
        {label for label in long["label"] if label.startswith(one.words + APART)} for one in (first, other)
    )
    return frame.over(long, metric, others, gain, firsts, **how)


def gains(long: pd.DataFrame) -> pd.DataFrame:
    """The frame with Traversal's gains over the token-level rule, by MAL by item."""
    how = {"of": lambda one, row: _ratio(row.sample, one.sample), "printed": lambda one, row: row / one}
    return pd.concat([long, lead(long, BY_ITEM, GAIN, TRAVERSAL, TOKEN_LEVEL, **how)], ignore_index=True)


def trend(long: pd.DataFrame, kind: str, x: str) -> Iterator[str]:
    """A sentence for each pair and `kind` of tree: Traversal's gain where `x` is least and where it is largest."""
    known = long[long["metric"].isin([GAIN]) & long["interval"].notna()]
    for (pair, tree), rows in known.groupby(["pair", kind], sort=False):
        ends = [*named_rows(rows.sort_values(x, kind="stable").iloc[[0, -1]])]
        at = [f"{tables.ratio(row.interval)} at {x} {getattr(row, x):g}" for row in ends]
        paper = " and ".join(tables.number(row.published, 3) for row in ends)
        yield f"{pair}, {tree}: Traversal over token-level is {' and '.join(at)}; the paper's {paper}."


def _ratio(first: Sample | None, other: Sample | None) -> Interval | None:
    return samples.paired_ratio(first, other) if first and other else None


def pooled(long: pd.DataFrame) -> pd.DataFrame:
    """The lines of several tasks as one each, over the conversations of all: of a rule's tasks those that all have.

    The paper's numbers are those of the rows. Its six tasks are not all run: such a line is judged by its order alone.
    """
    setting = ["pair", "temperature", "top_p", "seed", "max_new_tokens", "device_name", "dtype", "tree", "metric"]
    parts = [_together(rows) for _, rows in long.groupby(setting, sort=False, dropna=False)]
    made = pd.concat(parts, ignore_index=True)
    return frame.put(made, block=made.groupby(setting[:-1], sort=False, dropna=False).ngroup())


def _together(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each rule of a tree, of one metric."""
    known = rows[rows["sample"].notna()].drop_duplicates(["label", "dataset"], keep="last")
    by_rule = {label: dict(zip(own["dataset"], own["sample"], strict=True)) for label, own in known.groupby("label")}
    tasks = [name for name in known["dataset"].unique() if all(name in own for own in by_rule.values())]
    firsts = pd.concat([known, rows]).drop_duplicates("label").sort_index()
    sums = [[by_rule[label][name] for name in tasks if label in by_rule] for label in firsts["label"]]
    made = frame.of_values(firsts, [_sum(tasks, own) if own else None for own in sums])
    ids = [" ".join(known.loc[known["label"] == label, "run_ids"]) for label in made["label"]]
    busy = [bool(known.loc[known["label"] == label, "busy"].any()) for label in made["label"]]
    words = f"all: {' + '.join(tasks)}" if tasks else ALL
    return frame.put(made, dataset=[words] * len(made), run_ids=ids, busy=busy, stand_in=[True] * len(made))


def _sum(tasks: Sequence[str], several: Sequence[Sample]) -> Sample:
    """One metric over the conversations of several tasks."""
    sums = pd.concat({task: one.sums for task, one in zip(tasks, several, strict=True)})
    controls = tuple(control for one in several for control in one.controls)
    least, most = min(one.least for one in several), max(one.most for one in several)
    return replace(several[0], sums=sums, controls=controls, least=least, most=most)


def of_paper(name: str) -> pd.DataFrame:
    """The paper's rows of an artifact."""
    return published.find(PAPER, name)
