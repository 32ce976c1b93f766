"""Improved MCSD's methods as rows of its tables, each with the configuration that the paper states."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import params_of
from bench.papers.improving_mcsd.settings import LOSSY, LOSSY_RULE

ONE_PATH, SUBTREES = "multi_candidate", "longest_subtree"
"""MCSD's rule, and the same below every first token: it keeps the target's law where there is one such token."""
_FREE = frozenset({"draws", "draft_temperature", "beta"})  # the first two are asked for by `_drawn`


@dataclass(frozen=True, slots=True)
class Method:
    """A row: which runs are of it, and which of the paper's numbers."""

    header: str  # with the mark of what does not keep the target's law
    configuration: str
    method: str
    rule: str
    given: Mapping[str, Any]  # what the arguments of the drafter must be
    params: Mapping[str, str] = field(default_factory=dict)  # of the published rows; the paper has none without them

    def admits(self, run: Run) -> bool:
        """Whether a run is of this method in the paper's configuration, and drafts as its decoding asks for."""
        named = run.method == self.method and run["verifier"] == self.rule
        return named and self.given.items() <= run.params.items() and drafts_as_asked(run, self.given)

    def chosen(self, block: Block) -> Run | None:
        """Its run in a block, of several the last that ended well; None if there is none."""
        runs = [run for run in block.every if self.admits(run)]
        return last(runs) if runs else None

    def published(self, paper: pd.DataFrame) -> float | None:
        """The paper's number, of the rows of one setting."""
        rows = paper[paper["method"] == self.method]
        pairs = zip(rows["params"], rows["value"], strict=True)
        return next((float(value) for text, value in pairs if self.params == params_of(text)), None)


def last(runs: Sequence[Run]) -> Run:
    """Of several runs of the same the last that ended well, or the last."""
    return sorted(runs, key=lambda run: run.ok)[-1]


def drafts_as_asked(run: Run, names: Collection[str]) -> bool:
    """Whether a run drafts as its decoding asks for, and has no arguments beside that and those of these names."""
    params = run.params
    return _drawn(float(run["temperature"])).items() <= params.items() and params.keys() <= {*names} | _FREE


def _drawn(temperature: float) -> dict[str, Any]:
    """The draft samples without replacement at the target's temperature; in greedy decoding it takes the best."""
    if not temperature:
        return {"draws": "topk"}
    return {"draws": "without_replacement", "draft_temperature": temperature}


def sd(gamma: int) -> Method:
    """Speculative decoding with a sequence of gamma tokens."""
    return Method("SD", f"gamma = {gamma}", "sd", ONE_PATH, _shape("chain", depth=gamma), {"gamma": str(gamma)})


def mcsd(widths: Sequence[int], *, matched: bool = False) -> Method:
    """MCSD with a k-configuration; `matched`: one that the paper does not run, of improved MCSD's budget."""
    header, paper = ("MCSD, equal budget", {}) if matched else ("MCSD", {"k_config": _joined(widths, "-")})
    return Method(header, _joined(widths, "x"), "mcsd", ONE_PATH, _shape("branching", widths=list(widths)), paper)


def target_init(widths: Sequence[int], *, rule: str = LOSSY_RULE) -> Method:
    """Target-initialised MCSD; of several first tokens and by the paper's rule it is the paper's."""
    several, own = widths[0] > 1, rule == LOSSY_RULE
    what = "" if several else ", one first token"
    header = f"TI-MCSD{what}{'' if own or not several else ', MCSD rule'}{LOSSY if own or several else ''}"
    paper = {"k_config": _joined(widths, "-")} if own and several else {}
    return Method(header, _joined(widths, "x"), "target_init_mcsd", rule, {"widths": list(widths)}, paper)


def dynamic(width: int, depth: int) -> Method:
    """Dynamic MCSD without a decision model: the paper does not say whether its tables have one."""
    given = {"width": width, "depth": depth, "init": "target", "decision": None}
    paper = {"width": str(width), "depth": str(depth)}
    return Method(f"Dynamic MCSD{LOSSY}", f"D = {depth}, W = {width}", "dynamic_mcsd", LOSSY_RULE, given, paper)


def words(run: Run) -> str:
    """A run that is not shown: `mcsd (widths 4x2) by multi_candidate at temperature 1`; draws where they are others."""
    given, asked = run.params, _drawn(float(run["temperature"]))
    usual = {key for key in _FREE & given.keys() if asked.get(key, given[key]) == given[key]}
    usual -= {"beta"} if given.get("decision") else set()
    params = {key: value for key, value in given.items() if key not in usual}
    inside = ", ".join(_short(value) if key == "shape" else f"{key} {_short(value)}" for key, value in params.items())
    top_p = "" if run["top_p"] == 1 else f", top-p {run['top_p']:g}"
    return f"{run.drafter} ({inside}) by {run['verifier']} at temperature {run['temperature']:g}{top_p}"


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
DYNAMIC = (sd(5), mcsd((4, 2, 2, 1, 1)), dynamic(16, 5))
"""Of Table 3 and Figure 5; Table 4 has the last."""
