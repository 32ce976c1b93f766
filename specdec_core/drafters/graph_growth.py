"""Growing a token graph (Gong et al., 2024, sections 4 and 5): which candidates go on, which are merged. On the host.

A candidate's class is the first that fits of: pruned beside its best sibling, pruned by its own probability, redundant,
live. Redundant is what ends in the same tau-gram as an earlier live node; an index from tau-grams to nodes finds it, so
that no candidate costs a walk over the graph.

The public code (`pruning=code`) asks for redundancy before the candidate's own probability, and leaves are matches too.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from specdec_core.drafters.merge_edges import AnyButAncestors, MergeEdges
from specdec_core.graph import Kind

PRUNING = ("siblings", "paper", "code")


def at_least_one(name: str, value: int) -> None:
    """ValueError for a size that is no whole number from 1 on."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"TokenGraph's {name} must be a whole number of at least 1, not {value}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """ValueError for a word that is not among the choices."""
    if value not in choices:
        raise ValueError(f"TokenGraph's {name} must be one of {', '.join(choices)}, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRules:
    """What decides on candidates; the fields are `TokenGraph`'s arguments of these names."""

    theta_prob: float
    theta_sib: float
    tau: int | None
    tau_as_context: bool
    max_steps: int
    draft_node_cap: int
    pruning: str

    def __post_init__(self) -> None:
        at_least_one("max_steps", self.max_steps)
        at_least_one("draft_node_cap", self.draft_node_cap)
        one_of("pruning", self.pruning, PRUNING)
        for name in ("theta_prob", "theta_sib"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"TokenGraph's {name} must be 0 (no pruning) or positive, not {getattr(self, name)}")
        if self.gram is not None and (not isinstance(self.gram, int) or self.gram < 1):
            raise ValueError(
                f"TokenGraph's tau must be at least 1 token (0 with tau_as_context), or null, not {self.tau}"
            )

    @property
    def gram(self) -> int | None:
        """Tokens that must be equal, the candidate's own among them; None: nothing is merged."""
        return None if self.tau is None else self.tau + self.tau_as_context


class GraphGrowth:
    """The records of one step so far, and the nodes whose children come next (`frontier`)."""

    def __init__(self, root: int, rules: GraphRules) -> None:
        self.rules, self.steps = rules, 0
        self._tokens, self._parents, self._probs = [np.array([root])], [np.array([-1])], [np.ones(1, np.float32)]
        self._kinds, self._merged, self._slots = [np.array([Kind.LIVE])], [np.array([-1])], [np.array([-1])]
        self._count, self._read = 1, 0
        self._frontier, self._frontier_slots = np.zeros(1, np.int64), np.array([-1])
        self._hopeless = np.zeros(1, bool)  # of the frontier: whether it is pruned and read all the same
        # of the records that may have children or be merged into, where there is merging
        self._edges = AnyButAncestors() if rules.pruning == "code" else MergeEdges()
        self._grams: dict[int, tuple[int, ...]] = {0: (root,)}
        self._index = defaultdict[tuple[int, ...], list[int]](list)

    def add(
        self, tokens: Int[ndarray, "frontier k"], probs: Float[ndarray, "frontier k"]
    ) -> tuple[Int[ndarray, " next"], Int[ndarray, " next"]]:
        """Take the candidates below the frontier, best first; tokens and parents' slots of the nodes to be read next.

        `probs` are float32, and thresholds are compared with them in float32: equal is not below.
        """
        self.steps += 1
        kinds = self._pruned(probs)
        keep = (kinds != Kind.SIB_LEAF).ravel() | (self.rules.pruning == "paper")
        chosen = np.flatnonzero(keep)[: self.rules.draft_node_cap + 1 - self._count]
        rows = chosen // kinds.shape[1]
        tokens, probs, kinds = tokens.ravel()[chosen], probs.ravel()[chosen], kinds.ravel()[chosen]
        merged = self._merge(rows, tokens, kinds)
        for column, values in (
            (self._tokens, tokens),
            (self._parents, self._frontier[rows]),
            (self._probs, probs),
            (self._kinds, kinds),
            (self._merged, merged),
        ):
            column.append(values)
        return self._next(self._to_be_read(kinds), tokens, self._frontier_slots[rows])

    @property
    def records(self) -> tuple[ndarray, ...]:
        """Tokens, parents, probabilities, kinds and merge edges of all records (see `DraftGraph`)."""
        columns = self._tokens, self._parents, self._probs, self._kinds, self._merged
        return tuple(np.concatenate(column) for column in columns)

    @property
    def slots(self) -> Int[ndarray, " records"]:
        """Place of each record in the order in which the draft read them behind the root; -1 for the others."""
        return np.concatenate(self._slots)

    def _pruned(self, probs: Float[ndarray, "frontier k"]) -> Int[ndarray, "frontier k"]:
        """Classes by probability alone."""
        rules = self.rules
        improbable = (probs < np.float32(rules.theta_prob)) | self._hopeless[:, None]
        kinds = np.where(improbable, Kind.PROB_LEAF, Kind.LIVE)
        return np.where(probs < np.float32(rules.theta_sib) * probs[:, :1], Kind.SIB_LEAF, kinds)

    def _merge(
        self, rows: Int[ndarray, " new"], tokens: Int[ndarray, " new"], kinds: Int[ndarray, " new"]
    ) -> Int[ndarray, " new"]:
        """Make redundant candidates aliases, in place; their merge edges."""
        merged, length = np.full(len(tokens), -1), self.rules.gram
        if length is None:
            return merged
        may = (kinds == Kind.LIVE) | ((kinds == Kind.PROB_LEAF) & (self.rules.pruning == "code"))
        for new in np.flatnonzero(may).tolist():
            parent, record = int(self._frontier[rows[new]]), self._count + new
            gram = (*self._grams[parent], int(tokens[new]))[-length:]
            first = self._first_occurrence(gram, parent) if len(gram) == length else None
            if first is not None:
                kinds[new], merged[new] = Kind.ALIAS, first
                continue
            self._edges.add_child(parent, record)
            self._grams[record] = gram
            self._index[gram].append(record)
        return merged

    def _first_occurrence(self, gram: tuple[int, ...], parent: int) -> int | None:
        """The first record with this gram that a child of `parent` may be merged into; the edge is then there."""
        return next((first for first in self._index[gram] if self._edges.join(parent, first)), None)

    def _to_be_read(self, kinds: Int[ndarray, " new"]) -> Bool[ndarray, " new"]:
        """Live nodes, while drafting goes on; the public code's too improbable ones as well, as long as any is live."""
        alive, code = kinds == Kind.LIVE, self.rules.pruning == "code"
        full = self._count + len(kinds) > self.rules.draft_node_cap
        if full or self.steps == self.rules.max_steps or not alive.any():
            return np.zeros(len(kinds), bool)
        return alive | (kinds == Kind.PROB_LEAF) if code else alive

    def _next(
        self, reads: Bool[ndarray, " new"], tokens: Int[ndarray, " new"], parent_slots: Int[ndarray, " new"]
    ) -> tuple[Int[ndarray, " next"], Int[ndarray, " next"]]:
        """Make the last records that are to be read the frontier."""
        read, slots = np.flatnonzero(reads), np.full(len(reads), -1)
        slots[read] = np.arange(self._read, self._read + len(read))
        self._slots.append(slots)
        self._hopeless = self._kinds[-1][read] == Kind.PROB_LEAF
        self._frontier, self._frontier_slots = self._count + read, slots[read]
        self._read, self._count = self._read + len(read), self._count + len(reads)
        return tokens[read], parent_slots[read]
