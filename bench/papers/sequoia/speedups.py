"""Sequoia, Figures 5b and 5c: speedup against temperature by rule, all on one tree, and against tree size.

How much faster Sequoia's rule is than another on the same tree stands beside what the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes

from bench import published
from bench.artifacts import metric, style, tables, ties
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.definitions import method_label
from bench.artifacts.metric import Metric
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.wording import setting
from bench.papers.sequoia.tokens import gains_said
from bench.papers.sequoia.vectors import rule_index, rule_label, rule_look
from bench.published import params_of
from bench.results.store import Results
from bench.statistics import samples
from bench.statistics.intervals import Interval

BY_TEMPERATURE = "Sequoia Figure 5b: speedup against temperature, by rule"
BY_SIZE = "Sequoia Figure 5c: speedup against tree size, and the hardware-aware tree"
_SEQUOIA = "without_replacement"
_PUBLISHED = {"spec_infer": "specinfer", "target_sample": "topk"}
_SIZED, _CHOSEN = "sequoia", "sequoia_hardware"
_NO_SPEEDUP = "no run has a speedup: the autoregressive arm was not run"


def lead(run: Run) -> Interval | None:
    """Sequoia's speedup over a run's, paired; None for Sequoia itself, and where it was not run on that tree.

    None too where no conversation was decoded by both.
    """
    if not run.speedup or run["verifier"] == _SEQUOIA:
        return None
    same = [one for one in run.block.ok if one.speedup and one["temperature"] == run["temperature"]]
    found = [one for one in same if one["verifier"] == _SEQUOIA and _tree(one) == _tree(run)]
    ratio = samples.paired_ratio(found[0].sample("speedup"), run.sample("speedup")) if found else samples.NOTHING
    return None if math.isnan(ratio.value) else ratio


def noisy(run: Run) -> bool:
    """Whether times at its temperature, on its tree, rank nothing, as the marks say."""
    alike = (one for one in run.block.every if one["temperature"] == run["temperature"] and _tree(one) == _tree(run))
    return ties.unranked(map(metric.SPEEDUP.entry, alike))


def _printed(run: Run) -> float | None:
    """The paper's largest lead over a run's rule for these models and prompts."""
    target, draft = run.block.published_as or ("", "")
    facts = published.find("sequoia", "fig_text", metric="speedup_ratio", target=target, draft=draft)
    rule, dataset = _PUBLISHED.get(run["verifier"]), run["dataset"]
    given = tables.named_rows(facts[facts["dataset"] == dataset])
    found = [float(fact.value) for fact in given if params_of(fact.params)["baseline"] == rule]
    return found[0] if found and run.speedup else None


COLUMNS = (
    metric.METHOD,
    Metric("Rule", lambda run: rule_label(str(run["verifier"]))),
    Metric("temperature", lambda run: f"{run['temperature']:g}"),
    *(metric.NODES, metric.LEVELS),
    *(metric.or_status(metric.SPEEDUP), metric.PREDICTED_SPEEDUP),
    *(metric.MAL, metric.PREDICTED_MAL, metric.IS_LOSSLESS),
)
LEADS = (
    Metric(
        "lead",
        lead,
        "speedup of Sequoia's rule over that of this one, same tree and temperature, paired over the conversations "
        "that both decoded; in brackets the 95% interval, which of the largest one knows nothing of the choice",
        digits=3,
    ),
    Metric(
        "lead published",
        _printed,
        "the largest that the paper's text states for Figure 5b and Table 6 together",
    ),
)


def speedup_by_temperature(name: str, results: Results) -> list[Output]:
    """One panel per block, one line per rule (and tree, if several were run); and a table with Sequoia's lead."""
    found = drafted_blocks(results, across=["temperature"])
    drawn = [(block, runs) for block in found if (runs := [run for run in _by_rule(block) if run.speedup])]
    if not drawn:
        raise NoResultsError(_NO_SPEEDUP)
    words = setting([block for block, _ in drawn], but=("temperature",))
    said = [note for _, runs in drawn for note in _lead_notes(runs)]
    rows = [({"Setting": block.name}, run) for block in found for run in _by_rule(block)]
    title, columns = f"{BY_TEMPERATURE} ({words})", (*COLUMNS, *LEADS)
    table = run_table(
        name,
        title,
        rows,
        columns,
        ranked=[metric.SPEEDUP],
        among=lambda row: (id(row[1].block), row[1]["temperature"], _tree(row[1])),
        said=said,
        marks="Marked among the rules at one temperature.",
        draft_temperature=False,
    )
    return [
        style.drawn(name, BY_TEMPERATURE, words, _rules, drawn, run_ids(run for _, runs in drawn for run in runs)),
        table,
    ]


def _by_rule(block: Block) -> list[Run]:
    return sorted(block.every, key=lambda run: (rule_index(run["verifier"]), run["verifier"], run["temperature"]))


def _tree(run: Run) -> str:
    return f"{method_label(run.method)}, N = {run.nodes}"


def _rules(axes: Axes, block: Block, runs: Sequence[Run]) -> None:
    trees = list(dict.fromkeys(map(_tree, runs)))
    for rule in dict.fromkeys(run["verifier"] for run in runs):
        for place, tree in enumerate(trees):
            line = [run for run in runs if (run["verifier"], _tree(run)) == (rule, tree)]
            label = rule_label(rule) + (f" ({tree})" if len(trees) > 1 else "")
            x, values = [run["temperature"] for run in line], [run.speedup for run in line if run.speedup]
            if line:
                look = rule_look(rule) | ({"linestyle": (0, (1, place))} if place else {})
                style.band(axes, x, values, 0, **look | {"label": label})
    axes.set(title=block.name if len(trees) > 1 else f"{block.name}: {trees[0]}", xlabel="temperature")
    axes.set(ylabel="speedup (95% interval)", ylim=(0, None))
    style.legend_below(axes, columns=3 if len(trees) == 1 else 2)


def _lead_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Our largest lead over each rule, and the paper's."""
    for rule in dict.fromkeys(run["verifier"] for run in runs):
        every = [(value, run) for run in runs if run["verifier"] == rule and (value := lead(run))]
        found = [(value, run) for value, run in every if not noisy(run)]
        if every and not found:
            yield f"{every[0][1].block.name}: times are too noisy to tell a lead over {rule_label(rule)}."
        if not found:
            continue
        value, run = max(found, key=lambda pair: pair[0].value)
        printed = _printed(run)
        paper = f"; the paper's text: at most {printed:g}, over temperatures and top-p" if printed else ""
        yield (
            f"{run.block.name}: Sequoia's largest lead over {rule_label(rule)} is {tables.ratio(value)}, the largest "
            f"of {len(found)}, at temperature {run['temperature']:g}{paper}."
        )
        if left := len(every) - len(found):
            yield f"{run.block.name}: {left} temperatures are left out, where times are too noisy (!)."


def speedup_by_size(name: str, results: Results) -> list[Output]:
    """One panel per block: a line over trees of any depth, and the chosen tree, measured and predicted."""
    found = [block.standing_in(gains_said()) for block in drafted_blocks(results, [_SIZED, _CHOSEN])]
    drawn = [block for block in found if _by_size(block, _SIZED) or _by_size(block, _CHOSEN)]
    if not drawn:
        raise NoResultsError(_NO_SPEEDUP)
    words = setting(drawn)
    rows = [({"Setting": block.name}, run) for block in found for run in block.every]
    shown, runs = ((block,) for block in drawn), run_ids(run for block in drawn for run in block.ok)
    said = [note for block in drawn for note in _chosen_said(block)]
    table = run_table(name, f"{BY_SIZE} ({words})", rows, COLUMNS, said=said, draft_temperature=False)
    return [style.drawn(name, BY_SIZE, words, _sizes, shown, runs), table]


def _chosen_said(block: Block) -> Iterator[str]:
    """How the chosen tree stands to the fastest of any depth, which the paper's figure has below it."""
    sized, chosen = (max(_by_size(block, method), key=_speed, default=None) for method in (_SIZED, _CHOSEN))
    one, other = (point and point[2].sample("speedup") for point in (chosen, sized))
    if sized and chosen and one and other:
        compared = samples.compare(one, other)
        words = {1: "faster", -1: "slower"}.get(compared.ahead or 0, "not told apart")
        yield (
            f"{block.name}: the hardware-aware tree (N = {chosen[0]}) has {tables.ratio(compared.ratio)} of the "
            f"speedup of the fastest tree of any depth (N = {sized[0]}): {words}. The paper has it ahead of them all."
        )


def _speed(point: tuple[int, Interval, Run]) -> float:
    return point[1].value


def _by_size(block: Block, method: str) -> list[tuple[int, Interval, Run]]:
    """The runs of a method that have a size N and a speedup, with both, by size."""
    runs = [run for run in block.ok if run.method == method]
    found = [(run.nodes, run.speedup, run) for run in runs if run.nodes and run.speedup]
    return sorted(found, key=lambda point: point[0])


def _sizes(axes: Axes, block: Block) -> None:
    sized, chosen = (_by_size(block, method) for method in (_SIZED, _CHOSEN))
    if sized:
        label = "Sequoia, any depth (95% interval)"
        style.band(
            axes,
            [nodes for nodes, *_ in sized],
            [speedup for _, speedup, _ in sized],
            0,
            label=label,
            **style.of_method(_SIZED),
        )
    for place, (nodes, speedup, run) in enumerate(chosen):
        _mark_chosen(axes, nodes, speedup, run, place + 2)
    axes.set(title=block.name, xlabel="tree size N (root counted)", ylabel="speedup")
    style.powers_of_two(axes, [nodes for nodes, *_ in (*sized, *chosen)])
    style.legend_below(axes, columns=1)


def _mark_chosen(axes: Axes, nodes: int, speedup: Interval, run: Run, index: int) -> None:
    """A horizontal line at the measured speedup with a marker at N, and a dashed one at the predicted speedup."""
    colour, marker = style.COLOURS[index % len(style.COLOURS)], style.MARKERS[index % len(style.MARKERS)]
    axes.axhline(speedup.value, color=colour, linewidth=1.4)
    style.points(axes, [nodes], [speedup], index, markersize=8)
    words = f"hardware-aware, N = {nodes}, {run.levels} levels: {speedup.value:.2f}x"
    axes.plot([], [], color=colour, marker=marker, markersize=8, label=words)
    if (predicted := run.predicted("speedup")) is not None:
        words = f"predicted for it: {predicted:.2f}x"
        axes.axhline(predicted, color=colour, linestyle="--", linewidth=1.2, label=words)
