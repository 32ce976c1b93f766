"""GSD's methods with the paper's parameters, what is measured of their runs, and how these find the paper's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import pandas as pd

from bench import published
from bench.artifacts import definitions, tables
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block, blocks, drafted, every_run
from bench.artifacts.grid import Setting
from bench.artifacts.metric import Metric, lossless_words, measured
from bench.artifacts.runs import Run, per_row
from bench.artifacts.sweep import series
from bench.artifacts.wording import draft_temperatures, left_out, other_runs, scale, stand_ins
from bench.results.store import Results
from bench.statistics import graph_metrics
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

TEMPERATURE, TOP_P = 0.7, 0.7
"""Of all sampling in the paper (appendix A)."""
MAX_STEPS = 10
UNSTATED = frozenset({"draft_temperature", "draws", "draft_node_cap", "verify_cap", "unmerge_depth"})
"""Arguments of our drafters of which the paper states nothing in its tables, or of which a note tells."""
DATASETS = {"wmt14": "wmt14_en_de"}
"""The published name of a dataset, where it is not ours."""
TARGETS = ("target_sample", "greedy")
"""Rules that ask the target alone."""
DRAWN = ("spec_infer", "chain")
"""Rules for what was drawn from q; of one child per node they are speculative sampling."""
LOSSY, CODE = ("gsd_nondeterministic",), ("gsd_nondeterministic_code",)
SSD = Arm("SSD", ("ssd",), "ssd", rules=TARGETS)
SSD_NO_EXIT = Arm("SSD, no exit", ("ssd_noexit",), "", rules=TARGETS)
SSD_DRAWN = Arm("SSD, drawn", ("ssd_iid",), "", rules=DRAWN)
TSD = Arm("TSD", ("tsd",), "tsd", rules=TARGETS)
TSD_SIB = Arm("TSD, sibling pruning", ("tsd_sib",), "", rules=TARGETS)
GSD = Arm("GSD", ("gsd",), "gsd", rules=TARGETS)
GSD_LEAVES = Arm("GSD, pruned as leaves", ("gsd_leaves",), "", rules=TARGETS)
GSD_CODE = Arm("GSD, pruned as in its code", ("gsd_code",), "", rules=TARGETS)
PRUNING = {"gsd": "siblings", "tsd_sib": "siblings", "gsd_leaves": "paper", "gsd_code": "code"}
"""What becomes of candidates that are pruned beside a sibling, by drafter."""
READINGS = (
    "The paper says that a node pruned beside a sibling is a leaf, and that it need not be kept. GSD leaves it out, as "
    "every public version does; pruned as leaves: the target reads it too; as in its code: candidates are merged "
    "before theta_prob, into leaves and round cycles too, and improbable nodes are read until no other is left."
)
MEDUSA = Arm("Medusa", ("medusa",), "medusa", rules=TARGETS)
SSD_ADAPTIVE = Arm("SSD, adaptive exit", ("ssd_adaptive",), "", rules=TARGETS)
SELF = Arm("Self SSD", ("ssd_adaptive",), "self_ssd", rules=TARGETS)
NO_HARDWARE = "The paper does not state its hardware: speedups are judged by order alone."
MEANS_TIED = (
    "Mean speedups of two methods are tied, too, where the autoregressive arms of either decoding lie as far apart."
)
LOSSY_RULE = (
    "(lossy): min(1, p/q) for every child alone and the longest path that is accepted, which does not keep the "
    "target's distribution (variation). (code): the same as the paper's code runs it, p and q of temperature 1 and the "
    "arg max after the path; the paper's numbers stand beside it. Its SSD may have been speculative sampling, which is "
    "lossless: SSD, drawn."
)


LARGE = {"tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}
"""The thresholds of 70B: Tables 1 to 4 (appendix A)."""
SMALL = {"tau": 1, "theta_prob": 0.4, "theta_sib": 0.1}
"""Those of 7B and 13B: Tables 6 to 9 (captions), and 10, which states tau alone."""
GREEDY, SAMPLED = 0, 1
"""Which of the runs of a cell that has both decodings."""


def bound(arm: Arm, thresholds: Mapping[str, float], *, k: int = 4) -> Arm:
    """The arm of the runs with the paper's parameters; one without runs of ours as it is.

    SSD drafts one child and, like TSD, neither merges nor prunes siblings.
    """
    if not arm.ours:
        return arm
    drafter = arm.ours[0]
    if drafter in ("ssd_adaptive", "medusa"):  # of other papers, which the table does not restate
        return arm
    given: dict[str, Any] = {"k": k, "max_steps": MAX_STEPS, **thresholds}
    if drafter.startswith(("ssd", "tsd")):
        given["tau"] = None
    if drafter.startswith("ssd"):
        given["k"] = 1
    if drafter in PRUNING:
        given["pruning"] = PRUNING[drafter]
    else:
        given["theta_sib"] = 0.0
    if drafter.startswith("gsd"):
        given["tau_as_context"] = False
    if drafter == "ssd_noexit":
        given["theta_prob"] = 0.0
    return replace(arm, given=given, free=UNSTATED)


def both_rules(*arms: Arm) -> tuple[Arm, ...]:
    """Every method under a lossless rule, then under the non-deterministic one, then as the code runs that.

    The paper's numbers are of the last.
    """
    lossy = (replace(arm, header=f"{arm.header} (lossy)", rules=LOSSY, paper="") for arm in arms)
    code = (replace(arm, header=f"{arm.header} (code)", rules=CODE) for arm in arms)
    return (*(replace(arm, paper="") for arm in arms), *lossy, *code)


def self_drafting(arm: Arm) -> Arm:
    """The same method where the target drafts for itself: with the adaptive exit it is what the paper compares with."""
    if arm is SSD_ADAPTIVE:
        return SELF
    return replace(arm, header=f"Self {arm.header}{', fixed exit' * (arm is SSD)}", paper="")


def off(arm: Arm, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a run that are not the arm's, those that the paper does not state left out."""
    others = params.keys() - arm.given.keys() - UNSTATED
    return {name: params.get(name) for name, value in arm.given.items() if params.get(name) != value} | {
        name: params[name] for name in sorted(others)
    }


# what is measured of a run


def drafts(run: Run) -> pd.DataFrame:
    """What `graph_metrics` averages over samples, a row each."""
    return graph_metrics.samples(run.steps)


def per_sample(header: str, column: str, means: str, digits: int = 1) -> Metric:
    """The mean over samples of a column of `drafts`."""
    return measured(header, lambda run: per_row(run.once(drafts).dropna(subset=[column]), column), means, digits)


def percents(found: Interval | None, digits: int = 0) -> str:
    """A share with its interval."""
    if found is None:
        return tables.ABSENT
    low, high = (tables.percent(end) for end in (found.low, found.high))
    return tables.with_ends(found, tables.percent(found.value), low, high)


def _share_of_steps(header: str, column: str, means: str) -> Metric:
    """The share of the steps in which a count is above 0; of rows without it, as older ones, none."""

    def sums(run: Run) -> Sample | None:
        known = run.steps.reindex(columns=["prompt_id", column]).dropna(subset=[column])
        return per_row(known.assign(happened=(known[column] > 0).astype(float)), "happened", most=1.0)

    return replace(measured(header, sums, means), text=percents)


RATE = per_sample("acceptance rate", "acceptance_rate", definitions.ACCEPTANCE_RATE, 3)
DRAFTED = per_sample("drafted tokens", "drafted", definitions.DRAFTED_TOKENS)
CREATED = per_sample("created nodes", "created", definitions.CREATED)
MERGES = per_sample("merge edges", "aliases", definitions.ALIASES)
PRUNED = per_sample("sibling leaves", "sib_leaves", definitions.SIB_LEAVES)
VERIFIED = per_sample("verified nodes", "verified", definitions.VERIFIED)
CAPPED = Metric(
    "capped",
    lambda run: graph_metrics.capped_share(run.steps) if run.ok else None,
    definitions.CAPPED,
    text=lambda share, digits: tables.percent(share),
)
SUCCESS = _share_of_steps("Graph Success", "num_displaced", definitions.GRAPH_SUCCESS)
CROSSED = _share_of_steps("crosses a merge", "num_behind_merge", definitions.CROSSED)
SHARED = _share_of_steps("shared subtrees", "num_in_shared_subtree", definitions.SHARED_SUCCESS)
VARIATION = measured(
    "variation",
    lambda run: per_row(run.rows("variation").dropna(subset=["total_variation"]), "total_variation", most=1.0),
    definitions.VARIATION,
    3,
)
LOSSLESS = Metric(
    "lossless",
    lambda run: lossless_words(run) if run.ok else None,
    f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
)


# which runs are set against which rows


def _decoded(runs: pd.DataFrame, decoding: int) -> pd.Series:
    """Which runs decode greedily, or sample as the paper does."""
    if decoding == GREEDY:
        return runs["temperature"] == 0
    return (runs["temperature"] == TEMPERATURE) & (runs["top_p"] == TOP_P)


def found_blocks(results: Results, paper: pd.DataFrame, decodings: Sequence[int] = (GREEDY, SAMPLED)) -> list[Block]:
    """The blocks, each of all these decodings, stand-ins set against the models of these published rows."""
    keep = reduce(or_, (_decoded(results.runs, decoding) for decoding in decodings))
    found = blocks(replace(results, runs=results.runs[keep]), across=("temperature", "top_p"))
    return [standing_in(replace(block, results=results), paper) for block in found]


def by_decoding(block: Block | None) -> list[Block | None]:
    """The parts of a block in greedy decoding and in the paper's sampling; None where there is none."""
    if block is None:
        return [None, None]
    parts = [block.runs[_decoded(block.runs, decoding)].reset_index(drop=True) for decoding in (GREEDY, SAMPLED)]
    return [None if runs.empty else replace(block, runs=runs) for runs in parts]


def standing_in(block: Block, paper: pd.DataFrame) -> Block:
    """The block, if it is a stand-in for models that are not printed: for the first that are, with a draft."""
    printed = set(zip(paper["target"], paper["draft"], strict=True))
    return block if block.published_as in printed else block.standing_in(drafted(paper))


def of_main_pair(block: Block) -> Block:
    """A stand-in, for the pair of Table 1: the paper states no models of Figures 3 and 5 and of Table 5."""
    return standing_in(block, published.find("gsd", "table1"))


def published_dataset(block: Block) -> str:
    """The name of a block's dataset in the published rows."""
    name = str(block.first["dataset"])
    return DATASETS.get(name, name)


def of_setting(paper: pd.DataFrame, block: Block) -> pd.DataFrame:
    """The paper's rows for a block's models and prompts; empty if it has none."""
    target, draft = block.published_as or ("", "")
    rows = paper[(paper["target"] == target) & (paper["draft"] == draft)]
    return rows[rows["dataset"] == published_dataset(block)]


def labelled(block: Block) -> Iterator[tuple[str, Run]]:
    """Its drafting runs, with what tells them apart."""
    for line in series(block, "", lambda run: 0.0):
        yield from ((line.label, run) for run in line.runs)


# what is said below every table


def said(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Notes of every table: what was run, what stands in, what was not run."""
    yield from map(scale, found)
    yield from stand_ins(found)
    yield from left_out(paper, found)


def not_shown(results: Results, arms: Sequence[Arm], settings: Iterable[Setting]) -> Iterator[str]:
    """The draft's temperatures of the runs of a table, where nothing was merged, and which others it leaves out."""
    ids = {run.run_id for one in settings for cell in one.cells for run in cell.runs if run}
    shown = [run for run in every_run(results) if run.run_id in ids]
    yield from draft_temperatures(shown)
    yield from _unmerged([run for run in shown if run.ok and run.params.get("tau") is not None])
    if listed := other_runs(results, ids, lambda run: _arguments(run, arms)):
        yield (
            f"Not in this table: {listed}: other methods, rules, parameters or sampling settings than the "
            "paper's, or another run of the same is shown."
        )


def _unmerged(graphs: Sequence[Run]) -> Iterator[str]:
    """Whether runs of other tau could be alike, since nothing was merged in them."""
    alike = [run for run in graphs if not run.steps["num_alias"].any()]
    if len({run.params["tau"] for run in alike}) > 1:
        yield f"No candidate was merged in {len(alike)} of {len(graphs)} runs of GSD: there tau changes nothing."


def _arguments(run: Run, arms: Sequence[Arm]) -> str:
    """` (k=2)`: what is not as in the arm of its method that is nearest."""
    differences = [off(arm, run.params) for arm in arms if arm.named(run)]
    params = min(differences, key=len, default={})
    return f" ({', '.join(f'{name}={_short(value)}' for name, value in params.items())})" if params else ""


def _short(value: object) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
