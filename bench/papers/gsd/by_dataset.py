"""GSD, Tables 2, 4 and 6 to 9: a row per method, a column per dataset, and all details of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import published
from bench.artifacts import control, definitions, tables, ties, verdict
from bench.artifacts.outputs import Output
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.settings import drafted
from bench.artifacts.tables import Table
from bench.artifacts.wording import setting
from bench.papers.gsd import remarks, settings
from bench.papers.gsd.decodings import Method, method
from bench.papers.gsd.groups import Group, groups_of, unrun
from bench.results.store import Results

LEGEND = {
    "acceptance": f"Acceptance Rate: {definitions.ACCEPTANCE_RATE}",
    "drafted": f"Drafted Token Num: {definitions.DRAFTED_TOKENS}",
    "Graph Success": definitions.GRAPH_SUCCESS,
    "MAL": definitions.MAL,
    "variation": definitions.VARIATION,
    "lossless": f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
    "verdict speedup": definitions.VERDICT,
}
_DETAILS = (
    *("Target", "Draft", "Dataset", "Method", "speedup", "speedup published", "acceptance", "acceptance published"),
    *("MAL", "drafted", "Graph Success", "variation", "lossless", "verdict speedup", "verdict acceptance"),
)
_HEADERS = {"speedup": "speedup", "acceptance_rate": "acceptance"}
_RANKED = {**_HEADERS, "mal": "MAL"}
"""Columns in which the best are marked, by metric."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One table of a row per method."""

    title: str
    arms: tuple[Arm, ...]
    acceptance: bool = True  # cells are acceptance rate (speedup), else the speedup alone
    sampling: bool = False
    mean: bool = False  # the speedup is the mean of greedy and top-p decoding
    notes: Callable[[Sequence[Mapping[str, Method]]], Iterable[str]] = lambda cells: ()  # of all cells by method

    @property
    def speedup(self) -> str:
        """What a speedup is here."""
        return definitions.MEAN_SPEEDUP if self.mean else definitions.SPEEDUP


def by_dataset(name: str, layout: Layout, results: Results) -> list[Output]:
    """One of the tables, twice: in the paper's layout, and a row per run with intervals and verdicts."""
    paper = published.find(settings.PAPER, name)
    found = settings.found_blocks(
        results, paper, greedy=layout.mean or not layout.sampling, sampled=layout.mean or layout.sampling
    )
    groups = list(groups_of(paper, found)) or list(unrun(paper))
    ran = [dataset for group in groups for dataset in group.datasets]
    datasets = settings.in_order([*paper["dataset"], *ran], list(dict.fromkeys(paper["dataset"])))
    cells = [{dataset: _methods(layout, group, dataset) for dataset in datasets} for group in groups]
    swept = ("dataset", "temperature") if layout.mean else ("dataset",)
    title = f"{layout.title} ({setting(found, but=swept) if found else 'not run'})"
    every = [by_arm for by_set in cells for by_arm in by_set.values()]
    shown = [one.runs for by_arm in every for one in by_arm.values()]
    notes = (*settings.said(drafted(paper), found), settings.NO_HARDWARE, *layout.notes(every))
    notes += (*control.notes(found), *remarks.of_runs(results, layout.arms, shown))
    wide = [line for group, by_set in zip(groups, cells, strict=True) for line in _wide(layout, group, by_set)]
    details = [line for group, by_set in zip(groups, cells, strict=True) for line in _details(layout, group, by_set)]
    printed = set(paper["dataset"])
    columns = ["Target", "Draft", "Method"]
    columns += [name for dataset in datasets for name in _columns(dataset)[: 1 + (dataset in printed)]]
    legend = {datasets[0]: _cells(layout)}
    own = {"speedup": f"{layout.speedup}; in brackets the 95% interval"}
    hidden = {"acceptance published", "verdict acceptance"} if not layout.acceptance else set()
    full = [column for column in _DETAILS if column not in hidden | (set() if layout.sampling else {"variation"})]
    frame = tables.frame([row for row, _ in details], full)
    runs = tuple(run for _, run in details)
    said = (*notes, *ties.note(frame), *[settings.MEANS_TIED] * layout.mean)
    cell = "acceptance rate (speedup)" if layout.acceptance else "speedup"
    headers = {dataset: f"{dataset}: {cell}" for dataset in datasets}
    printed_as = tables.frame([row for row, _ in wide], columns)
    return [
        Table(name, title, printed_as, notes, legend, tuple(ids for _, ids in wide), headers),
        Table(f"{name}_details", f"{title}, details", frame, said, LEGEND | own, runs),
    ]


def _cells(layout: Layout) -> str:
    if not layout.acceptance:
        return f"speedup: {layout.speedup}"
    rate = definitions.ACCEPTANCE_RATE.partition("; in brackets")[0]
    return f"Acceptance Rate (speedup); Acceptance Rate: {rate}; speedup: {layout.speedup}"


def _columns(dataset: str) -> tuple[str, str]:
    return dataset, f"{dataset} published"


def _methods(layout: Layout, group: Group, dataset: str) -> dict[str, Method]:
    paper, block = group.paper[group.paper["dataset"] == dataset], group.column(dataset)
    return {arm.header: method(arm, block, paper, sampling=layout.sampling) for arm in layout.arms}


def _wide(
    layout: Layout, group: Group, cells: Mapping[str, Mapping[str, Method]]
) -> Iterator[tuple[dict[str, str], str]]:
    """A row per method, and its runs."""
    for arm in layout.arms:
        row = group.who | {"Method": arm.header}
        for dataset, methods in cells.items():
            one = methods[arm.header]
            pairs = {name: one.pairing(name, mean=layout.mean) for name in _HEADERS}
            ours = {name: pair.ours.value if pair.ours else None for name, pair in pairs.items()}
            row[dataset] = _failure(one) or _words(layout, ours)
            row[_columns(dataset)[1]] = _words(layout, {name: pair.published for name, pair in pairs.items()})
        yield row, " ".join(methods[arm.header].runs for methods in cells.values()).strip()


def _details(
    layout: Layout, group: Group, cells: Mapping[str, Mapping[str, Method]]
) -> Iterator[tuple[dict[str, str], str]]:
    """A row per dataset and method, and its runs; datasets that neither we nor the paper have for them are left out."""
    for dataset, methods in cells.items():
        shown = [one for one in methods.values() if one.runs or one.published]
        rows = [_detail(layout, group, dataset, one, methods) for one in shown]
        ranked = {header: [one.entry(metric) for one in shown] for metric, header in _RANKED.items()}
        if layout.mean:
            ranked["speedup"] = [one.mean_entry for one in shown]
        ties.mark(rows, ranked)
        yield from zip(rows, (one.runs for one in shown), strict=True)


def _detail(layout: Layout, group: Group, dataset: str, one: Method, methods: Mapping[str, Method]) -> dict[str, str]:
    counts, stand_in = one.counts, any(block.stand_in for block in group.blocks)
    row = {**group.who, "Dataset": dataset, "Method": one.arm.header, "lossless": counts.lossless}
    row |= {"MAL": tables.interval(counts.mal), "drafted": tables.interval(counts.mean("drafted"), 1)}
    row["Graph Success"] = tables.percent(counts.graph_success.value if counts.graph_success else None)
    row["variation"] = tables.interval(counts.variation, 3)
    for metric, header in _HEADERS.items():
        pairings = {name: other.pairing(metric, mean=layout.mean) for name, other in methods.items()}
        time = metric == "speedup"
        digits = 2 if time else 3
        row[header] = tables.interval(pairings[one.arm.header].ours, digits)
        row[f"{header} published"] = tables.number(one.published.get(metric), digits)
        row[f"verdict {header}"] = verdict.judge(
            one.arm.header, pairings, stand_in=stand_in, same_device=not time, speedup=time
        )
    return row | ({"speedup": failure} if (failure := _failure(one)) else {})


def _failure(one: Method) -> str:
    """How a run ended that did not end well."""
    states = (outcome.status for outcome in (one.greedy, one.sampled))
    return next((state for state in states if state not in (None, "ok")), "")


def _words(layout: Layout, values: Mapping[str, float | None]) -> str:
    """`0.795 (1.85x)` or `1.85x`."""
    speedup, rate = values["speedup"], values["acceptance_rate"]
    times = tables.number(speedup) + ("" if speedup is None else "x")
    if not layout.acceptance or (speedup is None and rate is None):
        return times
    return f"{tables.number(rate, 3)} ({times})"
