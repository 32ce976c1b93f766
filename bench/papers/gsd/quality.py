"""GSD, Table 10: ROUGE of what is sampled, by rule and method, and its difference to plain decoding's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from bench import published
from bench.artifacts import definitions, grid, tables
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import Block, drafted
from bench.artifacts.grid import Cell, Column, Setting
from bench.artifacts.metric import Metric, measured
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run, per_row
from bench.artifacts.wording import titled, who
from bench.papers.gsd import methods
from bench.papers.gsd.methods import GSD, SAMPLED, SMALL, SSD, SSD_DRAWN, both_rules, bound
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

TITLE = "GSD Table 10: ROUGE of non-deterministic decoding"
TURN = ["prompt_id", "turn"]
VANILLA = Arm("vanilla", (), AUTOREGRESSIVE)
DRAFTED = (
    bound(SSD, SMALL),
    bound(SSD_DRAWN, SMALL),
    *(bound(replace(GSD, header=f"GSD (tau={tau})", params={"tau": str(tau)}), SMALL | {"tau": tau}) for tau in (1, 2)),
)
ARMS = (VANILLA, *both_rules(*DRAFTED))


def plain(block: Block) -> Run:
    """Plain decoding as a run of its own, without an id: what the autoregressive arms of all runs decoded."""
    return Run(block, pd.Series({"run_id": "", "status": "ok", "method": AUTOREGRESSIVE}))


def _chosen(arm: Arm, block: Block) -> Run | None:
    return plain(block) if arm is VANILLA else arm.chosen(block.every)


def texts(run: Run) -> pd.DataFrame:
    """A row per scored text; of plain decoding the mean over all runs, which decode the same."""
    if run.method != AUTOREGRESSIVE:
        rows = run.rows("quality")
        return rows[rows["arm"] == METHOD].dropna(subset=["rouge1"])
    rows = pd.concat(one.rows("quality") for one in (run, *run.block.ok))
    rows = rows[rows["arm"] == AUTOREGRESSIVE]
    means = rows.groupby(TURN)[["num_words", *(score for score, _, _ in SCORES)]].mean()
    return means.dropna(subset=["rouge1"]).reset_index()


def _score(header: str, column: str, means: str = "", digits: int = 3) -> Metric:
    return measured(header, lambda run: per_row(run.once(texts).dropna(subset=[column]), column), means, digits)


def _difference(header: str, score: str, means: str) -> Metric:
    """A score minus that of its own run's plain decoding."""

    def sums(run: Run) -> Sample | None:
        if run.method == AUTOREGRESSIVE:
            return None
        rows = run.rows("quality")
        both = run.once(texts).merge(rows[rows["arm"] == AUTOREGRESSIVE], on=TURN, suffixes=("", "_plain"))
        both = both.assign(difference=both[score] - both[f"{score}_plain"])
        return per_row(both.dropna(subset=["difference"]), "difference")

    def text(found: Interval | None, digits: int) -> str:
        return tables.signed(found, digits) if found else tables.ABSENT

    return replace(measured(f"difference {header}", sums, means, 3), text=text)


SCORES = (("rouge1", "rouge1", "ROUGE-1"), ("rouge2", "rouge2", "ROUGE-2"), ("rouge_l", "rougeL", "ROUGE-L"))
"""Ours, the paper's name, and the header."""
FIRST = "rouge1"
"""What is said of all of them stands at the first."""
_SCORE = (
    "F1 against the dataset's reference, mean over prompts; in brackets the 95% interval "
    f"({intervals.METHOD} over prompts)"
)
_MINUS = "this method's score minus plain decoding's of the same prompt, mean over prompts, with its 95% interval"
PRINTED = tuple(
    Column(_score(header, score, _SCORE * (score == FIRST)), paper=paper, digits=2, ended=score == FIRST)
    for score, paper, header in SCORES
)
DIFFERENCES = tuple(_difference(header, score, _MINUS * (score == FIRST)) for score, _, header in SCORES)
WORDS = replace(
    _score("words", "num_words", "mean words of the scored texts: ROUGE depends on their length"),
    text=lambda words, digits: tables.number(words and words.value, 0),
)
RULE = replace(
    methods.LOSSLESS,
    of=lambda run: methods.LOSSLESS.of(run) if run.run_id else None,
    means=definitions.LOSSLESS,
)
DETAILS = (*PRINTED, *map(Column, (*DIFFERENCES, WORDS, methods.VARIATION, RULE)))


def quality_table(name: str, results: Results) -> list[Output]:
    """Table 10, twice: as printed, and with intervals, differences to plain decoding and verdicts."""
    paper = published.find("gsd", name)
    found = methods.found_blocks(results, drafted(paper), [SAMPLED])
    unstated = {"Target": "llama2_7b", "Draft": "llama_160m", "Dataset": "unstated"}
    settings = [Setting(who(block), ARMS, paper, [block], _chosen) for block in found]
    settings = settings or [Setting(unstated, ARMS, paper)]
    title = titled(TITLE, found)
    notes = (*methods.said(paper, found), *_notes([cell for one in settings for cell in one.cells]))
    notes += tuple(methods.not_shown(results, ARMS, settings))
    return [
        grid.as_printed(name, title, settings, PRINTED, notes),
        grid.in_detail(name, title, settings, DETAILS, notes),
    ]


def _notes(every: Sequence[Cell]) -> Iterator[str]:
    yield "The paper names no dataset of this table, and prints two digits without intervals."
    yield methods.LOSSY_RULE
    judged = []
    for word, lossy in (("lossless", False), ("lossy", True)):
        own = [cell for cell in every if (cell.arm.rules in (methods.LOSSY, methods.CODE)) == lossy]
        judged += list(_differences(word, own))
    yield from judged
    if judged:
        yield (
            "A lossless rule differs from plain decoding by chance alone: 1 in 20 such intervals is to miss 0. Of "
            "either rule more miss it where prompts are few, and few prompts make wide intervals, which hold 0 "
            "whatever the rule. That a lossy rule's holds 0 does not make it lossless: ROUGE may not show what "
            "variation does."
        )


def _differences(word: str, cells: Sequence[Cell]) -> Iterator[str]:
    """Whether plain decoding's scores are kept."""
    every = [
        (f"{cell.arm.header} {header} {tables.signed(found)}", found)
        for cell in cells
        for (_, _, header), metric in zip(SCORES, DIFFERENCES, strict=True)
        if (found := Column(metric).value(cell)) is not None and found.known
    ]
    wide = [(words, found) for words, found in every if found.low < found.high]
    off = [words for words, found in wide if not found.low <= 0 <= found.high]
    others = f"; not so: {'; '.join(off)}" if off else ""
    if wide:
        yield (
            f"Of {len(wide)} differences of {word} rules to plain decoding {len(wide) - len(off)} hold 0 in their 95% "
            f"interval{others}."
        )
    if narrow := len(every) - len(wide):
        yield f"Not counted: {narrow} differences of {word} rules whose interval has no width, which tells nothing."
