"""Fork-shaped trees: sequences side by side, which a decision model may end early (Lu et al., 2024, section 3.2)."""

from specdec_core.drafters.early_stop import EarlyStop, Stop
from specdec_core.drafters.static_tree import StaticTree
from specdec_core.drafters.target_init import TargetInit
from specdec_core.drafters.tree_drafter import AnyDraft
from specdec_core.models.decision import DecisionModel
from specdec_core.shapes import branching

INITS = ("target", "draft")


def fork_tree(
    *,
    draft: AnyDraft,
    width: int,
    depth: int,
    init: str = "target",
    draws: str = "without_replacement",
    decision: DecisionModel | Stop | None = None,
    beta: float = 0.4,
    draft_temperature: float = 1.0,
) -> StaticTree:
    """`width` sequences of at most `depth` drafted levels.

    `init=target`: below as many first tokens of the target's own distribution, which are a level of their own.
    `init=draft`: below the root, the first tokens drawn from the draft. After every drafted level but the last possible
    one the decision model scores its tokens, and drafting ends unless one is above `beta`; None: it never ends early.
    """
    if init not in INITS:
        raise ValueError(f"init must be {' or '.join(INITS)}, not {init!r}")
    if width < 1 or depth < 1:
        raise ValueError(f"a fork needs at least one sequence and one drafted level, not {width} x {depth}")
    stop = EarlyStop(decision, beta) if isinstance(decision, DecisionModel) else decision
    if init == "target":
        widths = [width] + [1] * depth
        return TargetInit(draft=draft, widths=widths, draws=draws, draft_temperature=draft_temperature, stop=stop)
    shape = branching([width] + [1] * (depth - 1))
    return StaticTree(draft=draft, shape=shape, draws=draws, draft_temperature=draft_temperature, stop=stop)
