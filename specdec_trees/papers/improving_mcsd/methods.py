"""What all tables and figures of improved MCSD share: its methods, their acceptance rate, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees.artifacts import definitions, frame, notes
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import Metric, per_row
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import metrics
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

PAPER = "improving_mcsd"
ONE_PATH, SUBTREES, LOSSY_RULE = "multi_candidate", "longest_subtree", "independent_longest"
"""MCSD's rule; the same below every first token, which with one keeps the target's distribution; the paper's own."""
LOSSY = " (lossy)"
"""What is said behind a method whose rule does not keep the target's distribution."""
_FREE = frozenset({"draws", "draft_temperature", "beta"})  # the first two are asked for by `_drawn`

# What stands below tables and figures
LOSSY_NOTE = (
    "(lossy): the output distribution is not the target's. Of several first tokens the one below which more is "
    "accepted wins, and the paper's rule tests every node alone (Table 1). Such rows are not to be set against "
    "lossless ones."
)
NOT_LOSSLESS = (
    "Where lossless says no, the output distribution is not the target's: such rows are not to be set against lossless "
    "ones."
)
BUDGETS = (
    "The paper sets 82 verified nodes (2 first tokens and 40 draft nodes below each) against MCSD's 44; MCSD, equal "
    "budget (ours) drafts 80 nodes, as wide at every level as the draft's levels of 2x4x3x1x1."
)
DYNAMIC_BUDGETS = (
    "Budgets differ, sequences do not (16): MCSD drafts 60 nodes, dynamic MCSD 80 below 16 first tokens, which the "
    "target reads too."
)
OF_DYNAMIC = (
    "The paper's section 1 calls its framework, whose results are these, a combination with early stopping; its "
    "appendix does not say whether trees ended early here. Its numbers stand beside trees of all levels; ended by: a "
    "decision model may end them, which reads the draft's features (hidden) or its largest probabilities (topk).",
    "The paper's appendix, which has these numbers, leaves the loss of quality by W first tokens aside.",
    LOSSY_NOTE,
)


def virtual(run: Any) -> bool:
    """Whether the first level is the target's own. A run that failed early left no draws: its arguments say it."""
    draws = str(run.draws or "")
    return draws.startswith("target") if draws else first_tokens(run) > 0


def first_tokens(run: Any) -> int:
    """W, the number of first tokens from the target's distribution; 0 where the tree starts from the last token."""
    params = run.params
    if "widths" in params:  # TargetInit; a shape's widths stand in the shape
        return int(params["widths"][0])
    return int(params["width"]) if params.get("init") == "target" else 0


def draft_levels(run: Any) -> int:
    """The most levels that the draft adds to a tree, the target's own level left out; 0 where the arguments say none.

    gamma of a sequence, the length of a k-configuration without the target's level, D of a fork (Lu et al., 2024,
    section 3).
    """
    params = run.params
    if "widths" in params:
        return len(params["widths"]) - 1
    tree = params.get("shape", params)  # a chain's depth, the widths of a k-configuration; or a fork's own arguments
    if not isinstance(tree, dict):
        return 0
    depth = tree.get("depth")
    return len(tree["widths"]) if "widths" in tree else depth if isinstance(depth, int) else 0


def lossy_mark(run: Any) -> str:
    """` (lossy)`, to be put behind a method, below several first tokens and by the paper's own rule; else nothing."""
    return LOSSY if first_tokens(run) > 1 or run.verifier == LOSSY_RULE else ""


def alpha(run: Any) -> Sample | None:
    """What `metrics.alpha` is a ratio of, by conversation; None without a step."""
    return _rate(run, float(draft_levels(run)))


def alpha_drafted(run: Any) -> Sample | None:
    """What `metrics.alpha_drafted` is a ratio of, by conversation; None without a step."""
    return _rate(run, metrics.drafted_levels(run.steps, virtual=virtual(run)))


def _rate(run: Any, levels: float | pd.Series) -> Sample | None:
    accepted = metrics.accepted_drafts(run.steps, virtual=virtual(run))
    return per_row(run.steps.assign(accepted=accepted, levels=levels), "accepted", "levels", most=1.0)


ALPHA = Metric("alpha", "alpha", definitions.ALPHA, alpha, ranked=True)


def ahead(ratio: Interval | None, faster: str, slower: str, level: str) -> str | None:
    """One of the three words for a gain: `level` where its interval holds 1; None without an interval."""
    if ratio is None or not ratio.known:
        return None
    return faster if ratio.low > 1 else slower if ratio.high < 1 else level


def admits(arm: Arm, run: Any) -> bool:
    """Whether a run is of a method in the paper's configuration, by its rule, and drafts as its decoding asks for."""
    named = run.method in arm.ours and run.verifier in arm.rules
    return named and arm.given.items() <= with_kind(run.params).items() and drafts_as_asked(run, arm.given)


def with_kind(params: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a drafter, with the kind of its decision model in place of kind and hash."""
    model = params.get("decision")
    return {**params} | ({"decision": model["kind"]} if isinstance(model, dict) else {})


def configuration(arm: Arm) -> str:
    """The tree of a method as the paper writes it."""
    tree = arm.given.get("shape", arm.given)
    if "width" in tree:
        return f"D = {tree['depth']}, W = {tree['width']}"
    return _joined(tree["widths"], "x") if "widths" in tree else f"gamma = {tree['depth']}"


def drafts_as_asked(run: Any, names: Collection[str]) -> bool:
    """Whether a run drafts as its decoding asks for, and has no arguments beside that and those of these names."""
    params = run.params
    return _drawn(float(run.temperature)).items() <= params.items() and params.keys() <= {*names} | _FREE


def _drawn(temperature: float) -> dict[str, Any]:
    """The draft samples without replacement at the target's temperature; in greedy decoding it takes the best."""
    if not temperature:
        return {"draws": "topk"}
    return {"draws": "without_replacement", "draft_temperature": temperature}


def _method(header: str, method: str, given: Mapping[str, Any], params: Mapping[str, str], rule: str = ONE_PATH) -> Arm:
    """The runs of a method, and the paper's rows with these params; without any the paper has none."""
    return Arm(header, (method,), method if params else "", params, given=given, free=_FREE, rules=(rule,))


def sd(gamma: int) -> Arm:
    """Speculative decoding with a sequence of gamma tokens."""
    return _method("SD", "sd", _shape("chain", depth=gamma), {"gamma": str(gamma)})


def mcsd(widths: Sequence[int], *, matched: bool = False) -> Arm:
    """MCSD with a k-configuration; `matched`: one that the paper does not run, of improved MCSD's budget."""
    header, paper = ("MCSD, equal budget", {}) if matched else ("MCSD", {"k_config": _joined(widths, "-")})
    return _method(header, "mcsd", _shape("branching", widths=list(widths)), paper)


def target_init(widths: Sequence[int], *, rule: str = LOSSY_RULE) -> Arm:
    """Target-initialised MCSD; of several first tokens and by the paper's rule it is the paper's."""
    several, own = widths[0] > 1, rule == LOSSY_RULE
    what = "" if several else ", one first token"
    header = f"TI-MCSD{what}{'' if own or not several else ', MCSD rule'}{LOSSY if own or several else ''}"
    paper = {"k_config": _joined(widths, "-")} if own and several else {}
    return _method(header, "target_init_mcsd", {"widths": list(widths)}, paper, rule)


def dynamic(width: int, depth: int, decision: str | None = None) -> Arm:
    """Dynamic MCSD, perhaps ended early by a model of this kind: the paper does not say whether its tables have one."""
    given = {"width": width, "depth": depth, "init": "target", "decision": decision}
    paper = {} if decision else {"width": str(width), "depth": str(depth)}
    header = f"Dynamic MCSD, ended by {decision}" if decision else "Dynamic MCSD"
    return _method(f"{header}{LOSSY}", "dynamic_mcsd", given, paper, LOSSY_RULE)


def _arguments(run: Any) -> str:
    """` (widths 4x2)`: the arguments of a run that is not shown; how it draws where it is not as asked."""
    given, asked = run.params, _drawn(float(run.temperature))
    usual = {key for key in _FREE & given.keys() if asked.get(key, given[key]) == given[key]}
    usual -= {"beta"} if given.get("decision") else set()
    params = {key: value for key, value in given.items() if key not in usual}
    inside = ", ".join(_short(value) if key == "shape" else f"{key} {_short(value)}" for key, value in params.items())
    return f" ({inside})"


def _shape(kind: str, **sizes: Any) -> dict[str, Any]:
    return {"shape": {"_target_": f"specdec_core.shapes.{kind}"} | sizes}


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {_short(own)}" for key, own in value.items() if key != "_target_")
    return _joined(value, "x") if isinstance(value, list) else "none" if value is None else str(value)


def _joined(values: Sequence[Any], sign: str) -> str:
    return sign.join(map(str, values))


STATIC = (
    sd(4),
    mcsd((4, 2, 2, 1)),
    mcsd((8, 3, 1, 1), matched=True),
    target_init((2, 4, 3, 1, 1)),
    target_init((2, 4, 3, 1, 1), rule=SUBTREES),
    target_init((1, 4, 3, 1, 1), rule=SUBTREES),
    target_init((1, 4, 3, 1, 1)),
)
"""Of Table 2 and Figure 3. What the paper does not have is shown where it was run."""
TREES = (dynamic(16, 5), dynamic(16, 5, "hidden"), dynamic(16, 5, "topk"))
"""Of Table 4."""
DYNAMIC = (sd(5), mcsd((4, 2, 2, 1, 1)), *TREES)
"""Of Table 3 and Figure 5."""


def admitted(runs: pd.DataFrame, arms: Sequence[Arm], temperatures: Sequence[float]) -> pd.Series:
    """Which rows of the table `runs` are of these methods in these decodings, without top-p."""
    lines = named_rows(frame.put(runs, params=map(json.loads, runs["drafter_params"])))
    known = [any(admits(arm, run) for arm in arms) for run in lines]
    decoded = runs["temperature"].isin(list(temperatures)) & (runs["top_p"] == 1)
    return decoded & pd.Series(known, runs.index, dtype=bool)


def load(results: Results, arms: Sequence[Arm], temperatures: Sequence[float], paper: pd.DataFrame) -> pd.DataFrame:
    """The rows of `frame.load` of these runs alone; stand-ins stand for models of `paper`.

    Of a decision model `params` have the kind.
    """
    runs = results.runs[admitted(results.runs, arms, temperatures)]
    loaded = frame.standing_in(frame.load(replace(results, runs=runs)), paper)
    return frame.put(loaded, params=map(with_kind, loaded["params"]))


def unshown(results: Results, shown: Collection[str]) -> Iterator[str]:
    """A sentence on the drafting runs that are not among these."""
    drafted = results.runs.loc[results.runs["method"] != AUTOREGRESSIVE, "run_id"]
    if drafted.isin(list(shown)).all():
        return
    if words := notes.unshown(frame.load(results), shown, _arguments):
        yield (
            f"Not shown: {words}: other methods, rules, configurations or decodings than what is shown, "
            "or another run of the same."
        )
