"""Improved MCSD, Tables 2 to 4: the acceptance rate alpha by dataset and method, and what was measured beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bench import published
from bench.artifacts import control, definitions, tables, ties, verdict
from bench.artifacts.blocks import Block, drafted, side_by_side
from bench.artifacts.metric import FORWARDS, LOSSLESS, MAL, Metric, cells, headers, legend, measured, or_status
from bench.artifacts.outputs import Output
from bench.artifacts.runs import Run
from bench.artifacts.tables import Table
from bench.artifacts.verdict import Pairing
from bench.artifacts.wording import scale, titled, who
from bench.papers.improving_mcsd import methods as mcsd
from bench.results.store import Results
from bench.statistics import metrics

CONTROL = (
    "TI-MCSD, one first token (ours) is MCSD's own rule below a token drawn from the target's law: lossless, and alpha "
    "has the law of MCSD's with the same k-configuration, 4x3x1x1."
)
_BESIDE: tuple[Metric, ...] = (
    measured("alpha drafted", mcsd.alpha_drafted, definitions.ALPHA_DRAFTED),
    Metric("accepted / depth", lambda run: metrics.acceptance_rate_depth(run.steps), definitions.ACCEPTED_DEPTH, 3),
    Metric("accepted / node", lambda run: metrics.acceptance_rate_node(run.steps), definitions.ACCEPTED_NODE, 3),
    MAL,
    Metric("draft nodes", lambda run: mcsd.NODES.of(run) - mcsd.first_tokens(run), definitions.DRAFT_NODES, 1),
    Metric("verified", lambda run: mcsd.NODES.of(run) + (not mcsd.virtual(run)), definitions.VERIFIED_ROWS, 1),
    replace(FORWARDS, means="forwards of the draft, mean over steps"),
    mcsd.SPEEDUP,
    replace(
        LOSSLESS,
        means=f"{definitions.LOSSLESS}; of greedy decoding also the share of outputs identical to the target's own",
    ),
)
_DETAILS = (
    *("Target", "Draft", "Dataset", "Temp", "Method", "Configuration", "alpha", "alpha published"),
    *headers(_BESIDE),
    "verdict",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the tables."""

    title: str
    methods: tuple[mcsd.Method, ...]
    temperatures: tuple[float, ...]
    notes: tuple[str, ...]


LAYOUTS: Mapping[str, Layout] = {
    "table2": Layout(
        "Improved MCSD Table 2: acceptance rate alpha of static trees",
        mcsd.STATIC,
        (0.7,),
        (mcsd.BUDGETS, CONTROL, mcsd.LOSSY_NOTE),
    ),
    "table3": Layout(
        "Improved MCSD Table 3: acceptance rate alpha beside dynamic trees",
        mcsd.DYNAMIC,
        (1.0,),
        (mcsd.DYNAMIC_BUDGETS, *mcsd.OF_DYNAMIC),
    ),
    "table4": Layout(
        "Improved MCSD Table 4: acceptance rate alpha of dynamic trees", mcsd.DYNAMIC[-1:], (0.0, 1.0), mcsd.OF_DYNAMIC
    ),
}

Place = tuple[str, str, float]
"""Dataset, draft and temperature of published rows."""
Cell = tuple[Run | None, float | None]
"""Our run and the paper's alpha, of which one or both may be missing."""


@dataclass(frozen=True)
class Setting:
    """The rows of one place, with our word for its draft, and our blocks by our words for their target."""

    place: Place
    draft: str
    paper: pd.DataFrame
    blocks: Mapping[str, Block]

    @property
    def words(self) -> dict[str, str]:
        """What stands in its rows."""
        return {"Dataset": self.place[0], "Draft": self.draft, "Temp": f"{self.place[2]:g}"}

    def cell(self, words: str, target: str, method: mcsd.Method) -> Cell:
        """A method and a target, by our words and the paper's."""
        run = method.chosen(self.blocks[words]) if words in self.blocks else None
        return run, method.published(self.paper[self.paper["target"] == target])


Row = tuple[Setting, mcsd.Method, Mapping[str, Cell]]
"""A row as the paper prints it, with a cell for every target, by our words for it."""


def acceptance_table(name: str, results: Results) -> list[Output]:
    """One of the tables, twice: as printed, and a row per run with intervals, costs and verdicts."""
    layout, paper = LAYOUTS[name], published.find(mcsd.PAPER, name)
    found = mcsd.blocks_of(results, layout.methods, layout.temperatures, drafted(paper))
    targets, settings = _targets(paper, found), _settings(paper, found)
    grid = [[row for method in layout.methods if (row := _row(one, method, targets))] for one in settings]
    swept = ("dataset", "temperature") if len(layout.temperatures) > 1 else ("dataset",)
    title = titled(layout.title, found, but=swept)
    rows = [row for of_setting in grid for row in of_setting]
    runs = [" ".join(run.run_id for run, _ in cells.values() if run) for _, _, cells in rows]
    details = list(_details(grid, targets))
    full = tables.frame([line for line, _ in details], _DETAILS)
    notes = (*map(scale, found), *mcsd.about_pairs(paper, found), *layout.notes)
    notes += tuple(mcsd.not_shown(results, " ".join(runs).split()))
    first = next(iter(targets))
    columns = ["Dataset", "Draft", *["Temp"] * (len(layout.temperatures) > 1), "Method", "Configuration"]
    columns += [header for words in targets for header in (words, f"{words} published")]
    means = {"alpha": mcsd.ALPHA.means} | legend(_BESIDE) | {"verdict": f"on alpha, {definitions.VERDICT}"}
    return [
        Table(
            name,
            title,
            tables.frame(map(_as_printed, rows), columns),
            notes,
            {first: f"alpha: {definitions.ALPHA.partition('; in brackets')[0]}"},
            tuple(runs),
            {words: f"{words}: alpha" for words in targets},
        ),
        Table(
            f"{name}_details",
            f"{title}, details",
            full,
            (*notes, *control.notes(found), *ties.note(full)),
            means,
            tuple(run.run_id if run else "" for _, run in details),
        ),
    ]


def _targets(paper: pd.DataFrame, found: Sequence[Block]) -> dict[str, str]:
    """The paper's targets by our words, in its order, then others that were run."""
    run = {who(block)["Target"]: (block.published_as or ("", ""))[0] for block in found}
    printed = {
        words: target
        for target in dict.fromkeys(paper["target"])
        for words in ([words for words, name in run.items() if name == target] or [target])
    }
    return printed | run


def _settings(paper: pd.DataFrame, found: Sequence[Block]) -> list[Setting]:
    """The settings that were run and those that the paper has, in its order; what it does not have comes last.

    A setting that was run twice, with other seeds or on another device, has rows of its own for each.
    """

    def place(block: Block) -> Place:
        return str(block.first["dataset"]), (block.published_as or ("", ""))[1], float(block.first["temperature"])

    def rows(at: Place) -> pd.DataFrame:
        dataset, draft, temperature = at
        return paper[(paper["dataset"] == dataset) & (paper["draft"] == draft) & (paper["temperature"] == temperature)]

    groups = side_by_side(found, lambda one: (place(one), who(one)["Draft"]), lambda one: who(one)["Target"])
    firsts = [next(iter(blocks.values())) for blocks in groups]
    run = [
        Setting(place(first), who(first)["Draft"], rows(place(first)), blocks)
        for first, blocks in zip(firsts, groups, strict=True)
    ]
    places = list(dict.fromkeys(zip(paper["dataset"], paper["draft"], paper["temperature"], strict=True)))
    run += [Setting(at, at[1], rows(at), {}) for at in places if at not in [one.place for one in run]]
    return sorted(run, key=lambda one: places.index(one.place) if one.place in places else len(places))


def _row(one: Setting, method: mcsd.Method, targets: Mapping[str, str]) -> Row | None:
    """None of a method that neither the paper has here nor was run."""
    found = {words: one.cell(words, target, method) for words, target in targets.items()}
    return (one, method, found) if any(run or theirs is not None for run, theirs in found.values()) else None


def _as_printed(row: Row) -> dict[str, str]:
    """The numbers of the paper beside ours."""
    one, method, found = row
    line = one.words | {"Method": method.header, "Configuration": method.configuration}
    for words, (run, theirs) in found.items():
        ours = run.interval(mcsd.alpha) if run else None
        line[words] = run.status if run and not run.ok else tables.number(ours.value if ours else None)
        line[f"{words} published"] = tables.number(theirs)
    return line


def _details(grid: Sequence[Sequence[Row]], targets: Mapping[str, str]) -> Iterator[tuple[dict[str, str], Run | None]]:
    """A row per target and method, and its run; what was not run stands there once, with the paper's names."""
    told = {
        (one.place, targets[words], method.header) for rows in grid for one, method, _ in rows for words in one.blocks
    }
    for rows in grid:
        for words, target in targets.items():
            pairings = {method.header: _pairing(*found[words]) for _, method, found in rows}
            lines, runs = [], []
            for one, method, found in rows:
                (run, theirs), key = found[words], (one.place, target, method.header)
                if run or (theirs is not None and key not in told):
                    told.add(key)
                    names = (words, one.draft) if words in one.blocks else (target, one.place[1])
                    line = {"Target": names[0]} | one.words | {"Draft": names[1]}
                    lines.append(line | _measured(method, run, pairings))
                    runs.append(run)
            ties.mark(
                lines,
                {metric.header: [metric.entry(run) for run in runs] for metric in (mcsd.ALPHA, MAL, mcsd.SPEEDUP)},
            )
            yield from zip(lines, runs, strict=True)


def _pairing(run: Run | None, theirs: float | None) -> Pairing:
    return Pairing(run.interval(mcsd.alpha), theirs, run.sample(mcsd.alpha)) if run else Pairing(None, theirs)


def _measured(method: mcsd.Method, run: Run | None, pairings: Mapping[str, Pairing]) -> dict[str, str]:
    line = {"Method": method.header, "Configuration": method.configuration, "alpha": or_status(mcsd.ALPHA).cell(run)}
    line |= {"alpha published": tables.number(pairings[method.header].published)}
    line |= cells(_BESIDE, run if run and run.ok else None)
    stand_in = run is not None and run.block.stand_in
    return line | {"verdict": verdict.judge(method.header, pairings, stand_in=stand_in)}
