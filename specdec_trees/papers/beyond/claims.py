"""Which claims hold: each paper's main orders, pair by pair, on the embedded pairs and on real models.

A claim is that one method of a paper's table is ahead of another. It is judged on every dataset and over all of them
together, by the rule of all tables on these two methods alone; of speedups plain decoding is asked too.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, definitions, frame, metrics, notes, tables, verdict
from specdec_trees.artifacts.arms import Arm
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import NoResultsError, Output, read_results
from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.artifacts.verdict import Pairing, Verdict
from specdec_trees.papers.beyond.answers import NO_LEAD, REVERSED, Answer, answered
from specdec_trees.papers.beyond.claim import Claim, Judged, Where
from specdec_trees.papers.beyond.claims_figure import figure
from specdec_trees.papers.dyspec import tables as dyspec
from specdec_trees.papers.gsd import methods as gsd
from specdec_trees.papers.gsd import metrics as of_gsd
from specdec_trees.papers.gsd import table1 as gsd_table1
from specdec_trees.papers.improving_mcsd import comparison
from specdec_trees.papers.improving_mcsd import methods as mcsd
from specdec_trees.papers.opt_tree import tables as opt_tree
from specdec_trees.papers.sequoia import tables as sequoia
from specdec_trees.papers.traversal import lines as traversal
from specdec_trees.papers.traversal import spechub
from specdec_trees.results.store import Results
from specdec_trees.statistics import intervals, samples
from specdec_trees.statistics.corrections import LEVEL, holm

TITLE = "Which claims hold, on embedded pairs and on a real model"
HEADERS = {
    "table": "Table",
    "claim": "Claim",
    "measure": "measure",
    "pair": "Pair",
    "temperature": "temperature",
    "published": "published",
    "published_ahead": "published ahead",
    "ours": "ours",
    "n": "n",
    "pooled": "pooled",
    "after_correction": "after correction",
    "by_dataset": "by dataset",
}
LEGEND = {
    "claim": "in the paper's table the first method's value is larger than the second's, on most datasets",
    "measure": f"MAL: {metrics.MAL.means}; OPT-Tree's as its script counts (steps - 1). "
    f"{metrics.EXPECTED_MAL.header}, in MAL's place where both methods have it: {metrics.EXPECTED_MAL.means}. "
    "acceptance rate: "
    f"{definitions.ACCEPTANCE_RATE}. alpha: {definitions.ALPHA}. drafted tokens: {definitions.DRAFTED_TOKENS}. "
    f"speedup: {definitions.SPEEDUP}; GSD's: {definitions.MEAN_SPEEDUP}",
    "pair": "embedded: target and drafts of this repository, trained on Python's library; real: an instruct model",
    "published": "the first method's value / the second's, means over the same datasets; "
    f"tie: nearer to 1 than {verdict.TOLERANCE:.0%}, of which the rule asks no lead, and which a lead of ours keeps; "
    "of ...: the paper has no such row, and the value is of the one that is named",
    "published_ahead": "datasets on which the paper has the first method ahead, were it by a tie, of those run",
    "ours": f"the same ratio over all comparable datasets of {intervals.FEWEST} conversations or more together: of the "
    f"methods' means; in brackets its 95% interval, {intervals.METHOD} over conversations that both decoded; in "
    "parentheses the means, and OPT-Tree's delta, on which its trees and so its order may hang (its Figures 8 and 9)",
    "n": "conversations that both decoded, of each of these datasets",
    "pooled": "the claim over these datasets together. order holds: as in the paper; of speedups the first is shown to "
    "be faster than plain decoding too, unless it says otherwise. tie holds: the paper's values are a tie, and so are "
    "ours. order reversed: the second is ahead. no lead: neither is shown to be ahead, and ours is surely nearer to 1 "
    "than half of the published lead. not resolved: by so few conversations, or such times, or, where the paper has a "
    f"tie, since ours is not surely beyond {verdict.TOLERANCE:.0%}, be the second shown to be ahead (behind)",
    "after_correction": "whether all that the pooled answer says holds after Holm's correction for the number of these "
    "answers, and p after it (two-sided, from the interval)",
    "by_dataset": "the same claim on each dataset alone, uncorrected; [second]: there the paper has the second ahead. "
    "Tables judge a row against all others by what the paper prints there, OPT-Tree's over its sizes, and may differ",
}
ASIDE = ("published_ahead", "n", "by_dataset")
SECOND = " [second]"
"""Behind datasets on which the paper has the second method ahead."""
NOTES = (
    "No pair is a paper's own: all stand in for larger models, and their drafts were trained here, for these targets. "
    "Ratios show orders. The papers decode 128 to 1,024 tokens. Intervals of speedups are over conversations; how far "
    "the machine drifted stands in the tables (A/A).",
    "OPT-Tree: the paper prints its best n of 25, 50 and 60, not which, and no delta. EAGLE's tree and the binary one "
    "have 25 nodes here, so that n = 25 compares equal trees. Where the rows of both n disagree, the order hangs on n "
    "and delta, and the claim has no answer.",
    "Sequoia's printed size is that of the paper's tree, SpecInfer's 5x8 and 8x8 have 40 and 64 nodes; in Table 6 all "
    "rules have one tree. Of speedups Sequoia's tree is the one that its search chose for the machine, of a few nodes. "
    "So they show that small trees pay on a CPU, not that Sequoia's shape does. DySpec's table has 64 nodes for all.",
    dyspec.DRAWN,
    f"GSD: {gsd_table1.PRUNED} Its acceptance rate is per draft forward: fewer forwards raise it as more accepted "
    "tokens do. MAL and how often merging counts (Graph Success) are in its Table 1. The paper does not say of which "
    "decoding its rates are; ours are of greedy decoding.",
    f"{mcsd.BUDGETS} {mcsd.LOSSY_NOTE} Those rows show what the paper shows, and no lead of a lossless method.",
    "The papers' speedups are of GPUs, where a larger tree costs hardly more than a token. On a CPU it does.",
)
Asked = tuple[Claim, Where]
Measure = Callable[[Results, Sequence[Arm], Sequence[Metric]], pd.DataFrame]
"""The long frame of some arms and metrics beside the paper's numbers."""


def _against(artifact: str, several: Sequence[Metric], first: Arm, *others: Arm) -> list[Claim]:
    return [Claim(artifact, metric, first, other) for metric in several for other in others]


_GROWN, _LARGER = (Arm(f"OPT-Tree, n = {n}", ("opt_tree",), "opt_tree", given={"n": n}) for n in (25, 50))
_FIXED = Arm("EAGLE's tree", ("eagle25",), "eagle_tree"), Arm("binary", ("binary_n25",), "binary")
_CHOSEN, _PRINTED, *_SPEC_INFER = sequoia.ARMS["table4"]
_GSD = {arm.header: arm for arm in gsd_table1.ARMS}
_TSD_PRUNED = replace(_GSD[gsd.TSD_SIB.header], paper=gsd.TSD.paper)
_TI_MCSD, _EQUAL = mcsd.target_init((2, 4, 3, 1, 1)), mcsd.mcsd((8, 3, 1, 1), matched=True)
_MCSD = mcsd.mcsd((4, 2, 2, 1))
_RRS, _RRSW, _SPEC_HUB = traversal.ARMS["spechub"][-3:]
_BORROWED = {_TSD_PRUNED.header: "of TSD", _EQUAL.header: "of MCSD"}
"""Of rows that a paper does not have: whose published value stands in their place."""
CLAIMS: Sequence[Claim] = (
    *_against("opt_tree/table1", (opt_tree.MAL_AS_PUBLISHED, opt_tree.SPEEDUP_WITH_PREFILL), _GROWN, *_FIXED),
    *_against("opt_tree/table1", (opt_tree.MAL_AS_PUBLISHED,), _LARGER, *_FIXED),
    *_against("sequoia/table4", (MAL, metrics.EXPECTED_MAL), _PRINTED, *_SPEC_INFER),
    *_against("sequoia/table4", (SPEEDUP,), _CHOSEN, *_SPEC_INFER),
    *_against("sequoia/table6", (MAL, metrics.EXPECTED_MAL, SPEEDUP), *sequoia.ARMS["table6"][:3]),
    *_against("dyspec/table1", (MAL, SPEEDUP), *dyspec.ARMS["table1"][:3]),
    *_against("gsd/table1", (of_gsd.RATE,), _GSD["GSD"], _GSD["SSD"], _GSD["TSD"], _TSD_PRUNED),
    *_against("gsd/table1", (of_gsd.DRAFTED,), _GSD["TSD"], _GSD["GSD"]),
    *_against("gsd/table1", (of_gsd.DRAFTED,), _TSD_PRUNED, _GSD["GSD"]),
    *_against("gsd/table1", (of_gsd.MEAN,), _GSD["GSD"], _GSD["SSD"], _GSD["TSD"]),
    *_against(
        "improving_mcsd/table2",
        (mcsd.ALPHA,),
        _TI_MCSD,
        mcsd.sd(4),
        _MCSD,
        replace(_EQUAL, paper=_MCSD.paper, params=_MCSD.params),
    ),
    *(
        Claim(f"traversal/{table}", traversal.BY_ITEM, ahead, behind)
        for table in ("table2", "table3")
        for behind, ahead in zip(traversal.ARMS[table][::2], traversal.ARMS[table][1::2], strict=True)
    ),
    *_against("traversal/spechub", (MAL,), _SPEC_HUB, _RRS, _RRSW),
)


def _stating(paper: pd.DataFrame, names: Mapping[str, str], *more: str) -> Measure:
    """Of tables that state dataset, temperature and these columns."""

    def measured(results: Results, methods: Sequence[Arm], several: Sequence[Metric]) -> pd.DataFrame:
        runs = frame.standing_in(frame.load(results), paper)
        rows = arms.rows(runs, paper, methods, ("dataset", "temperature", *more))
        return arms.beside(frame.measure(rows, several), names)

    return measured


def _of_gsd(results: Results, methods: Sequence[Arm], several: Sequence[Metric]) -> pd.DataFrame:
    """Of greedy decoding, or the mean of both decodings."""
    paper = published.find("gsd", "table1")
    runs = gsd.load(results, paper)
    if of_gsd.MEAN in several:
        both = gsd.lines(runs, paper, methods, (gsd.GREEDY, gsd.SAMPLED))
        return arms.beside(of_gsd.mean_of([frame.measure(part, [SPEEDUP]) for part in both], of_gsd.MEAN), of_gsd.NAMES)
    (greedy,) = gsd.lines(runs, paper, methods)
    return arms.beside(frame.measure(greedy, several), of_gsd.NAMES)


def _of_mcsd(results: Results, methods: Sequence[Arm], several: Sequence[Metric]) -> pd.DataFrame:
    paper = published.find(mcsd.PAPER, "table2")
    rows = arms.rows(mcsd.load(results, methods, (0.7,), paper), paper, methods, ("dataset", "temperature"))
    return arms.beside(frame.measure(rows, several), comparison.NAMES)


_SEQUOIA = sequoia.NAMES | {metrics.EXPECTED_MAL.key: sequoia.NAMES[MAL.key]}
MEASURES: Mapping[str, Measure] = {
    "opt_tree/table1": _stating(published.find("opt_tree", "table1"), opt_tree.NAMES),
    "sequoia/table4": _stating(sequoia.of_paper("table4"), _SEQUOIA),
    "sequoia/table6": _stating(sequoia.of_paper("table6"), _SEQUOIA, "top_p"),
    "dyspec/table1": _stating(dyspec.of_paper("table1"), dyspec.NAMES),
    "gsd/table1": _of_gsd,
    "improving_mcsd/table2": _of_mcsd,
    "traversal/table2": _stating(traversal.of_paper("table2"), traversal.NAMES),
    "traversal/table3": _stating(traversal.of_paper("table3"), traversal.NAMES),
    "traversal/spechub": _stating(traversal.of_paper("spechub"), spechub.NAMES),
}


def read(folder: Path, pair: str | None) -> dict[str, Results]:
    """The results of every experiment that a claim is of, of those beside `folder` that were run."""
    results: dict[str, Results] = {}
    for name in MEASURES:
        with contextlib.suppress(NoResultsError):
            results[name] = read_results(folder.parent / name, pair)
    if not results:
        raise NoResultsError("no experiment that a claim is of was run")
    return results


def claims(name: str, results: Mapping[str, Results]) -> list[Output]:
    """A row per claim, pair and decoding, over the datasets that were run."""
    groups: dict[Asked, list[pd.DataFrame]] = {}
    for claim, both in _measured(results):
        groups.setdefault((claim, _where(claim, both.iloc[0])), []).append(both)
    if not groups:
        raise NoResultsError("of no claim both methods were run")
    judged = [_judged(claim, where, rows) for (claim, where), rows in _once(groups)]
    corrected = holm([one.answer.p for one in judged if one.comparable])
    after = iter(corrected)
    lines = [one.row(next(after) if one.comparable else None) for one in judged]
    runs = pd.concat([both for several in groups.values() for both in several], ignore_index=True)
    below = (_surviving(judged, corrected), *NOTES, *notes.draft_temperatures(runs), *_models(runs))
    ids = tuple(one.run_ids for one in judged)
    shown = Table(name, TITLE, tables.frame(lines, HEADERS), below, LEGEND, ids, HEADERS, aside=ASIDE, lead=5)
    return [shown, figure(name, TITLE, judged, ids)]


def _once(groups: Mapping[Asked, Sequence[pd.DataFrame]]) -> Iterator[tuple[Asked, Sequence[pd.DataFrame]]]:
    """One answer for one claim: in the place of that by MAL the one over all draws, where it has as many datasets."""
    sharper = {
        (claim.artifact, claim.words, where): ((claim, where), rows)
        for (claim, where), rows in groups.items()
        if claim.metric is metrics.EXPECTED_MAL
    }
    for (claim, where), rows in groups.items():
        other = sharper.get((claim.artifact, claim.words, where)) if claim.metric is MAL else None
        if claim.metric is not metrics.EXPECTED_MAL:
            yield other if other and len(other[1]) == len(rows) else ((claim, where), rows)


def _measured(results: Mapping[str, Results]) -> Iterator[tuple[Claim, pd.DataFrame]]:
    """For each block in which ours and the paper have both methods two rows, judged; of drafts that are models."""
    alike: dict[tuple[str, str, bool], list[Claim]] = {}
    for claim in CLAIMS:
        if claim.artifact in results:
            key = claim.artifact, claim.ahead.header, claim.metric is of_gsd.MEAN
            alike.setdefault(key, []).append(claim)
    for (artifact, *_), several in alike.items():
        methods = {arm.header: arm for one in several for arm in (one.ahead, one.behind)}
        measured = dict.fromkeys(one.metric for one in several)
        with contextlib.suppress(NoResultsError):
            long = MEASURES[artifact](results[artifact], [*methods.values()], [*measured])
            known = long[long["sample"].notna() & long["interval"].notna() & long["published"].map(bool)]
            known = known[known["config"].map(lambda config: _model(config, "draft") is not None).astype(bool)]
            yield from ((one, both) for one in several for both in _in_pairs(known, one))


def _in_pairs(long: pd.DataFrame, claim: Claim) -> Iterator[pd.DataFrame]:
    """The rows of both methods of a claim in each block, the first ahead of the other, with a verdict on each."""
    order = [claim.ahead.header, claim.behind.header]
    for _, rows in long[long["metric"].isin([claim.metric]) & long["label"].isin(order)].groupby("block"):
        if len(rows) == len(order):
            yield frame.judge(rows.sort_values("label", key=lambda labels: labels.map(order.index)), who="label")


def _where(claim: Claim, run: pd.Series) -> Where:
    """The pair, and how it decoded."""
    kind = "embedded" if str(_model(run["config"], "target")).startswith("tiny/") else "real"
    decoding = f"{run['temperature']:g}" + (f", top-p {run['top_p']:g}" if run["top_p"] != 1 else "")
    both = f"{decoding} and {gsd.TEMPERATURE:g}, top-p {gsd.TOP_P:g}"
    return kind, str(run["pair"]), both if claim.metric is of_gsd.MEAN else decoding


def _judged(claim: Claim, where: Where, datasets: Sequence[pd.DataFrame]) -> Judged:
    leads = [_pooled(datasets, place).published for place in (0, 1)]
    answers = [_of_dataset(both, leads, claim.metric) for both in datasets]
    comparable = [
        both for both, one in zip(datasets, answers, strict=True) if not one.words.startswith(verdict.NOT_COMPARABLE)
    ]
    pooled = [both for both in comparable if _conversations(both) >= intervals.FEWEST] or comparable
    first, other = (_pooled(pooled or datasets, place) for place in (0, 1))
    names: dict[str, list[str]] = {}
    for both, one in zip(datasets, answers, strict=True):
        names.setdefault(one.words, []).append(_dataset(both))
    numbers = [list(both["published"]) for both in datasets]
    return Judged(
        claim,
        where,
        lead=(first.published or 0.0) / (other.published or 1.0),
        ahead=f"{sum(mine > theirs for mine, theirs in numbers)} of {len(numbers)}",
        ratio=samples.paired_ratio(first.sample, other.sample),
        answer=answered(first, other, timed=claim.metric.of_baseline) if pooled else answers[0],
        counts=tuple(map(_conversations, pooled or datasets)),
        by_dataset="; ".join(f"{words} ({', '.join(of)})" for words, of in sorted(names.items())),
        delta=datasets[0]["params"].iloc[0].get("delta"),
        values=(first.ours, other.ours),
        borrowed=tuple(_BORROWED[arm.header] for arm in (claim.ahead, claim.behind) if arm.header in _BORROWED),
        run_ids=" ".join(dict.fromkeys(" ".join(ids for both in datasets for ids in both["run_id"]).split())),
    )


def _dataset(both: pd.DataFrame) -> str:
    """Its name, and whether the paper has the second ahead there."""
    ahead, behind = both["published"]
    return f"{both['dataset'].iloc[0]}{SECOND if ahead < behind else ''}"


def _conversations(both: pd.DataFrame) -> int:
    """How many both methods decoded."""
    return samples.paired_ratio(*both["sample"]).n


def _of_dataset(both: pd.DataFrame, leads: Sequence[float | None], metric: Metric) -> Answer:
    """The answer on one dataset, held against the paper's means, or why the rule of all tables has none."""
    words = both["verdict"].iloc[0]
    if not isinstance(words, Verdict):
        return Answer(str(words))
    first, other = (
        replace(frame.pairing(row), published=lead) for row, lead in zip(named_rows(both), leads, strict=True)
    )
    return answered(first, other, timed=metric.of_baseline)


def _pooled(datasets: Sequence[pd.DataFrame], place: int) -> Pairing:
    """A method's mean over datasets, ours and the paper's."""
    rows = pd.DataFrame([both.iloc[place] for both in datasets])
    sample = samples.mean_over(*rows["sample"])
    return Pairing(samples.interval(sample), float(rows["published"].mean()), sample)


def _surviving(judged: Sequence[Judged], corrected: Sequence[float]) -> str:
    """How many answers there are of each kind, and how many of these hold after the correction."""
    answers = [verdict.word(one.answer.words) for one in judged if one.comparable]
    counts = Counter(answers)
    sure = Counter(words for words, p in zip(answers, corrected, strict=True) if p <= LEVEL)
    each = "; ".join(f"{words}: {sure[words]} of {count}" for words, count in sorted(counts.items()))
    against = sure[REVERSED] + sure[NO_LEAD]
    return (
        f"Of {len(answers)} answers {sure.total()} survive the correction for their number; {against} of these say "
        f"that the paper's order or lead is not there. {each}."
    )


def _models(runs: pd.DataFrame) -> Iterator[str]:
    """A sentence for each pair: its models, where they ran, and how many tokens they decoded."""
    for pair, rows in runs.groupby("pair", sort=False):
        run = rows.iloc[-1]
        target, draft = (_model(run["config"], role) for role in ("target", "draft"))
        devices = sorted({*rows["device_name"], *rows["replay_device"]} - {""})
        where = f"{run['dtype']} on {' and '.join(devices)}"
        yield f"{pair}: {target} with {draft}, {where}, at most {run['max_new_tokens']} new tokens a turn."


def _model(config: str, role: str) -> str | None:
    """The id of a pair's model; None of layers that a target leaves out of itself."""
    model = (json.loads(config).get("pair") or {}).get(role) or {}
    return None if model.get("kind", "layer_skip") == "layer_skip" and role == "draft" else str(model.get("id", ""))
