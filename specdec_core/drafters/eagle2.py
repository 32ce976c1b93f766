"""EAGLE-2's dynamic tree: a beam of fixed depth, then a re-ranking of everything drafted (Li et al., 2024)."""

from specdec_core.drafters.base import Context
from specdec_core.drafters.growth import Growth
from specdec_core.drafters.tree_drafter import AnyDraft, Drafted, TreeDrafter, check_delta


class Eagle2(TreeDrafter):
    """Expand the `k` best nodes of a layer `depth` times, then keep the `total - 1` best of all nodes (section 4).

    `total` counts the root, as the published code does. Costs `1 + depth` draft forwards. The paper has no early stop;
    with `delta` layers are added only while the last one raised E(A) by more than that.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        total: int = 60,
        depth: int = 5,
        k: int = 10,
        delta: float | None = None,
        draft_temperature: float = 1.0,
    ) -> None:
        super().__init__(draft, draft_temperature)
        check_delta(delta)
        if total < 2 or depth < 0 or k < 1:
            raise ValueError(f"Eagle2 needs total >= 2, depth >= 0 and k >= 1, not {total}, {depth} and {k}")
        self.n, self.depth, self.k = total - 1, self.deepest(depth + 1) - 1, k
        self.delta = delta

    def draft_tree(self, context: Context) -> Drafted:
        """Draft `depth + 1` layers of k children for each of k beams, then re-rank."""
        growth = Growth(
            self.draft, context, size=self.n, width=self.k, layer_size=self.k**2, temperature=self.draft_temperature
        )
        before = 0.0
        for _ in range(self.depth):
            if self.delta is not None:
                expected, _ = growth.progress()
                if not expected - before > self.delta:
                    break
                before = expected
            growth.deepen(self.k)
        return growth.tree()
