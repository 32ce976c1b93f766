"""What a table cannot tell, in sentences above it: its best method from its worst, by setting, and what failed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees.artifacts import frame
from specdec_trees.artifacts.definitions import method_label
from specdec_trees.artifacts.frame import done
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, Metric
from specdec_trees.artifacts.tables import MACHINE, Table, named_rows, needed_words
from specdec_trees.results import failures
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.intervals import FEWEST

ASKED = (MAL, SPEEDUP)
"""The metrics that are asked for where a table has a column of them, whatever it counts besides."""


def warn(runs: pd.DataFrame, table: Table) -> Table:
    """The table with a sentence on what failed, and one per metric that does not tell its best method from its worst.

    It compares the drafting runs behind the table's rows, in pairs, within each setting; sizes of a method are methods.
    Of times that are too noisy, as `ties.marks` has it, it says that alone, or nothing where the table does.
    """
    shown = done(runs[runs["run_id"].isin(list(table.run_ids))])
    labelled = frame.put(shown, row=_labels(table, shown))
    drafting = labelled[labelled["method"] != AUTOREGRESSIVE]
    asked = [metric for metric in ASKED if any(metric.key in str(column) for column in table.frame)]
    of = {metric: drafting[drafting["run_id"].isin(_measured(table, metric))] for metric in asked}
    sentences = [text for metric in asked for text in _sentence(metric, of[metric], noisy=not table.warning)]
    return replace(table, warning=" ".join(filter(None, (*_failed(shown, runs), table.warning, *sentences))))


def _measured(table: Table, metric: Metric) -> set[str]:
    """The runs of which the table has this metric; all of its runs where its rows do not say."""
    rows = pd.DataFrame() if table.long is None else table.long
    ids = rows.loc[[one.key == metric.key for one in rows["metric"]], "run_id"] if len(rows) else ()
    return {run_id for several in ids for run_id in str(several).split()} or {*table.run_ids}


def _failed(shown: pd.DataFrame, runs: pd.DataFrame) -> Iterator[str]:
    """By pair and prompts: in which conversations which methods failed, and that none of these counts in any row."""
    for _, alike in shown.groupby(["pair", "prompts_sha256"], sort=False):
        first, lost = alike.iloc[0], alike["failed"].iloc[0]
        total = int((alike["num_conversations"] + alike["num_failed"]).max())
        if words := failures.sentence(failures.errors(lost), total):
            names = runs.loc[runs["run_id"].isin(set(lost["run_id"])), "drafter"].unique()
            yield f"{first['pair']}, {first['dataset']}: {words} With {', '.join(names)}. {failures.NOTE}"


def _labels(table: Table, runs: pd.DataFrame) -> list[str]:
    """What the table calls the method of each run, if it says so."""
    methods = table.frame.get("label", pd.Series(dtype=str))
    names = {run: str(method) for method, ids in zip(methods, table.runs, strict=False) for run in ids.split()}
    return [names.get(run_id, "") for run_id in runs["run_id"]]


def _sentence(metric: Metric, runs: pd.DataFrame, *, noisy: bool) -> Iterator[str]:
    """On the settings where times are too noisy, if that is to be said, and on the others that are not resolved."""
    long = frame.measure(runs, [metric]) if len(runs) > 1 else pd.DataFrame({"block": []})
    ends = [end for _, rows in long.groupby("block", sort=False) if (end := _ends(rows))]
    busy = [end for end in ends if end["busy"]]
    blurred = [end for end in ends if not (end["told"] or end["busy"])]
    words = f"{metric.header}, all pairs judged at once, does not tell the best method from the worst"
    several = len(ends) > 1
    if busy and noisy:
        yield f"{words} {f'in {len(busy)} of {len(ends)} settings' if several else 'here'}: times are too noisy."
    if blurred:
        least = max(blurred, key=lambda end: end["needed"])
        where = f"in {len(blurred)} of {len(ends)} settings; the least in {least['setting']}" if several else "here"
        yield f"{words} {where}: not {least['words']}."


def _ends(rows: pd.DataFrame) -> dict[str, Any] | None:
    """Whether the best method of a setting is told from the worst, the conversations that it needs, and words for both.

    Told is what an interval shows that is wide enough for having been picked among all pairs (Bonferroni). None where
    fewer than two runs have an interval.
    """
    known = rows[[sample is not None and len(sample.sums) >= FEWEST for sample in rows["sample"]]]
    if len(known) < 2:
        return None
    order = list(named_rows(known.sort_values("value", kind="stable")))
    worst, best = order[0], order[-1]
    compared = samples.compare(best.sample, worst.sample)
    if not compared.known:
        return None
    apart, pairs = compared.apart, len(known) * (len(known) - 1) / 2
    wider, one = (intervals.quantile(1 - 0.025 / count, apart.n - 1) for count in (pairs, 1))
    reach, needed = (apart.value - apart.low) * wider / one, math.inf
    if apart.value > 0:
        again = compared.needed if compared.ahead == 0 else 0.0
        needed = max(again, apart.n * (reach / apart.value) ** 2)
    names = f"{_name(best, rows)} from {_name(worst, rows)} over {apart.n} conversations"
    return {
        "setting": best.setting,
        "told": compared.ahead == 1 and apart.value > reach,
        "busy": bool(best.busy and best.metric.timed),
        "needed": needed,
        "words": f"{names} ({MACHINE if compared.blurred else needed_words(apart.n, needed)})",
    }


def _name(run: Any, rows: pd.DataFrame) -> str:
    """The method as its row has it, if no other row of the setting has; else with what it differs in from those alike.

    That is its size, its rule, and its parameters.
    """
    others = rows[rows["run_id"] != run.run_id]
    if run.row and run.row not in set(others["row"]):
        return str(run.row)
    others = others[others["method"] == run.method]
    if others.empty:
        return method_label(run.method)
    alike = others[others["name"] == run.name]
    same = alike[alike["verifier"] == run.verifier]
    rule = f" judged by {run.verifier}" if len(same) < len(alike) else ""
    differ = [key for key, value in run.params.items() if any(one.get(key) != value for one in same["params"])]
    return "".join([run.name, rule, *(_argument(key, run.params[key]) for key in differ)])


def _argument(name: str, value: object) -> str:
    """`, tau = 2`; a switch by its name, and nothing of what is off or too long to be said."""
    if isinstance(value, list | dict) or value is None or value is False:
        return ""
    if value is True:
        return f", {name.replace('_', ' ')}"
    return f", {name} = {f'{value:g}' if isinstance(value, float) else value}"
