"""GSD, Table 10: ROUGE of what is sampled, by rule and method, and its difference to plain decoding's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, frame, notes
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.frame import done
from specdec_trees.artifacts.metrics import LOSSLESS, Metric, per_row
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.gsd import methods
from specdec_trees.papers.gsd.methods import GSD, SAMPLED, SMALL, SSD, SSD_DRAWN, both_rules, bound
from specdec_trees.papers.gsd.metrics import ROWS, VARIATION
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals
from specdec_trees.statistics.samples import Sample

TITLE = "GSD Table 10: ROUGE of non-deterministic decoding"
TURN = ["prompt_id", "turn"]
VANILLA = Arm("vanilla", (), AUTOREGRESSIVE)
"""Plain decoding: what the autoregressive arms of all runs decoded."""
DRAFTED = (
    bound(SSD, SMALL),
    bound(SSD_DRAWN, SMALL),
    *(bound(replace(GSD, header=f"GSD (tau={tau})", params={"tau": str(tau)}), SMALL | {"tau": tau}) for tau in (1, 2)),
)
ARMS = (VANILLA, *both_rules(*DRAFTED))
NAMES = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""The paper's scores by ours."""
_SCORE = (
    "F1 against the dataset's reference, mean over prompts; in brackets the 95% interval "
    f"({intervals.METHOD} over prompts)"
)
_MINUS = "this method's score minus plain decoding's of the same prompt, mean over prompts, with its 95% interval"


def _score(key: str, header: str, means: str = "", digits: int = 3) -> Metric:
    return Metric(key, header, means, lambda run: per_row(run.texts.dropna(subset=[key]), key), digits)


def _difference(score: Metric, means: str) -> Metric:
    """A score minus that of its own run's plain decoding."""

    def sums(run: Any) -> Sample | None:
        if not run.run_id:
            return None
        both = run.texts.merge(_scored(run.quality, AUTOREGRESSIVE), on=TURN, suffixes=("", "_plain"))
        both = both.assign(difference=both[score.key] - both[f"{score.key}_plain"])
        return per_row(both.dropna(subset=["difference"]), "difference")

    return Metric(f"difference_{score.key}", f"difference {score.header}", means, sums, 3, signed=True)


SCORES = (_score("rouge1", "ROUGE-1", _SCORE), _score("rouge2", "ROUGE-2"), _score("rouge_l", "ROUGE-L"))
DIFFERENCES = tuple(_difference(score, _MINUS if score is SCORES[0] else "") for score in SCORES)
"""What is said of all of them stands at the first."""
WORDS = _score("num_words", "words", "mean words of the scored texts: ROUGE depends on their length", 0)
RULE = replace(LOSSLESS, of=lambda run: LOSSLESS.of(run) if run.run_id else None)
MORE = (*DIFFERENCES, WORDS, VARIATION, RULE)
_CHANCE = (
    "A lossless rule differs from plain decoding by chance alone: 1 in 20 such intervals is to miss 0. Of either rule "
    "more miss it where prompts are few, and few prompts make wide intervals, which hold 0 whatever the rule. That a "
    "lossy rule's holds 0 does not make it lossless: ROUGE may not show what variation does."
)


def quality_table(name: str, results: Results) -> list[Output]:
    """A row per method and rule, ours beside the paper's, and differences to plain decoding."""
    paper = published.find("gsd", name)
    runs = methods.load(results, paper, [SAMPLED])
    runs = frame.put(runs, quality=frame.of_runs(results.quality, runs["run_id"]))
    (lines,) = methods.lines(runs, paper, ARMS, [SAMPLED], on=())
    measured = frame.measure(_with_texts(lines, runs), (*SCORES, *MORE))
    long = frame.judge(arms.beside(measured, NAMES), who="label")
    below = [*notes.of_blocks(runs), *notes.not_run(paper, runs), *_notes(long)]
    below += methods.unshown(results, lines, ARMS)
    aside = [one.key for one in (*DIFFERENCES[1:], *MORE[3:])]
    return [table(name, notes.titled(TITLE, runs), long, ROWS, (*SCORES, *MORE), aside=aside, notes=below)]


def _with_texts(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The lines with their scored `texts`; plain decoding is a line of its own, with the mean over a block's runs."""
    plain = {block: _plain(rows) for block, rows in done(runs).groupby("block")}
    both = [(line, line.arm is VANILLA) for line in named_rows(lines)]
    return frame.put(
        lines,
        ok=[line.block in plain if alone else line.ok for line, alone in both],
        texts=[plain.get(line.block) if alone else _scored(line.quality, METHOD) for line, alone in both],
        variation=[line.variation.iloc[:0] if alone else line.variation for line, alone in both],
    )


def _scored(quality: pd.DataFrame, arm: str) -> pd.DataFrame:
    """A row per scored text of an arm."""
    return quality[quality["arm"] == arm].dropna(subset=["rouge1"])


def _plain(runs: pd.DataFrame) -> pd.DataFrame:
    """The mean over all runs, which decode the same."""
    rows = _scored(pd.concat(list(runs["quality"])), AUTOREGRESSIVE)
    return rows.groupby(TURN)[["num_words", *NAMES]].mean().reset_index()


def _notes(long: pd.DataFrame) -> Iterator[str]:
    yield "The paper names no dataset of this table, and prints two digits without intervals."
    yield methods.LOSSY_RULE
    known = long[long["metric"].isin(DIFFERENCES) & long["interval"].notna()]
    lossy = known["arm"].map(lambda arm: arm.rules in (methods.LOSSY, methods.CODE)).astype(bool)
    judged = [*_differences("lossless", known[~lossy]), *_differences("lossy", known[lossy])]
    yield from judged
    if judged:
        yield _CHANCE


def _differences(word: str, rows: pd.DataFrame) -> Iterator[str]:
    """Whether plain decoding's scores are kept."""
    known = [row for row in named_rows(rows) if row.interval.known]
    wide = [row for row in known if row.interval.low < row.interval.high]
    off = [
        f"{row.label} {row.metric.header.partition(' ')[2]} {row.metric.cell(row.value, row.interval)}"
        for row in wide
        if not row.interval.low <= 0 <= row.interval.high
    ]
    others = f"; not so: {'; '.join(off)}" if off else ""
    if wide:
        yield (
            f"Of {len(wide)} differences of {word} rules to plain decoding {len(wide) - len(off)} hold 0 in their 95% "
            f"interval{others}."
        )
    if narrow := len(known) - len(wide):
        yield f"Not counted: {narrow} differences of {word} rules whose interval has no width, which tells nothing."
