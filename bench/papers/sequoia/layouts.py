"""Sequoia, Tables 3 to 7: their titles, columns, and what their paper leaves open or says in its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from bench import published
from bench.artifacts import tables
from bench.artifacts.blocks import Block
from bench.artifacts.runs import seconds_per_token
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.layout import Layout
from bench.results.rows import AUTOREGRESSIVE

PAPER = "sequoia"


def _unstated(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    yield "The paper states neither dataset nor temperature of Table 3; its numbers stand beside every setting."
    yield "Nor does it state the hardware-aware tree, so that tokens/step of another machine's choice have no verdict."


def _one_tree(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    yield "One tree for all rules, the children drawn as each rule demands."


def _two_trees(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    yield (
        "Sequoia's speedup is judged on the tree that its optimiser chose on this machine, as the paper's was on its "
        "own; its tokens/step on the optimiser's tree of the size and depth that the paper prints "
        f"({_PRINTED.header}), and SpecInfer's are set against those of that tree."
    )


def _offloaded(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    yield from _two_trees(paper, found)
    yield from _without_a_tree(found)


def _without_a_tree(found: Sequence[Block]) -> Iterator[str]:
    plain = published.find(PAPER, "claim_text", method="autoregressive", params="offload=true;system=sequoia_offload")
    for block in found:
        prompts = block.results.prompts[block.results.prompts["run_id"].isin(block.runs["run_id"])]
        seconds = tables.interval(seconds_per_token(prompts, AUTOREGRESSIVE), 4)
        yield (
            f"Offloaded without a tree, {block.name}: {seconds} s/token; "
            f"the paper's text: {plain['value'].iloc[0]:g} s/token (Llama-2-70B, L40)."
        )


_CHOSEN = Arm("Sequoia", ("sequoia_hardware", "sequoia"), "sequoia", chosen_tree=True)
_PRINTED = Arm("Sequoia, printed tree", ("sequoia_printed",), "sequoia", printed_tree=True)
_SPEC_INFER = {
    shape: Arm(f"SpecInfer {shape}", (f"spec_infer_{shape}",), "specinfer", {"shape": shape})
    for shape in ("5x8", "8x8", "16x48")
}
_ON_CHIP = (_CHOSEN, _PRINTED, _SPEC_INFER["5x8"], _SPEC_INFER["8x8"])
LAYOUTS: Mapping[str, Layout] = {
    "table3": Layout(
        PAPER,
        "Sequoia Table 3: hardware-aware tree against fixed sizes",
        (
            Arm(
                "hardware-aware",
                ("sequoia_hardware",),
                "sequoia",
                {"selection": "hardware_aware"},
                chosen_tree=True,
            ),
            Arm("N=128", ("sequoia",), "sequoia", {"selection": "fixed", "size": "128"}, 128),
            Arm("N=256", ("sequoia",), "sequoia", {"selection": "fixed", "size": "256"}, 256),
        ),
        match=(),
        remarks=_unstated,
    ),
    "table4": Layout(PAPER, "Sequoia Table 4: on-chip results (the paper: A100)", _ON_CHIP, remarks=_two_trees),
    "table5": Layout(
        PAPER,
        "Sequoia Table 5: offloaded target (the paper: L40)",
        (_CHOSEN, _PRINTED, _SPEC_INFER["16x48"]),
        seconds=True,
        remarks=_offloaded,
    ),
    "table6": Layout(
        PAPER,
        "Sequoia Table 6: rules of acceptance by top-p, one tree",
        (
            Arm("Sequoia", ("without_replacement",), "sequoia"),
            Arm("SpecInfer", ("spec_infer",), "specinfer"),
            Arm("top-k", ("target_sample",), "topk"),
            Arm("SpecTr", ("k_seq",), "spectr"),
        ),
        tree=False,
        top_p=True,
        remarks=_one_tree,
    ),
    "table7": Layout(PAPER, "Sequoia Table 7: on-chip results (the paper: L40)", _ON_CHIP, remarks=_two_trees),
}
