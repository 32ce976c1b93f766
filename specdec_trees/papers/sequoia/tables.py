"""Sequoia, Tables 3 to 7: trees chosen for the machine and of printed size, SpecInfer's trees, and rules by top-p.

The paper's optimiser chose its trees on its machine. A speedup is judged of the tree that was chosen here, tokens per
step of the tree that the paper prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from specdec_trees import published
from specdec_trees.artifacts import arms, frame, metrics, notes
from specdec_trees.artifacts.arms import LENGTH, SECONDS, Arm
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.published import params_of
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Results

PAPER = "sequoia"
TITLES = {
    "table3": "Sequoia Table 3: hardware-aware tree against fixed sizes",
    "table4": "Sequoia Table 4: on-chip results (the paper: A100)",
    "table5": "Sequoia Table 5: offloaded target (the paper: L40)",
    "table6": "Sequoia Table 6: rules of acceptance by top-p, one tree",
    "table7": "Sequoia Table 7: on-chip results (the paper: L40)",
}
CHOSEN = Arm("Sequoia", ("sequoia_hardware", "sequoia"), "sequoia", chosen_tree=True)
PRINTED = Arm("Sequoia, printed size", ("sequoia_printed",), "sequoia", printed_tree=True)
SPEC_INFER = {
    shape: Arm(f"SpecInfer {shape}", (f"spec_infer_{shape}",), "specinfer", {"shape": shape})
    for shape in ("5x8", "8x8", "16x48")
}
MERGED = {
    shape: Arm(f"SpecInfer {shape}, merged", (f"spec_infer_{shape}_merged",), "", {"shape": shape}, extra=True)
    for shape in SPEC_INFER
}
"""With sequences that share a prefix in one subtree, which the paper's are not; no number of the paper's is theirs."""
RULES = (
    Arm("Sequoia", ("without_replacement",), "sequoia"),
    Arm("SpecInfer", ("spec_infer",), "specinfer"),
    Arm("top-k", ("target_sample",), "topk"),
    Arm("SpecTr", ("k_seq",), "spectr", extra=True),
)
ON_CHIP = (CHOSEN, PRINTED, *(one[shape] for shape in ("5x8", "8x8") for one in (SPEC_INFER, MERGED)))
ARMS = {
    "table3": (
        Arm("hardware-aware", ("sequoia_hardware",), "sequoia", {"selection": "hardware_aware"}, chosen_tree=True),
        Arm("N=128", ("sequoia",), "sequoia", {"selection": "fixed", "size": "128"}, 128),
        Arm("N=256", ("sequoia",), "sequoia", {"selection": "fixed", "size": "256"}, 256),
    ),
    "table4": ON_CHIP,
    "table5": (CHOSEN, PRINTED, SPEC_INFER["16x48"], MERGED["16x48"]),
    "table6": RULES,
    "table7": ON_CHIP,
}
STATED = ("dataset", "temperature")
SETTINGS: Mapping[str, tuple[str, ...]] = {"table3": (), "table6": (*STATED, "top_p")}
"""What the paper states of a setting, if not dataset and temperature."""
TREE = (metrics.NODES, metrics.LEVELS)
PREDICTED = (metrics.PREDICTED_SPEEDUP, metrics.PREDICTED_MAL)
_MEASURED = (metrics.SPEEDUP, metrics.MAL, metrics.EXPECTED_MAL, *TREE, *PREDICTED, metrics.LOSSLESS)
METRICS = (_MEASURED, (*_MEASURED, metrics.SECONDS, metrics.AUTOREGRESSIVE_SECONDS))
"""Of all tables, and of that with an offloaded target."""
NAMES = {"speedup": "speedup", "mal": LENGTH, "nodes": "tree_size", "levels": "tree_depth", "s_per_token": SECONDS}
"""The paper's metrics by the key of ours."""
ROWS = ("target_words", "draft_words", "dataset", "temperature")
ASIDE = tuple(
    column
    for one in (metrics.EXPECTED_MAL, *TREE, *PREDICTED, metrics.LOSSLESS, metrics.AUTOREGRESSIVE_SECONDS)
    for column in (one.key, one.published)
)
_TWO_TREES = (
    "Sequoia's speedup is judged on the tree that its optimiser chose on this machine, as the paper's was on its own. "
    f"Its tokens/step are judged on the optimiser's tree of the printed size ({PRINTED.header}) where that is as deep "
    "as the printed one, and SpecInfer's are set against them."
)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "table3": (
        "The paper states neither dataset nor temperature of Table 3; its numbers stand beside every setting.",
        "Nor does it state the hardware-aware tree, so that tokens/step of another machine's choice have no verdict.",
    ),
    "table6": ("One tree for all rules, the children drawn as each rule demands.",),
}


def paper_table(name: str, results: Results) -> list[Output]:
    """A row per method and setting, ours beside the paper's."""
    paper = of_paper(name)
    runs = frame.standing_in(frame.load(results), paper)
    shown = METRICS[name == "table5"]
    long = arms.judged(runs, paper, ARMS[name], SETTINGS.get(name, STATED), shown, NAMES)
    below = [
        *notes.of_blocks(runs),
        *notes.not_run(paper, runs),
        *_NOTES.get(name, (_TWO_TREES,)),
        *(_offloaded() if name == "table5" else ()),
    ]
    rows = (*ROWS, *["top_p"] * ("top_p" in SETTINGS.get(name, ())), "label")
    return [table(name, notes.titled(TITLES[name], runs), long, rows, shown, aside=ASIDE, notes=below)]


def of_paper(name: str) -> pd.DataFrame:
    """The paper's rows of a table, with the top-p of each."""
    paper = published.find(PAPER, name)
    return paper.assign(top_p=[float(params_of(text).get("top_p", "nan")) for text in paper["params"]])


def _offloaded() -> Iterator[str]:
    """What the paper's text says of an offloaded target without a tree."""
    params = "offload=true;system=sequoia_offload"
    plain = published.find(PAPER, "claim_text", method=AUTOREGRESSIVE, params=params)
    yield f"Without a tree the paper's text has {plain['value'].iloc[0]:g} s/token (Llama-2-70B, L40)."
    yield (
        "Weights of a small stand-in cost hardly any time to stream, so that large trees are not nearly free, as they "
        "are with the paper's target."
    )
