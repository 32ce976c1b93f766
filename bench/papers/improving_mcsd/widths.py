"""Improved MCSD, Figures 6 and 8: fork-shaped trees against their width W, and with a decision model or without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes

from bench import published
from bench.artifacts import definitions, tables, ties
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.metric import FORWARDS, LOSSLESS, MAL, SPEEDS, TOKENS_PER_S, Metric, measured, or_status
from bench.artifacts.runs import Run
from bench.artifacts.sweep import OPEN, Draw, Mark, Panel, Series, Sweep, band, curve
from bench.papers.improving_mcsd import decisions
from bench.papers.improving_mcsd import methods as mcsd
from bench.results.store import Results
from bench.statistics import metrics
from bench.statistics.intervals import Interval

METHOD, NO_DECISION = "dynamic_mcsd", "no decision model"
FASTER, SLOWER, LEVEL = "faster", "slower", "within the interval"


def _forks(results: Results) -> Iterator[Panel]:
    """The lines of every block that have a run that ended well: runs that differ in their width alone."""
    printed = published.find(mcsd.PAPER, "table4")
    for block in (block.standing_in(printed) for block in drafted_blocks(results, (METHOD,))):
        if lines := _lines(block):
            yield Panel(block, lines)


def _lines(block: Block) -> list[Series]:
    groups: dict[str, list[Run]] = {}
    for run in block.every:
        if "width" in run.params:
            groups.setdefault(json.dumps(_rest(run), sort_keys=True), []).append(run)
    found = [part for key, runs in groups.items() for part in _by_rule(json.loads(key), runs)]
    every = [rest for rest, _ in found]
    return [
        Series(_label(rest, every), [float(run.params["width"]) for run in runs], runs)
        for rest, runs in found
        if any(run.ok for run in runs)
    ]


def _rest(run: Run) -> dict[str, Any]:
    """The arguments of its drafter but the width; without a decision model the threshold is one of nothing."""
    free = {"width"} if run.params.get("decision") else {"width", "beta"}
    return {name: value for name, value in run.params.items() if name not in free}


def _by_rule(rest: dict[str, Any], runs: Sequence[Run]) -> Iterator[tuple[dict[str, Any], list[Run]]]:
    """A run for each width, of several the `last`; one such line per rule where some width was run by several rules."""
    pairs = {(run.params["width"], str(run["verifier"])) for run in runs}
    several = len({width for width, _ in pairs}) < len(pairs)
    for rule in sorted({rule for _, rule in pairs}) if several else [""]:
        by_width: dict[int, list[Run]] = {}
        for run in runs:
            if rule in ("", run["verifier"]):
                by_width.setdefault(int(run.params["width"]), []).append(run)
        yield rest | ({"rule": rule} if rule else {}), [mcsd.last(same) for _, same in sorted(by_width.items())]


def _label(rest: dict[str, Any], every: Sequence[dict[str, Any]]) -> str:
    """What tells a line from the others of its block; two decision models of one kind by their hashes."""
    differ = [key for key in rest if any(other.get(key, rest[key]) != rest[key] for other in every)]
    words = [f"{key}={rest[key]}" for key in differ if key != "decision"]
    if "decision" in differ:
        own, others = rest["decision"], [other.get("decision") for other in every]
        several = any(_kind(other) == _kind(own) and other != own for other in others)
        words.insert(0, f"{_kind(own)} {own['sha256']}" if several else _kind(own))
    return ", ".join(words)


def _kind(decision: Any) -> str:
    """`no decision model`, or the kind of the one that may end trees early."""
    return decisions.kind(decision) or NO_DECISION


def _widths(axes: Axes, panel: Panel) -> None:
    """Ticks at the widths that were run; the label says which of them are lossy."""
    runs = [run for run in panel.runs if run.ok]
    lossless = {run.params["width"] for run in runs if run.lossless}
    every = {run.params["width"] for run in runs}
    but = f" but at W = {', '.join(map(str, sorted(lossless)))}" if lossless else ""
    axes.set_xticks(sorted(every))
    axes.set_xlabel(axes.get_xlabel() + (f" (lossy{but})" if every > lossless else ""))


def _one(axes: Axes, panel: Panel) -> None:
    axes.axhline(1, color="black", linewidth=1, label="autoregressive decoding")


def _titled(title: str) -> Draw:
    """The panel's title, in which {} is the block."""

    def draw(axes: Axes, panel: Panel) -> None:
        axes.set_title(title.format(panel.block.name))

    return draw


# Figure 6

_FACTS = {"acceptance_convergence": "converges", "speed_convergence": "converges", "speed_drop": "drops"}
"""What the paper's text says of its curves, all of them together, at a width that is a published number."""


def _width_at(fact: str) -> float:
    return float(published.find(mcsd.PAPER, "fig_text", metric=f"width_at_{fact}")["value"].iloc[0])


def _papers(*facts: str) -> Draw:
    """The widths that the paper's text names, as far as they were run."""

    def draw(axes: Axes, panel: Panel) -> None:
        reached = [fact for fact in facts if _width_at(fact) <= max(panel.x)]
        for fact, look in zip(reached, ("--", ":"), strict=False):
            words = f"the paper's text: {_FACTS[fact]} at W = {_width_at(fact):g}"
            Mark(words, _width_at(fact), look={"linestyle": look}).draw(axes)

    return draw


def _published_alpha(run: Run) -> float | None:
    """The paper's, for these models (or a stand-in's), prompts, temperature, width and depth."""
    (target, draft), first = run.block.published_as or ("", ""), run.block.first
    at: dict[str, Any] = {"dataset": first["dataset"], "temperature": float(first["temperature"])}
    params = f"width={run.params['width']};depth={run.params.get('depth')}"
    rows = published.find(mcsd.PAPER, "table4", target=target, draft=draft, params=params, **at)
    return float(rows["value"].iloc[0]) if len(rows) else None


def _alphas(axes: Axes, panel: Panel) -> None:
    """Alpha with its intervals, and the paper's of these models as stars."""
    for line, own in zip(panel.lines, panel.looks, strict=True):
        band(axes, line, mcsd.FINE_ALPHA, label=line.label, **own)
        look: dict[str, Any] = {"color": own["color"], "markeredgecolor": "black", "markersize": 11}
        for x, run in line.points:
            words = f"the paper's Table 4: {' + '.join(run.block.published_as or ())}"
            if (value := _published_alpha(run)) is not None:
                axes.plot(x, value, "*", label=words, **look)
    axes.set_ylabel("alpha (95% interval)")


def _said(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    converges, fast, drops = map(_width_at, _FACTS)
    yield (
        f"The paper's text: alpha converges at W = {converges:g}, speed at W = {fast:g}, and speed drops noticeably at "
        f"W = {drops:g}. It states neither dataset nor temperature, and the curves have no numbers."
    )
    yield mcsd.NOT_LOSSLESS
    for panel in panels:
        for line in panel.lines:
            name = ", ".join(filter(None, (panel.block.name, line.label)))
            for what, metric in (("alpha", mcsd.FINE_ALPHA), ("the speedup", mcsd.SPEEDUP)):
                yield from (f"{name}: {words}." for words in _best(line, what, metric))
    yield from mcsd.not_shown(results, [run.run_id for panel in panels for run in panel.runs])


def _best(line: Series, what: str, metric: Metric) -> Iterator[str]:
    """`alpha is best at W = 12 (0.74), tied with W = 8, 10`, by the marks in the table; nothing where it has none."""
    signs = ties.marks([metric.entry(run) for run in line.runs])
    if ties.UNRANKED in signs:
        yield f"times are too noisy to say where {what} is best (!)"
    marked = [(f"{x:g}", run, sign) for (x, run), sign in zip(line.points, signs, strict=True)]
    for width, best, _ in (one for one in marked if one[2] == ties.BEST):
        tied = [x for x, run, sign in marked if sign == ties.TIED and run.lossless == best.lossless]
        others = f"tied with W = {', '.join(tied)}" if tied else "tied with no other"
        yield f"{what} is best at W = {width} ({tables.interval(metric.of(best))}), {others}"


FIG6 = Sweep(
    "Improved MCSD Figure 6: acceptance rate and speed against the width of dynamic trees",
    "width",
    "W: sequences of the tree",
    [
        [_titled("alpha"), _alphas, _papers("acceptance_convergence"), _widths],
        [_titled("tokens/s"), curve(TOKENS_PER_S), _papers("speed_convergence", "speed_drop"), _widths],
        [_titled("speedup"), curve(mcsd.SPEEDUP), _papers("speed_convergence", "speed_drop"), _one, _widths],
    ],
    (
        mcsd.NODES,
        or_status(mcsd.FINE_ALPHA),
        Metric(
            "alpha published", _published_alpha, "the paper's Table 4 for this width, depth, dataset and temperature"
        ),
        *SPEEDS,
        mcsd.SPEEDUP,
        MAL,
        FORWARDS,
        LOSSLESS,
    ),
    header="W",
    means="sequences of the tree, each below a first token from the target's distribution where the tree starts from "
    "it",
    line_means="what tells it from others of this pair",
    panels=_forks,
    together=True,
    ranked=(TOKENS_PER_S, mcsd.SPEEDUP, MAL, or_status(mcsd.FINE_ALPHA)),
    along=True,
    remarks=_said,
    look={"columns": 3, "panel": (4.6, 4.6)},
    legend_columns=1,
)


# Figure 8

ALPHA_MAX = replace(mcsd.FINE_ALPHA, header="alpha_max")
ALPHA_DRAFTED = measured("alpha_drafted", mcsd.alpha_drafted, definitions.ALPHA_DRAFTED, 3)


def _plain_first(results: Results) -> Iterator[Panel]:
    """The same lines, those without a decision model first; a line without a label is called by its model."""
    for panel in _forks(results):
        lines = sorted(panel.lines, key=lambda line: not _plain(line.runs[0]))
        yield Panel(panel.block, [replace(line, label=line.label or _decision(line.runs[0])) for line in lines])


def _decision(run: Run) -> str:
    return _kind(run.params.get("decision"))


def _plain(run: Run) -> bool:
    return _decision(run) == NO_DECISION


def _both_alphas(axes: Axes, panel: Panel) -> None:
    """Over the most levels and over those that were drafted, the second one dashed with open markers."""
    for line, own in zip(panel.lines, panel.looks, strict=True):
        for metric, look in ((ALPHA_MAX, own | {"linestyle": "-"}), (ALPHA_DRAFTED, own | OPEN)):
            band(axes, line, metric, label=f"{metric.header}, {line.label}", **look)
    axes.set_ylabel("alpha (95% interval)")


def _calls(run: Run) -> float | None:
    """Of the decision model, a step; None without one."""
    calls = run.steps["decision_calls"].dropna().astype(float)
    return float(calls.mean()) if len(calls) else None


def _share(run: Run) -> float | None:
    """Of the time of all steps, that of the decision model; None without one."""
    seconds = run.steps["decision_s"].dropna().astype(float)
    total = run.steps[[f"{phase}_s" for phase in metrics.PHASES]].sum().sum()
    return float(seconds.sum() / total) if len(seconds) and total else None


def _with_without(run: Run) -> Interval | None:
    """Speedup with the decision model over that without, all else being the same; None where there is no such run."""
    if _plain(run) or not run.ok:
        return None
    others = [other for other in run.block.ok if _plain(other) and _alike(other) == _alike(run)]
    return mcsd.gain(run, mcsd.last(others)) if others else None


def _alike(run: Run) -> dict[str, Any]:
    """What a run without a decision model shares with one that has it."""
    arguments = {name: value for name, value in run.params.items() if name not in ("decision", "beta")}
    return arguments | {"rule": run["verifier"]}


def _word(run: Run) -> str | None:
    """None also where times are too noisy."""
    return None if mcsd.noisy(run.block) else mcsd.ahead(_with_without(run), FASTER, SLOWER, LEVEL)


def _compared(run: Run) -> str | None:
    """`1.152 [1.092, 1.223] (faster)`; with `!` in place of the word where times are too noisy."""
    ratio = _with_without(run)
    if ratio is None or ratio.value != ratio.value:
        return None
    noisy = mcsd.noisy(run.block)
    return tables.ratio(ratio) + (ties.UNRANKED if noisy else f" ({_word(run) or 'no interval'})")


def _found(panels: Sequence[Panel], results: Results) -> Iterator[str]:
    yield (
        "The paper's text: most of the time decoding is faster without the decision model, which improves the speed "
        "only slightly where the width is low; its curves have no numbers, and it does not say which of its two models "
        "they show."
    )
    yield mcsd.NOT_LOSSLESS
    yield (
        "Intervals are over conversations. The runs came one after another: what changed on the machine meanwhile is "
        "seen in each run's own autoregressive arm alone."
    )
    for panel in panels:
        for line in panel.lines:
            if not _plain(line.runs[0]):
                yield f"{panel.block.name}, {line.label}{_counted(line)}"
                yield from decisions.about(results, line.runs)
    yield from decisions.not_those_of("Figure 7", results)
    yield from mcsd.not_shown(results, [run.run_id for panel in panels for run in panel.runs])


def _counted(line: Series) -> str:
    """What was found of a decision model, counted over widths, and at which it ended no tree early."""
    words: dict[str, list[str]] = {FASTER: [], SLOWER: [], LEVEL: []}
    for x, run in line.points:
        if word := _word(run):
            words[word].append(f"{x:g}")
    total = sum(map(len, words.values()))
    runs = [(x, run) for x, run in line.points if run.ok]
    same = [f"{x:g}" for x, run in runs if not decisions.early(run).any()]
    alike = (
        f" It ended no tree at W = {', '.join(same)}: decoding is the same there, but for asking it." if same else ""
    )
    if any(_with_without(run) and mcsd.noisy(run.block) for _, run in runs):
        return f" against none: times are too noisy to call it faster or slower (!).{alike}"
    if not total:
        return ": no width has an interval with it and without it."
    at = (f"{word} at {len(own)}" + (f" (W = {', '.join(own)})" if own else "") for word, own in words.items())
    return f" against none, at {total} widths: {'; '.join(at)}.{alike}"


FIG8 = Sweep(
    "Improved MCSD Figure 8: acceptance rate and speed with and without a decision model",
    "width",
    "W: sequences of the tree",
    [
        [_titled("{}: alpha"), _both_alphas, _widths],
        [_titled("{}: tokens/s"), curve(TOKENS_PER_S), _widths],
        [_titled("{}: speedup"), curve(mcsd.SPEEDUP), _one, _widths],
    ],
    (
        mcsd.NODES,
        Metric(
            "draft levels",
            lambda run: float(decisions.levels(run).mean()),
            "drafted a step, mean over steps; without a decision model always the most",
        ),
        or_status(ALPHA_MAX),
        ALPHA_DRAFTED,
        *SPEEDS,
        mcsd.SPEEDUP,
        Metric(
            "with / without",
            _compared,
            f"speedup with the decision model / without it at the same width, paired over conversations: {FASTER} or "
            f"{SLOWER} where 1 lies outside the 95% interval",
        ),
        Metric("calls", _calls, "of the decision model, per decoding step"),
        Metric(
            "decision time",
            _share,
            "its share of the time of decoding steps",
            text=lambda share, _: tables.percent(share),
        ),
        MAL,
        LOSSLESS,
    ),
    header="W",
    means="sequences of the tree",
    line="Decision",
    line_means="the model that may end a tree early, by what it reads of the draft: its hidden state, or its 10 "
    "largest probabilities and the entropy (topk)",
    panels=_plain_first,
    along=True,
    remarks=_found,
    look={"columns": 3, "panel": (4.6, 4.8)},
    legend_columns=1,
)
