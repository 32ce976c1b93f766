"""GSD, Tables 2, 4 and 6 to 9: their titles, methods, and what their paper leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.artifacts.speedups.arms import Arm
from bench.papers.gsd.by_dataset import Layout
from bench.papers.gsd.classes import LARGE, SMALL, ModelClass, bound
from bench.papers.gsd.decodings import Method
from bench.papers.gsd.methods import GSD, MEDUSA, SSD, SSD_DRAWN, TSD, lossy, unprinted

_GREEDY = (
    "The paper states no decoding of this table: greedy here. Its caption's thresholds: k = 4, tau = 1, theta_prob = "
    "0.4, theta_sib = 0.1."
)
LOSSY = (
    "(lossy): the paper's non-deterministic rule as its code has it, min(1, p/q) for every child alone and the longest "
    "path that is accepted, which does not keep the target's law (variation). The paper's numbers stand beside it; its "
    "SSD may have been speculative sampling, which is lossless: SSD, drawn."
)


def _greedy(cells: Sequence[Mapping[str, Method]]) -> Iterator[str]:
    yield _GREEDY


def _rules(cells: Sequence[Mapping[str, Method]]) -> Iterator[str]:
    yield LOSSY
    yield (
        "Lossless: the target's own sample decides (SSD, TSD, GSD), or min(1, p/q) and the residual law for a sequence "
        "that was drawn from q (SSD, drawn)."
    )


def _medusa(cells: Sequence[Mapping[str, Method]]) -> Iterator[str]:
    yield "Medusa is not run here: its row is the paper's, which does not give the settings of its heads."


def _bound(models: ModelClass, *arms: Arm) -> tuple[Arm, ...]:
    return tuple(bound(arm, models) for arm in arms)


def _rows(models: ModelClass, *arms: Arm) -> tuple[Arm, ...]:
    """Every method under a lossless rule, then under the paper's."""
    return _bound(models, *map(unprinted, arms), *map(lossy, arms))


LAYOUTS: Mapping[str, Layout] = {
    "table2": Layout(
        "GSD Table 2: speedup of non-deterministic decoding",
        _rows(LARGE, SSD, SSD_DRAWN, TSD, GSD),
        acceptance=False,
        sampling=True,
        notes=_rules,
    ),
    "table4": Layout(
        "GSD Table 4: speedup beside Medusa's", _bound(LARGE, MEDUSA, GSD), acceptance=False, mean=True, notes=_medusa
    ),
    **{
        f"table{number}": Layout(
            f"GSD Table {number}: acceptance rate and speedup, {models}", _bound(SMALL, SSD, TSD, GSD), notes=_greedy
        )
        for number, models in ((6, "BLOOM-7B1"), (7, "OPT-13B"), (8, "Llama-2-7B"))
    },
    "table9": Layout(
        "GSD Table 9: acceptance rate and speedup of non-deterministic decoding, Llama-2-7B",
        _rows(SMALL, SSD, SSD_DRAWN, GSD),
        sampling=True,
        notes=_rules,
    ),
}
