"""What is said below improved MCSD's Table 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from bench import published
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.tables import signed
from bench.papers.improving_mcsd.graded import Graded, Judge
from bench.papers.improving_mcsd.settings import PAPER
from bench.results.rows import AUTOREGRESSIVE


def of_answers(paper: pd.DataFrame, grid: Sequence[Sequence[Graded]], known: Sequence[Judge]) -> Iterator[str]:
    """All notes; `known` are the judges, of which the first is shown."""
    if not known:
        yield (
            "No answer was judged: `python -m bench.judge FOLDER` (make judge) has them graded by any endpoint that "
            "speaks OpenAI's chat completions. Until then the columns that need no judge are all there is."
        )
    else:
        more = f" Not shown: grades by {', '.join(map(str, known[1:]))}." if known[1:] else ""
        yield f"Scores are by {known[0]}, one answer at a time; the paper does not name its judge.{more}"
    if any(graded < turns for row in grid for graded, turns in (one.judged for one in row) if graded):
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
    yield from _off(grid)
    for rows in paper.groupby(["draft", "params"], sort=False):
        yield from _misprint(paper, rows[1])
    (bound,) = published.find(PAPER, "claim_text", metric="mt_bench_delta")["value"]
    yield f"The paper, in its text: with one first token the score stays within {bound:g} of the target's own."


def _off(grid: Sequence[Sequence[Graded]]) -> Iterator[str]:
    """Where the log-likelihood is not the target's own."""
    every = [
        (f"{one.method.header}, W = {one.method.given['widths'][0]} by {one.method.rule}: {signed(found)}", found)
        for row in grid for one in row if one.method and (found := one.difference("log_likelihood")) and found.n > 1
    ]  # fmt: skip
    off = [words for words, found in every if not found.low <= 0 <= found.high]
    if every:
        listed = f": {'; '.join(off)}" if off else ""
        yield (
            f"Of {len(every)} log-likelihoods {len(off)} differ from the target's own by their 95% interval{listed}. "
            "Where a rule keeps the law 1 in 20 does; a higher log-likelihood is no better text, but another law."
        )


def _misprint(paper: pd.DataFrame, rows: pd.DataFrame) -> Iterator[str]:
    """A printed difference that is not that of the printed scores."""
    values = rows.set_index("metric")["value"]
    if not {"mt_bench_score", "mt_bench_delta"} <= set(values.index):
        return
    alone = float(paper.loc[paper["method"] == AUTOREGRESSIVE, "value"].iloc[0])
    score, width = values["mt_bench_score"], params_of(rows["params"].iloc[0])["target_init_width"]
    own = score - alone
    if abs(own - values["mt_bench_delta"]) > 0.005:
        yield (
            f"The paper prints {score:g} ({values['mt_bench_delta']:+g}) for {rows['draft'].iloc[0]} with {width} "
            f"first tokens, but {score:g} - {alone:g} = {own:+.2f}."
        )
