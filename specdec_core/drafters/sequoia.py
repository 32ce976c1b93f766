"""Sequoia's tree: fixed in shape, optimal for an acceptance vector, its children drawn without replacement."""

from collections.abc import Sequence

from specdec_core.drafters.static_tree import StaticTree
from specdec_core.drafters.tree_drafter import AnyDraft, draft_model_of
from specdec_core.search import best_tree


class Sequoia(StaticTree):
    """The tree of n nodes (root excluded) with the most expected tokens for `acceptance` (Sequoia, section 3.1).

    `acceptance` holds p_k, the probability that child k of an accepted node is the accepted one, as measured for the
    pair, the prompts, the temperature and the rule; it is taken as it is, not smoothed. `depth` and `max_children`
    bound the tree where they are given, and so does a draft's `max_depth`.
    """

    def __init__(
        self,
        *,
        draft: AnyDraft,
        acceptance: Sequence[float],
        n: int,
        depth: int | None = None,
        max_children: int | None = None,
        draws: str = "without_replacement",
        draft_temperature: float = 1.0,
        draft_top_p: float = 1.0,
    ) -> None:
        model = draft_model_of(draft)
        depth = min((most for most in (depth, model.max_depth) if most is not None), default=None)
        super().__init__(
            draft=model,
            shape=best_tree(acceptance=acceptance, n=n, depth=depth, max_children=max_children),
            draws=draws,
            draft_temperature=draft_temperature,
            draft_top_p=draft_top_p,
        )
