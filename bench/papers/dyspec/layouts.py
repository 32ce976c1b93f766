"""DySpec, Tables 1 to 4: their columns, how far DySpec is ahead of Sequoia, and what their paper leaves open.

The lead of ours is paired: each conversation that both runs decoded is left out of both, so that what one prompt gives
to both does not widen the interval. Of two methods of different budgets none is ahead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench import published
from bench.artifacts import definitions, tables, ties
from bench.artifacts.arms import SECONDS, Arm
from bench.artifacts.grid import Cell, Cells, Column, Setting, beside
from bench.artifacts.metric import PREDICTED_MAL, Metric
from bench.artifacts.runs import Run, seconds_per_token
from bench.artifacts.speedups import IS_LOSSLESS, MAL, SPEEDUP, TREE, Layout, seconds
from bench.papers.dyspec import threshold
from bench.results.rows import AUTOREGRESSIVE
from bench.statistics import metrics, samples
from bench.statistics.intervals import Interval
from bench.statistics.samples import Comparison

PAPER = "dyspec"
PLAIN = "plain"
NEITHER, UNEVEN = "neither", "budgets differ"
LEADS = {"mal": MAL, "speedup": SPEEDUP}
"""By what one method is ahead of another."""
Names = tuple[str, str]


def lead(name: str, first: Run | None, other: Run | None) -> Comparison | None:
    """How far the first run is ahead by `mal` or `speedup`; None where no conversation of both was measured."""
    one, two = (run.sample(name) if run and run.interval(name) else None for run in (first, other))
    found = samples.compare(one, two) if one and two else None
    return None if found is None or math.isnan(found.ratio.value) else found


def ahead(value: Comparison | float | None, names: Names) -> str | None:
    """Which of the two is ahead, or `neither`; None where there is no ratio, or no interval to judge ours by."""
    sign = value.ahead if isinstance(value, Comparison) else None if value is None else (value > 1) - (value < 1)
    return None if sign is None else (NEITHER, *names)[sign]


def _words(value: Comparison | float | None, names: Names, *, even: bool = True, noisy: bool = False) -> str:
    """`1.053 [0.981, 1.127] (neither)`: the ratio, ours with its interval, and who is ahead if budgets are `even`.

    Of times that are too noisy the mark `!` takes the place of who is ahead.
    """
    if value is None:
        return tables.ABSENT
    text = tables.ratio(value.ratio) if isinstance(value, Comparison) else tables.number(value, 3)
    if even and noisy:
        return f"{text}{ties.UNRANKED}"
    return f"{text} ({(ahead(value, names) or 'no interval') if even else UNEVEN})"


def _names(first: Cell, other: Cell) -> Names:
    return first.arm.header, other.arm.header


def _even(first: Cell, other: Cell) -> bool:
    """Whether no budgets are known in which the first method and another differ."""
    return len({cell.run.budget for cell in (first, other) if cell.run} - {None}) < 2


def _noisy(name: str, row: Setting) -> bool:
    """Whether it is by times that are too noisy to rank the methods of a setting, as the marks in the details say."""
    return name == "speedup" and ties.unranked(map(SPEEDUP.entry, row.cells))


def _published(name: str, first: Cell, other: Cell) -> tuple[float, float] | None:
    """The paper's numbers of the first method and another; None where it does not print both."""
    one, two = map(LEADS[name].number, (first, other))
    return None if one is None or not two else (one, two)


def _ours(name: str, first: Cell, other: Cell) -> str:
    """The lead of the first method over another in our runs."""
    even, noisy = _even(first, other), _noisy(name, first.setting)
    return _words(lead(name, first.run, other.run), _names(first, other), even=even, noisy=noisy)


def _theirs(name: str, first: Cell, other: Cell) -> str:
    """The same in the paper."""
    found = _published(name, first, other)
    return _words(found[0] / found[1] if found else None, _names(first, other))


def _ratio(header: str, name: str, words: Callable[[str, Cell, Cell], str], means: str = "") -> Column:
    """A column of the details: the first method over this one."""

    def text(cell: Cell) -> str:
        first = cell.setting.cells[0]
        return tables.ABSENT if cell is first else words(name, first, cell)

    return Column(Metric(header, lambda run: None, means), words=text)


def _against(row: Setting) -> Cells:
    """How far the first method is ahead of the second."""
    cells: Cells = {}
    for name, column in LEADS.items():
        header = f"{' / '.join(_names(*row.cells[:2]))}: {column.header}"
        cells |= {header: _ours(name, *row.cells[:2]), beside(header): _theirs(name, *row.cells[:2])}
    return cells


def _compared(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    """In how many of our rows which of the first two methods is ahead; and where the paper's own is behind."""
    names, headers = _names(*every[0].cells[:2]), {name: column.header for name, column in LEADS.items()}
    even = [(first, second) for first, second, *_ in (row.cells for row in rows) if _even(first, second)]
    for name, header in headers.items():
        both = [(lead(name, first.run, second.run), first.setting) for first, second in even]
        known = [(who, _noisy(name, row)) for one, row in both if (who := ahead(one, names))]
        counts = Counter(who for who, noisy in known if not noisy)
        total, left = counts.total(), len(known) - counts.total()
        out = f" Left out, since times are too noisy (!): {left}." if left else ""
        if total:
            yield (
                f"Here, by {header}, {names[0]} is ahead of {names[1]} in {counts[names[0]]} of {total} settings and "
                f"behind in {counts[names[1]]}; in {counts[NEITHER]} they are tied.{out}"
            )
        elif left:
            yield f"Here, by {header}, {names[0]} is set against {names[1]} in no setting.{out}"
    if rows and (left := len(rows) - len(even)):
        yield f"Settings in which the budgets of {names[0]} and {names[1]} differ are not counted: {left}."
    for name, header in headers.items():
        printed = [(row.who, *found) for row in every if (found := _published(name, *row.cells[:2]))]
        lost = [
            f"{who['Dataset']} at temperature {who['temperature']} ({one:.2f} < {two:.2f})"
            for who, one, two in printed
            if one < two
        ]
        if printed:
            where = f"{len(lost)} of {len(printed)} settings: {'; '.join(lost)}" if lost else "no setting"
            yield f"In the paper's own table, by {header}, {names[0]} is behind {names[1]} in {where}."


def _printed(value: float | None) -> str:
    """A number with the digits that the paper gives it."""
    return tables.ABSENT if value is None else f"{value:g}"


def _plain(row: Setting) -> tuple[Interval | None, str]:
    """Seconds per token of autoregressive decoding, of the runs of all methods together, and what the paper prints."""
    own = None
    if row.block:
        turns = row.block.results.prompts
        own = seconds_per_token(turns[turns["run_id"].isin(row.run_ids.split())], AUTOREGRESSIVE)
    values = row.paper.loc[row.paper["method"] == AUTOREGRESSIVE, "value"]
    return own if own and own.n else None, _printed(float(values.iloc[0]) if len(values) else None)


def _below(row: Setting) -> Iterator[Cells]:
    """Plain decoding, in a row of the details."""
    own, paper = _plain(row)
    yield {"Method": PLAIN, "s/token": tables.interval(own, _DIGITS), beside("s/token"): paper}


def _plain_cells(row: Setting) -> Cells:
    """The same in the printed table."""
    own, paper = _plain(row)
    return {PLAIN: tables.number(own.value if own else None, _DIGITS), beside(PLAIN): paper}


_DIGITS = 5  # of seconds per token, as the paper prints them
_SECONDS = Column(seconds(_DIGITS), paper=SECONDS, theirs=_printed, judged=False)
_BUDGET = Metric("budget", lambda run: run.budget, "nodes that the method may draft in a step, root excluded", 0)
_SIZE = Metric("n mean", lambda run: run.mean_size, f"{definitions.SIZE}, on average; N and levels are the largest", 1)
_ACCEPTED_ALONE = Metric(
    "MAL - 1",
    lambda run: metrics.accepted_per_step(run.steps) if run.ok else None,
    "accepted drafted tokens a step, without the token that the target adds",
)
_SIZES = (Column(_BUDGET), *TREE, Column(_SIZE))
_LENGTHS = (SPEEDUP, MAL, Column(PREDICTED_MAL), Column(_ACCEPTED_ALONE))
_FROM_LEADS = (
    _ratio("MAL ratio", "mal", _ours, definitions.RATIO.format("the first method's MAL", "this one's")),
    _ratio(beside("MAL ratio"), "mal", _theirs),
    _ratio("speedup ratio", "speedup", _ours, "the same for the speedups"),
    _ratio(beside("speedup ratio"), "speedup", _theirs),
    IS_LOSSLESS,
)
_LEGEND = {
    PLAIN: "seconds per token of autoregressive decoding, of all runs of the row together",
    "DySpec / Sequoia: MAL": definitions.RATIO.format("DySpec's MAL", "Sequoia's MAL"),
}
_ACCEPTED = (
    "The paper's accepted tokens per step count the token that the target adds (its list of accepted tokens holds it), "
    "so that they stand beside MAL; MAL - 1 is in the details."
)
_SAMPLES = (
    "The paper decodes up to 1,000 examples of each dataset from their first 128 tokens, 128 new ones of each. So does "
    "the experiment by default, but 100 where the target is offloaded, and 40 of MT-Bench's 80, since the others "
    "calibrate Sequoia; LIMIT and MAX_NEW_TOKENS change that."
)
_CALLS = (
    "The paper runs its draft once for every node (Algorithm 1), and times that: a call per node. DySpec here reads a "
    "layer per forward; it draws from the same distribution over trees. Both rows are judged by the paper's number."
)
_OTHERS = (
    "Where ours is another than the paper's, the paper's numbers and the verdicts are left out; where those of two "
    "methods differ, neither is called ahead."
)


def _small(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    """Tables 1 to 3."""
    yield from _budgets(rows, every)
    yield "The paper does not say whether its 64 count the root; the blocks of its Figure 9 fit trees that do."
    yield _decoded(rows)
    yield _CALLS
    yield _ACCEPTED
    yield "The paper's caption says latency; what it prints are speedups. Seconds per token are in the details."
    ours = dict.fromkeys(words for run in _runs(rows, "SpecInfer") if (words := _shape(run)))
    here = f"SpecInfer's tree here: {' / '.join(ours)}. " if ours else ""
    yield f"{here}The paper does not state the shape of SpecInfer's tree."
    yield from _temperatures(rows, every)
    yield from _compared(rows, every)


def _large(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    """Table 4."""
    yield from _budgets(rows, every)
    yield _decoded(rows)
    yield from _grown(_runs(rows, "DySpec"))
    if limits := {_limits(run) for run in _runs(rows, "DySpec")}:
        yield f"DySpec's threshold and cap here: {'; '.join(sorted(limits))}. The paper's text: 0.001 and 768."
    yield _ACCEPTED
    yield (
        "Published: DySpec, Sequoia and plain decoding are the paper's own runs; SpecInfer's numbers are copied from "
        "Sequoia's Table 5, on an L40. The paper prints no speedups: those that stand here are its plain s/token "
        "over the method's, left out for SpecInfer, whose device is another."
    )
    yield from _temperatures(rows, every)
    yield from _compared(rows, every)


def _decoded(rows: Sequence[Setting]) -> str:
    """How many examples the paper decodes, and how many were decoded here."""
    runs = [cell.run for row in rows for cell in row.cells if cell.run and cell.run.ok]
    columns = ("num_conversations", "max_new_tokens")
    counts, tokens = (" / ".join(map(str, sorted({run[column] for run in runs}))) for column in columns)
    return f"{_SAMPLES} Here: {counts} conversations of each, at most {tokens} new tokens." if runs else _SAMPLES


def _grown(runs: Sequence[Run]) -> Iterator[str]:
    """What ends the trees of DySpec's runs."""
    grows, where = "DySpec grows layer by layer down to a threshold here, as in the paper", "are in the details"
    ended, capped = [run for run in runs if threshold.at_cap(run) is not None], threshold.always(runs)
    if capped:
        yield (
            f"{grows}. In every step of {len(capped)} of {len(ended)} settings the tree {threshold.ENDED}; at cap and "
            f"depth mean {where}."
        )
    if len(capped) < len(ended) or not ended:
        yield f"{grows}, and may leave part of its budget unused: n mean and at cap {where}."


def _runs(rows: Sequence[Setting], header: str) -> list[Run]:
    return [cell.run for row in rows for cell in row.cells if cell.arm.header == header and cell.run]


def _budgets(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    """How many nodes each method might draft, here and in the paper."""
    arms = [arm for arm in every[0].arms if not arm.extra or _runs(rows, arm.header)]
    ours = {arm.header: {size for run in _runs(rows, arm.header) if (size := run.budget)} for arm in arms}
    here = [f"{header} {' / '.join(map(str, sorted(sizes))) or 'not run'}" for header, sizes in ours.items()]
    text = f"Budget in drafted nodes, the root (which N counts) aside: {', '.join(here)}; the paper: {arms[0].budget}."
    yield f"{text} {_OTHERS}" if set().union(*ours.values()) - {arms[0].budget} else text


def _temperatures(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    """At what temperature each method drew its children, here and in the paper."""
    headers = [arm.header for arm in every[0].arms]
    here = [f"{header}: {words}" for header in headers if (words := _draws(_runs(rows, header)))]
    facts = published.find(PAPER, "setup_text", metric="draft_temperature")
    paper = f"The paper's draft temperature is {facts['value'].iloc[0]:g} at every temperature of the target"
    ours = f"Draft temperature here: {'; '.join(here)}. " if here else ""
    yield f"{ours}{paper}; whether for Sequoia and SpecInfer too, it does not state."
    if "best tokens" in ours:
        yield "In a tree of fixed shape the draft's best tokens are the same at every draft temperature."


def _draws(runs: Sequence[Run]) -> str:
    """The draft temperatures of runs and what was drawn with them, by the temperature of the target."""
    targets: dict[str, list[str]] = {}
    for run in runs:
        value = run.params.get("draft_temperature")
        words = "not recorded" if value is None else f"{value:g}"
        words += ", the draft's best tokens" if run["draws"] == "topk" else ", children drawn"
        targets.setdefault(words, []).append(f"{run['temperature']:g}")
    return " / ".join(
        f"{words} (target's temperature {' and '.join(dict.fromkeys(given))})" for words, given in targets.items()
    )


def _shape(run: Run) -> str:
    shape = run.params.get("shape")
    if not isinstance(shape, dict) or not {"num_sequences", "depth"} <= shape.keys():
        return ""
    return f"{shape['num_sequences']} sequences of {shape['depth']} tokens"


def _limits(run: Run) -> str:
    threshold = run.params.get("threshold")
    return f"{'1/n' if threshold is None else f'{threshold:g}'} and {run.params.get('n')}"


def _arms(budget: int, drafter: str, shape: str) -> tuple[Arm, ...]:
    return (
        Arm("DySpec", (drafter,), "dyspec", budget=budget),
        Arm("Sequoia", ("sized_sequoia", "sequoia"), "sequoia", budget=budget),
        Arm("SpecInfer", (f"spec_infer_{shape}",), "specinfer", budget=budget),
    )


_PER_NODE = Arm("DySpec, a call per node", ("dyspec_heap",), "dyspec", budget=64, extra=True)


def _small_table(title: str) -> Layout:
    """Of Tables 1 to 3."""
    return Layout(
        PAPER,
        title,
        (*_arms(64, "dyspec", "8x8"), _PER_NODE),
        wide=lambda row, methods: methods | _against(row),
        details=(*_SIZES, *_LENGTHS, Column(seconds(_DIGITS)), *_FROM_LEADS),
        below=_below,
        legend=_LEGEND,
        remarks=_small,
    )


LAYOUTS: Mapping[str, Layout] = {
    "table1": _small_table("DySpec Table 1: speedup and accepted tokens (the paper: 64 nodes, A100)"),
    "table2": _small_table("DySpec Table 2: speedup and accepted tokens (the paper: 64 nodes, A100)"),
    "table3": _small_table("DySpec Table 3: offloaded target (the paper: 64 nodes, A100)"),
    "table4": Layout(
        PAPER,
        "DySpec Table 4: offloaded target, DySpec with a threshold (the paper: at most 768 nodes, A100)",
        _arms(768, "dyspec_threshold", "16x48"),
        cell=replace(_SECONDS, ended=True),
        means="seconds of decoding / decoded token, prefill excluded, in parentheses {}",
        wide=lambda row, methods: methods | _plain_cells(row) | _against(row),
        details=(*_SIZES, Column(threshold.AT_CAP), Column(threshold.DEPTH), *_LENGTHS, _SECONDS, *_FROM_LEADS),
        below=_below,
        legend=_LEGEND,
        remarks=_large,
    ),
}
