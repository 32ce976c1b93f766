"""DySpec, Tables 1 to 4: their titles, columns, and what their paper leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from bench.report.blocks import Block, drafter_params
from bench.report.speedups.arms import Arm
from bench.report.speedups.layout import Layout

PAPER = "dyspec"
_ACCEPTED = (
    "The paper's accepted tokens per step count the token that the target adds (its list of accepted tokens holds it), "
    "so that they stand beside MAL; MAL - 1 is in the details."
)
_TEMPERATURES = (
    "Draft temperature: DySpec's is 0.6 at every temperature of the target, also at 0, where its children are still "
    "drawn. Sequoia and SpecInfer draw at the target's temperature, and at 0 take the draft's best tokens, which no "
    "draft temperature changes. The paper does not state theirs."
)


def _small(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Tables 1 to 3."""
    yield (
        "The budget of every method is 64 drafted nodes, N = 65 with the root (N is in the details); the paper "
        "does not say whether its 64 count the root."
    )
    yield _ACCEPTED
    yield "The paper's caption says latency; what it prints are speedups. Seconds per token are in the details."
    yield "SpecInfer's tree is 8 sequences of 8 tokens here; the paper does not state its shape."
    yield _TEMPERATURES


def _large(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Table 4."""
    yield (
        "DySpec grows layer by layer down to a threshold here, as in the paper, and may leave part of its budget "
        "unused: n mean is in the details. The budget of every method is 768 drafted nodes, N = 769 with the root."
    )
    if limits := {_limits(run) for block in found for run in block.ok if run["method"] == "dyspec_threshold"}:
        yield f"DySpec's threshold and cap here: {'; '.join(sorted(limits))}. The paper's text: 0.001 and 768."
    yield _ACCEPTED
    yield (
        "Published: DySpec, Sequoia and plain decoding are the paper's own runs; SpecInfer's numbers are copied from "
        "Sequoia's Table 5, on an L40. The paper prints no speedups: those that stand here are its plain s/token "
        "over the method's, left out for SpecInfer, whose device is another."
    )
    yield _TEMPERATURES


def _limits(run: pd.Series) -> str:
    params = drafter_params(run)
    threshold = params.get("threshold")
    return f"{'1/n' if threshold is None else f'{threshold:g}'} and {params.get('n')}"


def _layout(title: str, shape: str = "8x8", drafter: str = "dyspec", *, in_seconds: bool = False) -> Layout:
    arms = (
        Arm("DySpec", (drafter,), "dyspec"),
        Arm("Sequoia", ("sized_sequoia", "sequoia"), "sequoia"),
        Arm("SpecInfer", (f"spec_infer_{shape}",), "specinfer"),
    )
    return Layout(
        PAPER,
        title,
        arms,
        tree=False,
        plain=True,
        against=True,
        growing=True,
        in_seconds=in_seconds,
        remarks=_large if in_seconds else _small,
    )


LAYOUTS: Mapping[str, Layout] = {
    "table1": _layout("DySpec Table 1: trees of 64 nodes (the paper: A100)"),
    "table2": _layout("DySpec Table 2: trees of 64 nodes (the paper: A100)"),
    "table3": _layout("DySpec Table 3: offloaded target, trees of 64 nodes (the paper: A100)"),
    "table4": _layout(
        "DySpec Table 4: offloaded target, trees of at most 768 nodes (the paper: A100)",
        "16x48",
        "dyspec_threshold",
        in_seconds=True,
    ),
}
