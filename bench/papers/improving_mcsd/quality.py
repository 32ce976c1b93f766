"""Improved MCSD, Table 1: what several first tokens do to the answers, by a judge and by what needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from bench import published
from bench.artifacts import definitions, tables, verdict
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block, drafted
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run, per_row, run_ids
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import models, scale, titled, who
from bench.papers.improving_mcsd.methods import (
    LOSSY,
    LOSSY_RULE,
    PAPER,
    SUBTREES,
    about_pairs,
    blocks_of,
    chosen,
    not_shown,
    target_init,
)
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Table 1: answers by number of first tokens"
ALONE, NOT_JUDGED = "the target alone", "not judged"
WIDTHS, RULES = (1, 2, 3), (LOSSY_RULE, SUBTREES)
METHODS = {(width, rule): target_init((width, 4, 3, 1, 1), rule=rule) for rule in RULES for width in WIDTHS}
"""The paper states no more of its trees than the number of first tokens; the rest is that of its Table 2."""
_SCORE, _DELTA = "mt_bench_score", "mt_bench_delta"
"""What the paper prints: a score, and how far it is from the target's own."""
_TURN = ["prompt_id", "turn"]


@dataclass(frozen=True, eq=False)
class Column:
    """A draft with its target: its block and the paper's rows, one of which may be missing."""

    target: str
    draft: str
    block: Block | None
    paper: pd.DataFrame
    alone: float | None  # the paper's score of the target
    words: str = ""  # the draft, and what tells it from other columns


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a method with a draft; without a method those of the target alone, in all runs of the block."""

    method: Arm | None
    column: Column

    @cached_property
    def run(self) -> Run | None:
        """The method's run, however it ended; None for the target alone and where there is none."""
        return chosen(self.method, self.column.block) if self.method and self.column.block else None

    @cached_property
    def runs(self) -> list[Run]:
        """The runs whose rows count."""
        if self.method is None:
            return self.column.block.ok if self.column.block else []
        return [self.run] if self.run and self.run.ok else []

    def rows(self, table: str, arm: str = "") -> pd.DataFrame:
        """Rows of a table of the results, of this arm or of another one of the same runs."""
        if not self.runs:
            return pd.DataFrame()
        rows = getattr(self.runs[0].block.results, table)
        arm = arm or (METHOD if self.method else AUTOREGRESSIVE)
        return rows[rows["run_id"].isin(run_ids(self.runs)) & (rows["arm"] == arm)]

    def turns(self, table: str, column: str, arm: str = "") -> pd.DataFrame:
        """A row per turn that has a value: several runs have the same answers of the target alone, or as good ones."""
        rows = self.rows(table, arm)
        return rows.dropna(subset=[column]).groupby(_TURN)[[column]].mean().reset_index() if len(rows) else rows

    def mean(self, table: str, column: str, arm: str = "") -> Interval | None:
        """Mean over turns, conversations resampled."""
        return _mean(self.turns(table, column, arm), column)

    def paired(self, table: str) -> pd.DataFrame:
        """The rows of both arms of a method's run side by side, of the turns that have both."""
        mine, alone = self.rows(table), self.rows(table, AUTOREGRESSIVE)
        if self.method is None or mine.empty or alone.empty:
            return pd.DataFrame()
        return mine.merge(alone, on=["run_id", *_TURN], suffixes=("", "_alone"), validate="one_to_one")

    def difference(self, table: str, column: str) -> Interval | None:
        """A column less that of the target alone in the same turn."""
        both = self.paired(table)
        if both.empty:
            return None
        return _mean(both.assign(difference=both[column] - both[f"{column}_alone"]), "difference")

    def variation(self, column: str = "total_variation") -> Interval | None:
        """Mean over rows of a column of `variation`."""
        rows = [self.run.rows("variation")] if self.run and self.run.ok else []
        return _mean(rows[0], column) if rows else None

    @property
    def score(self) -> Interval | None:
        """Mean grade."""
        return self.mean("judgements", "score")

    @cached_property
    def judged(self) -> tuple[int, int]:
        """Turns with a grade, of all whose answers were recorded."""
        answers = self.rows("answers")
        return len(self.turns("judgements", "score")), len(answers.drop_duplicates(_TURN) if len(answers) else answers)

    def published(self, metric: str) -> float | None:
        """The paper's number; none of rules that it does not have."""
        if self.method is None:
            return self.column.alone if metric == _SCORE else None
        rows = self.column.paper[self.column.paper["metric"] == metric]
        own = [params_of(text).get("target_init_width") == _first_tokens(self) for text in rows["params"]]
        values = rows["value"][own] if LOSSY_RULE in self.method.rules else ()
        return float(next(iter(values))) if len(values) else None


def _mean(rows: pd.DataFrame, column: str) -> Interval | None:
    known = rows.dropna(subset=[column]) if len(rows) else rows
    return intervals.ratio_of_sums(known, column) if len(known) else None


def _first_tokens(one: Answers) -> str:
    return str(one.method.given["widths"][0]) if one.method else ALONE


def _lossless(one: Answers) -> str:
    """What the run said; of one that was not run, what its rule and first tokens make it."""
    if one.method is None:
        return "lossless"
    kept = one.run.lossless if one.run and one.run.ok else LOSSY not in one.method.header
    return "lossless" if kept else "lossy"


def _failure(one: Answers) -> str:
    """How the run ended if it did not end well; what there is instead of a score."""
    if one.run and not one.run.ok:
        return one.run.status
    return NOT_JUDGED if one.runs else ABSENT


def _signed(value: Interval | None) -> str:
    return tables.signed(value) if value else ABSENT


def _plus(value: float | None) -> str:
    return ABSENT if value is None else f"{value:+.2f}"


def _number(found: Interval | None, digits: int) -> str:
    return tables.number(found.value if found else None, digits)


DETAILS: Mapping[str, tuple[Callable[[Answers], str], str]] = {
    "Target": (lambda one: one.column.target, ""),
    "Draft": (lambda one: one.column.draft, ""),
    "First tokens": (_first_tokens, ""),
    "Rule": (lambda one: one.method.rules[0] if one.method else ABSENT, ""),
    "score": (
        lambda one: tables.interval(one.score) if one.score else _failure(one),
        "grade from 1 to 10 by a judge, mean over turns, in brackets the 95% interval (bootstrap over conversations)",
    ),
    "score published": (lambda one: tables.number(one.published(_SCORE)), ""),
    "score - alone": (
        lambda one: _signed(one.difference("judgements", "score")),
        "the same less the grade of the target alone in the same turn, mean over the run's turns that are graded in "
        "both arms; the row of the target alone is over all turns of it that are graded",
    ),
    "score - alone published": (lambda one: _plus(one.published(_DELTA)), ""),
    "judged": (
        lambda one: f"{one.judged[0]} of {one.judged[1]}" if one.judged[1] else ABSENT,
        "turns with a grade, of those recorded",
    ),
    "log-likelihood - alone": (
        lambda one: _signed(one.difference("quality", "log_likelihood")),
        "mean log p(token | all before it) under the target at this temperature, in nats, less that of the target's "
        "own answer to the same prompt, mean over turns",
    ),
    "ROUGE-L": (
        lambda one: tables.interval(one.mean("quality", "greedy_rouge_l"), 3),
        "F1 of ROUGE-L against the target's greedy answer to the same prompt, mean over turns",
    ),
    "ROUGE-L alone": (
        lambda one: tables.interval(one.mean("quality", "greedy_rouge_l", AUTOREGRESSIVE) if one.method else None, 3),
        "the same of what the target samples alone in the same run",
    ),
    "words": (lambda one: _number(one.mean("quality", "num_words"), 0), "mean words of the answers"),
    "variation": (
        lambda one: tables.interval(one.variation(), 3),
        "total variation between the law of a turn's first token and the target's own, estimated over drawn trees with "
        "p's own share of the chance taken out, mean over turns",
    ),
    "noise": (
        lambda one: _number(one.variation("noise"), 3),
        "what the estimate of variation would come to if there were none",
    ),
    "lossless": (_lossless, definitions.LOSSLESS),
}
_VERDICT = (
    "on the order of scores alone, since judges differ: order holds, differs, not resolved, not comparable, or not run "
    "(bench/artifacts/verdict.py)"
)


def answers_table(name: str, results: Results) -> list[Output]:
    """Table 1, twice: as printed with what needs no judge beside it, and a row per run with intervals."""
    paper = published.find(PAPER, name)
    graded = results.judgements.dropna(subset=["score"])
    judges = graded.groupby(["judge", "prompt_version"]).size().sort_values(ascending=False, kind="stable").index
    shown = (graded[["judge", "prompt_version"]] == list(judges[0])).all(axis=1) if len(judges) else graded.index < 0
    mine = replace(results, judgements=graded[shown])
    found = blocks_of(mine, list(METHODS.values()), (0.7,), drafted(paper))
    columns = _columns(paper, found)
    grid = [[Answers(method, column) for column in columns] for method in (None, *METHODS.values())]
    details = [(row[place], [other[place] for other in grid]) for place in range(len(columns)) for row in grid]
    notes = (*map(scale, found), *about_pairs(paper, found), *_said(paper, grid, list(judges)))
    notes += tuple(not_shown(results, [one.run.run_id for row in grid for one in row if one.run]))
    title = titled(TITLE, found)
    wide = [_as_printed(row) for row in grid]
    full = [{header: of(one) for header, (of, _) in DETAILS.items()} | _verdict(one, rows) for one, rows in details]
    legend = {header: means for header, (_, means) in DETAILS.items() if means} | {"verdict": _VERDICT}
    runs = tuple(" ".join(dict.fromkeys(run.run_id for one in row for run in one.runs)) for row in grid)
    ids = tuple(one.run.run_id if one.run else "" for one, _ in details)
    return [
        Table(name, title, tables.frame(wide, wide[0]), notes, _legend(columns[0].words), runs),
        Table(f"{name}_details", f"{title}, details", tables.frame(full, full[0]), notes, legend, ids),
    ]


def _columns(paper: pd.DataFrame, found: Sequence[Block]) -> list[Column]:
    """The drafts that were run, then those of the paper that were not."""
    printed, own = drafted(paper), paper[paper["method"] == AUTOREGRESSIVE]
    scores = dict(zip(own["target"], own["value"], strict=True))
    columns = []
    for block in found:
        target, draft = block.published_as or ("", "")
        same = bool(block.first["dataset"] == "mt_bench")
        rows = printed[(printed["target"] == target) & (printed["draft"] == draft) & same]
        alone = scores.get(target) if same else None
        columns.append(Column(who(block)["Target"], who(block)["Draft"], block, rows, alone))
    taken = [block.published_as for block in found]
    for names, rows in printed.groupby(["target", "draft"], sort=False):
        target, draft = map(str, names)
        if (target, draft) not in taken:
            columns.append(Column(target, draft, None, rows, scores.get(target)))
    return _named(columns)


def _named(columns: Sequence[Column]) -> list[Column]:
    """Each by its draft, with the target where another has that draft too, and then by what else differs."""
    pairs = [(column.target, column.draft) for column in columns]
    drafts, runs = Counter(draft for _, draft in set(pairs)), Counter(pairs)
    named = []
    for place, (column, pair) in enumerate(zip(columns, pairs, strict=True)):
        words = models(*pair) if drafts[column.draft] > 1 else column.draft
        mark = (column.block.mark if column.block else "") or str(place + 1)
        named.append(replace(column, words=f"{words}, {mark}" if runs[pair] > 1 else words))
    return named


def _as_printed(row: Sequence[Answers]) -> dict[str, str]:
    """A row as the paper prints it, with the proxies of every draft behind."""
    line = {header: DETAILS[header][0](row[0]) for header in ("First tokens", "Rule")}
    for one in row:
        words, (found, noise) = one.column.words, (one.variation(), one.variation("noise"))
        likelihood, delta = one.difference("quality", "log_likelihood"), one.published(_DELTA)
        line |= {
            words: _score(one),
            f"{words} published": tables.number(one.published(_SCORE))
            + (f" ({delta:+.2f})" if delta is not None else ""),
            f"{words} log-likelihood - alone": f"{likelihood.value:+.3f}" if likelihood else ABSENT,
            f"{words} ROUGE-L": _number(one.mean("quality", "greedy_rouge_l"), 3),
            f"{words} variation": _number(found, 3) + (f" (noise {noise.value:.3f})" if noise else ""),
        }
    return line | {"lossless": _lossless(row[0])}


def _score(one: Answers) -> str:
    """`5.07 (-1.22)`, as the paper has it; `5.07 (-1.22 over 3), 4 of 6` where not all turns are graded or compared."""
    if one.score is None:
        return _failure(one)
    (graded, turns), difference = one.judged, one.difference("judgements", "score")
    compared = len(one.paired("judgements"))
    over = f" over {compared}" if compared < graded else ""
    found = f"{one.score.value:.2f}" + (f" ({difference.value:+.2f}{over})" if difference else "")
    return f"{found}, {graded} of {turns}" if graded < turns else found


def _legend(first: str) -> dict[str, str]:
    """What the first draft's columns are, and what those of the others are too."""
    means = {header: means for header, (_, means) in DETAILS.items()}
    score, difference = means["score"].partition(", in brackets")[0], means["score - alone"].removeprefix("the same ")
    return {
        first: f"{score}, of those graded, whose number follows where not all are; in brackets it is {difference}",
        **{f"{first} {name}": means[name] for name in ("log-likelihood - alone", "ROUGE-L")},
        f"{first} variation": f"{means['variation']}; noise: {means['noise']}",
        "lossless": means["lossless"],
    }


def _verdict(one: Answers, rows: Sequence[Answers]) -> dict[str, str]:
    """By the order of scores alone among a draft's rows: another judge's are other values."""
    if not one.runs:
        return {"verdict": verdict.NOT_RUN}
    if one.published(_SCORE) is None:
        return {"verdict": verdict.not_comparable("no published value")}
    if one.score is None or one.score.n < 2:
        return {"verdict": verdict.not_comparable("no interval" if one.score else NOT_JUDGED)}
    pairings = {
        str(place): Pairing(row.score, row.published(_SCORE), per_row(row.turns("judgements", "score"), "score"))
        for place, row in enumerate(rows)
    }
    return {"verdict": verdict.by_order(str(rows.index(one)), pairings, otherwise="other judge")}


def _said(paper: pd.DataFrame, grid: Sequence[Sequence[Answers]], judges: Sequence[tuple[str, str]]) -> Iterator[str]:
    """All that is said below; of the judges the first is shown."""
    first, *others = [f"{model} (prompts {prompts})" for model, prompts in judges] or [""]
    if not first:
        yield (
            "No answer was judged: `python -m bench.judge FOLDER` (make judge) has them graded by any endpoint that "
            "speaks OpenAI's chat completions. Until then the columns that need no judge are all there is."
        )
    else:
        more = f" Not shown: grades by {', '.join(others)}." if others else ""
        yield f"Scores are by {first}, one answer at a time; the paper does not name its judge.{more}"
    if any(0 < one.judged[0] < one.judged[1] for row in grid for one in row):
        yield (
            "Not all answers are graded: scores of two rows need not be over the same turns. A difference from the "
            "target alone is over the turns that are graded in both arms."
        )
    yield (
        "The target alone answers in conversations of its own, of which scores are; log-likelihood and ROUGE-L compare "
        "its answers to the method's prompts, in which earlier answers are the method's."
    )
    yield (
        "Variation is of a turn's first token, which one first token leaves as it is. What a rule does to the tokens "
        "behind it is in the log-likelihood: the paper's rule tests every drafted node alone, and takes the longest "
        "path."
    )
    yield from _off([one for row in grid for one in row])
    for _, rows in paper.groupby(["draft", "params"], sort=False):
        yield from _misprint(paper, rows)
    (bound,) = published.find(PAPER, "claim_text", metric=_DELTA)["value"]
    yield f"The paper, in its text: with one first token the score stays within {bound:g} of the target's own."


def _off(every: Sequence[Answers]) -> Iterator[str]:
    """Where the log-likelihood is not the target's own."""
    found = [(one, value) for one in every if (value := one.difference("quality", "log_likelihood")) and value.n > 1]
    off = [
        f"{one.method.header}, W = {_first_tokens(one)} by {one.method.rules[0]}: {tables.signed(value)}"
        for one, value in found
        if one.method and not value.low <= 0 <= value.high
    ]
    if found:
        listed = f": {'; '.join(off)}" if off else ""
        yield (
            f"Of {len(found)} log-likelihoods {len(off)} differ from the target's own by their 95% interval{listed}. "
            "Where a rule keeps the law 1 in 20 does; a higher log-likelihood is no better text, but another law."
        )


def _misprint(paper: pd.DataFrame, rows: pd.DataFrame) -> Iterator[str]:
    """A printed difference that is not that of the printed scores."""
    values = rows.set_index("metric")["value"]
    if {_SCORE, _DELTA} <= set(values.index):
        alone = float(paper.loc[paper["method"] == AUTOREGRESSIVE, "value"].iloc[0])
        score, delta, width = values[_SCORE], values[_DELTA], params_of(rows["params"].iloc[0])["target_init_width"]
        if abs(score - alone - delta) > 0.005:
            yield (
                f"The paper prints {score:g} ({delta:+g}) for {rows['draft'].iloc[0]} with {width} first tokens, but "
                f"{score:g} - {alone:g} = {score - alone:+.2f}."
            )
