"""What intervals can tell: which value of a block is the best, which are tied with it, and what a table cannot tell."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pandas as pd

from bench.artifacts.blocks import Block, blocks
from bench.artifacts.definitions import method_label
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table, needed_words
from bench.results import failures
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics import intervals, samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

BEST, TIED, UNRANKED = " *", " =", " !"
NOTE = (
    "* best of its block, = tied with it (the paired 95% interval of their difference holds 0, or, of times, the two "
    "runs' autoregressive arms lie as far apart); rows that do not keep the target's distribution are ranked among "
    "themselves."
)
KEY = "* best, = tied with it; MAL is marked among trees of the same n alone."
"""The same in few words, for a terminal."""
BUSY_NOTE = (
    f"! not ranked: times are too noisy, since the autoregressive arms of most pairs of runs, which do the same work, "
    f"cannot be told to lie within {samples.TOO_BUSY:.0%} (see A/A)."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of one row and the sums behind it; None where nothing was measured."""

    value: Interval | None
    sample: Sample | None
    lossless: bool = True


def marks(entries: Sequence[Entry], busy: bool | None = None) -> list[str]:
    """What stands behind each value: `BEST`, `TIED` or nothing; nothing anywhere below two values with intervals.

    `UNRANKED` behind all of them where they are times and too noisy to rank any, by `busy` or else by these alone.
    """
    known = [one.sample for one in entries if one.sample and _known(one)]
    timed = len(known) > 1 and any(sample.controls for sample in known)
    if samples.too_busy(known) if busy is None else busy and timed:
        return [UNRANKED if _known(one) else "" for one in entries]
    found = [""] * len(entries)
    for kept in (True, False):
        places = {place: one.sample for place, one in enumerate(entries) if one.lossless == kept and _known(one)}
        shared = _shared([sample for sample in places.values() if sample])
        alike = {place: sample.of(shared) for place, sample in places.items() if sample}
        if len(places) < 2 or len(shared) < intervals.FEWEST:
            continue
        best = max(alike, key=lambda place: samples.interval(alike[place]).value)
        for place, sample in alike.items():
            found[place] = BEST if place == best else TIED if samples.ahead(alike[best], sample) == 0 else ""
    return found


def over_common(entries: Sequence[Entry]) -> list[Entry]:
    """The entries over the conversations that all of them have: values over others do not say which is the best."""
    shared = _shared([one.sample for one in entries if one.sample and one.value])
    return [
        replace(one, value=samples.interval(alike), sample=alike)
        if one.value and one.sample and len((alike := one.sample.of(shared)).sums)
        else Entry(None, None, one.lossless)
        for one in entries
    ]


def unranked(entries: Iterable[Entry]) -> bool:
    """Whether these are times that are too noisy to rank any."""
    return UNRANKED in marks(list(entries))


def busy(runs: Iterable[Run]) -> bool:
    """Whether times of runs of one decoding are too noisy to rank any: one decision for all that is said of them."""
    sums = [run.sample("speedup") for run in runs if run.interval("speedup")]
    return samples.too_busy([one for one in sums if one])


def _shared(every: Sequence[Sample]) -> pd.Index:
    """The conversations that all of them have."""
    found = [sample.sums.index for sample in every]
    return reduce(pd.Index.intersection, found) if found else pd.Index([])


def mark(
    rows: Sequence[MutableMapping[str, str]],
    columns: Mapping[str, Sequence[Entry]],
    among: Sequence[Hashable] | None = None,
    busy: Sequence[bool] | None = None,
) -> None:
    """Put the marks behind the cells of the rows of one block; `columns` has an entry per row.

    Rows of several blocks, or of other groups, are told apart by what `among` has for each. `busy` says of each whether
    its times rank nothing, where that is decided for more than the group.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, group in enumerate(among or [None] * len(rows)):
        groups.setdefault(group, []).append(place)
    for column, entries in columns.items():
        for places in groups.values():
            for place, sign in zip(
                places, marks([entries[place] for place in places], busy[places[0]] if busy else None), strict=True
            ):
                rows[place][column] += sign


def note(frame: pd.DataFrame) -> tuple[str, ...]:
    """What the marks mean that cells have."""
    cells = [str(cell) for cell in frame.to_numpy().flat]
    meanings = {NOTE: (BEST, TIED), BUSY_NOTE: (UNRANKED,)}
    return tuple(text for text, signs in meanings.items() if any(cell.endswith(signs) for cell in cells))


def _known(one: Entry) -> bool:
    return one.value is not None and one.sample is not None and one.value.known


# a table's best method from its worst, by setting, in a sentence above it

_METRICS = {"MAL": "mal", "speedup": "speedup"}
_ALSO = {"MAL": "tokens/step"}
"""What papers call a metric."""


def warn(results: Results, table: Table) -> Table:
    """The table with a sentence on what failed, and one per metric that does not tell its best method from its worst.

    It compares the drafting runs behind the table's rows, in pairs, within each setting; sizes of a method are methods.
    Of times that are too noisy, as `marks` has it, it says that alone.
    """
    keep = results.runs["run_id"].isin(list(table.run_ids)) & (results.runs["status"] == "ok")
    drafted = results.runs.loc[keep, "method"] != AUTOREGRESSIVE
    shown = " ".join([*map(str, table.frame), *table.headers.values()])
    found = blocks(results, results.runs[keep]) if drafted.sum() > 1 else []
    asked = [metric for metric in _METRICS if metric in shown or _ALSO.get(metric, metric) in shown]
    told, names = bool(table.warning), _rows(table)  # a table with a warning of its own says that times are noisy
    sentences = [text for metric in asked for text in _sentence(metric, found, names, told=told)]
    lost = _failed(results, results.runs[keep])
    return replace(table, warning=" ".join(filter(None, (*lost, table.warning, *sentences))))


def _failed(results: Results, runs: pd.DataFrame) -> Iterator[str]:
    """By pair and prompts: in which conversations which methods failed, and that none of these counts in any row."""
    for _, alike in runs.groupby(["pair", "prompts_sha256"], sort=False):
        first = alike.iloc[0]
        lost = results.failed[
            (results.failed["pair"] == first["pair"]) & (results.failed["prompts_sha256"] == first["prompts_sha256"])
        ]
        total = int((alike["num_conversations"] + alike["num_failed"]).max())
        if said := failures.sentence(failures.errors(lost), total):
            whose = results.runs.loc[results.runs["run_id"].isin(set(lost["run_id"])), "drafter"]
            yield f"{first['pair']}, {first['dataset']}: {said} With {', '.join(dict.fromkeys(whose))}. {failures.NOTE}"


def _rows(table: Table) -> dict[str, str]:
    """What the table calls the method of each run, if it says so."""
    methods = table.frame.get("Method", pd.Series(dtype=str))
    return {run_id: str(method) for method, runs in zip(methods, table.runs, strict=False) for run_id in runs.split()}


def _sentence(metric: str, found: list[Block], rows: Mapping[str, str], *, told: bool) -> Iterator[str]:
    ends = [(block, one) for block in found if (one := _ends(metric, block, rows))]
    noisy = [block for block, _ in ends if metric == "speedup" and busy(block.ok)]
    blurred = [(needed, block, words) for block, (told, needed, words) in ends if not told and block not in noisy]
    words, several = f"{metric} does not tell the best method from the worst", len(ends) > 1
    if noisy and not told:
        yield f"{words} {f'in {len(noisy)} of {len(ends)} settings' if several else 'here'}: times are too noisy."
    if blurred:
        _, block, least = max(blurred, key=lambda one: one[0])
        where = f"in {len(blurred)} of {len(ends)} settings; the least in {block.name}" if several else "here"
        yield f"{words} {where}: not {least}."


def _known_runs(metric: str, block: Block) -> list[tuple[Run, Sample]]:
    """The drafting runs with an interval, and the sums behind it."""
    return [
        (run, sample)
        for run in block.ok
        if run.method != AUTOREGRESSIVE
        and (sample := run.sample(_METRICS[metric]))
        and len(sample.sums) >= intervals.FEWEST
    ]


def _ends(metric: str, block: Block, rows: Mapping[str, str]) -> tuple[bool, float, str] | None:
    """Whether the best method of a setting is told from the worst, the conversations that it needs, and words for both.

    Told is what an interval shows that is wide enough for having been picked among all pairs (Bonferroni). None where
    fewer than two runs have an interval.
    """
    every = _known_runs(metric, block)
    values = [(samples.interval(sample).value, place) for place, (_, sample) in enumerate(every)]
    if len(values) < 2:
        return None
    (best, first), (worst, other) = (every[end(values)[1]] for end in (max, min))
    compared = samples.compare(first, other)
    if not compared.known:
        return None
    apart, pairs = compared.apart, len(values) * (len(values) - 1) / 2
    wider, one = (intervals.quantile(1 - 0.025 / count, apart.n - 1) for count in (pairs, 1))
    reach, needed = (apart.value - apart.low) * wider / one, math.inf
    if apart.value > 0:
        again = compared.needed if compared.ahead == 0 else 0.0
        needed = max(again, apart.n * (reach / apart.value) ** 2)
    words = f"{_name(best, block, rows)} from {_name(worst, block, rows)} over {apart.n} conversations"
    told = compared.ahead == 1 and apart.value > reach
    return told, needed, f"{words} ({needed_words(apart.n, needed)})"


def _name(run: Run, block: Block, rows: Mapping[str, str]) -> str:
    """The method as its row has it, if no other row of the setting has; else with what it differs in from those alike.

    That is its size, its rule, and its parameters.
    """
    others = [one for one in block.ok if one.run_id != run.run_id]
    if (own := rows.get(run.run_id)) and all(rows.get(one.run_id) != own for one in others):
        return own
    others = [one for one in others if one.method == run.method]
    if not others:
        return method_label(run.method)
    alike = [one for one in others if one.name == run.name]
    same = [one for one in alike if one["verifier"] == run["verifier"]]
    rule = f" judged by {run['verifier']}" if len(same) < len(alike) else ""
    differ = (key for key, value in run.params.items() if any(one.params.get(key) != value for one in same))
    return "".join([run.name, rule, *(_argument(key, run.params[key]) for key in differ)])


def _argument(name: str, value: object) -> str:
    """`, tau = 2`; a switch by its name, and nothing of what is off or too long to be said."""
    if isinstance(value, list | dict) or value is None or value is False:
        return ""
    if value is True:
        return f", {name.replace('_', ' ')}"
    return f", {name} = {f'{value:g}' if isinstance(value, float) else value}"
