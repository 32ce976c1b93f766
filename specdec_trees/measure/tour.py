"""What the tour shows of a decoding: each tree as it was drafted, the nodes that the target accepted, the steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from specdec_core import Generation, TokenTree, Verdict
from specdec_core.models.causal_lm import ModelOutput

_SHOWN = ("num_drafted", "depth", "draft_forwards", "expected_acceptance", "num_accepted", "acceptance_length")


class Tokenizer(Protocol):
    """Whatever turns token ids into text."""

    def decode(self, token_ids: int | list[int], /) -> str:
        """The text of some ids."""
        ...


@dataclass(slots=True)
class Recorder:
    """Given to `generate` as `watch`, it keeps the tree of every step and the verdict on it."""

    trees: list[TokenTree] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def __call__(self, tree: TokenTree, scored: ModelOutput, verdict: Verdict) -> None:
        """Keep a step; the target's logits, which are large, are let go."""
        self.trees.append(tree.without_draft_probs())
        self.verdicts.append(verdict)


def draw(tree: TokenTree, tokenizer: Tokenizer, verdict: Verdict | None = None) -> str:
    """A line per node: its token, the probabilities of its edge and path if any; accepted nodes have a star."""
    accepted = set() if verdict is None else set(verdict.path.tolist())
    children, parents = defaultdict(list), tree.parents.tolist()
    for node, parent in enumerate(parents):
        children[parent].append(node)
    labels = [f"{tokenizer.decode([token])!r}" for token in tree.tokens.tolist()]
    if tree.edge_probs is not None and tree.path_probs is not None:
        facts = zip(labels, tree.edge_probs.tolist(), tree.path_probs.tolist(), strict=True)
        labels = [f"{label}  q {q:.2f}  path {path:.2f}" for label, q, path in facts]
    lines, open_nodes = [], [(0, "", "")]
    while open_nodes:
        node, before, below = open_nodes.pop()
        lines.append(f"{'*' if node in accepted else ' '} {before}{labels[node]}")
        last = len(children[node]) - 1
        branches = [
            (child, below + ("└─ " if place == last else "├─ "), below + ("   " if place == last else "│  "))
            for place, child in enumerate(children[node])
        ]
        open_nodes += reversed(branches)
    if verdict is not None and verdict.next_token is not None:
        lines.append(f"then the target's own {tokenizer.decode([verdict.next_token])!r}")
    return "\n".join(lines)


def steps(generation: Generation) -> pd.DataFrame:
    """A row per decoding step: what was drafted, what was accepted, and its milliseconds by phase."""
    frame = pd.DataFrame([{name: getattr(step, name) for name in _SHOWN} for step in generation.steps])
    for phase in ("draft", "tree", "score", "judge", "commit"):
        frame[f"{phase}_ms"] = [1000 * getattr(step, f"{phase}_s") for step in generation.steps]
    return frame.round(2)
