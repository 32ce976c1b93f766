"""GSD's methods with the paper's parameters, what is measured of their runs, and how these find the paper's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import pandas as pd

from specdec_trees.artifacts import arms, frame, notes
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.frame import NO_DRAFT
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.store import Results
from specdec_trees.statistics import graph_metrics

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


def load(results: Results, paper: pd.DataFrame, decodings: Sequence[int] = (GREEDY, SAMPLED)) -> pd.DataFrame:
    """The runs of these decodings, which a block holds together; stand-ins for models of these published rows."""
    keep = reduce(or_, (_decoded(results.runs, decoding) for decoding in decodings))
    own = replace(results, runs=results.runs[keep])
    loaded = frame.standing_in(frame.load(own, across=("temperature", "top_p")), paper)
    variation, kept = frame.of_runs(results.variation, loaded["run_id"]), loaded["steps"].map(graph_metrics.samples)
    return frame.put(loaded, variation=variation, samples=kept)


def lines(
    runs: pd.DataFrame,
    paper: pd.DataFrame,
    methods: Sequence[Arm],
    decodings: Sequence[int] = (GREEDY,),
    on: Sequence[str] = ("dataset",),
) -> list[pd.DataFrame]:
    """For each decoding the same lines: every block's methods that were run or are printed, in the paper's order.

    The `run_id` of a line has those of all its decodings.
    """
    runs = frame.put(runs, dataset=[DATASETS.get(name, name) for name in runs["dataset"]])
    places = [[*dict.fromkeys(paper[column])] for column in ("target", "dataset")]
    order = [_place(run, *places) for run in named_rows(runs)]
    runs = frame.put(runs, order=order).sort_values("order", kind="stable", ignore_index=True)
    parts = [arms.rows(runs, paper, methods, on, _decoded(runs, decoding)) for decoding in decodings]
    ids = [" ".join(filter(None, own)) for own in zip(*(part["run_id"] for part in parts), strict=True)]
    known = zip(ids, parts[0]["theirs"], parts[0]["arm"], strict=True)
    shown = pd.Series([bool(own or theirs) or not arm.ours for own, theirs, arm in known])  # plain decoding is of all
    words = [notes.model_words(line, ("dataset", "temperature", "top_p")) for line in named_rows(parts[0])]
    target, draft = zip(*words, strict=True)
    return [frame.put(part, run_id=ids, target_words=target, draft_words=draft)[shown] for part in parts]


def judged(long: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The long frame beside the paper's numbers, marked and judged.

    Without merging no graph is a success, which makes no order either.
    """
    long = arms.beside(long, names)
    merged = long["arm"].map(lambda arm: any(name.startswith("gsd") for name in arm.ours[:1])).astype(bool)
    none = ~merged & long["metric"].map(lambda metric: metric.key == "num_displaced").astype(bool)
    why = long["why"].mask(none & long["published"].notna(), "0 without merging")
    long = frame.put(long, why=why, alone=long["alone"].astype(bool) | none)
    return frame.judge(frame.rank(long), who="label")


def _place(run: Any, targets: Sequence[str], datasets: Sequence[str]) -> tuple[int, int, bool]:
    """Where a run's block stands: by the paper's targets and datasets, those that draft for themselves first."""
    target, dataset = (
        known.index(name) if name in known else len(known)
        for known, name in ((targets, run.target), (datasets, run.dataset))
    )
    return target, dataset, run.draft != NO_DRAFT


def _decoded(runs: pd.DataFrame, decoding: int) -> pd.Series:
    """Which runs decode greedily, or sample as the paper does."""
    if decoding == GREEDY:
        return runs["temperature"] == 0
    return (runs["temperature"] == TEMPERATURE) & (runs["top_p"] == TOP_P)


def unshown(results: Results, lines: pd.DataFrame, methods: Sequence[Arm]) -> Iterator[str]:
    """Where tau changes nothing, since nothing was merged, and which runs a table leaves out."""
    graphs = [run for run in named_rows(lines) if run.ok and run.params.get("tau") is not None]
    alike = [run for run in graphs if not run.steps["num_alias"].any()]
    if len({run.params["tau"] for run in alike}) > 1:
        yield f"No candidate was merged in {len(alike)} of {len(graphs)} runs of GSD: there tau changes nothing."
    shown = {run_id for ids in lines["run_id"] for run_id in ids.split()}
    hidden = results.runs[~results.runs["run_id"].isin(list(shown))]
    if hidden.empty:
        return
    others = frame.load(replace(results, runs=hidden))
    if listed := notes.unshown(others, (), lambda run: _arguments(run, methods)):
        yield (
            f"Not in this table: {listed}: other methods, rules, parameters or sampling settings than the "
            "paper's, or another run of the same is shown."
        )


def _arguments(run: Any, methods: Sequence[Arm]) -> str:
    """` (k=2)`: what is not as in the arm of its method that is nearest."""
    differences = [off(arm, run.params) for arm in methods if arm.named(run)]
    params = min(differences, key=len, default={})
    return f" ({', '.join(f'{name}={_short(value)}' for name, value in params.items())})" if params else ""


def _short(value: object) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
