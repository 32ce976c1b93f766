"""DySpec, Tables 1 to 4: how far DySpec is ahead of Sequoia and SpecInfer of the same budget.

A lead of ours is paired: each conversation that both runs decoded is left out of both, so that what one prompt gives to
both does not widen the interval. Of two methods of different budgets none is ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, definitions, frame, metrics, notes, ties
from specdec_trees.artifacts.arms import LENGTH, SECONDS, Arm
from specdec_trees.artifacts.metrics import MAL, SPEEDUP, Metric
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.artifacts.tables import named_rows
from specdec_trees.papers.dyspec import threshold
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results
from specdec_trees.statistics import samples
from specdec_trees.statistics.metrics import accepted_per_step
from specdec_trees.statistics.samples import Comparison

PAPER = "dyspec"
TITLES = {
    "table1": "DySpec Table 1: speedup and accepted tokens (the paper: 64 nodes, A100)",
    "table2": "DySpec Table 2: speedup and accepted tokens (the paper: 64 nodes, A100)",
    "table3": "DySpec Table 3: offloaded target (the paper: 64 nodes, A100)",
    "table4": "DySpec Table 4: offloaded target, DySpec with a threshold (the paper: at most 768 nodes, A100)",
}


def _arms(budget: int, drafter: str, shape: str) -> tuple[Arm, ...]:
    return (
        Arm("DySpec", (drafter,), "dyspec", budget=budget),
        Arm("Sequoia", ("sized_sequoia", "sequoia"), "sequoia", budget=budget),
        Arm("SpecInfer", (f"spec_infer_{shape}",), "specinfer", budget=budget),
        Arm("SpecInfer, merged", (f"spec_infer_{shape}_merged",), "", budget=budget, extra=True),
    )


SMALL = (*_arms(64, "dyspec", "8x8"), Arm("DySpec, a call per node", ("dyspec_heap",), "dyspec", budget=64, extra=True))
ARMS = {"table1": SMALL, "table2": SMALL, "table3": SMALL, "table4": _arms(768, "dyspec_threshold", "16x48")}
FIRST, RIVAL = "DySpec", "Sequoia"
MAL_RATIO = Metric(
    "mal_ratio", "MAL ratio", definitions.RATIO.format("DySpec's MAL", "this one's"), lambda run: None, 3, judged=False
)
SPEEDUP_RATIO = Metric("speedup_ratio", "speedup ratio", "the same for the speedups", lambda run: None, 3, judged=False)
RATIOS = {MAL: MAL_RATIO, SPEEDUP: SPEEDUP_RATIO}
"""How far DySpec is ahead, by what."""
ACCEPTED = Metric(
    "mal_without_bonus",
    "MAL - 1",
    "accepted drafted tokens a step, without the token that the target adds",
    lambda run: accepted_per_step(run.steps),
)
SIZES = (metrics.BUDGET, metrics.NODES, metrics.LEVELS, replace(metrics.MEAN_SIZE, header="n mean"))
OF_THRESHOLD = (threshold.AT_CAP, threshold.DEPTH)
SPEEDS = (replace(metrics.SECONDS, digits=5), replace(metrics.AUTOREGRESSIVE_SECONDS, digits=5))
"""With as many digits as the paper prints."""
METRICS = (SPEEDUP, MAL, *SPEEDS, *SIZES, *OF_THRESHOLD, metrics.PREDICTED_MAL, ACCEPTED, metrics.LOSSLESS)
NAMES = {"speedup": "speedup", "mal": LENGTH, "s_per_token": SECONDS, "autoregressive_s_per_token": "plain"}
"""The paper's metrics by the key of ours."""
ROWS = ("target_words", "draft_words", "dataset", "temperature", "label")
_NOTES = (
    "The paper's accepted tokens per step count the token that the target adds (its list of accepted tokens holds it), "
    "so that they stand beside MAL.",
    "The paper decodes up to 1,000 examples of each dataset from their first 128 tokens, 128 new ones of each. So does "
    "the experiment by default, but 100 where the target is offloaded, and 40 of MT-Bench's 80, since the others "
    "calibrate Sequoia; LIMIT and MAX_NEW_TOKENS change that.",
)
DRAWN = (
    "DySpec's tables: at temperature 0 children of Sequoia and SpecInfer are drawn at 0.6 too, which the paper does "
    "not state, and which lowers their MAL. Sequoia's Table 4 has both with their best children, which leaves less of "
    "DySpec's lead."
)
_SMALL = (
    DRAWN,
    "The paper does not say whether its 64 count the root, nor does it state the shape of SpecInfer's tree.",
    "The paper's caption says latency; what it prints are speedups.",
    "The paper runs its draft once for every node (Algorithm 1), and times that: a call per node. DySpec here reads a "
    "layer per forward; it draws from the same distribution over trees. Both rows are judged by the paper's number.",
)
_LARGE = (
    "The paper's text has a threshold of 0.001 and a cap of 768 nodes. DySpec grows layer by layer down to a threshold "
    "here, as in the paper, and may leave part of its budget unused; at cap and depth mean say what ended its trees.",
    "DySpec, Sequoia and plain decoding are the paper's own runs; SpecInfer's numbers are copied from Sequoia's Table "
    "5, on an L40. The paper prints no speedups: those that stand here are its plain s/token over the method's, left "
    "out for SpecInfer, whose device is another.",
)


def paper_table(name: str, results: Results) -> list[Output]:
    """A row per method and setting, ours beside the paper's, and how far DySpec is ahead of it."""
    paper, large = of_paper(name), name == "table4"
    shown = tuple(one for one in METRICS if large or one not in OF_THRESHOLD)
    runs = frame.standing_in(frame.load(results), paper)
    long = arms.judged(runs, paper, ARMS[name], ("dataset", "temperature"), shown, NAMES)
    long = pd.concat([long, *(leads(long, metric) for metric in RATIOS)], ignore_index=True)
    below = [
        *(words for metric in RATIOS for words in (*_ahead(long, metric), *_defeats(paper, metric))),
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        *_NOTES,
        *(_LARGE if large else _SMALL),
        *_temperature(),
    ]
    main = (SPEEDUP, MAL, *(SPEEDS[:1] if large else ()), *RATIOS.values())
    aside = [column for one in shown if one not in main for column in (one.key, one.published)]
    aside += [one.published for one in RATIOS.values()]
    title = notes.titled(TITLES[name], runs)
    return [table(name, title, long, ROWS, (*shown, *RATIOS.values()), aside=aside, notes=below)]


def of_paper(name: str) -> pd.DataFrame:
    """The paper's rows of a table; where it prints seconds alone, with `plain` decoding's and with speedups.

    A speedup is of two times on one device.
    """
    paper = published.find(PAPER, name)
    setting = ["target", "dataset", "temperature"]
    timed = paper[paper["metric"] == SECONDS]
    plain = timed.loc[timed["method"] == AUTOREGRESSIVE, [*setting, "value", "hardware"]]
    both = timed[timed["method"] != AUTOREGRESSIVE].merge(plain, on=setting, suffixes=("", "_plain"))
    same = both[both["hardware"] == both["hardware_plain"]]
    speedups = same.assign(metric="speedup", value=same["value_plain"] / same["value"])
    return pd.concat([paper, both.assign(metric="plain", value=both["value_plain"]), speedups])[[*paper.columns]]


def leads(long: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Rows of the ratio of DySpec's value to each other method's, and who is `ahead`: a name, "neither" or a reason.

    Of times that are too noisy, and of other budgets, none is; None where there is no ratio.
    """
    rows = long[long["metric"].isin([metric])]
    first = {line.block: line for line in named_rows(rows) if line.label == FIRST}
    pairs = [(first[line.block], line) for line in named_rows(rows)]
    compared = [lead(*pair) for pair in pairs]
    made = frame.of_values(rows, [None if one is None else one.ratio for one in compared])
    who = [_who(*pair, one) for pair, one in zip(pairs, compared, strict=True)]
    marks = ["" if words is None else words if words == ties.UNRANKED else f" ({words})" for words in who]
    printed, blank = [_published(*pair) for pair in pairs], [""] * len(rows)
    return frame.put(made, metric=[RATIOS[metric]] * len(rows), ahead=who, mark=marks, published=printed, verdict=blank)


def lead(first: Any, other: Any) -> Comparison | None:
    """How far the first row is ahead; None of itself, and where no conversation of both was measured."""
    if first.run_id == other.run_id or first.interval is None or other.interval is None:
        return None
    compared = samples.compare(first.sample, other.sample)
    return None if pd.isna(compared.ratio.value) else compared


def _who(first: Any, other: Any, compared: Comparison | None) -> str | None:
    if compared is None:
        return None
    if len({first.budget, other.budget} - {None}) > 1:
        return "budgets differ"
    if ties.UNRANKED in (first.mark, other.mark):
        return ties.UNRANKED
    return "no interval" if compared.ahead is None else ("neither", first.label, other.label)[compared.ahead]


def _published(first: Any, other: Any) -> float | None:
    both = first.published is not None and other.published and first.label != other.label
    return first.published / other.published if both else None


def _ahead(long: pd.DataFrame, metric: Metric) -> Iterator[str]:
    """In how many settings which of DySpec and Sequoia is ahead."""
    rows = long[long["metric"].isin([RATIOS[metric]]) & (long["label"] == RIVAL)]
    counts = Counter(words for words in rows["ahead"] if words not in (None, "no interval"))
    noisy, uneven = counts.pop(ties.UNRANKED, 0), counts.pop("budgets differ", 0)
    left = [f"{noisy} whose times are too noisy"] * bool(noisy) + [f"{uneven} of other budgets"] * bool(uneven)
    uncounted = f"; not counted: {' and '.join(left)}" if left else ""
    if counts or left:
        yield (
            f"Here, by {metric.header}, {FIRST} is ahead of {RIVAL} in {counts[FIRST]} of {counts.total()} settings, "
            f"behind in {counts[RIVAL]}, and tied in {counts['neither']}{uncounted}."
        )


def _defeats(paper: pd.DataFrame, metric: Metric) -> Iterator[str]:
    """Where the paper's own DySpec is behind."""
    setting = ["target", "dataset", "temperature"]
    values = paper[paper["metric"] == NAMES[metric.key]].pivot_table("value", setting, "method", sort=False)
    lost = values[values["dyspec"] < values["sequoia"]].reset_index()
    words = [
        f"{one.dataset} at temperature {one.temperature:g} ({one.dyspec:.2f} < {one.sequoia:.2f})"
        for one in named_rows(lost)
    ]
    where = f"{len(lost)} of {len(values)} settings: {'; '.join(words)}" if words else "no setting"
    yield f"In the paper's own table, by {metric.header}, {FIRST} is behind {RIVAL} in {where}."


def _temperature() -> Iterator[str]:
    value = published.find(PAPER, "setup_text", metric="draft_temperature")["value"].iloc[0]
    yield (
        f"The paper's draft temperature is {value:g} at every temperature of the target; whether for {RIVAL} and "
        "SpecInfer too, it does not state."
    )
