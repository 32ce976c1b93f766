"""The long frame behind tables and figures: a row per run and metric, ours beside the paper's, marked and judged.

`load` has a row per run; `measure` repeats it for every metric, with `value`, `interval` and `sample`; `beside` adds
the paper's number as `published`, `rank` the `mark` of the best, `judge` the `verdict`; `specdec_trees.artifacts.table`
shows it.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees.artifacts import devices, ties, verdict
from specdec_trees.artifacts.definitions import drafter_label, method_label
from specdec_trees.artifacts.metrics import Metric
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.tables import ABSENT, named_rows
from specdec_trees.artifacts.ties import Entry
from specdec_trees.artifacts.verdict import Pairing, Verdict
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import OK, RunRow
from specdec_trees.results.store import BLOCK, Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.corrections import LEVEL, holm
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample

PLACE = columns(RunRow, Role.LOADED, Role.MACHINE)
"""What of a block's columns only runs that ended well surely know."""
CELL = tuple(column for column in BLOCK if column not in PLACE)
"""What they know before they run."""
NO_DRAFT = "none"
"""The published draft of a target without one, or with heads or layers of its own."""


def load(results: Results, *, across: Sequence[str] = ()) -> pd.DataFrame:
    """A row per run, its block and what follows from its rows; runs of a block may differ in the columns `across`.

    A failed run stands in every block of its cell's setting, whatever it knew of prompts and device. `steps` and
    `prompts` are the run's rows of these tables, `gain` the sums of its speedup, `predictions` its speedups by machine,
    `failed` the turns of its prompts that failed in any run, `params` its drafter's arguments. `size` is the tree size
    that was asked for, `budget` what its table calls by that name, `mean_size` the mean of the drafted nodes; `nodes`
    and `levels` are of the largest tree with its root. NoResultsError without runs.
    """
    if results.runs.empty:
        raise NoResultsError("nothing was run")
    cell, place = ([column for column in names if column not in across] for names in (CELL, PLACE))
    return _described(_in_blocks(results.runs, cell, place), results, cell)


def finished(results: Results, *, across: Sequence[str] = ()) -> pd.DataFrame:
    """The same of the runs that ended well alone; NoResultsError without any."""
    runs = results.runs[results.runs["status"] == OK]
    if runs.empty:
        raise NoResultsError("no run ended well")
    return load(replace(results, runs=runs), across=across)


def _in_blocks(runs: pd.DataFrame, cell: list[str], place: list[str]) -> pd.DataFrame:
    runs = runs.sort_values("created_utc", kind="stable")
    done, failed = runs[runs["status"] == OK], runs[runs["status"] != OK]
    done = done.assign(block=done.groupby([*cell, *place], sort=False, dropna=False).ngroup())
    known = done[[*cell, "block"]].drop_duplicates()
    failed = failed.merge(known, how="left", on=cell) if len(failed) else failed.assign(block=None)
    alone = failed["block"].isna()
    last = done["block"].max() if len(done) else -1
    failed.loc[alone, "block"] = failed[alone].groupby(cell, sort=False, dropna=False).ngroup() + last + 1
    both = pd.concat([done, failed], ignore_index=True) if len(failed) else done.reset_index(drop=True)
    return both.astype({"block": int}).sort_values("block", kind="stable", ignore_index=True)


def _described(runs: pd.DataFrame, results: Results, cell: Sequence[str]) -> pd.DataFrame:
    pairs = [json.loads(config).get("pair") or {} for config in runs["config"]]
    paper = [pair.get("published") or {} for pair in pairs]
    lost = (
        {*zip(results.failed["pair"], results.failed["prompts_sha256"], strict=True)} if len(results.failed) else set()
    )
    runs = put(
        runs,
        ok=(runs["status"] == OK).tolist(),
        params=[_dict(text) for text in runs["drafter_params"]],
        steps=of_runs(results.steps, runs["run_id"]),
        prompts=of_runs(results.prompts, runs["run_id"]),
        target=[names.get("target") for names in paper],
        draft=[names.get("draft") for names in paper],
        stand_in=[bool(names.get("stand_in")) for names in paper],
        planted=[bool(pair.get("planted")) for pair in pairs],
        incomplete=[key in lost for key in zip(runs["pair"], runs["prompts_sha256"], strict=True)],
        failed=_failed(results.failed, runs),
        predictions=_predictions(results.predictions, runs),
    )
    largest = [steps["num_drafted"].max() if len(steps) else None for steps in runs["steps"]]
    sizes = [tree_size(params, most) for params, most in zip(runs["params"], largest, strict=True)]
    drawn = [most if most is not None else size for most, size in zip(largest, sizes, strict=True)]
    runs = put(
        runs,
        size=sizes,
        budget=[tree_budget(params, size) for params, size in zip(runs["params"], sizes, strict=True)],
        nodes=[int(size) + 1 if size else None for size in drawn],
        levels=[int(steps["depth"].max()) + 1 if len(steps) else None for steps in runs["steps"]],
        mean_size=[float(steps["num_drafted"].mean()) if len(steps) else None for steps in runs["steps"]],
        name=_names(runs),
        gain=samples.speedups(results.prompts, [*runs["run_id"]]),
    )
    runs = put(runs, busy=_busy(runs))
    words = _variants(runs, cell)
    return put(
        runs,
        variant=[words[block] for block in runs["block"]],
        setting=[
            f"{pair}, {words[block]}" if words[block] else pair
            for pair, block in zip(runs["pair"], runs["block"], strict=True)
        ],
    )


def put(frame: pd.DataFrame, **values: Iterable[Any]) -> pd.DataFrame:
    """The frame with columns of whatever objects, which keep their types."""
    made = pd.DataFrame({name: pd.Series(list(column), frame.index, dtype=object) for name, column in values.items()})
    return pd.concat([frame.drop(columns=list(values), errors="ignore"), made], axis=1)


def done(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs, or the turns, that ended well."""
    return rows[rows["status"] == OK]


def standing_in(runs: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Stand-ins for models that are not among these published rows stand for the first that are, with a draft."""
    names = [*zip(runs["target"], runs["draft"], strict=True)]
    printed = [*zip(paper["target"], paper["draft"], strict=True)]
    first = next((models for models in printed if models[1] != NO_DRAFT), None)
    names = [
        first if first and stand_in and models not in printed else models
        for models, stand_in in zip(names, runs["stand_in"], strict=True)
    ]
    return put(runs, target=[target for target, _ in names], draft=[draft for _, draft in names])


def measure(runs: pd.DataFrame, metrics: Iterable[Metric]) -> pd.DataFrame:
    """Every run once for each metric: `value` is a number, words or None; `interval` and `sample` may be None."""
    rows = [*named_rows(runs)]
    values = ((metric, [metric.of(run) if run.ok else None for run in rows]) for metric in metrics)
    return pd.concat(
        [of_values(put(runs, metric=[metric] * len(runs)), made) for metric, made in values], ignore_index=True
    )


def of_values(rows: pd.DataFrame, made: Sequence[Sample | Interval | float | str | None]) -> pd.DataFrame:
    """Rows of the long frame with these values: sums have their interval, an interval its value."""
    parts = [one if isinstance(one, Sample) else None for one in made]
    reach = [samples.interval(one) if isinstance(one, Sample) else one for one in made]
    reach = [None if isinstance(one, Interval) and math.isnan(one.value) else one for one in reach]
    value = [one.value if isinstance(one, Interval) else one for one in reach]
    value = [None if isinstance(one, float) and math.isnan(one) else one for one in value]
    return put(rows, value=value, interval=[one if isinstance(one, Interval) else None for one in reach], sample=parts)


def beside(long: pd.DataFrame, paper: pd.DataFrame, on: Sequence[str], names: Mapping[str, str]) -> pd.DataFrame:
    """The paper's number as `published`, of several the last; `names` has the paper's metric by the key of ours.

    Rows are joined where they have the same in the columns `on`. `fact` is what they were joined by, `hardware` the
    paper's.
    """
    keys = [tuple(row) for row in paper[[*on, "metric"]].itertuples(index=False)]
    facts = dict(zip(keys, zip(paper["value"], paper["hardware"], strict=True), strict=True))
    own = [
        (*row, names.get(metric.key))
        for row, metric in zip(long[[*on]].itertuples(index=False), long["metric"], strict=True)
    ]
    numbers, hardware = zip(*(facts.get(key, (None, "")) for key in own), strict=True) if own else ((), ())
    units = (metric.unit for metric in long["metric"])
    published = [None if number is None else number * unit for number, unit in zip(numbers, units, strict=True)]
    return put(long, published=published, hardware=hardware, fact=own)


def of_models(paper: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows about models that were run; a target's without a draft stand with each of its drafts."""
    pairs = runs[["target", "draft"]].drop_duplicates()
    own = [
        paper[(paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT])].assign(draft=draft)
        for target, draft in pairs.itertuples(index=False)
    ]
    return pd.concat(own, ignore_index=True)


def over(
    long: pd.DataFrame,
    metric: Metric,
    first: Container[str],
    ratio: Metric,
    others: Container[str],
    of: Callable[[Any, Any], Interval | None] = lambda one, other: _paired(one.sample, other.sample),
    printed: Callable[[float, float], float] = operator.truediv,
) -> pd.DataFrame:
    """Rows of `ratio`: what `of` makes of a block's row of a metric that is labelled as one of `first` and each other.

    It is the ratio in pairs unless given, `printed` the paper's. Rows that are none of `others` have none.
    """
    rows = long[long["metric"].isin([metric])]
    firsts = {row.block: row for row in named_rows(rows) if row.label in first}
    pairs = [(firsts.get(row.block), row) if row.label in others else (None, row) for row in named_rows(rows)]
    made = of_values(rows, [None if one is None else of(one, row) for one, row in pairs])
    numbers = [
        printed(one.published, row.published) if one is not None and one.published and row.published else None
        for one, row in pairs
    ]
    blank = [""] * len(rows)
    return put(made, metric=[ratio] * len(rows), published=numbers, mark=blank, verdict=blank)


def _paired(first: Sample | None, other: Sample | None) -> Interval | None:
    return None if first is None or other is None else samples.paired_ratio(first, other)


def with_unrun(runs: pd.DataFrame, paper: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """The runs, and for each of the paper's methods that a block lacks a row without a run; `place` has the order.

    That is the paper's, then ours. `paper` are rows of `of_models`; a block's have the same in the columns `on`.
    """
    blocks = []
    for _, rows in runs.groupby("block", sort=False):
        first = rows.iloc[0]
        methods = [*dict.fromkeys([*paper.loc[(paper[[*on]] == first[[*on]]).all(axis=1), "method"], *rows["method"]])]
        lost = [method for method in methods if method not in set(rows["method"])]
        empty = pd.DataFrame([unrun(first) for _ in lost], columns=rows.columns, dtype=object).assign(method=lost)
        both = pd.concat([rows.astype(object), empty], ignore_index=True)
        blocks.append(put(both, place=[methods.index(method) for method in both["method"]]))
    return pd.concat(blocks, ignore_index=True)


def unrun(first: pd.Series) -> pd.Series:
    """The row of a method that a block lacks: what all runs of the block share, and nothing that was measured."""
    unknown = dict.fromkeys(("size", "budget", "nodes", "levels", "mean_size", "identical"))
    ended = {"run_id": "", "run_ids": "", "ok": False, "status": verdict.NOT_RUN, "params": {}, "lossless": False}
    return pd.Series({**first, **unknown, **ended}, dtype=object)


def rank(long: pd.DataFrame, among: Sequence[str] = ("block",), only: pd.Series | None = None) -> pd.DataFrame:
    """The `mark` of the best and of those tied with it, among the rows that are alike in these columns."""
    marks = dict.fromkeys(long.index, "")
    ranked = long["metric"].map(lambda metric: metric.ranked).astype(bool)
    rows = long[ranked if only is None else ranked & only]
    for _, group in rows.groupby([rows["metric"].map(lambda metric: metric.key), *among], sort=False, dropna=False):
        entries = [Entry(one.interval, one.sample, bool(one.lossless)) for one in named_rows(group)]
        signs = ties.marks(entries, bool(group["busy"].any()))
        marks |= zip(group.index, signs, strict=True)
    return put(long, mark=marks.values())


def judge(long: pd.DataFrame, who: str = "method") -> pd.DataFrame:
    """The `verdict` on every published number (`specdec_trees.artifacts.verdict`) among a block's rows, for each `who`.

    A row with a reason in `why` is not comparable; one that is `alone` counts in no order of others. Holm's correction
    is of all that a table prints, and so `corrected` there.
    """
    verdicts = dict.fromkeys(long.index, "")
    judged = long["metric"].map(lambda metric: metric.judged).astype(bool) & long["published"].notna()
    for _, group in long.groupby([long["metric"].map(lambda metric: metric.key), "block"], sort=False):
        if judged[group.index].any():
            verdicts |= zip(group.index, _verdicts(group, who), strict=True)
    return put(long, verdict=verdicts.values())


def _verdicts(rows: pd.DataFrame, who: str) -> list[str]:
    lines = [(str(getattr(one, who)), one) for one in named_rows(rows)]
    return [_verdict(name, one, _against(name, one, lines)) for name, one in lines]


def _against(name: str, one: Any, lines: Sequence[tuple[str, Any]]) -> dict[str, Pairing]:
    """A row and those that it is set against: no other of its own runs, and none of its own published number."""
    block = {name: pairing(one)}
    for other, row in lines:
        if other != name and row.run_id != one.run_id:
            counts = row.fact != one.fact and not getattr(row, "alone", False)
            block[other] = pairing(row) if counts else replace(pairing(row), published=None)
    return block


def _verdict(name: str, one: Any, block: Mapping[str, Pairing]) -> str:
    if one.ok and (why := getattr(one, "why", "")):
        return verdict.not_comparable(why)
    same = not one.metric.timed or devices.same_device(str(one.device_name), one.hardware)
    facts = {"stand_in": one.stand_in, "same_device": same, "speedup": one.metric.of_baseline}
    facts["busy"] = one.busy and one.metric.timed
    return verdict.judge(name, block, **facts, whole=not one.incomplete)


def pairing(one: Any) -> Pairing:
    """Ours and the paper's value of a row."""
    name = str(getattr(one, "label", None) or method_label(one.method))
    return Pairing(one.interval, None if pd.isna(one.published) else float(one.published), one.sample, name)


def corrected(long: pd.DataFrame) -> pd.DataFrame:
    """The frame with those verdicts marked that do not survive Holm's correction for their number (rule 6)."""
    words: list[Any] = list(long["verdict"])
    places = [place for place, one in enumerate(words) if isinstance(one, Verdict)]
    for place, p in zip(places, holm([words[place].p for place in places]), strict=True):
        if verdict.word(words[place]) != verdict.NOT_RESOLVED and p > LEVEL:
            words[place] = f"{words[place]} {verdict.UNCORRECTED}"
    return put(long, verdict=words)


def of_runs(rows: pd.DataFrame, run_ids: Iterable[str]) -> list[pd.DataFrame]:
    """Of a table of results the rows of each run; none of one that recorded none."""
    by_run = dict(list(rows.groupby("run_id")))
    return [by_run.get(run_id, rows.iloc[:0]) for run_id in run_ids]


def _failed(lost: pd.DataFrame, runs: pd.DataFrame) -> list[pd.DataFrame]:
    """The failed turns of each row's pair and prompts, in whichever run."""
    columns = ["pair", "prompts_sha256"]
    by_prompts = dict(list(lost.groupby(columns))) if len(lost) else {}
    return [by_prompts.get(key, lost.iloc[:0]) for key in zip(*(runs[column] for column in columns), strict=True)]


def _dict(text: str) -> dict[str, Any]:
    made = json.loads(text)
    return made if isinstance(made, dict) else {}


def _shape(params: Mapping[str, Any]) -> Mapping[str, Any]:
    shape = params.get("shape")
    return shape if isinstance(shape, dict) else {}


def _predictions(rows: pd.DataFrame, runs: pd.DataFrame) -> list[dict[str, float]]:
    """Of each run what is known of its speedup on other machines."""
    known: dict[str, dict[str, float]] = {}
    for row in named_rows(rows.dropna(subset="speedup") if len(rows) else rows):
        known.setdefault(row.run_id, {})[row.machine] = row.speedup
    return [known.get(run_id, {}) for run_id in runs["run_id"]]


def tree_size(params: Mapping[str, Any], largest: int | None = None) -> int | None:
    """The tree size n of the drafter or of its shape, else of the largest tree it drew; None for a bare root."""
    size = params.get("n", _shape(params).get("n", _shape(params).get("size")))
    size = size if isinstance(size, int) else largest
    return int(size) if size else None


def size_words(size: int | None, *, ok: bool) -> str:
    """A run's tree size as tables print it: 0 for a bare root, and the sign for nothing where nobody knows it."""
    return str(size or 0) if size or ok else ABSENT


def tree_budget(params: Mapping[str, Any], size: int | None) -> int | None:
    """How many nodes it may draft in a step: n, or the nodes of its shape; None if it is not known."""
    shape = _shape(params)
    return int(shape["num_sequences"]) * int(shape["depth"]) if {"num_sequences", "depth"} <= shape.keys() else size


def _busy(runs: pd.DataFrame) -> list[bool]:
    """Whether times of a block's decoding are too noisy to rank any: most of its runs' baselines lie too far apart."""
    noisy = pd.Series(False, runs.index)
    for _, alike in runs[runs["ok"].astype(bool)].groupby(["block", *CELL], dropna=False):
        noisy[alike.index] = samples.too_busy([*alike["gain"]])
    return noisy.tolist()


def _names(runs: pd.DataFrame) -> list[str]:
    """The drafter as tables print it, with its config's name where another of its block is alike."""
    labels = [drafter_label(method, params) for method, params in zip(runs["method"], runs["params"], strict=True)]
    alike = runs["drafter"].groupby([runs["block"], labels]).transform("nunique")
    named = zip(labels, runs["drafter"], alike, strict=True)
    return [label if count == 1 else f"{label} ({drafter})" for label, drafter, count in named]


def _variants(runs: pd.DataFrame, cell: Sequence[str]) -> dict[Any, str]:
    """By block: in which columns it is not like the others of its pair, digests by their start.

    The prompt hash is ignored across datasets, and the device of failed runs. Of code and machine beyond the device a
    column is named only if it alone tells a block from another.
    """
    firsts = runs.drop_duplicates("block").set_index("block")
    code = [column for column in columns(RunRow, Role.MACHINE) if column not in ("device_name", "dtype")]
    names = [column for column in (*cell, *PLACE) if column not in code and firsts[column].nunique(dropna=False) > 1]
    words = {}
    for block, own in firsts.iterrows():
        others = firsts[firsts["pair"] == own["pair"]].drop(index=block)
        differ = [column for column in names if _apart(own, others, column).any()]
        same = others[~_any(_apart(own, others, column) for column in differ)] if differ else others
        for column in code:
            apart = _apart(own, same, column)
            if apart.any():
                differ.append(column)
                same = same[~apart]
        words[block] = ", ".join(dict.fromkeys(_words(column, own[column]) for column in differ))
    return words


def _apart(own: pd.Series, others: pd.DataFrame, column: str) -> pd.Series:
    """Which blocks differ from one in a column; a missing value equals a missing value."""
    missing = pd.isna(own[column])
    apart = others[column].notna() if missing else (others[column] != own[column]).fillna(True).astype(bool)
    if column in PLACE:
        apart &= others["ok"].astype(bool) & bool(own["ok"])
    if column in ("prompts_sha256", "prompt_ids_sha256"):
        apart &= others["dataset"] == own["dataset"]
    return apart


def _any(several: Iterable[pd.Series]) -> pd.Series:
    return pd.concat(list(several), axis=1).any(axis=1)


def _words(column: str, value: Any) -> str:
    """`seed 3`; a column that older rows lack, and which newer ones of the pair have, in the words for them."""
    if pd.isna(value):
        return "older rows"
    value = str(value)
    if column.endswith(("_sha256", "_revision")):
        return f"{column.removesuffix('_sha256').replace('_', ' ')} {value.removeprefix('files:')[:6]}"
    return f"{column.replace('_', ' ')} {value}"
