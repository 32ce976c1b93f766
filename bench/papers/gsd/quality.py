"""GSD, Table 10: ROUGE of what is sampled, by rule and method, and its difference to plain decoding's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from bench import published
from bench.artifacts import definitions, tables, verdict
from bench.artifacts.blocks import Block
from bench.artifacts.outputs import Output
from bench.artifacts.runs import per_row
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.settings import drafted, who
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import setting
from bench.papers.gsd import remarks, settings
from bench.papers.gsd.classes import SMALL, bound
from bench.papers.gsd.layouts import LOSSY
from bench.papers.gsd.methods import GSD, SSD, SSD_DRAWN, lossy, unprinted
from bench.papers.gsd.outcomes import Outcome, mean_of
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics.intervals import Interval
from bench.statistics.samples import Sample

TITLE = "GSD Table 10: ROUGE of non-deterministic decoding"
SCORES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rouge_l": "ROUGE-L"}
PRINTED = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
VANILLA = Arm("vanilla", (), AUTOREGRESSIVE)
GRAPHS = tuple(
    bound(replace(GSD, header=f"GSD (tau={tau})", params={"tau": str(tau)}), replace(SMALL, tau=tau)) for tau in (1, 2)
)
_DRAFTED = (bound(SSD, SMALL), bound(SSD_DRAWN, SMALL), *GRAPHS)
ARMS = (VANILLA, *(unprinted(arm) for arm in _DRAFTED), *(lossy(arm) for arm in _DRAFTED))
_SCORE = "F1 against the dataset's reference, mean over prompts; in brackets the 95% interval (bootstrap over prompts)"
LEGEND = {
    "ROUGE-1": _SCORE,
    "difference ROUGE-1": "this method's score minus plain decoding's of the same prompt, mean over prompts, with its "
    "95% interval",
    "words": "mean words of the scored texts: ROUGE depends on their length",
    "variation": definitions.VARIATION,
    "lossless": definitions.LOSSLESS,
    "verdict ROUGE-1": definitions.VERDICT,
}


@dataclass(frozen=True)
class Scored:
    """One method's texts in a block, with their scores."""

    outcome: Outcome

    @cached_property
    def texts(self) -> pd.DataFrame:
        """A row per scored text; of plain decoding the mean over all runs, which decode the same."""
        block, run_id = self.outcome.block, self.outcome.run_id
        if block is None:
            return pd.DataFrame()
        if self.outcome.arm is not VANILLA:
            rows = block.quality(run_id)
            return rows[rows["arm"] == METHOD].dropna(subset=["rouge1"])
        runs = [block.quality(run.run_id) for run in block.ok]
        rows = pd.concat(runs) if runs else pd.DataFrame(columns=["arm"])
        rows = rows[rows["arm"] == AUTOREGRESSIVE]
        if rows.empty:
            return pd.DataFrame()
        means = rows.groupby(["prompt_id", "turn"])[["num_words", *SCORES]].mean()
        return means.dropna(subset=["rouge1"]).reset_index()

    def score(self, column: str) -> Interval | None:
        """Mean of a column of `texts`."""
        return mean_of(self.texts, column) if len(self.texts) else None

    def sample(self, column: str) -> Sample | None:
        """The sums over conversations behind it."""
        return per_row(self.texts.dropna(subset=[column]), column) if len(self.texts) else None

    def difference(self, score: str) -> Interval | None:
        """Its score minus that of its own run's plain decoding."""
        if self.outcome.block is None or self.outcome.arm is VANILLA or self.texts.empty:
            return None
        rows = self.outcome.block.quality(self.outcome.run_id)
        plain = rows[rows["arm"] == AUTOREGRESSIVE]
        both = self.texts.merge(plain, on=["prompt_id", "turn"], suffixes=("", "_plain"))
        return mean_of(both.assign(difference=both[score] - both[f"{score}_plain"]), "difference")


def quality_table(name: str, results: Results) -> list[Output]:
    """Table 10, twice: as printed, and with intervals, differences to plain decoding and verdicts."""
    paper = published.find(settings.PAPER, name)
    found = settings.found_blocks(results, drafted(paper), greedy=False)
    groups: list[tuple[dict[str, str], Block | None]] = [(who(block), block) for block in found]
    groups = groups or [({"Target": "llama2_7b", "Draft": "llama_160m", "Dataset": "unstated"}, None)]
    scored = [[Scored(Outcome(arm, block)) for arm in ARMS] for _, block in groups]
    title = f"{TITLE} ({setting(found) if found else 'not run'})"
    runs = tuple(one.outcome.run_id for of in scored for one in of)
    notes = (*settings.said(drafted(paper), found), *_notes([one for of in scored for one in of]))
    notes += tuple(remarks.of_runs(results, ARMS, runs))
    rows = [row for (names, _), of in zip(groups, scored, strict=True) for row in _rows(names, of, paper)]
    beside = [column for header in SCORES.values() for column in (header, f"{header} published")]
    first = ["Target", "Draft", "Dataset", "Method"]
    more = [f"{what} {header}" for what in ("difference", "verdict") for header in SCORES.values()]
    wide = tables.frame([_plain(row) for row in rows], [*first, *beside])
    full = tables.frame(rows, [*first, *beside, *more[:3], "words", "variation", "lossless", *more[3:]])
    return [
        Table(name, title, wide, notes, LEGEND, runs),
        Table(f"{name}_details", f"{title}, details", full, notes, LEGEND, runs),
    ]


def _rows(names: Mapping[str, str], of: Sequence[Scored], paper: pd.DataFrame) -> Iterator[dict[str, str]]:
    pairings = {
        score: {
            one.outcome.arm.header: Pairing(
                one.score(score), one.outcome.arm.published(paper).get(PRINTED[score]), one.sample(score)
            )
            for one in of
        }
        for score in SCORES
    }
    for one in of:
        outcome, method = one.outcome, one.outcome.arm.header
        words = one.score("num_words")
        row = {**names, "Method": method, "words": tables.number(words.value if words else None, 0)}
        row |= {"variation": tables.interval(outcome.variation, 3), "lossless": outcome.lossless}
        for score, header in SCORES.items():
            pairing, difference = pairings[score][method], one.difference(score)
            row[header] = tables.interval(pairing.ours, 3)
            row[f"{header} published"] = tables.number(pairing.published)
            row[f"difference {header}"] = tables.signed(difference) if difference else tables.ABSENT
            row[f"verdict {header}"] = verdict.judge(
                method, pairings[score], stand_in=bool(outcome.block and outcome.block.stand_in)
            )
        status = outcome.status
        yield row if status in (None, "ok") else row | {"ROUGE-1": str(status)}


def _plain(row: Mapping[str, str]) -> dict[str, str]:
    """The row without intervals."""
    return {column: text.partition(" [")[0] if column in SCORES.values() else text for column, text in row.items()}


def _notes(scored: Sequence[Scored]) -> Iterator[str]:
    yield "The paper names no dataset of this table, and prints two digits without intervals."
    yield LOSSY
    judged = []
    for word, rules in (("lossless", False), ("lossy", True)):
        mine = [one for one in scored if one.outcome.arm.header.endswith("(lossy)") == rules]
        judged += list(_differences(word, [one for one in mine if one.outcome.arm is not VANILLA]))
    yield from judged
    if judged:
        yield (
            "A lossless rule differs from plain decoding by chance alone: 1 in 20 such intervals is to miss 0. Of "
            "either rule more miss it where prompts are few, and few prompts make wide intervals, which hold 0 "
            "whatever the rule. That a lossy rule's holds 0 does not make it lossless: ROUGE may not show what "
            "variation does."
        )


def _differences(word: str, scored: Sequence[Scored]) -> Iterator[str]:
    """Whether plain decoding's scores are kept."""
    every = [
        (f"{one.outcome.arm.header} {header} {tables.signed(found)}", found)
        for one in scored
        for score, header in SCORES.items()
        if (found := one.difference(score)) is not None and found.low <= found.high
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
