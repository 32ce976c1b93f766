"""Sequoia, Tables 3 to 7: their titles, columns and how a row finds the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.report.sequoia.arms import Arm


@dataclass(frozen=True, slots=True)
class Layout:
    """One table: its arms and what it shows beside speedup and tokens per step."""

    title: str
    arms: tuple[Arm, ...]
    match: tuple[str, ...] = ("dataset", "temperature")  # what the paper states of a row's setting
    tree: bool = True  # the tree of the first arm, and what was predicted for it
    top_p: bool = False
    seconds: bool = False


_CHOSEN = Arm("Sequoia", ("sequoia_hardware", "sequoia"), "sequoia")
_SPEC_INFER = {
    shape: Arm(f"SpecInfer {shape}", (f"spec_infer_{shape}",), "specinfer", {"shape": shape})
    for shape in ("5x8", "8x8", "16x48")
}
_ON_CHIP = (_CHOSEN, _SPEC_INFER["5x8"], _SPEC_INFER["8x8"])
LAYOUTS: Mapping[str, Layout] = {
    "table3": Layout(
        "Sequoia Table 3: hardware-aware tree against fixed sizes",
        (
            Arm("hardware-aware", ("sequoia_hardware",), "sequoia", {"selection": "hardware_aware"}),
            Arm("N=128", ("sequoia",), "sequoia", {"selection": "fixed", "size": "128"}, 128),
            Arm("N=256", ("sequoia",), "sequoia", {"selection": "fixed", "size": "256"}, 256),
        ),
        match=(),
    ),
    "table4": Layout("Sequoia Table 4: on-chip results (the paper: A100)", _ON_CHIP),
    "table5": Layout(
        "Sequoia Table 5: offloaded target (the paper: L40)", (_CHOSEN, _SPEC_INFER["16x48"]), seconds=True
    ),
    "table6": Layout(
        "Sequoia Table 6: rules of acceptance by top-p, one tree",
        (
            Arm("Sequoia", ("without_replacement",), "sequoia"),
            Arm("SpecInfer", ("spec_infer",), "specinfer"),
            Arm("top-k", ("target_sample",), "topk"),
            Arm("SpecTr", ("k_seq",), "spectr"),
        ),
        tree=False,
        top_p=True,
    ),
    "table7": Layout("Sequoia Table 7: on-chip results (the paper: L40)", _ON_CHIP),
}
