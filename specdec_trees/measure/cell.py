"""One cell of a sweep, and how it is to be run, as typed values: nothing beyond `specdec_trees.run` sees a config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from specdec_core.drafters import Drafter
from specdec_core.models import CausalLM, Head, ModelSpec
from specdec_core.models.graphs import AUTO, GRAPHS, usable
from specdec_core.models.placement import resolve_device
from specdec_core.models.planted.bigrams import Planting
from specdec_core.models.ranks import world_size
from specdec_core.node_order import NODE_ORDERS
from specdec_core.sampling import Sampling
from specdec_core.verifiers import Verifier
from specdec_core.verifiers.rounds import ChildByChild
from specdec_trees.names import unknown
from specdec_trees.prompts.datasets import DatasetSpec
from specdec_trees.results.rows import RECORDED

SHARED = "shared"
"""A baseline that is measured once per setting and device."""
IF_POSSIBLE = "if_possible"
"""Cells are replayed that can be, and others decoded."""
RANKS = "ranks"
"""Fixed trees of a draft's best tokens are replayed by lookup, without E(A), and others as with true."""


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """Target and draft by id, and the template that their prompts are written in."""

    name: str
    target: ModelSpec
    draft: ModelSpec | None
    template: str
    planted: Planting | None = None
    """Weights are random and made in memory, of the shapes that go by the ids."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is measured: (pair, dataset, drafter, verifier, decoding, seed)."""

    run_id: str
    experiment: str
    pair: PairSpec
    dataset: DatasetSpec
    drafter: str
    method: str
    drafter_params: Mapping[str, Any]
    build_drafter: Callable[[CausalLM | Head | None], Drafter]
    verifier: str
    rule: Verifier
    allow_lossy: bool
    sampling: Sampling
    max_new_tokens: int
    ignore_eos: bool
    """Decoding goes on behind an end-of-sequence token, so that every answer has `max_new_tokens`."""
    seed: int
    limit: int | None
    config: Mapping[str, Any]
    """The whole scientific config, which `run_id` is the hash of."""
    predicted_mal: float | None = None
    predicted_speedup: float | None = None

    @property
    def recordable(self) -> bool:
        """Whether a rule's steps may follow from the tokens, or from what they were drawn from."""
        return self.sampling.greedy or isinstance(self.rule, ChildByChild)

    @property
    def by_distributions(self) -> bool:
        """Whether its rule compares what the target's tokens were drawn from with the draft's distributions."""
        return not self.sampling.greedy and isinstance(self.rule, ChildByChild) and self.rule.reads_q

    @property
    def label(self) -> str:
        """For progress bars and logs."""
        return f"{self.pair.name}/{self.dataset.name}/{self.drafter}"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How it is run. dtype and attention always enter the run id; placement, node order and graphs if not default."""

    device: str = "auto"
    dtype: str = "auto"
    attention: str = "sdpa"
    node_order: str = "creation"
    device_map: str | Mapping[str, str | int] | None = None
    tensor_parallel: bool = False
    draft_device: str | None = None
    graphs: str = AUTO
    num_threads: int | None = None
    warmup_conversations: int = 1
    baseline: bool | str = True
    """Whether the target decodes every prompt alone too; `shared`: a run of the same setting lends its own."""
    grouped: bool = True
    """Whether cells of a sweep that differ in drafter and rule alone take turns, a conversation in all of them."""
    replay: bool | str = False
    """Whether cells run on the target's recorded answers, and so without its forwards and without times."""
    answers: str | None = None
    """A file of greedy answers that another engine decoded, of which a recording is made."""
    count_launches: bool = False
    """Whether a GPU's kernel launches are counted behind the last prompt, by a profiler that may slow what follows."""
    progress: bool = True
    data_dir: Path | None = None
    retry_failed: bool = False
    force: bool = False
    record_nodes: bool = False
    record_masks: bool = False
    record_variation: bool = False
    record_rules: bool = False
    record_quality: bool = False
    record_answers: bool = False
    case_study: bool = False
    allow_useless_draft: bool = False
    """Whether a head is measured of which next to nothing is accepted."""

    def __post_init__(self) -> None:
        if self.node_order not in NODE_ORDERS:
            raise ValueError(unknown("runtime.node_order", self.node_order, NODE_ORDERS))
        if self.graphs not in GRAPHS:
            raise ValueError(unknown("runtime.graphs", self.graphs, GRAPHS))
        if self.baseline not in (True, False, SHARED):
            raise ValueError(f"runtime.baseline is true, false or {SHARED}, not {self.baseline}")
        if self.replay not in (True, False, IF_POSSIBLE, RANKS):
            raise ValueError(f"runtime.replay is true, false, {IF_POSSIBLE} or {RANKS}, not {self.replay}")
        if self.replay and self.tensor_parallel:
            raise ValueError("runtime.replay needs no target; leave out runtime.tensor_parallel")
        for name in ("num_threads", "warmup_conversations"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"runtime.{name} must not be negative, not {getattr(self, name)}")

    def graphs_of(self, pair: PairSpec) -> str:
        """Of `eager`, `packed` and `compile` the one that `graphs` asks for: `auto` compiles on a GPU what it may.

        What may not for its configs' sake runs eagerly all the same, as its rows say.
        """
        if self.graphs != AUTO:
            return self.graphs
        specs = [spec for spec in (pair.target, pair.draft) if spec]
        spread = self.device_map or self.tensor_parallel or any(spec.offload or spec.bits for spec in specs)
        return usable(AUTO, self.attention, torch.device(resolve_device(self.device)), (), whole=not spread)

    @property
    def instruments(self) -> list[str]:
        """The tables that are asked for beside prompts and steps."""
        return [table for table in RECORDED if getattr(self, f"record_{table}")]

    @property
    def placement(self) -> dict[str, Any]:
        """How target and draft share out several devices; empty where both are on one."""
        found = {name: value for name in ("device_map", "draft_device") if (value := getattr(self, name))}
        return found | ({"tensor_parallel": world_size()} if self.tensor_parallel else {})


@dataclass(frozen=True, kw_only=True)
class LatencyGrid:
    """Which forwards are timed: tokens per forward, cached tokens before them, repeats."""

    num_tokens: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    num_prefix: int = 128
    warmup: int = 10
    repeats: int = 100

    def __post_init__(self) -> None:
        if not self.num_tokens or min(*self.num_tokens, self.repeats) < 1:
            raise ValueError("calibration.latency needs num_tokens and repeats, all of them from 1 on")


@dataclass(frozen=True, kw_only=True)
class AcceptancePlan:
    """How acceptance vectors are measured (Sequoia, section 3.1). None: as in the cell's decoding."""

    prompts: int = 200
    dataset: DatasetSpec | None = None
    """On whose calibration part; None: the cell's."""
    new_tokens: int = 128
    width: int = 32
    repeats: int = 4
    estimator: str = "analytic"
    smooth: str = "isotonic"
    temperature: float | None = None
    top_p: float | None = None


@dataclass(frozen=True, kw_only=True)
class DecisionPlan:
    """How decision models are trained (Lu et al., 2024, section 3.3)."""

    dataset: DatasetSpec | None = None
    """Whose texts are learnt from, but for those that it would have decoded; None: the cell's, its calibration part."""
    prompts: int = 700
    """To train on, at most."""
    validation: int = 100
    """To choose the best epoch by, at most; of fewer prompts in all an eighth."""
    new_tokens: int = 200
    width: int = 10
    """First tokens of every tree, and so examples of a step."""
    temperature: float = 1.0
    """Of target and draft."""
    epochs: int = 10
    batch: int = 50
    rate: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("prompts", "validation", "new_tokens", "width", "epochs", "batch", "rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"calibration.decision.{name} must be positive, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class SkipPlan:
    """How the sublayers are found that a target leaves out when it drafts for itself (Zhang et al., 2023)."""

    evaluations: int = 200
    """Sets that are judged, at most."""
    prompts: int = 8
    new_tokens: int = 128
    max_steps: int = 12
    """Draft forwards of a decoding step, at most."""
    cost: str = "weights"
    """weights: a draft forward costs the share of the target's weights that it reads | seconds: it is timed."""

    def __post_init__(self) -> None:
        if self.cost not in ("weights", "seconds"):
            raise ValueError(unknown("calibration.skips.cost", self.cost, ("weights", "seconds")))
        for name in ("evaluations", "prompts", "new_tokens", "max_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"calibration.skips.{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """What is measured before a tree is chosen, or trained before one is ended early."""

    acceptance: AcceptancePlan = field(default_factory=AcceptancePlan)
    latency: LatencyGrid = field(default_factory=LatencyGrid)
    decision: DecisionPlan = field(default_factory=DecisionPlan)
    skips: SkipPlan = field(default_factory=SkipPlan)
    depths: int = 16
    """The deepest tree that is considered."""
    draft_passes: str = "depth"
    """Draft forwards of a tree of depth d: d (`depth`) or d + 1 (`levels`)."""
    prices: str | None = None
    """The machine for which trees are chosen (`specdec_trees.calibrate.prices`); None is this one, measured."""

    def __post_init__(self) -> None:
        if self.draft_passes not in ("depth", "levels"):
            raise ValueError(f"calibration.draft_passes is depth or levels, not {self.draft_passes}")
