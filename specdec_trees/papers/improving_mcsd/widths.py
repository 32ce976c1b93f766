"""Improved MCSD, Figures 6 and 8: fork-shaped trees against their width W, and with a decision model or without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import definitions, draw, frame, notes, style, tables, ties
from specdec_trees.artifacts.metrics import FORWARDS, LOSSLESS, MAL, SPEEDS, SPEEDUP, TOKENS_PER_S, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.improving_mcsd import decisions
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.published import params_of
from specdec_trees.results.rows import OK
from specdec_trees.results.store import Results
from specdec_trees.statistics import metrics, samples
from specdec_trees.statistics.intervals import Interval

METHOD, NO_DECISION = "dynamic_mcsd", "no decision model"
FASTER, SLOWER, LEVEL = "faster", "slower", "within the interval"
ALPHA = replace(mcsd.ALPHA, digits=3)
NODES = Metric(
    "mean_size",
    "nodes",
    "nodes that the target verifies, first tokens counted; mean over steps",
    lambda run: run.mean_size,
    1,
)
_W = "sequences of the tree"
LOOK: Mapping[str, Any] = {"columns": 1, "across": 3}


def forks(results: Results) -> pd.DataFrame:
    """The runs of forks in lines along their width, as `specdec_trees.artifacts.draw.lines` has them, failed ones too.

    Runs of a line differ in their width alone. Of several of one width the last that ended well counts. A line of which
    no run ended well is left out; NoResultsError where no other is there.
    """
    runs = results.runs[results.runs["method"] == METHOD]
    if not (runs["status"] == OK).any():
        states = ", ".join(f"{status}: {count}" for status, count in runs["status"].value_counts().items())
        raise NoResultsError(f"no run of {METHOD} ended well ({states or 'there is none'})")
    loaded = frame.load(replace(results, runs=runs))
    loaded = frame.standing_in(loaded, published.find(mcsd.PAPER, "table4"))
    loaded = loaded[["width" in params for params in loaded["params"]]]
    runs = frame.put(loaded, fixed=[json.dumps(_rest(params), sort_keys=True) for params in loaded["params"]])
    runs = runs.assign(x=[float(params["width"]) for params in runs["params"]])
    runs = runs.assign(point=runs["x"].map("{:g}".format), rule=_rules(runs))
    runs = runs.sort_values("ok", kind="stable").drop_duplicates(["block", "fixed", "rule", "x"], keep="last")
    runs = _with_curves(runs.sort_index())
    if runs.empty:
        raise NoResultsError("no run sweeps the width")
    return runs.assign(line=_labels(runs)).sort_values(["curve", "x"], kind="stable", ignore_index=True)


def _rest(params: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a drafter but the width; without a decision model the threshold decides nothing."""
    free = {"width"} if params.get("decision") else {"width", "beta"}
    return {name: value for name, value in params.items() if name not in free}


def _rules(runs: pd.DataFrame) -> pd.Series:
    """The rule where some width of a line was run by several, each of which is a line of its own; else nothing."""
    several = runs.groupby(["block", "fixed", "x"])["verifier"].transform("nunique") > 1
    several = several.groupby([runs["block"], runs["fixed"]]).transform("any")
    return runs["verifier"].where(several, "")


def _with_curves(runs: pd.DataFrame) -> pd.DataFrame:
    """The lines of which a run ended well, in the order of their first runs, those of several rules by the rule."""
    first = runs.groupby(["block", "fixed"], sort=False).ngroup()
    curve = runs.assign(first=first).groupby(["first", "rule"]).ngroup()
    return runs.assign(curve=curve)[runs["ok"].astype(bool).groupby(curve).transform("any")]


def _labels(runs: pd.DataFrame) -> pd.Series:
    """What tells each line from the others of its block; two decision models of one kind by their hashes."""
    names = zip(runs["fixed"], runs["rule"], strict=True)
    rests = pd.Series([json.loads(fixed) | ({"rule": rule} if rule else {}) for fixed, rule in names], runs.index)
    lines = rests.groupby(runs["block"]).agg(list).to_dict()
    labels = [_label(rest, lines[block]) for rest, block in zip(rests, runs["block"], strict=True)]
    return pd.Series(labels, runs.index, dtype=str)


def _label(rest: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    differ = [key for key in rest if any(other.get(key, rest[key]) != rest[key] for other in lines)]
    words = [f"{key}={rest[key]}" for key in differ if key != "decision"]
    if "decision" in differ:
        model, others = rest["decision"], [other.get("decision") for other in lines]
        several = any(_kind(other) == _kind(model) and other != model for other in others)
        words.insert(0, f"{_kind(model)} {model['sha256']}" if several else _kind(model))
    return ", ".join(words)


def _kind(decision: Any) -> str:
    """`no decision model`, or the kind of the one that may end trees early."""
    return decisions.kind(decision) or NO_DECISION


def _widths(axes: Axes, rows: pd.DataFrame, title: str) -> None:
    """Ticks at the widths that were run; the label says which of them are lossy. In the title {} is the block."""
    runs = rows[rows["ok"].astype(bool)]
    lossless, widths = (sorted({int(x) for x in own["x"]}) for own in (runs[runs["lossless"].astype(bool)], runs))
    but = f" but at W = {', '.join(map(str, lossless))}" if lossless else ""
    axes.set_xticks(widths)
    axes.set_xlabel(axes.get_xlabel() + (f" (lossy{but})" if len(widths) > len(lossless) else ""))
    axes.set_title(title.format(rows["setting"].iloc[0]))


def _baseline(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(1, color="black", linewidth=1, label="autoregressive decoding")


# Figure 6

_FACTS = {"acceptance_convergence": "converges", "speed_convergence": "converges", "speed_drop": "drops"}
"""What the paper's text says of its curves, all of them together, at a width that is a published number."""
_OF_FORK = ["target", "draft", "dataset", "temperature", "width", "depth"]
POINT6 = (NODES, ALPHA, *SPEEDS, SPEEDUP, MAL, FORWARDS, LOSSLESS)
ROWS = (*draw.LINE_ROWS, "width")
ASIDE = (SPEEDS[1].key, FORWARDS.key)


def _width_at(fact: str) -> float:
    return float(published.find(mcsd.PAPER, "fig_text", metric=f"width_at_{fact}")["value"].iloc[0])


def _papers(axes: Axes, rows: pd.DataFrame, facts: Sequence[str]) -> None:
    """The widths that the paper's text names, as far as they were run."""
    reached = [fact for fact in facts if _width_at(fact) <= rows["x"].max()]
    for fact, dash in zip(reached, ("--", ":"), strict=False):
        words = f"the paper's text: {_FACTS[fact]} at W = {_width_at(fact):g}"
        draw.mark(axes, words, _width_at(fact), linestyle=dash)


def _stars(axes: Axes, rows: pd.DataFrame) -> None:
    """The paper's alphas of these models."""
    curves = [points for _, points in rows[rows["metric"].isin([ALPHA])].groupby("curve", sort=False)]
    looks = style.of_methods([METHOD] * len(curves))
    for points, look in zip(curves, looks, strict=True):
        for one in named_rows(points[points["published"].notna()]):
            words = f"the paper's Table 4: {one.target} + {one.draft}"
            star = {"color": look["color"], "markeredgecolor": "black", "markersize": 11}
            draw.mark(axes, words, one.x, one.published, **star)
    axes.set_ylabel("alpha (95% interval)")


def _of_speed(metric: Metric, *more: draw.Drawing) -> Sequence[draw.Drawing]:
    papers = partial(_papers, facts=["speed_convergence", "speed_drop"])
    return [(draw.curve, metric), (papers,), *more, (partial(_widths, title=metric.header),)]


_OF_ALPHA: Sequence[draw.Drawing] = [
    (draw.curve, ALPHA),
    (_stars,),
    (partial(_papers, facts=["acceptance_convergence"]),),
    (partial(_widths, title="alpha"),),
]
PANELS6 = [_OF_ALPHA, _of_speed(TOKENS_PER_S), _of_speed(SPEEDUP, (_baseline,))]


def fig6(name: str, results: Results) -> list[Output]:
    """Acceptance rate and speed over the width, the lines of all blocks in the same panels."""
    runs = forks(results)
    paper = published.find(mcsd.PAPER, "table4")
    given = [params_of(text) for text in paper["params"]]
    paper = paper.assign(**{key: [int(one[key]) for one in given] for key in ("width", "depth")})
    runs = frame.put(runs, **{key: [params.get(key) for params in runs["params"]] for key in ("width", "depth")})
    long = frame.beside(frame.measure(runs, POINT6), paper, _OF_FORK, {"alpha": "acceptance_rate"})
    title = "Improved MCSD Figure 6: acceptance rate and speed against the width of dynamic trees"
    words = (title, notes.setting(runs), "W: sequences of the tree")
    named = [", ".join(filter(None, pair)) for pair in zip(long["setting"], long["line"], strict=True)]
    figure = draw.curves(name, words, long.assign(block=0, line=named), PANELS6, panel=(4.6, 4.6), **LOOK)
    long = frame.rank(long.assign(line=long["line"].replace("", tables.ABSENT)), ["curve"])
    below = draw.below(runs, runs, [*_said(long.assign(name=named)), *mcsd.unshown(results, runs["run_id"])])
    means = {"line": "what tells it from others of this pair"}
    means["width"] = (
        "sequences of the tree, each below a first token from the target's distribution where it starts from it"
    )
    look: dict[str, Any] = {"aside": ASIDE, "headers": {"width": "W"}, "means": means}
    return [figure, table(name, figure.title, long.assign(width=long["point"]), ROWS, POINT6, notes=below, **look)]


def _said(long: pd.DataFrame) -> Iterator[str]:
    converges, fast, drops = map(_width_at, _FACTS)
    yield (
        f"The paper's text: alpha converges at W = {converges:g}, speed at W = {fast:g}, and speed drops noticeably at "
        f"W = {drops:g}. It states neither dataset nor temperature, and the curves have no numbers."
    )
    yield mcsd.NOT_LOSSLESS
    for _, rows in long.groupby("curve", sort=False):
        for what, metric in (("alpha", ALPHA), ("the speedup", SPEEDUP)):
            yield from (f"{words}." for words in _best(rows[rows["metric"].isin([metric])], what))


def _best(rows: pd.DataFrame, what: str) -> Iterator[str]:
    """`alpha is best at W = 12 (0.74), tied with W = 8, 10`, by the marks in the table; nothing where it has none."""
    if rows["mark"].isin([ties.UNRANKED]).any():
        yield f"{rows['name'].iloc[0]}: times are too noisy to say where {what} is best (!)"
    for one in named_rows(rows[rows["mark"] == ties.BEST]):
        tied = rows.loc[(rows["mark"] == ties.TIED) & (rows["lossless"] == one.lossless), "point"]
        others = f"tied with W = {', '.join(tied)}" if len(tied) else "tied with no other"
        yield f"{one.name}: {what} is best at W = {one.point} ({one.metric.cell(one.value, one.interval)}), {others}"


# Figure 8


def _calls(run: Any) -> float | None:
    """Of the decision model, a step; None without one."""
    calls = run.steps["decision_calls"].dropna().astype(float)
    return float(calls.mean()) if len(calls) else None


def _share(run: Any) -> float | None:
    """Of the time of all steps, that of the decision model; None without one."""
    steps = metrics.timed(run.steps)
    seconds = steps["decision_s"].dropna().astype(float)
    total = steps[[f"{phase}_s" for phase in metrics.PHASES]].sum().sum()
    return float(seconds.sum() / total) if len(seconds) and total else None


def _gain(run: Any) -> Interval | None:
    """Speedup with the decision model over that without, all else being the same; None where there is no such run."""
    if run.without is None:
        return None
    return samples.paired_ratio(run.gain, samples.speedup(run.without))


ALPHA_MAX = replace(ALPHA, key="alpha_max", header="alpha_max")
ALPHA_DRAFTED = Metric("alpha_drafted", "alpha_drafted", definitions.ALPHA_DRAFTED, mcsd.alpha_drafted, 3)
DRAFT_LEVELS = Metric(
    "draft_levels",
    "draft levels",
    "drafted a step, mean over steps; without a decision model always the most",
    lambda run: float(decisions.levels(run).mean()),
)
WITH = Metric(
    "with_without",
    "with / without",
    f"speedup with the decision model / without it at the same width, paired over conversations: {FASTER} or "
    f"{SLOWER} where 1 lies outside the 95% interval",
    _gain,
    3,
)
CALLS = Metric("decision_calls", "calls", "of the decision model, per decoding step", _calls)
TIME = Metric("decision_time", "decision time", "its share of the time of decoding steps", _share, percent=True)
POINT8 = (NODES, DRAFT_LEVELS, ALPHA_MAX, ALPHA_DRAFTED, *SPEEDS, SPEEDUP, WITH, CALLS, TIME, MAL, LOSSLESS)
ASIDE8 = tuple(one.key for one in (NODES, SPEEDS[1], CALLS, MAL, LOSSLESS, DRAFT_LEVELS))
PANELS8: Sequence[Sequence[draw.Drawing]] = [
    [(draw.pair, ALPHA_MAX, ALPHA_DRAFTED), (partial(_widths, title="{}: alpha"),)],
    [(draw.curve, TOKENS_PER_S), (partial(_widths, title="{}: tokens/s"),)],
    [(draw.curve, SPEEDUP), (_baseline,), (partial(_widths, title="{}: speedup"),)],
]


def fig8(name: str, results: Results) -> list[Output]:
    """Acceptance rate and speed over the width, with each decision model and without."""
    runs = _beside_none(forks(results))
    long = _with_words(frame.measure(runs, POINT8))
    title = "Improved MCSD Figure 8: acceptance rate and speed with and without a decision model"
    words = (title, notes.setting(runs), "W: sequences of the tree")
    figure = draw.curves(name, words, long, PANELS8, panel=(4.6, 4.8), **LOOK)
    below = draw.below(runs, runs, [*_found(long, results), *mcsd.unshown(results, runs["run_id"])])
    means = {"width": _W}
    means["line"] = (
        "the model that may end a tree early, by what it reads of the draft: its hidden state, or its 10 "
        "largest probabilities and the entropy (topk)"
    )
    look: dict[str, Any] = {"aside": ASIDE8, "headers": {"width": "W", "line": "Decision"}, "means": means}
    return [figure, table(name, figure.title, long.assign(width=long["point"]), ROWS, POINT8, notes=below, **look)]


def _beside_none(runs: pd.DataFrame) -> pd.DataFrame:
    """The lines without a decision model first; `without` has the turns of the run that differs in its model alone."""
    plain = runs["params"].map(lambda params: not params.get("decision")).astype(bool)
    others = [json.dumps({**params, "decision": None, "beta": None}, sort_keys=True) for params in runs["params"]]
    alike = [*zip(runs["block"], runs["verifier"], others, strict=True)]
    none = {key: one.prompts for key, one in zip(alike, named_rows(runs), strict=True) if plain[one.Index] and one.ok}
    turns = [None if bare or not ok else none.get(key) for key, bare, ok in zip(alike, plain, runs["ok"], strict=True)]
    lines = [line or _kind(params.get("decision")) for line, params in zip(runs["line"], runs["params"], strict=True)]
    runs = frame.put(runs.assign(line=lines), without=turns, plain=plain)
    return runs.sort_values(["block", "plain", "curve"], ascending=[True, False, True], kind="stable")


def _with_words(long: pd.DataFrame) -> pd.DataFrame:
    """The frame with whether decoding is faster with a model as `ahead`, which stands as the mark of the ratio."""
    ratios = long["metric"].isin([WITH])
    ahead = [
        mcsd.ahead(one.interval, FASTER, SLOWER, LEVEL) if ratio and not one.busy else None
        for one, ratio in zip(named_rows(long), ratios, strict=True)
    ]
    marks = [
        "" if not ratio or one.interval is None else ties.UNRANKED if one.busy else f" ({word or 'no interval'})"
        for one, ratio, word in zip(named_rows(long), ratios, ahead, strict=True)
    ]
    return frame.put(long, ahead=ahead, mark=marks)


def _found(long: pd.DataFrame, results: Results) -> Iterator[str]:
    yield (
        "The paper's text: most of the time decoding is faster without the decision model, which improves the speed "
        "only slightly where the width is low; its curves have no numbers, and it does not say which of its two models "
        "they show."
    )
    yield mcsd.NOT_LOSSLESS
    yield (
        "Intervals are over conversations. Of runs that came one after another, what changed on the machine "
        "meanwhile is seen in each run's own autoregressive arm alone."
    )
    ratios = long[long["metric"].isin([WITH]) & ~long["plain"].astype(bool)]
    for _, rows in ratios.groupby("curve", sort=False):
        yield f"{rows['setting'].iloc[0]}, {rows['line'].iloc[0]}{_counted(rows)}"
        yield from decisions.about(results, named_rows(rows))
    yield from decisions.not_those_of("Figure 7", results)


def _counted(rows: pd.DataFrame) -> str:
    """What was found of a decision model, counted over widths, and at which it ended no tree early."""
    same = [run.point for run in named_rows(rows) if run.ok and not decisions.early(run).any()]
    alike = (
        f" It ended no tree at W = {', '.join(same)}: decoding is the same there, but for asking it." if same else ""
    )
    if (rows["mark"] == ties.UNRANKED).any():
        return f" against none: times are too noisy to call it faster or slower (!).{alike}"
    words = {word: rows.loc[rows["ahead"] == word, "point"] for word in (FASTER, SLOWER, LEVEL)}
    total = sum(map(len, words.values()))
    if not total:
        return ": no width has an interval with it and without it."
    at = (f"{word} at {len(own)}" + (f" (W = {', '.join(own)})" if len(own) else "") for word, own in words.items())
    return f" against none, at {total} widths: {'; '.join(at)}.{alike}"
