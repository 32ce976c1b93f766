"""Sequoia, Tables 3 to 7: their columns, and what their paper leaves open or says in its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import published
from bench.artifacts import definitions, metric, tables
from bench.artifacts.arms import SECONDS, Arm
from bench.artifacts.grid import Cells, Column, Setting, beside, in_one
from bench.artifacts.runs import seconds_per_token
from bench.artifacts.speedups import IS_LOSSLESS, MEASURED, Layout, seconds, times
from bench.results.rows import AUTOREGRESSIVE

PAPER = "sequoia"
_SECONDS = Column(seconds(4), paper=SECONDS, digits=2, judged=False)
_PREDICTED = (Column(metric.PREDICTED_SPEEDUP, plain=times), Column(metric.PREDICTED_MAL))


def _chosen(row: Setting, methods: Cells) -> Cells:
    """The tree of the first method, its cells, and what was predicted for the tree."""
    first = row.cells[0]
    run, paper, header = first.run, first.published, first.arm.header
    tree = {"Tree": _tree(run.nodes, run.levels) if run else tables.ABSENT}
    tree[beside("Tree")] = _tree(paper.get("tree_size"), paper.get("tree_depth"))
    own = {name: methods[name] for name in (header, beside(header))}
    return tree | own | {f"{header} predicted": in_one(first, *_PREDICTED)[0]}


def _with_seconds(row: Setting, methods: Cells) -> Cells:
    """The same, with the time per token of the first method."""
    own, paper = _SECONDS.as_printed(row.cells[0])
    return _chosen(row, methods) | {"s/token": own, beside("s/token"): paper}


def _tree(nodes: float | None, levels: float | None) -> str:
    return tables.ABSENT if nodes is None else f"({nodes:g}, {tables.number(levels, 0)})"


def _two_trees(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    yield (
        "Sequoia's speedup is judged on the tree that its optimiser chose on this machine, as the paper's was on its "
        f"own. Its tokens/step are judged on the optimiser's tree of the printed size ({_PRINTED.header}) where that "
        "is as deep as the printed one, and SpecInfer's are set against them; the details have the levels of both."
    )


def _offloaded(rows: Sequence[Setting], every: Sequence[Setting]) -> Iterator[str]:
    yield from _two_trees(rows, every)
    plain = published.find(PAPER, "claim_text", method="autoregressive", params="offload=true;system=sequoia_offload")
    for block in (row.block for row in rows if row.block):
        prompts = block.results.prompts[block.results.prompts["run_id"].isin(block.runs["run_id"])]
        own = tables.interval(seconds_per_token(prompts, AUTOREGRESSIVE), 4)
        yield (
            f"Offloaded without a tree, {block.name}: {own} s/token; "
            f"the paper's text: {plain['value'].iloc[0]:g} s/token (Llama-2-70B, L40)."
        )
    for pair in dict.fromkeys(row.block.pair for row in rows if row.block and row.block.stand_in):
        yield (
            f"{pair} stands in: its few weights cost hardly any time to stream, so that large trees are not nearly "
            "free, as they are with the paper's target."
        )


_LEGEND = {"Tree": definitions.TREE, "s/token": definitions.SECONDS_PER_TOKEN} | dict.fromkeys(
    ("Sequoia predicted", "hardware-aware predicted"),
    f"speedup ({definitions.length(PAPER)}): {definitions.PREDICTED_SPEEDUP} ({definitions.PREDICTED_MAL})",
)


def _layout(title: str, *arms: Arm, **given: Any) -> Layout:
    """A table with the tree of its first method, if nothing else is given."""
    with_tree: dict[str, Any] = {"wide": lambda row, methods: _chosen(row, methods) | methods, "legend": _LEGEND}
    return Layout(PAPER, f"Sequoia {title}", arms, **with_tree | given)


_CHOSEN = Arm("Sequoia", ("sequoia_hardware", "sequoia"), "sequoia", chosen_tree=True)
_PRINTED = Arm("Sequoia, printed size", ("sequoia_printed",), "sequoia", printed_tree=True)
_SPEC_INFER = {
    shape: Arm(f"SpecInfer {shape}", (f"spec_infer_{shape}",), "specinfer", {"shape": shape})
    for shape in ("5x8", "8x8", "16x48")
}
_UNSTATED = (
    "The paper states neither dataset nor temperature of Table 3; its numbers stand beside every setting.",
    "Nor does it state the hardware-aware tree, so that tokens/step of another machine's choice have no verdict.",
)
_ONE_TREE = "One tree for all rules, the children drawn as each rule demands."
_ON_CHIP = (_CHOSEN, _PRINTED, _SPEC_INFER["5x8"], _SPEC_INFER["8x8"])
LAYOUTS: Mapping[str, Layout] = {
    "table3": _layout(
        "Table 3: hardware-aware tree against fixed sizes",
        Arm("hardware-aware", ("sequoia_hardware",), "sequoia", {"selection": "hardware_aware"}, chosen_tree=True),
        Arm("N=128", ("sequoia",), "sequoia", {"selection": "fixed", "size": "128"}, 128),
        Arm("N=256", ("sequoia",), "sequoia", {"selection": "fixed", "size": "256"}, 256),
        match=(),
        remarks=lambda rows, every: _UNSTATED,
    ),
    "table4": _layout("Table 4: on-chip results (the paper: A100)", *_ON_CHIP, remarks=_two_trees),
    "table5": _layout(
        "Table 5: offloaded target (the paper: L40)",
        *(_CHOSEN, _PRINTED, _SPEC_INFER["16x48"]),
        wide=lambda row, methods: _with_seconds(row, methods) | methods,
        details=(*MEASURED, _SECONDS, IS_LOSSLESS),
        remarks=_offloaded,
    ),
    "table6": _layout(
        "Table 6: rules of acceptance by top-p, one tree",
        Arm("Sequoia", ("without_replacement",), "sequoia"),
        Arm("SpecInfer", ("spec_infer",), "specinfer"),
        Arm("top-k", ("target_sample",), "topk"),
        Arm("SpecTr", ("k_seq",), "spectr"),
        match=("dataset", "temperature", "top_p"),
        wide=lambda row, methods: methods,
        remarks=lambda rows, every: (_ONE_TREE,),
    ),
    "table7": _layout("Table 7: on-chip results (the paper: L40)", *_ON_CHIP, remarks=_two_trees),
}
