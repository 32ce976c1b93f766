"""Sequoia, Figures 5b and 5c: speedup against temperature by rule, all on one tree, and against tree size.

How much faster Sequoia's rule is than another on the same tree stands beside what the paper says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from specdec_trees import published
from specdec_trees.artifacts import definitions, draw, frame, notes, style, tables
from specdec_trees.artifacts.definitions import method_label
from specdec_trees.artifacts.metrics import IS_LOSSLESS, LEVELS, MAL, PREDICTED_MAL, PREDICTED_SPEEDUP, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.sequoia.tokens import gains_said
from specdec_trees.papers.sequoia.vectors import rule_index, rule_label, rule_look
from specdec_trees.published import params_of
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

BY_TEMPERATURE = "Sequoia Figure 5b: speedup against temperature, by rule"
BY_SIZE = "Sequoia Figure 5c: speedup against tree size, and the hardware-aware tree"
MARKED = "Marked among the rules at one temperature."
_SEQUOIA = "without_replacement"
_PUBLISHED = {"spec_infer": "specinfer", "target_sample": "topk"}
_SIZED, _CHOSEN = "sequoia", "sequoia_hardware"


def _lead(run: Any) -> Interval | None:
    """Over the conversations that both decoded."""
    return None if run.sequoia is None else samples.paired_ratio(samples.speedup(run.sequoia), run.gain)


LEAD = Metric(
    "lead",
    "lead",
    "speedup of Sequoia's rule over that of this one, same tree and temperature, paired over the conversations that "
    "both decoded; in brackets the 95% interval, which of the largest one knows nothing of the choice; published: the "
    "largest that the paper's text states for Figure 5b and Table 6 together",
    _lead,
    3,
)
COLUMNS = (LEVELS, SPEEDUP, PREDICTED_SPEEDUP, MAL, PREDICTED_MAL, IS_LOSSLESS)
ASIDE = [one.key for one in (LEVELS, PREDICTED_SPEEDUP, PREDICTED_MAL, IS_LOSSLESS)]
ROWS = ("setting", "label", "rule", "temperature", "n")
LOOK: Mapping[str, Any] = {"headers": {"n": "N"}, "means": {"n": definitions.NODES}, "aside": ASIDE}


def speedup_by_temperature(name: str, results: Results) -> list[Output]:
    """One panel per block, one line per rule (and tree, if several were run); and a table with Sequoia's lead."""
    across = ("temperature",)
    loaded = frame.load(results, across=across)
    runs = _beside_sequoia(_labelled(loaded[loaded["method"] != AUTOREGRESSIVE]))
    runs = runs.assign(place=runs["verifier"].map(rule_index))
    runs = runs.sort_values(["block", "place", "verifier", "temperature"], kind="stable")
    long = frame.measure(runs, (*COLUMNS, LEAD))
    long = frame.rank(long, ["block", "temperature", "tree"], long["metric"].isin([SPEEDUP]))
    long = frame.beside(long, _leads_printed(), ["target", "draft", "dataset", "baseline"], {LEAD.key: "speedup_ratio"})
    drawn = _drawn(long)
    words = (BY_TEMPERATURE, notes.setting(drawn, but=across), "temperature")
    columns = 3 if (drawn.groupby("block")["tree"].nunique() == 1).all() else 2
    figure = draw.curves(name, words, drawn, [[(_rules,)]], columns=columns)
    below = draw.below(loaded, runs, [*_leads_said(long), MARKED], temperatures=False)
    return [figure, table(name, figure.title, long, ROWS, (*COLUMNS, LEAD), notes=below, **LOOK)]


def _labelled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with words for their method, rule and tree, and the paper's name of the rule as `baseline`."""
    labels, rules = runs["method"].map(method_label), runs["verifier"]
    sizes = [str(nodes or tables.ABSENT) for nodes in runs["nodes"]]
    trees = [f"{label}, N = {nodes}" for label, nodes in zip(labels, sizes, strict=True)]
    return runs.assign(label=labels, rule=rules.map(rule_label), tree=trees, baseline=rules.map(_PUBLISHED), n=sizes)


def _beside_sequoia(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the turns of Sequoia's rule on the same tree at the same temperature, as `sequoia`."""
    alike = ["block", "temperature", "tree"]
    own = frame.done(runs[runs["verifier"] == _SEQUOIA]).drop_duplicates(alike)
    turns = dict(zip(own[alike].itertuples(index=False, name=None), own["prompts"], strict=True))
    keys = zip(runs["verifier"], runs[alike].itertuples(index=False, name=None), strict=True)
    return frame.put(runs, sequoia=[None if rule == _SEQUOIA else turns.get(key) for rule, key in keys])


def _leads_printed() -> pd.DataFrame:
    """The paper's largest lead over each rule, by models and prompts."""
    facts = published.find("sequoia", "fig_text", metric="speedup_ratio")
    return facts.assign(baseline=[params_of(text)["baseline"] for text in facts["params"]])


def _drawn(long: pd.DataFrame) -> pd.DataFrame:
    """The speedups of the blocks that have one; NoResultsError where none has."""
    rows = long[long["metric"].isin([SPEEDUP]) & long["interval"].notna()]
    if rows.empty:
        raise NoResultsError("no run has a speedup: the autoregressive arm was not run")
    return rows


def _rules(axes: Axes, rows: pd.DataFrame) -> None:
    trees = [*rows["tree"].unique()]
    for (rule, tree), line in rows.groupby(["verifier", "tree"], sort=False):
        label = rule_label(str(rule)) + f" ({tree})" * (len(trees) > 1)
        dotted = {"linestyle": (0, (1, place))} if (place := trees.index(tree)) else {}
        look = rule_look(str(rule)) | dotted | {"label": label}
        style.band(axes, line["temperature"].tolist(), line["interval"], 0, **look)
    axes.set(ylabel="speedup (95% interval)", ylim=(0, None))
    if len(trees) == 1:
        axes.set_title(f"{axes.get_title()}: {trees[0]}")


def _leads_said(long: pd.DataFrame) -> Iterator[str]:
    """Our largest lead over each rule, and the paper's."""
    leads = long[long["metric"].isin([LEAD]) & long["value"].notna()]
    for (setting, rule), rows in leads.groupby(["setting", "rule"], sort=False):
        quiet = rows[~rows["busy"].astype(bool)]
        if quiet.empty:
            yield f"{setting}: times are too noisy to tell a lead over {rule}."
            continue
        largest = max(named_rows(quiet), key=lambda row: row.value)
        paper = f"; the paper's text: at most {largest.published or 0:g}, over temperatures and top-p"
        yield (
            f"{setting}: Sequoia's largest lead over {rule} is {tables.ratio(largest.interval)}, the largest of "
            f"{len(quiet)}, at temperature {largest.temperature:g}{paper * bool(largest.published)}."
        )
        if left := len(rows) - len(quiet):
            yield f"{setting}: {left} temperatures are left out, where times are too noisy (!)."


def speedup_by_size(name: str, results: Results) -> list[Output]:
    """One panel per block: a line over trees of any depth, and the chosen tree, measured and predicted."""
    loaded = frame.standing_in(frame.load(results), gains_said())
    runs = _labelled(loaded[loaded["method"].isin([_SIZED, _CHOSEN])])
    if runs.empty:
        raise NoResultsError(f"no run of {_SIZED} or {_CHOSEN}")
    long = frame.measure(runs, COLUMNS)
    drawn = _drawn(long).sort_values("nodes", kind="stable")
    words = (BY_SIZE, notes.setting(drawn), "tree size N (root counted)")
    figure = draw.curves(name, words, drawn, [[(_sizes,)]], columns=1)
    below = draw.below(loaded, runs, _chosen_said(drawn), temperatures=False)
    return [figure, table(name, figure.title, long, ROWS, COLUMNS, notes=below, **LOOK)]


def _chosen_said(drawn: pd.DataFrame) -> Iterator[str]:
    """How the chosen tree stands to the fastest of any depth, which the paper's figure has below it."""
    fastest = drawn.assign(value=drawn["value"].astype(float)).sort_values("value", ascending=False, kind="stable")
    for setting, rows in fastest.groupby("setting", sort=False):
        first = {run.method: run for run in named_rows(rows.drop_duplicates("method"))}
        if len(first) == 2:
            compared = samples.compare(first[_CHOSEN].sample, first[_SIZED].sample)
            words = {1: "faster", -1: "slower"}.get(compared.ahead or 0, "not told apart")
            yield (
                f"{setting}: the hardware-aware tree (N = {first[_CHOSEN].nodes}) has {tables.ratio(compared.ratio)} "
                f"of the speedup of the fastest tree of any depth (N = {first[_SIZED].nodes}): {words}. The paper has "
                "it ahead of them all."
            )


def _sizes(axes: Axes, rows: pd.DataFrame) -> None:
    sized, chosen = (rows[rows["method"] == method] for method in (_SIZED, _CHOSEN))
    if len(sized):
        look = style.of_method(_SIZED) | {"label": "Sequoia, any depth (95% interval)"}
        style.band(axes, sized["nodes"].tolist(), sized["interval"], 0, **look)
    for place, run in enumerate(named_rows(chosen)):
        _mark_chosen(axes, run, place + 2)
    axes.set_ylabel("speedup")
    style.powers_of_two(axes, rows["nodes"])


def _mark_chosen(axes: Axes, run: Any, index: int) -> None:
    """A horizontal line at the measured speedup with a marker at N, and a dashed one at the predicted speedup."""
    look = style.look(index)
    axes.axhline(run.value, color=look["color"], linewidth=1.4)
    style.points(axes, [run.nodes], [run.interval], index, markersize=8)
    words = f"hardware-aware, N = {run.nodes}, {run.levels} levels: {run.value:.2f}x"
    axes.plot([], [], **look, markersize=8, label=words)
    if isinstance(predicted := PREDICTED_SPEEDUP.of(run), float) and not math.isnan(predicted):
        words = f"predicted for it: {predicted:.2f}x"
        axes.axhline(predicted, color=look["color"], linestyle="--", linewidth=1.2, label=words)
