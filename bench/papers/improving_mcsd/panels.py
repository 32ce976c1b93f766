"""What Figures 3 and 5 show of a pair: the runs of every method on every dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import published
from bench.artifacts.blocks import Block
from bench.papers.improving_mcsd.cells import Cell
from bench.papers.improving_mcsd.methods import Method

DATASETS = {"mt_bench": "MT-Bench", "triviaqa": "TriviaQA", "alpaca": "Alpaca"}
"""The paper's, in its order."""
_SAME = ("pair", "seed", "max_new_tokens", "ignore_eos", "attention", "node_order")
_PLACE = ("device_name", "dtype")


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the figures."""

    name: str
    title: str
    methods: tuple[Method, ...]
    ours: Method  # the paper's own
    temperature: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """A pair in one place, seed and length: its blocks by dataset."""

    blocks: dict[str, Block] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The pair, and what tells the panel from others of this pair."""
        every = list(self.blocks.values())
        marks = (mark for block in every for mark in block.mark.split(", "))
        return ", ".join([every[0].pair, *dict.fromkeys(mark for mark in marks if mark and not _of_dataset(mark))])

    @property
    def ran(self) -> bool:
        """Whether there is anything to draw."""
        return any(block.ran for block in self.blocks.values())

    def takes(self, block: Block) -> bool:
        """Whether a block differs from the others in its dataset alone; one that failed need not know its place."""
        others = list(self.blocks.values())
        same = all(one.first[column] == block.first[column] for one in others for column in _SAME)
        ran = [one for one in others if one.ran and block.ran]
        near = all(one.first[column] == block.first[column] for one in ran for column in _PLACE)
        return same and near and str(block.first["dataset"]) not in self.blocks

    def cell(self, dataset: str, method: Method) -> Cell | None:
        """A run, however it ended; None if there is none."""
        block = self.blocks.get(dataset)
        found = Cell(method, block, published.load("improving_mcsd").head(0))
        return found if found.run_id else None

    def ok(self, dataset: str, method: Method) -> Cell | None:
        """A run that ended well."""
        found = self.cell(dataset, method)
        return found if found and not found.failure else None

    @property
    def models(self) -> tuple[str, str]:
        """Target and draft of the published numbers that it is set against."""
        return next(iter(self.blocks.values())).published_as or ("", "")


def panels_of(found: Sequence[Block]) -> list[Panel]:
    """The panels, in the order in which their pairs were run; another run of the same has one of its own."""
    panels: list[Panel] = []
    for block in found:
        home = next((panel for panel in panels if panel.takes(block)), None)
        if home is None:
            home = Panel()
            panels.append(home)
        home.blocks[str(block.first["dataset"])] = block
    return panels


def _of_dataset(mark: str) -> bool:
    return mark.startswith("dataset ")


def datasets_of(panels: Sequence[Panel]) -> list[str]:
    """The datasets that were run, the paper's first."""
    run = list(dict.fromkeys(name for panel in panels for name in panel.blocks))
    return [name for name in DATASETS if name in run] + [name for name in run if name not in DATASETS]
