"""OPT-Tree: the tree that maximises the expected acceptance length (Wang et al., Algorithm 1)."""

from specdec_core.drafters.base import Context
from specdec_core.drafters.growth import Growth
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted, TreeDrafter, check_delta


class OptTree(TreeDrafter):
    """Adaptive trees of n nodes: layers are added while the last one raised E_sub(n) by more than `delta`.

    `max_depth` None is the paper's bound n. Of the last layer only nodes that are among the n best are read: no
    descendant of another node can enter the tree. With delta 0 these are the n most probable paths. Over a draft whose
    depths come from one forward (`DraftModel.max_depth`) that is DDTree (2026, arXiv 2604.12989).
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        n: int,
        delta: float = 0.5,
        max_depth: int | None = None,
        draft_temperature: float = 1.0,
    ) -> None:
        super().__init__(draft, draft_temperature)
        if n < 1:
            raise ValueError(f"OPT-Tree's budget n must be at least 1 node, not {n}")
        check_delta(delta)
        if max_depth is not None and max_depth < 1:
            raise ValueError(f"OPT-Tree's max_depth must be at least 1 (or null for n), not {max_depth}")
        self.n, self.delta = n, delta
        self.max_depth = self.deepest(n if max_depth is None else max_depth)

    def draft_tree(self, context: Context) -> Drafted:
        """Draft layers while E_sub(n) grows by more than delta, then take the n best nodes."""
        n = self.n
        growth = Growth(
            self.draft, context, size=n, width=n, layer_size=n, temperature=self.draft_temperature, only_best=True
        )
        before = 0.0
        while growth.depth < self.max_depth:
            expected, alive = growth.progress()
            if growth.depth == 1:
                expected = min(expected, 1.0)  # the probabilities of one layer may round to more
            if not expected - before > self.delta or not alive:
                break
            growth.deepen(alive)
            before = expected
        return growth.tree()
