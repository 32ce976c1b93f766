"""Improved MCSD, Table 1: what several first tokens do to the answers, by a judge and by what needs none."""

from __future__ import annotations

from collections.abc import Sequence

from bench import published
from bench.artifacts import definitions, tables, verdict
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.settings import drafted
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import setting
from bench.papers.improving_mcsd import remarks
from bench.papers.improving_mcsd.cells import blocks_of
from bench.papers.improving_mcsd.graded import Graded, judges
from bench.papers.improving_mcsd.graded_columns import Column, columns_of
from bench.papers.improving_mcsd.graded_notes import of_answers
from bench.papers.improving_mcsd.methods import SUBTREES, target_init
from bench.papers.improving_mcsd.settings import LOSSY_RULE, PAPER
from bench.results.rows import AUTOREGRESSIVE
from bench.results.store import Results
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Table 1: answers by number of first tokens"
ALONE, NOT_JUDGED = "the target alone", "not judged"
WIDTHS, RULES = (1, 2, 3), (LOSSY_RULE, SUBTREES)
METHODS = {(width, rule): target_init((width, 4, 3, 1, 1), rule=rule) for rule in RULES for width in WIDTHS}
"""The paper states no more of its trees than the number of first tokens; the rest is that of its Table 2."""
LEGEND = {
    "score": "grade from 1 to 10 by a judge, mean over turns, in brackets the 95% interval (bootstrap over "
    "conversations)",
    "score - alone": "the same less the grade of the target alone in the same turn, mean over the run's turns that are "
    "graded in both arms; the row of the target alone is over all turns of it that are graded",
    "judged": "turns with a grade, of those recorded",
    "log-likelihood - alone": "mean log p(token | all before it) under the target at this temperature, in nats, less "
    "that of the target's own answer to the same prompt, mean over turns",
    "ROUGE-L": "F1 of ROUGE-L against the target's greedy answer to the same prompt, mean over turns",
    "ROUGE-L alone": "the same of what the target samples alone in the same run",
    "words": "mean words of the answers",
    "variation": "total variation between the law of a turn's first token and the target's own, estimated over drawn "
    "trees with p's own share of the chance taken out, mean over turns",
    "noise": "what the estimate of variation would come to if there were none",
    "lossless": definitions.LOSSLESS,
    "verdict": "on the order of scores alone, since judges differ: order holds, differs, not resolved, not comparable, "
    "or not run (bench/artifacts/verdict.py)",
}
_DETAILS = (
    *("Target", "Draft", "First tokens", "Rule", "score", "score published", "score - alone"),
    *("score - alone published", "judged", "log-likelihood - alone", "ROUGE-L", "ROUGE-L alone", "words"),
    *("variation", "noise", "lossless", "verdict"),
)


def answers_table(name: str, results: Results) -> list[Output]:
    """Table 1, twice: as printed with what needs no judge beside it, and a row per run with intervals."""
    paper = published.find(PAPER, name)
    found = [block.standing_in(drafted(paper)) for block in blocks_of(results, list(METHODS.values()), (0.7,))]
    known = judges(results)
    by = known[0] if known else None
    columns = columns_of(paper, found)
    grid = [[Graded(method, column.block, by) for column in columns] for method in (None, *METHODS.values())]
    title = f"{TITLE} ({setting(found) if found else 'not run'})"
    shown = [" ".join(dict.fromkeys(run for one in row for run in one.run_ids)) for row in grid]
    notes = (*remarks.said(paper, found), *of_answers(paper, grid, known))
    notes += tuple(
        remarks.left_out(results, [str(one.run["run_id"]) for row in grid for one in row if one.run is not None])
    )
    wide = [_wide(row, columns) for row in grid]
    each = [(column, [row[place] for row in grid]) for place, column in enumerate(columns)]
    full = [_line(column, rows, number) for column, rows in each for number in range(len(rows))]
    runs = tuple("" if one.run is None else str(one.run["run_id"]) for _, rows in each for one in rows)
    return [
        Table(name, title, tables.frame(wide, list(wide[0])), notes, _legend(columns), tuple(shown)),
        Table(f"{name}_details", f"{title}, details", tables.frame(full, _DETAILS), notes, LEGEND, runs),
    ]


def _legend(columns: Sequence[Column]) -> dict[str, str]:
    """What the first draft's columns are, and what those of the others are too."""
    first, difference = columns[0].words, LEGEND["score - alone"].removeprefix("the same ")
    score = f"{LEGEND['score'].partition(', in brackets')[0]}, of those graded, whose number follows where not all are"
    ours = {first: f"{score}; in brackets it is {difference}"}
    ours |= {f"{first} {name}": LEGEND[name] for name in ("log-likelihood - alone", "ROUGE-L")}
    ours |= {f"{first} variation": f"{LEGEND['variation']}; noise: {LEGEND['noise']}"}
    return ours | {"lossless": LEGEND["lossless"]}


def _first(one: Graded) -> dict[str, str]:
    """Which row it is."""
    if one.method is None:
        return {"First tokens": ALONE, "Rule": tables.ABSENT}
    return {"First tokens": str(one.method.given["widths"][0]), "Rule": one.method.rule}


def _wide(row: Sequence[Graded], columns: Sequence[Column]) -> dict[str, str]:
    """A row as the paper prints it, with the proxies of every draft behind."""
    line = _first(row[0])
    for one, column in zip(row, columns, strict=True):
        printed = [column.published(one.method, metric) for metric in ("mt_bench_score", "mt_bench_delta")]
        line |= {
            column.words: one.failure or _score(one),
            f"{column.words} published": _printed(*printed),
            f"{column.words} log-likelihood - alone": _signed(one.difference("log_likelihood"), plain=True),
            f"{column.words} ROUGE-L": tables.number(_value(one.quality("greedy_rouge_l")), 3),
            f"{column.words} variation": _variation(one),
        }
    return line | {"lossless": _lossless(row[0])}


def _line(column: Column, rows: Sequence[Graded], number: int) -> dict[str, str]:
    """All that is known of a method with a draft, the one of this number among its rows."""
    one = rows[number]
    graded, turns = one.judged
    return _first(one) | {
        "Target": column.target,
        "Draft": column.draft,
        "score": one.failure or (tables.interval(one.score) if one.score else _unjudged(one)),
        "score published": tables.number(column.published(one.method, "mt_bench_score")),
        "score - alone": _signed(one.score_difference),
        "score - alone published": _plus(column.published(one.method, "mt_bench_delta")),
        "judged": f"{graded} of {turns}" if turns else tables.ABSENT,
        "log-likelihood - alone": _signed(one.difference("log_likelihood")),
        "ROUGE-L": tables.interval(one.quality("greedy_rouge_l"), 3),
        "ROUGE-L alone": tables.interval(one.quality("greedy_rouge_l", AUTOREGRESSIVE) if one.method else None, 3),
        "words": tables.number(_value(one.quality("num_words")), 0),
        "variation": tables.interval(one.variation(), 3),
        "noise": tables.number(_value(one.variation("noise")), 3),
        "lossless": _lossless(one),
        "verdict": _verdict(column, rows, number),
    }


def _verdict(column: Column, rows: Sequence[Graded], number: int) -> str:
    """By the order of scores alone: another judge's are other values."""
    one, score = rows[number], "mt_bench_score"
    pairings = {
        str(place): Pairing(row.score, column.published(row.method, score), row.score_sample)
        for place, row in enumerate(rows)
    }
    if not one.run_ids:
        return verdict.NOT_RUN
    if pairings[str(number)].published is None:
        return verdict.not_comparable("no published value")
    if one.score is None or one.score.n < 2:
        return verdict.not_comparable("no interval" if one.score else NOT_JUDGED)
    return verdict.by_order(str(number), pairings, otherwise="other judge")


def _lossless(one: Graded) -> str:
    """What the run said; of one that was not run, what its rule and first tokens make it."""
    if one.method is None:
        return "lossless"
    kept = bool(one.run["lossless"]) if one.run_ids and one.run is not None else "(lossy)" not in one.method.header
    return "lossless" if kept else "lossy"


def _score(one: Graded) -> str:
    """`5.07 (-1.22)`, as the paper has it; `5.07 (-1.22 over 3), 4 of 6` where not all turns are graded or compared."""
    if one.score is None:
        return _unjudged(one)
    (graded, turns), difference = one.judged, one.score_difference
    over = f" over {one.compared}" if one.compared < graded else ""
    found = f"{one.score.value:.2f}" + (f" ({difference.value:+.2f}{over})" if difference else "")
    return f"{found}, {graded} of {turns}" if graded < turns else found


def _variation(one: Graded) -> str:
    """`0.205 (noise 0.064)`."""
    found, noise = one.variation(), one.variation("noise")
    return tables.number(_value(found), 3) + (f" (noise {noise.value:.3f})" if noise else "")


def _printed(score: float | None, difference: float | None) -> str:
    return tables.number(score) + ("" if difference is None else f" ({difference:+.2f})")


def _unjudged(one: Graded) -> str:
    return NOT_JUDGED if one.run_ids else tables.ABSENT


def _signed(value: Interval | None, *, plain: bool = False) -> str:
    return tables.ABSENT if value is None else f"{value.value:+.3f}" if plain else tables.signed(value)


def _plus(value: float | None) -> str:
    return tables.ABSENT if value is None else f"{value:+.2f}"


def _value(found: Interval | None) -> float | None:
    return None if found is None else found.value
