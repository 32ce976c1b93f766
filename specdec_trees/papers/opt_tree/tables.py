"""OPT-Tree, Tables 1 to 3: each method of a block beside the paper's number, with a verdict.

Of a method that was run at several tree sizes every size is a row; the one with the largest speedup with prefill is
marked and set against the paper, which prints its best n of 25, 50 and 60. Published numbers are judged against ours as
the paper's script counts (steps - 1 a turn, prefill in the time).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import definitions, frame, notes, tables, verdict
from specdec_trees.artifacts.definitions import method_label
from specdec_trees.artifacts.metrics import LOSSLESS, MAL, SPEEDS, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.artifacts.verdict import Verdict
from specdec_trees.published import params_of
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples

PAPER = "opt_tree"
TABLES = {
    "table1": "OPT-Tree Table 1: MT-Bench, greedy",
    "table2": "OPT-Tree Table 2: GSM8K, greedy",
    "table3": "OPT-Tree Table 3: MT-Bench, temperature 1",
}
SETTING = ["target", "draft", "dataset", "temperature"]
MAL_AS_PUBLISHED = Metric(
    "mal_as_published",
    "MAL as published",
    "new tokens / (steps - 1 of each turn), as the paper's script counts: the same tokens as MAL, the one drawn from "
    "the prefill left out. It exceeds MAL the more, the shorter the answers are (the paper's have up to 1,024 tokens). "
    "The paper chose n of several by speedup and does not print which: there is a verdict where all of these n were "
    "run and give the same",
    lambda run: None if run.method == AUTOREGRESSIVE else samples.mal_as_published(run.steps),
    counterpart="MAL",
    ranked=True,
)
SPEED = Metric(
    "tokens_per_s_with_prefill",
    "tokens/s with prefill",
    "decoded tokens / seconds of prefill and decoding: the paper's script times both and leaves the token drawn from "
    "the prefill out",
    lambda run: samples.tokens_per_s(run.prompts, prefill=True),
    1,
    counterpart="tokens/s",
    ranked=True,
    timed=True,
)
SPEEDUP_WITH_PREFILL = Metric(
    "speedup_with_prefill",
    "speedup with prefill",
    "tokens/s with prefill of method / autoregressive, paired: the paper calculates speedups from generation speeds",
    lambda run: samples.speedup(run.prompts, prefill=True),
    counterpart="speedup",
    ranked=True,
    timed=True,
    of_baseline=True,
)
NAMES = {"mal_as_published": "mal", "tokens_per_s_with_prefill": "tokens_per_s", "speedup_with_prefill": "speedup"}
"""The paper's metrics by ours that count as its script does."""
METRICS = (MAL, MAL_AS_PUBLISHED, *SPEEDS, SPEED, SPEEDUP, SPEEDUP_WITH_PREFILL, LOSSLESS)
ASIDE = ("delta", *(one.key for one in (MAL, *SPEEDS, SPEED, SPEEDUP, LOSSLESS)), SPEED.published, SPEED.verdict)
ASIDE_ALONE = ("delta", *(one.key for one in (MAL_AS_PUBLISHED, *SPEEDS, SPEED, SPEEDUP_WITH_PREFILL)))
"""Of columns those that stand below; where the paper has no number, those that count as it does."""
ROWS = ("target_words", "draft_words", "label", "size_words", "delta")
MEANS = {
    "size_words": f"{definitions.SIZE}; (best) has the largest speedup with prefill, as the paper chooses; "
    "other n have no marks",
    "delta": "what a layer must add to E(A), or OPT-Tree stops to grow; the paper's tables do not state theirs, its "
    "text finds 0.2 best for the 68M draft and 0.8 for EAGLE's heads",
}


def paper_table(name: str, results: Results) -> list[Output]:
    """One of the paper's tables: the blocks that were run, each with the methods that the paper has beside them."""
    paper, loaded = published.find(PAPER, name), frame.load(results)
    return _table(name, notes.titled(TABLES[name], loaded), paper, loaded, notes.not_run(paper, loaded))


def dataset_table(name: str, results: Results) -> list[Output]:
    """The same table for any dataset: beside it what the paper's tables have for that setting, if anything."""
    paper, loaded = published.load(PAPER), frame.load(results)
    return _table(name, f"Trees on {notes.setting(loaded)}", paper[paper["artifact"].isin(list(TABLES))], loaded)


def _table(name: str, title: str, paper: pd.DataFrame, loaded: pd.DataFrame, more: Iterable[str] = ()) -> list[Output]:
    theirs = frame.of_models(paper, loaded)
    runs = _best(frame.with_unrun(loaded, theirs, SETTING)).sort_values(
        ["block", "place", "size"], na_position="first", kind="stable"
    )
    long = frame.beside(frame.measure(runs, METRICS), theirs, [*SETTING, "method"], NAMES)
    sizes = _printed_sizes(theirs)
    long = _judged(frame.put(long, printed=[sizes.get(key, frozenset()) for key in _keys(long)]))
    below = [*notes.of_blocks(loaded, paper=theirs, on=SETTING), *more]
    aside = ASIDE if long["published"].notna().any() else ASIDE_ALONE
    return [table(name, title, long, ROWS, METRICS, aside=aside, notes=below, means=MEANS)]


def _best(runs: pd.DataFrame) -> pd.DataFrame:
    """Which run has the largest speedup with prefill of its method, and the words that stand in its row."""
    long = frame.measure(runs, [SPEEDUP_WITH_PREFILL])
    rank = pd.Series([-math.inf if value is None else value for value in long["value"]], runs.index)
    alike = rank.groupby([runs["block"], runs["method"]])
    best = runs.index.isin(alike.idxmax())
    several = (alike.transform("size") > 1) & best & (rank > -math.inf)
    words = [notes.model_words(row) for row in named_rows(runs)]
    sizes = zip(runs["size"], runs["ok"], several, strict=True)
    return frame.put(
        runs,
        rank=rank,
        best=best,
        label=runs["method"].map(method_label),
        target_words=[target for target, _ in words],
        draft_words=[draft for _, draft in words],
        size_words=[f"{frame.size_words(size, ok=ok)}{' (best)' * most}" for size, ok, most in sizes],
        delta=[f"{params['delta']:g}" if "delta" in params else tables.ABSENT for params in runs["params"]],
    )


def _keys(rows: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    return rows[[*SETTING, "method"]].itertuples(index=False, name=None)


def _printed_sizes(paper: pd.DataFrame) -> dict[tuple[Any, ...], frozenset[int]]:
    """Of which n the paper's rows of a method are the best; none where it tells of no size."""
    sizes: dict[tuple[Any, ...], frozenset[int]] = {}
    for key, text in zip(_keys(paper), paper["params"], strict=True):
        sizes[key] = sizes.get(key, frozenset()) | {
            int(size) for size in params_of(text).get("nodes", "").split("|") if size
        }
    return sizes


def _judged(long: pd.DataFrame) -> pd.DataFrame:
    """The best runs marked and judged among themselves; MAL over all sizes that may be the paper's."""
    best, lengths = long["best"].astype(bool), long["metric"].isin([MAL_AS_PUBLISHED])
    by_definition = (long["method"] == AUTOREGRESSIVE) & ~long["metric"].isin([SPEED])
    long = frame.put(frame.rank(long, only=best), why=["1 by definition" if one else "" for one in by_definition])
    verdicts: dict[Any, str] = dict.fromkeys(long.index, "") | dict(frame.judge(long[best])["verdict"])
    for _, rows in long[lengths & long["interval"].notna()].groupby("block", sort=False):
        verdicts |= _of_sizes(rows)
    published = [number if chosen else None for number, chosen in zip(long["published"], best, strict=True)]
    return frame.put(long, published=published, verdict=verdicts.values())


def _of_sizes(rows: pd.DataFrame) -> dict[Any, str]:
    """The verdict on MAL of each method's best run: the one that every choice of the paper's sizes gives."""
    known = rows[rows["published"].notna()]
    trees = {method: own for method, group in known.groupby("method", sort=False) if (own := _papers_trees(group))}
    judged: dict[Any, list[str]] = {row.Index: [] for row in named_rows(known[known["best"].astype(bool)])}
    for chosen in itertools.product(*trees.values()):
        trial = frame.judge(rows.loc[list(chosen)])
        for method, words in zip(trial["method"], trial["verdict"], strict=True):
            for place in judged.keys() & set(trees[method]):
                judged[place].append(words)
    return {place: _of_all(words) for place, words in judged.items()}


def _of_all(words: Sequence[str]) -> str:
    """A verdict that all give, the least certain of them; else there is none."""
    if len({verdict.word(one) for one in words}) != 1:
        return verdict.not_comparable("other tree")
    return max(words, key=lambda one: one.p if isinstance(one, Verdict) else 1.0)


def _papers_trees(runs: pd.DataFrame) -> list[Any]:
    """Where the runs of a method are that may have the paper's tree: those of all sizes it chose among, else none.

    The best one where the paper tells of no size.
    """
    printed = runs["printed"].iloc[0]
    if not printed:
        return list(runs.index[runs["best"].astype(bool)])
    measured = runs[runs["interval"].notna()].sort_values("rank", kind="stable")
    by_size = dict(zip(measured["size"], measured.index, strict=True))
    return [by_size[size] for size in sorted(printed)] if printed <= by_size.keys() else []
