"""Improved MCSD, Table 1: what several first tokens do to the answers, by a judge and by what needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from bench import published
from bench.artifacts import definitions, grid, tables, verdict
from bench.artifacts.arms import Arm
from bench.artifacts.blocks import NO_DRAFT, Block, drafted
from bench.artifacts.grid import Cell, Column, Setting
from bench.artifacts.metric import Metric, measured
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run, per_row, run_ids
from bench.artifacts.tables import ABSENT, Table
from bench.artifacts.wording import models, scale, titled, who
from bench.papers.improving_mcsd import methods as mcsd
from bench.papers.improving_mcsd.methods import LOSSY, LOSSY_RULE, PAPER, SUBTREES, target_init
from bench.published import params_of
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics import intervals
from bench.statistics.samples import Sample

TITLE = "Improved MCSD Table 1: answers by number of first tokens"
NOT_JUDGED = "not judged"
WIDTHS, RULES = (1, 2, 3), (LOSSY_RULE, SUBTREES)
METHODS = {
    (width, rule): replace(
        target_init((width, 4, 3, 1, 1), rule=rule),
        paper="target_init_mcsd" if rule == LOSSY_RULE else "",
        params={"target_init_width": str(width)},
    )
    for rule in RULES
    for width in WIDTHS
}
"""The paper states no more of its trees than the number of first tokens; the rest is that of its Table 2."""
ALONE = Arm("the target alone", (), AUTOREGRESSIVE)
_SCORE, _DELTA = "mt_bench_score", "mt_bench_delta"
"""What the paper prints: a score, and how far it is from the target's own."""
_TURN = ["prompt_id", "turn"]
_WHO = ("Target", "Draft")


def _chosen(arm: Arm, block: Block) -> Run | None:
    """The run of a method; the target alone is a run of its own, without an id: the other arms of all runs."""
    alone = pd.Series({"run_id": "", "status": "ok"})
    return Run(block, alone) if arm is ALONE else mcsd.chosen(arm, block)


def _behind(run: Run | None) -> list[Run]:
    """The runs whose rows count: of the target alone all of the block."""
    return [one for one in run.block.ok if one is run or not run.run_id] if run else []


def _rows(run: Run, table: str, arm: str = "") -> pd.DataFrame:
    """Rows of a table of the results, of this arm or of a run's own one."""
    rows: pd.DataFrame = getattr(run.block.results, table)
    arm = arm or (METHOD if run.run_id else AUTOREGRESSIVE)
    return rows[rows["run_id"].isin(run_ids(_behind(run))) & (rows["arm"] == arm)]


def _turns(run: Run, table: str, column: str, arm: str = "") -> pd.DataFrame:
    """A row per turn that has a value: several runs have the same answers of the target alone, or as good ones."""
    return _rows(run, table, arm).dropna(subset=[column]).groupby(_TURN)[[column]].mean().reset_index()


def _paired(run: Run, table: str) -> pd.DataFrame:
    """The rows of both arms of a run side by side, of the turns that have both; none of the target alone."""
    mine, alone = _rows(run, table), _rows(run, table, AUTOREGRESSIVE)
    both = mine.merge(alone, on=["run_id", *_TURN], suffixes=("", "_alone"), validate="one_to_one")
    return both if run.run_id else both[:0]


def _mean(header: str, table: str, column: str, means: str, digits: int = 3) -> Metric:
    """Mean over turns."""
    return measured(header, lambda run: per_row(_turns(run, table, column), column), means, digits)


def _difference(header: str, table: str, column: str, means: str) -> Metric:
    """A column less that of the target alone in the same turn."""

    def sums(run: Run) -> Sample | None:
        both = _paired(run, table)
        both = both.assign(difference=both[column] - both[f"{column}_alone"])
        return per_row(both.dropna(subset=["difference"]), "difference")

    return replace(measured(header, sums, means, 3), text=lambda found, _: tables.signed(found) if found else ABSENT)


def _variation(header: str, column: str, means: str) -> Metric:
    """Mean over the rows of a run's `variation`."""
    return measured(header, lambda run: per_row(run.rows("variation").dropna(subset=[column]), column), means, 3)


def _bare(metric: Metric) -> Metric:
    """Without its interval."""
    return replace(metric, text=lambda found, digits: tables.number(found and found.value, digits))


SCORE = _mean(
    "score",
    "judgements",
    "score",
    "grade from 1 to 10 by a judge, mean over turns, in brackets the 95% interval "
    f"({intervals.METHOD} over conversations)",
    2,
)
DELTA = _difference(
    "score - alone",
    "judgements",
    "score",
    "the same less the grade of the target alone in the same turn, mean over the run's turns that are graded in both "
    "arms; the row of the target alone is over all turns of it that are graded",
)
LIKELIHOOD = _difference(
    "log-likelihood - alone",
    "quality",
    "log_likelihood",
    "mean log p(token | all before it) under the target at this temperature, in nats, less that of the target's own "
    "answer to the same prompt, mean over turns",
)
ROUGE = _mean(
    "ROUGE-L",
    "quality",
    "greedy_rouge_l",
    "F1 of ROUGE-L against the target's greedy answer to the same prompt, mean over turns",
)
VARIATION = _variation(
    "variation",
    "total_variation",
    "total variation between the distribution of a turn's first token and the target's own, estimated over drawn trees "
    "with p's own share of the chance taken out, mean over turns",
)
NOISE = _variation("noise", "noise", "what the estimate of variation would come to if there were none")


def _rouge_alone(run: Run) -> Sample | None:
    return per_row(_turns(run, "quality", "greedy_rouge_l", AUTOREGRESSIVE), "greedy_rouge_l") if run.run_id else None


def _judged(run: Run) -> tuple[int, int]:
    """Turns with a grade, of all whose answers were recorded."""
    return len(_turns(run, "judgements", "score")), len(_rows(run, "answers").drop_duplicates(_TURN))


def _failure(run: Run) -> str:
    """How the run ended if it did not end well; what there is instead of a score."""
    return run.status if not run.ok else NOT_JUDGED if _behind(run) else ABSENT


def _lossless(cell: Cell) -> str:
    """What the run said; of one that was not run, what its rule and first tokens make it."""
    ran = cell.run is not None and cell.run.ok and cell.arm is not ALONE
    kept = cell.run.lossless if cell.run and ran else LOSSY not in cell.arm.header
    return "lossless" if kept else "lossy"


def _verdict(cell: Cell) -> str:
    """By the order of scores alone among a draft's rows: another judge's are other values."""
    cells, column = cell.setting.cells, Column(SCORE, paper=_SCORE)
    pairings = {str(place): column.pairing(one) for place, one in enumerate(cells)}
    place = str(cells.index(cell))
    own = pairings[place]
    if not _behind(cell.run):
        return verdict.NOT_RUN
    if own.published is None:
        return verdict.not_comparable("no published value")
    if own.ours is None or own.ours.n < 2:
        return verdict.not_comparable("no interval" if own.ours else NOT_JUDGED)
    return verdict.by_order(place, pairings, otherwise="other judge")


def _told(header: str, words: Callable[[Cell], str], means: str = "") -> Column:
    """A column of words on a method in its setting."""
    return Column(Metric(header, lambda run: None, means), words=words)


BEFORE = (
    _told("First tokens", lambda cell: _first_tokens(cell.arm)),
    _told("Rule", lambda cell: cell.arm.rules[0] if cell.arm.rules else ABSENT),
)
DETAILS = (
    *BEFORE,
    Column(replace(SCORE, of=lambda run: SCORE.of(run) or _failure(run)), paper=_SCORE, judged=False),
    Column(DELTA, paper=_DELTA, theirs=lambda value: ABSENT if value is None else f"{value:+.2f}", judged=False),
    Column(
        Metric(
            "judged",
            lambda run: f"{_judged(run)[0]} of {_judged(run)[1]}" if _judged(run)[1] else None,
            "turns with a grade, of those recorded",
        )
    ),
    Column(LIKELIHOOD),
    Column(ROUGE),
    Column(measured("ROUGE-L alone", _rouge_alone, "the same of what the target samples alone in the same run", 3)),
    Column(_bare(_mean("words", "quality", "num_words", "mean words of the answers", 0))),
    Column(VARIATION),
    Column(_bare(NOISE)),
    _told("lossless", _lossless, definitions.LOSSLESS),
    _told(
        "verdict",
        _verdict,
        "on the order of scores alone, since judges differ: order holds, differs, not resolved, not comparable, or not "
        "run (bench/artifacts/verdict.py)",
    ),
)


def _first_tokens(arm: Arm) -> str:
    return str(arm.given["widths"][0]) if arm.given else ALONE.header


def answers_table(name: str, results: Results) -> list[Output]:
    """Table 1, twice: as printed with what needs no judge beside it, and a row per run with intervals."""
    paper = published.find(PAPER, name)
    graded = results.judgements.dropna(subset=["score"])
    judges = graded.groupby(["judge", "prompt_version"]).size().sort_values(ascending=False, kind="stable").index
    shown = (graded[["judge", "prompt_version"]] == list(judges[0])).all(axis=1) if len(judges) else graded.index < 0
    mine = replace(results, judgements=graded[shown])
    found = mcsd.blocks_of(mine, list(METHODS.values()), (0.7,), drafted(paper))
    settings = _settings(paper, found)
    rows, names = list(zip(*(one.cells for one in settings), strict=True)), _names(settings)
    notes = (*map(scale, found), *mcsd.about_pairs(paper, found), *_said(paper, rows, list(judges)))
    notes += tuple(mcsd.not_shown(results, [run_id for one in settings for run_id in one.run_ids.split()]))
    title, wide = titled(TITLE, found), [_as_printed(row, names) for row in rows]
    behind = [dict.fromkeys(run.run_id for cell in row for run in _behind(cell.run)) for row in rows]
    details = grid.in_detail(name, title, settings, DETAILS, notes)
    return [
        Table(name, title, tables.frame(wide, wide[0]), notes, _legend(names[0]), tuple(map(" ".join, behind))),
        replace(details, frame=details.frame.drop(columns="Method")),
    ]


def _settings(paper: pd.DataFrame, found: Sequence[Block]) -> list[Setting]:
    """The drafts that were run, then those of the paper that were not."""

    def of(names: Mapping[str, str], target: str, draft: str, block: Block | None) -> Setting:
        same = block is None or block.first["dataset"] == "mt_bench"
        rows = paper[(paper["target"] == target) & paper["draft"].isin([draft, NO_DRAFT]) & same]
        names = {name: names[name] for name in _WHO}
        return Setting(names, (ALONE, *METHODS.values()), rows, (block,), _chosen)

    printed = drafted(paper)
    pairs = dict.fromkeys(zip(printed["target"], printed["draft"], strict=True))
    taken = [block.published_as for block in found]
    return [
        *(of(who(block), *(block.published_as or ("", "")), block) for block in found),
        *(of(dict(zip(_WHO, pair, strict=True)), *pair, None) for pair in pairs if pair not in taken),
    ]


def _names(settings: Sequence[Setting]) -> list[str]:
    """Each by its draft, with the target where another has that draft too, and then by what else differs."""
    pairs = [(one.who["Target"], one.who["Draft"]) for one in settings]
    drafts, runs = Counter(draft for _, draft in set(pairs)), Counter(pairs)
    names = []
    for place, (one, pair) in enumerate(zip(settings, pairs, strict=True)):
        words = models(*pair) if drafts[pair[1]] > 1 else pair[1]
        mark = (one.block.mark if one.block else "") or str(place + 1)
        names.append(f"{words}, {mark}" if runs[pair] > 1 else words)
    return names


def _as_printed(row: Sequence[Cell], names: Sequence[str]) -> dict[str, str]:
    """A row as the paper prints it, with the proxies of every draft behind."""
    line = {column.header: column.in_full(row[0]) for column in BEFORE}
    for words, cell in zip(names, row, strict=True):
        run, delta = cell.run, cell.published.get(_DELTA)
        likelihood, noise = (Column(metric).value(cell) for metric in (LIKELIHOOD, NOISE))
        line |= {
            words: _score(run) if run else ABSENT,
            f"{words} published": tables.number(cell.published.get(_SCORE))
            + (f" ({delta:+.2f})" if delta is not None else ""),
            f"{words} log-likelihood - alone": f"{likelihood.value:+.3f}" if likelihood else ABSENT,
            f"{words} ROUGE-L": _bare(ROUGE).cell(run),
            f"{words} variation": _bare(VARIATION).cell(run) + (f" (noise {noise.value:.3f})" if noise else ""),
        }
    return line | {"lossless": _lossless(row[0])}


def _score(run: Run) -> str:
    """`5.07 (-1.22)`, as the paper has it; `5.07 (-1.22 over 3), 4 of 6` where not all turns are graded or compared."""
    score, difference, (graded, turns) = SCORE.of(run), DELTA.of(run), _judged(run)
    if score is None:
        return _failure(run)
    compared = len(_paired(run, "judgements"))
    over = f" over {compared}" if compared < graded else ""
    found = f"{score.value:.2f}" + (f" ({difference.value:+.2f}{over})" if difference else "")
    return f"{found}, {graded} of {turns}" if graded < turns else found


def _legend(first: str) -> dict[str, str]:
    """What the first draft's columns are, and what those of the others are too."""
    score, difference = SCORE.means.partition(", in brackets")[0], DELTA.means.removeprefix("the same ")
    return {
        first: f"{score}, of those graded, whose number follows where not all are; in brackets it is {difference}",
        **{f"{first} {metric.header}": metric.means for metric in (LIKELIHOOD, ROUGE)},
        f"{first} variation": f"{VARIATION.means}; noise: {NOISE.means}",
        "lossless": definitions.LOSSLESS,
    }


def _said(paper: pd.DataFrame, rows: Sequence[Sequence[Cell]], judges: Sequence[tuple[str, str]]) -> Iterator[str]:
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
    judged = [_judged(cell.run) for row in rows for cell in row if cell.run]
    if any(0 < graded < turns for graded, turns in judged):
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
    yield from _off([cell for row in rows for cell in row])
    for _, printed in paper.groupby(["draft", "params"], sort=False):
        yield from _misprint(paper, printed)
    (bound,) = published.find(PAPER, "claim_text", metric=_DELTA)["value"]
    yield f"The paper, in its text: with one first token the score stays within {bound:g} of the target's own."


def _off(every: Sequence[Cell]) -> Iterator[str]:
    """Where the log-likelihood is not the target's own."""
    found = [(one.arm, value) for one in every if (value := Column(LIKELIHOOD).value(one)) and value.known]
    off = [
        f"{arm.header}, W = {_first_tokens(arm)} by {arm.rules[0]}: {tables.signed(value)}"
        for arm, value in found
        if not value.low <= 0 <= value.high
    ]
    if found:
        listed = f": {'; '.join(off)}" if off else ""
        yield (
            f"Of {len(found)} log-likelihoods {len(off)} differ from the target's own by their 95% interval{listed}. "
            "Where a rule keeps the target's distribution, 1 in 20 does; a higher log-likelihood is no better text, "
            "but another distribution."
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
