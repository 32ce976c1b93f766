"""GSD's token graphs as the method is described: lists and whole walks, no index, no levels, no arrays. An oracle."""

import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from doubles import TableDraft, context_for
from torch import Tensor

from specdec_core import TokenTree
from specdec_core.drafters import TokenGraph
from specdec_core.graph import DraftGraph, Kind

DEFAULTS = {name: value.default for name, value in inspect.signature(TokenGraph).parameters.items()}


@dataclass
class Record:
    """A candidate that was created."""

    token: int
    parent: int
    q: np.float32
    kind: Kind
    path: tuple[int, ...]
    """Records from the root to this one, both included."""
    into: int = -1


@dataclass
class Graph:
    """Records in creation order, and what happened on the way."""

    records: list[Record]
    widths: list[int] = field(default_factory=list)
    """Nodes read by every draft forward; the root's is the first."""
    refused: list[tuple[int, int]] = field(default_factory=list)
    """(Candidate, match) where the cycle guard said no."""
    on_own_path: int = 0
    """Matches that were ancestors."""
    full: bool = False
    """Whether the limit of created nodes ended drafting."""

    def gram(self, path: tuple[int, ...], length: int) -> tuple[int, ...] | None:
        tokens = tuple(self.records[record].token for record in path)
        return tokens[-length:] if len(tokens) >= length else None

    def leads(self, start: int, end: int) -> bool:
        """Whether a walk along tree and merge edges comes from one record to another."""
        reached = [start]
        for record in reached:
            next_ones = [n for n, other in enumerate(self.records) if other.parent == record]
            next_ones += [self.records[record].into] if self.records[record].into >= 0 else []
            reached += [n for n in next_ones if n not in reached]
        return end in reached

    def below(self, record: int) -> list[int]:
        """What goes on from a record in rank order: what goes on from its match, if it is redundant."""
        source = self.records[record].into if self.records[record].into >= 0 else record
        return [n for n, other in enumerate(self.records) if other.parent == source]


def grown(probs: Any, root: int, **changes: Any) -> Graph:
    """Section 4 of GSD, one candidate after another; `probs` is a function of the tokens below the root."""
    options = {**DEFAULTS, **changes}
    graph = Graph([Record(root, -1, np.float32(1), Kind.LIVE, (0,))])
    frontier = [0]
    while frontier and len(graph.widths) < options["max_steps"] and not graph.full:
        graph.widths.append(len(frontier))
        first_new = len(graph.records)
        for node in frontier:
            _candidates(graph, node, probs, options)
        new = range(first_new, len(graph.records))
        frontier = [n for n in new if graph.records[n].kind == Kind.LIVE]
        if options["pruning"] == "code" and frontier:
            frontier = [n for n in new if graph.records[n].kind in (Kind.LIVE, Kind.PROB_LEAF)]
    return graph


def _candidates(graph: Graph, node: int, probs: Any, options: dict[str, Any]) -> None:
    path = graph.records[node].path
    q = probs(tuple(graph.records[record].token for record in path[1:])).log().softmax(-1).numpy()
    best = sorted(range(len(q)), key=lambda token: (-q[token], token))[: options["k"]]
    for token in best:
        if graph.full:
            return
        kind, into = _class(graph, node, token, q[token], q[best[0]], options)
        if kind == Kind.SIB_LEAF and options["pruning"] != "paper":
            continue
        graph.records.append(Record(token, node, q[token], kind, (*path, len(graph.records)), into))
        graph.full = len(graph.records) - 1 == options["draft_node_cap"]


def _class(graph: Graph, node: int, token: int, q: Any, best: Any, options: dict[str, Any]) -> tuple[Kind, int]:
    code = options["pruning"] == "code"
    if q < np.float32(options["theta_sib"]) * best:
        return Kind.SIB_LEAF, -1
    improbable = q < np.float32(options["theta_prob"]) or (code and graph.records[node].kind == Kind.PROB_LEAF)
    if improbable and not code:
        return Kind.PROB_LEAF, -1
    into = _match(graph, node, token, options)
    if into is not None:
        return Kind.ALIAS, into
    return (Kind.PROB_LEAF if improbable else Kind.LIVE), -1


def _match(graph: Graph, node: int, token: int, options: dict[str, Any]) -> int | None:
    if options["tau"] is None:
        return None
    code = options["pruning"] == "code"  # leaves are nodes there, and cycles are allowed
    matched = (Kind.LIVE, Kind.PROB_LEAF) if code else (Kind.LIVE,)
    length = options["tau"] + (1 if options["tau_as_context"] else 0)
    path = graph.records[node].path
    wanted = (*(graph.records[record].token for record in path), token)[-length:]
    for number, record in enumerate(graph.records):
        if record.kind not in matched or len(wanted) < length or graph.gram(record.path, length) != wanted:
            continue
        if number in path:
            graph.on_own_path += 1
        elif not code and graph.leads(number, node):
            graph.refused.append((len(graph.records), number))
        else:
            return number
    return None


def unmerged(graph: Graph, **changes: Any) -> tuple[list[tuple[int, ...]], bool]:
    """The verified nodes as walks (records from the root on), and whether the limit cut some."""
    options = {**DEFAULTS, **changes}
    waiting, taken = [((0,), 1.0)], []
    while waiting and len(taken) <= options["verify_cap"]:
        best = max(chance for _, chance in waiting)
        in_breadth = options["cap_order"] == "breadth"
        place = next(n for n, (_, chance) in enumerate(waiting) if in_breadth or chance == best)
        walk, chance = waiting.pop(place)
        taken.append(walk)
        if options["unmerge_depth"] is None or len(walk) <= options["unmerge_depth"]:
            waiting += [((*walk, child), chance * float(graph.records[child].q)) for child in graph.below(walk[-1])]
    return taken, bool(waiting)


def every_walk(graph: Graph, depth: int | None, walk: tuple[int, ...] = (0,)) -> list[tuple[int, ...]]:
    """All walks from the root of at most `depth` edges, by recursion."""
    if depth is not None and len(walk) > depth:
        return [walk]
    return [walk] + [found for child in graph.below(walk[-1]) for found in every_walk(graph, depth, (*walk, child))]


def crosses(graph: Graph, walk: tuple[int, ...]) -> bool:
    """Whether a walk goes on behind a redundant record."""
    return any(graph.records[record].kind == Kind.ALIAS for record in walk[:-1])


def shares(graph: Graph, walk: tuple[int, ...]) -> bool:
    """Whether a walk goes on behind a redundant record, or behind one that others are merged into."""
    matches = {record.into for record in graph.records if record.kind == Kind.ALIAS}
    return crosses(graph, walk) or not matches.isdisjoint(walk[:-1])


def displaced(graph: Graph, walks: list[tuple[int, ...]]) -> list[bool]:
    """Whether the place of each walk among all is not the number of its last node; a redundant record is its match."""
    numbers: dict[int, int] = {}
    for number, record in enumerate(graph.records):
        numbers[number] = len(set(numbers.values())) if record.into < 0 else numbers[record.into]
    return [numbers[walk[-1]] != place for place, walk in enumerate(walks)]


def recurring(tokens: list[int], parents: list[int], length: int) -> tuple[float, float]:
    """Share of the records whose n-gram also ends off their own line, and of those that are part of such an n-gram.

    The root's token counts.
    """
    lines = [(0,)]
    for record in range(1, len(tokens)):
        lines.append((*lines[parents[record]], record))
    grams = [tuple(tokens[record] for record in line[-length:]) if len(line) >= length else None for line in lines]
    asked = [record for record in range(1, len(tokens)) if grams[record]]
    hits = [
        any(
            grams[other] == grams[record] and other not in lines[record] and record not in lines[other]
            for other in range(1, len(tokens))
        )
        for record in asked
    ]
    part = {record for end, hit in zip(asked, hits, strict=True) if hit for record in lines[end][-length:]} - {0}
    every = len(tokens) - 1
    return sum(hits) / len(hits) if hits else float("nan"), len(part) / every if every else float("nan")


def drafted(probs: Any, vocab: int, root: int = 0, *, cls: type = TokenGraph, **options: Any) -> tuple[TokenTree, Any]:
    """What the drafter makes of a distribution, and the drafter."""
    drafter = cls(draft=TableDraft(vocab, probs), **options)
    return drafter.grow(context_for(root)), drafter


def columns(graph: DraftGraph | Graph) -> tuple[list[Any], ...]:
    """Tokens, parents, probabilities, kinds and merge edges: what both kinds of graphs have."""
    if isinstance(graph, DraftGraph):
        found = graph.tokens, graph.parents, graph.probs, graph.kinds, graph.merged_into
        return tuple(column.tolist() for column in found)
    rows = [(r.token, r.parent, float(r.q), int(r.kind), r.into) for r in graph.records]
    return tuple(map(list, zip(*rows, strict=True)))


def coarse_q(vocab: int, seed: int, memory: int | None = None) -> Any:
    """Of small whole weights, zeros among them, so that ties are frequent; of the last `memory` tokens alone."""
    rng = torch.Generator().manual_seed(seed)
    weights = torch.randint(0, 5, (23, vocab), generator=rng).float()
    weights[:, int(torch.randint(vocab, (1,), generator=rng))] += 1
    rows = weights / weights.sum(-1, keepdim=True)

    def probs(path: tuple[int, ...]) -> Tensor:
        place = 0
        for token in path if memory is None else path[-memory:]:
            place = (31 * place + token + 1) % len(rows)
        return rows[place]

    return probs
