"""Which claims hold: each paper's main orders, pair by pair, on the embedded pairs and on real models.

A claim is that one method of a paper's table is ahead of another. It is judged on every dataset and over all of them
together, by the rule of all tables on these two methods alone; of speedups plain decoding is asked too.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from bench import published
from bench.artifacts import definitions, tables, verdict
from bench.artifacts.arms import LENGTH, Arm
from bench.artifacts.blocks import Block, blocks, drafted
from bench.artifacts.grid import Column, Setting
from bench.artifacts.metric import MAL, measured
from bench.artifacts.outputs import NoResultsError, Output, read_results
from bench.artifacts.speedups import SPEEDUP, of_block
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing, Verdict
from bench.artifacts.wording import draft_temperatures
from bench.papers.beyond.answers import Answer, answered
from bench.papers.beyond.claims_figure import figure
from bench.papers.dyspec.tables import ARMS as DYSPEC
from bench.papers.gsd import methods as gsd
from bench.papers.gsd import table1 as gsd_table1
from bench.papers.improving_mcsd import methods as mcsd
from bench.papers.opt_tree.tables import MAL_AS_PUBLISHED, SPEEDUP_WITH_PREFILL
from bench.papers.sequoia.tables import ARMS as SEQUOIA
from bench.results.store import Results
from bench.statistics import intervals, samples
from bench.statistics.corrections import LEVEL, holm
from bench.statistics.intervals import Interval

TITLE = "Which claims hold, on embedded pairs and on a real model"
LEGEND = {
    "Claim": "in the paper's table the first method's value is larger than the second's, on most datasets",
    "measure": f"MAL: {MAL.means}; OPT-Tree's as its script counts (steps - 1). acceptance rate: "
    f"{definitions.ACCEPTANCE_RATE}. alpha: {definitions.ALPHA}. drafted: {definitions.DRAFTED_TOKENS}. "
    f"speedup: {definitions.SPEEDUP}; GSD's: {definitions.MEAN_SPEEDUP}",
    "Pair": "embedded: target and drafts of this repository, trained on Python's library; real: an instruct model",
    "published": "the first method's value / the second's, means over the same datasets; "
    f"tie: nearer to 1 than {verdict.TOLERANCE:.0%}, of which the rule asks no lead, and which a lead of ours keeps; "
    "of ...: the paper has no such row, and the value is of the one that is named",
    "published ahead": "datasets on which the paper has the first method ahead, were it by a tie, of those run",
    "ours": f"the same ratio over all comparable datasets of {intervals.FEWEST} conversations or more together: of the "
    f"methods' means; in brackets its 95% interval, {intervals.METHOD} over conversations that both decoded; in "
    "parentheses the means, and OPT-Tree's delta, on which its trees and so its order may hang (its Figures 8 and 9)",
    "n": "conversations that both decoded, of each of these datasets",
    "pooled": "the claim over these datasets together. order holds: as in the paper; of speedups the first is shown to "
    "be faster than plain decoding too, unless it says otherwise. tie holds: the paper's values are a tie, and so are "
    "ours. order reversed: the second is ahead. no lead: surely nearer to 1 than half of the published lead. not "
    "resolved: by so few conversations, or such times",
    "after correction": "whether all that the pooled answer says holds after Holm's correction for the number of these "
    "answers, and p after it (two-sided, from the interval)",
    "by dataset": "the same claim on each dataset alone, uncorrected; tables judge a row against all others by what "
    "the paper prints there, OPT-Tree's over its sizes, and may differ",
    tables.RUNS: "the first method's and the second's, dataset by dataset; the column run_id in the rows (Parquet) of "
    "the results' folder that the column Table names",
}
NOTES = (
    "No pair is a paper's own: all stand in for larger models, and their drafts were trained here, for these targets. "
    "Ratios show orders. The papers decode 128 to 1,024 tokens. Intervals of speedups are over conversations; how far "
    "the machine drifted stands in the tables (A/A).",
    "OPT-Tree's trees have 25 nodes here; the paper prints its best of 25, 50 and 60. Sequoia's printed size is that "
    "of the paper's tree, SpecInfer's 5x8 and 8x8 have 40 and 64; in Table 6 all rules have one tree. DySpec's table "
    "has 64 nodes for all.",
    "GSD: the paper prunes siblings, and does not say whether its TSD does. Both readings are rows. Nor does it say of "
    "which decoding its acceptance rates are; ours are of greedy decoding. How often merging counts is in the column "
    "Graph Success of its Table 1.",
    f"{mcsd.BUDGETS} {mcsd.LOSSY_NOTE} Those rows show what the paper shows, and no lead of a lossless method.",
    "The papers' speedups are of GPUs, where a larger tree costs hardly more than a token. On a CPU it does.",
)
Pick = Callable[[Results, pd.DataFrame, tuple[Arm, Arm]], Iterable[Setting]]
"""The settings of a table that hold both methods."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """In a paper's table the first method is ahead of the second."""

    artifact: str
    ahead: Arm
    behind: Arm
    column: Column
    pick: Pick

    @property
    def words(self) -> str:
        """`OPT-Tree > binary`."""
        return f"{self.ahead.header} > {self.behind.header}"

    @property
    def measure(self) -> str:
        """`MAL`, `acceptance rate`."""
        header = self.column.header
        return header if header.isupper() else header.removesuffix(" Token Num").lower()


def _by(*match: str) -> Pick:
    """Of tables in which the paper states these columns."""

    def pick(results: Results, paper: pd.DataFrame, arms: tuple[Arm, Arm]) -> Iterator[Setting]:
        paper["top_p"] = [float(published.params_of(text).get("top_p", "nan")) for text in paper["params"]]
        for block in blocks(results):
            block = block.standing_in(drafted(paper))
            yield Setting({}, arms, of_block(paper, match, block), [block])

    return pick


def _gsd(results: Results, paper: pd.DataFrame, arms: tuple[Arm, Arm]) -> Iterator[Setting]:
    for block in gsd.found_blocks(results, paper):
        yield Setting({}, arms, gsd.of_setting(paper, block), gsd.by_decoding(block))


def _mcsd(results: Results, paper: pd.DataFrame, arms: tuple[Arm, Arm]) -> Iterator[Setting]:
    for block in blocks(results, results.runs[mcsd.admitted(results.runs, arms, (0.7,))]):
        block = block.standing_in(drafted(paper))
        yield Setting({}, arms, of_block(paper, ("dataset", "temperature"), block), [block])


def _against(artifact: str, pick: Pick, columns: Sequence[Column], first: Arm, *others: Arm) -> list[Claim]:
    return [Claim(artifact, first, other, column, pick) for column in columns for other in others]


_STATED, _WITH_TOP_P = _by("dataset", "temperature"), _by("dataset", "temperature", "top_p")
_ALPHA = Column(measured("alpha", mcsd.alpha), paper="acceptance_rate")
_LENGTH = Column(MAL, paper=LENGTH, of_tree=True)
_OPT_TREE = (
    Column(measured(MAL_AS_PUBLISHED.header, "mal_as_published"), paper="mal"),
    Column(measured(SPEEDUP_WITH_PREFILL.header, "speedup_with_prefill"), paper="speedup", timed=True),
)
_TREES = (
    Arm("OPT-Tree", ("opt_tree",), "opt_tree", given={"n": 25}),
    Arm("EAGLE's tree", ("eagle25",), "eagle_tree"),
    Arm("binary", ("binary_n25",), "binary"),
)
_CHOSEN, _PRINTED, *_SPEC_INFER = SEQUOIA["table4"]
_GSD = {arm.header: arm for arm in gsd_table1.ARMS}
_TSD_PRUNED = replace(_GSD[gsd.TSD_SIB.header], paper=gsd.TSD.paper)
_TI_MCSD, _EQUAL = mcsd.target_init((2, 4, 3, 1, 1)), mcsd.mcsd((8, 3, 1, 1), matched=True)
_MCSD = mcsd.mcsd((4, 2, 2, 1))
_BORROWED = {_TSD_PRUNED.header: "of TSD", _EQUAL.header: "of MCSD"}
"""Of rows that a paper does not have: whose published value stands in their place."""
CLAIMS: Sequence[Claim] = (
    *_against("opt_tree/table1", _STATED, _OPT_TREE, *_TREES),
    *_against("sequoia/table4", _STATED, (_LENGTH,), _PRINTED, *_SPEC_INFER),
    *_against("sequoia/table4", _STATED, (SPEEDUP,), _CHOSEN, *_SPEC_INFER),
    *_against("sequoia/table6", _WITH_TOP_P, (_LENGTH, SPEEDUP), *SEQUOIA["table6"][:3]),
    *_against("dyspec/table1", _STATED, (_LENGTH, SPEEDUP), *DYSPEC["table1"][:3]),
    *_against("gsd/table1", _gsd, (gsd_table1.RATE,), _GSD["GSD"], _GSD["SSD"], _GSD["TSD"], _TSD_PRUNED),
    *_against("gsd/table1", _gsd, (gsd_table1.DRAFTED,), _GSD["TSD"], _GSD["GSD"]),
    *_against("gsd/table1", _gsd, (gsd_table1.DRAFTED,), _TSD_PRUNED, _GSD["GSD"]),
    *_against("gsd/table1", _gsd, (gsd_table1.MEAN,), _GSD["GSD"], _GSD["SSD"], _GSD["TSD"]),
    *_against(
        "improving_mcsd/table2",
        _mcsd,
        (_ALPHA,),
        _TI_MCSD,
        mcsd.sd(4),
        _MCSD,
        replace(_EQUAL, paper=_MCSD.paper, params=_MCSD.params),
    ),
)


def read(folder: Path, pair: str | None) -> dict[str, Results]:
    """The results of every experiment that a claim is of, of those beside `folder` that were run."""
    found: dict[str, Results] = {}
    for name in dict.fromkeys(claim.artifact for claim in CLAIMS):
        with contextlib.suppress(NoResultsError):
            found[name] = read_results(folder.parent / name, pair)
    if not found:
        raise NoResultsError("no experiment that a claim is of was run")
    return found


def claims(name: str, found: Mapping[str, Results]) -> list[Output]:
    """A row per claim, pair and decoding, over the datasets that were run."""
    known = [(claim, one) for claim in CLAIMS if claim.artifact in found for one in _settings(claim, found)]
    if not known:
        raise NoResultsError("of no claim both methods were run")
    groups: dict[tuple[Claim, tuple[str, ...]], list[Setting]] = {}
    for claim, one in known:
        groups.setdefault((claim, _where(claim, one)), []).append(one)
    judged = [_judged(claim, where, every) for (claim, where), every in groups.items()]
    runs = tuple(_run_ids(claim, every) for (claim, _), every in groups.items())
    corrected = holm([one.answer.p for one in judged if one.comparable])
    after = iter(corrected)
    rows = [
        one.row(next(after) if one.comparable else None) | {tables.RUNS: ids}
        for one, ids in zip(judged, runs, strict=True)
    ]
    shown = [block for _, one in known for block in one.blocks if block]
    unlike = {(block.pair, *block.first[["dataset", "temperature", "max_new_tokens"]]): block for block in shown}
    notes = (*NOTES, *draft_temperatures(run for block in unlike.values() for run in block.ok))
    notes += tuple(_models(block) for block in {block.pair: block for block in unlike.values()}.values())
    notes = (_surviving(judged, corrected), *notes)
    return [Table(name, TITLE, tables.frame(rows, rows[0]), notes, LEGEND, runs), figure(name, TITLE, judged, runs)]


def _settings(claim: Claim, found: Mapping[str, Results]) -> Iterator[Setting]:
    """Those in which ours and the paper have both methods; the paper compares none that draft for themselves."""
    paper = published.find(*claim.artifact.split("/"))
    for one in claim.pick(found[claim.artifact], paper, (claim.ahead, claim.behind)):
        pairings = [claim.column.pairing(cell) for cell in one.cells]
        complete = all(pairing.ours and pairing.sample and pairing.published for pairing in pairings)
        if complete and one.block and _pair(one.block)["draft"].get("kind") != "layer_skip":
            yield one


def _where(claim: Claim, one: Setting) -> tuple[str, ...]:
    """The pair, and how it decoded."""
    assert one.block is not None
    model = _pair(one.block)["target"]["id"]
    kind = "embedded" if model.startswith("tiny/") else "real"
    first = one.blocks[claim.column.of[-1]] or one.block
    top_p = "" if first.first["top_p"] == 1 else f", top-p {first.first['top_p']:g}"
    decoding = f"{first.first['temperature']:g}{top_p}"
    return kind, one.block.pair, f"0 and {decoding}" if len(claim.column.of) > 1 else decoding


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A claim on one pair in one decoding, over datasets."""

    claim: Claim
    kind: str
    """embedded | real"""
    pair: str
    temperature: str
    lead: float
    """The paper's ratio of the two."""
    ahead: str
    ratio: Interval
    answer: Answer
    """Over all datasets together."""
    counts: tuple[int, ...]
    """Conversations that both methods decoded, of each of these datasets."""
    by_dataset: str
    delta: float | None
    """What one more level must add to E(A), of a method that has such a threshold."""
    values: tuple[Interval | None, Interval | None]
    """Of the first method and of the second."""

    @property
    def comparable(self) -> bool:
        """Whether there is an answer, on any dataset."""
        return not self.answer.words.startswith("not comparable")

    def _ours(self) -> str:
        """The ratio, of which values it is one, and the threshold behind the first."""
        first, other = (tables.number(one.value) if one else tables.ABSENT for one in self.values)
        delta = "" if self.delta is None else f", delta {self.delta:g}"
        return f"{tables.ratio(self.ratio)} ({first} / {other}{delta})"

    def row(self, corrected: float | None) -> dict[str, str]:
        """As the table has it; `corrected` is p after the correction, None where nothing was judged."""
        words = [_BORROWED[arm.header] for arm in (self.claim.ahead, self.claim.behind) if arm.header in _BORROWED]
        words += ["tie"] * verdict.tied(self.lead, 1)
        return {
            "Table": self.claim.artifact,
            "Claim": self.claim.words,
            "measure": self.claim.measure,
            "Pair": f"{self.pair} ({self.kind})",
            "temperature": self.temperature,
            "published": tables.number(self.lead) + (f" ({', '.join(words)})" if words else ""),
            "published ahead": self.ahead,
            "ours": self._ours(),
            "n": " + ".join(map(str, self.counts)),
            "pooled": self.answer.words,
            "after correction": tables.ABSENT if corrected is None else _after(corrected),
            "by dataset": self.by_dataset,
        }


def _judged(claim: Claim, where: tuple[str, ...], every: Sequence[Setting]) -> Judged:
    kind, pair, decoding = where
    leads = [_pooled(claim, every, place).published for place in (0, 1)]
    alone = [(one, _of_dataset(claim, one, leads)) for one in every]
    comparable = [one for one, answer in alone if not answer.words.startswith("not comparable")]
    pooled = [one for one in comparable if _conversations(claim, one) >= intervals.FEWEST] or comparable
    first, other = (_pooled(claim, pooled or every, place) for place in (0, 1))
    published = [[claim.column.number(cell) or 0.0 for cell in one.cells] for one in every]
    ahead = f"{sum(mine > theirs for mine, theirs in published)} of {len(published)}"
    answer = answered(first, other, timed=claim.column.paper == "speedup") if pooled else alone[0][1]
    named: dict[str, list[str]] = {}
    for one, words in alone:
        named.setdefault(words.words, []).append(str(one.block.first["dataset"]) if one.block else "")
    by_dataset = "; ".join(f"{words} ({', '.join(names)})" for words, names in sorted(named.items()))
    lead = (first.published or 0.0) / (other.published or 1.0)
    ratio = samples.paired_ratio(first.sample, other.sample)
    run = every[0].cells[0].run
    delta = run.params.get("delta") if run else None
    counts = tuple(_conversations(claim, one) for one in pooled or every)
    values = first.ours, other.ours
    return Judged(claim, kind, pair, decoding, lead, ahead, ratio, answer, counts, by_dataset, delta, values)


def _conversations(claim: Claim, one: Setting) -> int:
    """How many both methods decoded."""
    return samples.paired_ratio(*(claim.column.sample(cell) for cell in one.cells)).n


def _run_ids(claim: Claim, every: Sequence[Setting]) -> str:
    """Those of the runs that the claim's column is of, dataset by dataset."""
    cells = (cell for one in every for cell in one.cells)
    return " ".join(dict.fromkeys(run.run_id for cell in cells for run in claim.column.runs(cell) if run))


def _of_dataset(claim: Claim, one: Setting, leads: Sequence[float | None]) -> Answer:
    """The answer on one dataset, held against the paper's means, or why the rule of all tables has none."""
    both = {cell: claim.column.pairing(cell) for cell in one.cells}
    words = claim.column.judge(one.cells[0], both)
    if not isinstance(words, Verdict):
        return Answer(str(words))
    first, other = (replace(own, published=lead) for own, lead in zip(both.values(), leads, strict=True))
    return answered(first, other, timed=claim.column.paper == "speedup")


def _pooled(claim: Claim, every: Sequence[Setting], place: int) -> Pairing:
    """A method's mean over datasets, ours and the paper's."""
    known = [claim.column.pairing(one.cells[place]) for one in every]
    sample = samples.mean_over(*(one.sample for one in known if one.sample))
    return Pairing(samples.interval(sample), sum(one.published or 0.0 for one in known) / len(known), sample)


def _after(corrected: float) -> str:
    """`yes (p = 0.003)`."""
    if corrected == 1:
        return "no"
    size = "< 0.001" if corrected < 0.001 else f"= {corrected:.2g}"
    return f"{'yes' if corrected <= LEVEL else 'no'} (p {size})"


def _surviving(judged: Sequence[Judged], corrected: Sequence[float]) -> str:
    """How many answers there are of each kind, and how many of these hold after the correction."""
    asked = [one.answer.words for one in judged if one.comparable]
    counts = Counter(asked)
    hold = Counter(words for words, p in zip(asked, corrected, strict=True) if p <= LEVEL)
    said = "; ".join(f"{words}: {hold[words]} of {count}" for words, count in sorted(counts.items()))
    return f"Of {len(asked)} answers {hold.total()} hold after the correction for their number. {said}."


def _models(block: Block) -> str:
    target, draft = (_pair(block)[role]["id"] for role in ("target", "draft"))
    where = f"{block.first['dtype']} on {block.first['device_name']}"
    return f"{block.pair}: {target} with {draft}, {where}, at most {block.first['max_new_tokens']} new tokens a turn."


def _pair(block: Block) -> dict[str, dict[str, str]]:
    pair = json.loads(block.first["config"]).get("pair") or {}
    return {role: pair.get(role) or {"id": "", "kind": "layer_skip"} for role in ("target", "draft")}
