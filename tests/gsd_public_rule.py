"""The rule of GSD's public code on strings: a node is the text from the root to it, each letter a token. An oracle.

For each candidate in layer order: it is dropped if q < theta_sib times the best sibling's; else the first node made
so far is looked for, leaves too, its own ancestors apart, whose last r + 1 tokens are the candidate's. If there is one,
the candidate is redundant; else it is a node, and a leaf if q < theta_prob or its father is one. Leaves' children are
drafted as long as any node of the layer is none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Draft = Callable[[str], Mapping[str, float]]
"""From a text to q of the tokens behind it."""


@dataclass
class Stage:
    """What one stage drafts."""

    nodes: list[str]
    candidates: list[str] = field(default_factory=list)
    """Nodes and redundant candidates in the order in which they were made, the root left out."""
    leaves: set[str] = field(default_factory=set)
    redundant: dict[str, str] = field(default_factory=dict)
    """The node that a redundant candidate goes on as."""
    q: dict[str, float] = field(default_factory=dict)
    widths: list[int] = field(default_factory=list)
    """Nodes read by each forward of the draft."""

    def children(self, node: str) -> list[str]:
        """Candidates below a node."""
        return [text for text in self.candidates if text[:-1] == node]

    def returns(self) -> bool:
        """Whether a walk along tree and merge edges comes back to where it was."""
        return any(start in self._reached(start) for start in self.nodes)

    def _reached(self, start: str) -> set[str]:
        reached, waiting = set[str](), [start]
        while waiting:
            ahead = {self.redundant.get(text, text) for text in self.children(waiting.pop())} - reached
            reached |= ahead
            waiting += ahead
        return reached


def stage(
    draft: Draft, root: str, *, k: int, r: int | None, theta_prob: float, theta_sib: float, max_steps: int
) -> Stage:
    """Draft layer by layer; r is the number of tokens that must be equal before the last, None: nothing is merged."""
    made, layer = Stage([root]), [root]
    for _ in range(max_steps):
        made.widths.append(len(layer))
        below = []
        for father in layer:
            q = draft(father)
            best = sorted(q, key=lambda token: (-q[token], token))[:k]
            for token in best:
                if q[token] < theta_sib * q[best[0]]:
                    continue
                text = father + token
                made.candidates.append(text)
                made.q[text] = q[token]
                if match := first_match(made.nodes, text, r):
                    made.redundant[text] = match
                    continue
                made.nodes.append(text)
                below.append(text)
                if q[token] < theta_prob or father in made.leaves:
                    made.leaves.add(text)
        if all(text in made.leaves for text in below):
            break
        layer = below
    return made


def first_match(nodes: list[str], text: str, r: int | None) -> str | None:
    """The first node that ends as the text does and is none of its ancestors."""
    if r is None or len(text) < r + 1:
        return None
    ending = text[-(r + 1) :]
    return next((node for node in nodes if node.endswith(ending) and not text.startswith(node)), None)


def verified(made: Stage, cap: int, depth: int | None) -> list[str]:
    """Texts of the tree that the target reads, in breadth, at most `cap` besides the root."""
    root = made.nodes[0]
    waiting, texts = [(root, root)], list[str]()
    while waiting and len(texts) <= cap:
        text, node = waiting.pop(0)
        texts.append(text)
        if depth is None or len(text) - 1 < depth:
            below = made.children(node)
            waiting += [(text + child[-1], made.redundant.get(child, child)) for child in below]
    return texts
