"""Improved MCSD, Table 1: what several first tokens do to the answers, by a judge and by what needs none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, frame, notes, tables
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import Metric, per_row
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import ABSENT, named_rows
from specdec_trees.papers.improving_mcsd import comparison
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.papers.improving_mcsd.methods import LOSSY, LOSSY_RULE, PAPER, SUBTREES, target_init
from specdec_trees.published import params_of
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals
from specdec_trees.statistics.samples import Sample

TITLE = "Improved MCSD Table 1: answers by number of first tokens"
NOT_JUDGED = "not judged"
ALONE = Arm("the target alone", (), AUTOREGRESSIVE)
METHODS = tuple(
    replace(
        target_init((width, 4, 3, 1, 1), rule=rule),
        paper="target_init_mcsd" if rule == LOSSY_RULE else "",
        params={"target_init_width": str(width)},
    )
    for rule in (LOSSY_RULE, SUBTREES)
    for width in (1, 2, 3)
)
"""The paper states no more of its trees than the number of first tokens; the rest is that of its Table 2."""
NAMES = {"score": "mt_bench_score", "score_alone": "mt_bench_delta"}
"""What the paper prints: a score, and how far it is from the target's own."""
ROWS = ("target_words", "draft_words", "dataset", "first", "rule", "lossless_words")
TABLES = ("judgements", "quality", "answers", "variation")
_TURN = ["prompt_id", "turn"]


# what is measured, of rows that have those of a run in `TABLES`, and of the target alone in the same run in `alone`


def _turns(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row per turn that has a value: several runs have the same answers of the target alone, or as good ones."""
    return rows.dropna(subset=[column]).groupby(_TURN)[[column]].mean().reset_index()


def _mean(rows: pd.DataFrame, column: str, most: float) -> Sample | None:
    """The mean over turns of a column, whose values are at most this."""
    return per_row(_turns(rows, column), column, most=most)


def _difference(name: str, column: str, run: Any) -> Sample | None:
    """The mean over turns of a column less that of the target alone in the same turn; None of the target alone."""
    both = getattr(run, name).merge(run.alone[name], on=["run_id", *_TURN], suffixes=("", "_alone"))
    both = both.assign(difference=both[column] - both[f"{column}_alone"]).dropna(subset=["difference"])
    return None if run.arm is ALONE else per_row(both, "difference")


def _judged(run: Any) -> tuple[int, int]:
    """Turns with a grade, of all whose answers were recorded."""
    return len(_turns(run.judgements, "score")), len(run.answers.drop_duplicates(_TURN))


def _judged_words(run: Any) -> str | None:
    graded, turns = _judged(run)
    return f"{graded} of {turns}" if turns else None


def _rouge_alone(run: Any) -> Sample | None:
    return None if run.arm is ALONE else _mean(run.alone["quality"], "greedy_rouge_l", 1.0)


SCORE = Metric(
    "score",
    "score",
    "grade from 1 to 10 by a judge, mean over turns, in brackets the 95% interval "
    f"({intervals.METHOD} over conversations); judged by order alone, since judges differ",
    lambda run: _mean(run.judgements, "score", 10.0) or NOT_JUDGED,
)
DELTA = Metric(
    "score_alone",
    "score - alone",
    "the same less the grade of the target alone in the same turn, mean over the run's turns that are graded in both "
    "arms; the row of the target alone is over all turns of it that are graded",
    partial(_difference, "judgements", "score"),
    3,
    signed=True,
    judged=False,
)
LIKELIHOOD = Metric(
    "log_likelihood_alone",
    "log-likelihood - alone",
    "mean log p(token | all before it) under the target at this temperature, in nats, less that of the target's own "
    "answer to the same prompt, mean over turns",
    partial(_difference, "quality", "log_likelihood"),
    3,
    signed=True,
)
ROUGE = Metric(
    "rouge_l",
    "ROUGE-L",
    "F1 of ROUGE-L against the target's greedy answer to the same prompt, mean over turns",
    lambda run: _mean(run.quality, "greedy_rouge_l", 1.0),
    3,
)
VARIATION = Metric(
    "variation",
    "variation",
    "total variation between the distribution of a turn's first token and the target's own, estimated over drawn trees "
    "with p's own share of the chance taken out, mean over turns",
    lambda run: per_row(run.variation.dropna(subset=["total_variation"]), "total_variation", most=1.0),
    3,
)
JUDGED = Metric("judged", "judged", "turns with a grade, of those recorded", _judged_words)
ROUGE_ALONE = Metric(
    "rouge_l_alone", "ROUGE-L alone", "the same of what the target samples alone in the same run", _rouge_alone, 3
)
WORDS = Metric(
    "words", "words", "mean words of the answers", lambda run: _turns(run.quality, "num_words")["num_words"].mean(), 0
)
NOISE = Metric(
    "noise",
    "noise",
    "what the estimate of variation would come to if there were none",
    lambda run: run.variation["noise"].mean(),
    3,
)
METRICS = (SCORE, DELTA, LIKELIHOOD, ROUGE, VARIATION, JUDGED, ROUGE_ALONE, WORDS, NOISE)
ASIDE = ("dataset", *(metric.key for metric in METRICS[5:]))


def answers_table(name: str, results: Results) -> list[Output]:
    """A row per draft, number of first tokens and rule, the paper's scores beside ours."""
    paper, (judges, shown) = published.find(PAPER, name), _by_first_judge(results)
    loaded = mcsd.load(shown, METHODS, (0.7,), paper)
    lines = arms.rows(
        comparison.in_order(loaded, paper[paper["draft"] != frame.NO_DRAFT]), paper, (ALONE, *METHODS), ("dataset",)
    )
    long = arms.beside(frame.measure(_with_tables(lines, shown), METRICS), NAMES)
    verdicts = frame.judge(frame.put(long, stand_in=[True] * len(long)), who="tree")["verdict"]
    below = [
        *notes.of_blocks(loaded, timed=False),
        *notes.not_run(paper, loaded),
        *_judges(judges),
        *_answers(long, paper),
        *mcsd.unshown(results, {run_id for ids in long["run_id"] for run_id in ids.split()}),
    ]
    long = frame.put(long, verdict=verdicts)
    return [table(name, notes.titled(TITLE, loaded), long, ROWS, METRICS, aside=ASIDE, notes=below)]


def _by_first_judge(results: Results) -> tuple[list[str], Results]:
    """The judges by how many grades they gave, and the results with the grades of the first alone."""
    graded = results.judgements.dropna(subset=["score"])
    names = graded["judge"] + " (prompts " + graded["prompt_version"].astype(str) + ")"
    judges = names.groupby(names).size().sort_values(ascending=False, kind="stable").index.tolist()
    return judges, replace(results, judgements=graded[names == judges[0]] if judges else graded)


def _with_tables(lines: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The lines with the rows of their runs; those of the target alone are of the other arms of all runs of a block."""
    of_block = lines[lines["ok"].astype(bool)].groupby("block")["run_id"].agg(list).to_dict()
    ids = [of_block.get(row.block, []) if row.arm is ALONE else [row.run_id] * row.ok for row in named_rows(lines)]
    alone = [_tables(results, runs, AUTOREGRESSIVE) for runs in ids]
    both = zip(lines["arm"], ids, alone, strict=True)
    own = [plain if arm is ALONE else _tables(results, runs, METHOD) for arm, runs, plain in both]
    words = [notes.model_words(line, ("dataset",)) for line in named_rows(lines)]
    return frame.put(
        lines,
        **{name: [rows[name] for rows in own] for name in TABLES},
        alone=alone,
        run_id=[
            " ".join(runs) if arm is ALONE else own
            for runs, arm, own in zip(ids, lines["arm"], lines["run_id"], strict=True)
        ],
        ok=[bool(runs) for runs in ids],
        target_words=[target for target, _ in words],
        draft_words=[draft for _, draft in words],
        tree=[f"{_first_tokens(arm)} {arm.rules}" for arm in lines["arm"]],
        first=[_first_tokens(arm) for arm in lines["arm"]],
        rule=[arm.rules[0] if arm.rules else ABSENT for arm in lines["arm"]],
        lossless_words=map(_lossless, named_rows(lines)),
    )


def _tables(results: Results, run_ids: Sequence[str], arm: str) -> dict[str, pd.DataFrame]:
    """The rows of some runs in each of `TABLES`, of one arm; what has no arm is of the method's."""
    every = {name: getattr(results, name) for name in TABLES}
    return {
        name: rows[rows["run_id"].isin(list(run_ids)) & (rows["arm"] == arm if "arm" in rows else arm == METHOD)]
        for name, rows in every.items()
    }


def _lossless(line: Any) -> str:
    """What the run said; of one that was not run, what its rule and first tokens make it."""
    return "lossless" if (line.lossless if line.ok else LOSSY not in line.arm.header) else "lossy"


def _first_tokens(arm: Arm) -> str:
    return str(arm.given["widths"][0]) if arm.given else ALONE.header


# what is said below


def _judges(judges: Sequence[str]) -> Iterator[str]:
    """Whose grades are shown, and whose are not."""
    if judges:
        more = f" Not shown: grades by {', '.join(judges[1:])}." if judges[1:] else ""
        yield f"Scores are by {judges[0]}, one answer at a time; the paper does not name its judge.{more}"
    else:
        yield (
            "No answer was judged: `specdec judge FOLDER` (make judge) has them graded by any endpoint "
            "that speaks OpenAI's chat completions. Until then the columns that need no judge are all there is."
        )


def _answers(long: pd.DataFrame, paper: pd.DataFrame) -> Iterator[str]:
    """What the columns compare, where the log-likelihood is not the target's own, and what the paper misprints."""
    if any(0 < graded < turns for graded, turns in map(_judged, named_rows(long))):
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
    yield from _off(long[long["metric"].isin([LIKELIHOOD]) & long["interval"].notna()])
    for _, printed in paper.groupby(["draft", "params"], sort=False):
        yield from _misprint(paper, printed)
    (bound,) = published.find(PAPER, "claim_text", metric=NAMES["score_alone"])["value"]
    yield f"The paper, in its text: with one first token the score stays within {bound:g} of the target's own."


def _off(likelihoods: pd.DataFrame) -> Iterator[str]:
    """Where the log-likelihood is not the target's own."""
    known = [row for row in named_rows(likelihoods) if row.interval.known]
    off = [
        f"{row.label}, W = {row.first} by {row.rule}: {tables.signed(row.interval)}"
        for row in known
        if not row.interval.low <= 0 <= row.interval.high
    ]
    if known:
        listed = f": {'; '.join(off)}" if off else ""
        yield (
            f"Of {len(known)} log-likelihoods {len(off)} differ from the target's own by their 95% interval{listed}. "
            "Where a rule keeps the target's distribution, 1 in 20 does; a higher log-likelihood is no better text, "
            "but another distribution."
        )


def _misprint(paper: pd.DataFrame, rows: pd.DataFrame) -> Iterator[str]:
    """A printed difference that is not that of the printed scores."""
    values = rows.set_index("metric")["value"]
    if {*NAMES.values()} <= set(values.index):
        alone = float(paper.loc[paper["method"] == AUTOREGRESSIVE, "value"].iloc[0])
        score, delta = values[[*NAMES.values()]]
        width = params_of(rows["params"].iloc[0])["target_init_width"]
        if abs(score - alone - delta) > 0.005:
            yield (
                f"The paper prints {score:g} ({delta:+g}) for {rows['draft'].iloc[0]} with {width} first tokens, but "
                f"{score:g} - {alone:g} = {score - alone:+.2f}."
            )
