"""Sequoia, Figure 5b: how much faster Sequoia's rule is than another on the same tree, beside what the paper says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import published
from bench.artifacts import tables
from bench.artifacts.blocks import Block
from bench.artifacts.names import method_label
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import params_of
from bench.papers.sequoia.vectors import rule_index, rule_label
from bench.statistics import samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

_SEQUOIA = "without_replacement"
_PUBLISHED = {"spec_infer": "specinfer", "target_sample": "topk"}
COLUMNS = ("lead", "lead published")
LEGEND = {
    "lead": "speedup of Sequoia's rule over that of this one, same tree and temperature, paired over the conversations "
    "that both decoded; in brackets the 95% interval, which of the largest one knows nothing of the choice",
    "lead published": "the largest that the paper's text states for Figure 5b and Table 6 together",
}


@dataclass(frozen=True, slots=True)
class Point:
    """A run with a speedup: the line it belongs to, by rule and tree, and its place on it."""

    run_id: str
    rule: str
    tree: str
    temperature: float
    speedup: Interval
    sample: Sample  # the sums over conversations behind the speedup


def points(block: Block) -> list[Point]:
    """The runs of a block that have a speedup, by rule and temperature."""
    made = [_point(run) for run in block.ok if run.speedup]
    return sorted(made, key=lambda point: (rule_index(point.rule), point.rule, point.temperature))


def leads(block: Block, every: Sequence[Point]) -> dict[str, dict[str, str]]:
    """The columns of each run, by run id."""
    printed = {rule: tables.number(_printed(block, rule)) for rule in _PUBLISHED}
    return {
        point.run_id: {
            "lead": tables.ratio(lead(point, every)),
            "lead published": printed.get(point.rule, tables.ABSENT),
        }
        for point in every
    }


def lead(point: Point, every: Sequence[Point]) -> Interval | None:
    """Sequoia's speedup over a point's, paired; None for Sequoia itself, and where it was not run on that tree.

    None too where no conversation was decoded by both.
    """
    same = [one for one in every if (one.tree, one.temperature) == (point.tree, point.temperature)]
    found = [one.sample for one in same if one.rule == _SEQUOIA and point.rule != _SEQUOIA]
    ratio = samples.paired_ratio(found[0], point.sample) if found else samples.NOTHING
    return None if math.isnan(ratio.value) else ratio


def lead_notes(block: Block, every: Sequence[Point]) -> Iterator[str]:
    """Our largest lead over each rule, and the paper's."""
    for rule in dict.fromkeys(point.rule for point in every):
        found = [(value, point) for point in every if point.rule == rule and (value := lead(point, every)) is not None]
        if not found:
            continue
        value, point = max(found, key=lambda pair: pair[0].value)
        printed = _printed(block, rule)
        paper = f"; the paper's text: at most {printed:g}, over temperatures and top-p" if printed else ""
        yield (
            f"{block.name}: Sequoia's largest lead over {rule_label(rule)} is {tables.ratio(value)}, the largest of "
            f"{len(found)}, at temperature {point.temperature:g}{paper}."
        )


def _point(run: Run) -> Point:
    speedup, sample = run.speedup, run.sample("speedup")
    assert speedup
    assert sample
    tree = f"{method_label(str(run['method']))}, N = {run.nodes}"
    return Point(run.run_id, str(run["verifier"]), tree, float(run["temperature"]), speedup, sample)


def _printed(block: Block, rule: str) -> float | None:
    """The paper's largest lead over a rule for these models and prompts."""
    target, draft = block.published_as or ("", "")
    facts = published.find("sequoia", "fig_text", metric="speedup_ratio", target=target, draft=draft)
    facts = facts[facts["dataset"] == block.first["dataset"]]
    found = [
        float(fact.value)
        for fact in tables.named_rows(facts)
        if params_of(fact.params)["baseline"] == _PUBLISHED.get(rule)
    ]
    return found[0] if found else None
