"""What decision models learn from: drafted tokens, what the draft knew of each, and what the target makes of it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from specdec_core.drafters import Drafter, fork_tree
from specdec_core.drafters.early_stop import Stop
from specdec_core.engine import generate
from specdec_core.errors import PairError, PromptError
from specdec_core.models import ModelOutput, Pair
from specdec_core.models.decision import top_and_entropy
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers import IndependentLongest
from specdec_trees.measure.cell import DecisionPlan

log = logging.getLogger(__name__)


class Prompt(NamedTuple):
    """What is decoded, and how it is called."""

    id: str
    tokens: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Drafted tokens, on the CPU."""

    features: dict[str, Float[Tensor, "examples given"]]
    """By kind of model; hidden states in the draft's own precision."""
    labels: Float[Tensor, " examples"]
    """min(1, p/q)."""
    accepted: Bool[Tensor, " examples"]
    """Drawn with that probability; at temperature 0, where p is 1 or 0, whether the token is the target's best."""
    prompt_ids: list[str]
    """Of every example."""

    def __len__(self) -> int:
        return len(self.prompt_ids)


class _Features:
    """Ends every tree behind its first draft level, and remembers what that level was drawn from."""

    needs_hidden = True

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def goes_on(self, drafted: ModelOutput) -> bool:
        """Never."""
        if drafted.hidden is None:
            raise PairError("decision models read the draft's hidden states, and this draft keeps none")
        self.found = {"hidden": drafted.hidden.cpu(), "topk": top_and_entropy(drafted.logits).cpu()}
        return False


class _Recorder:
    """Takes the examples of one prompt, tree after tree."""

    def __init__(self, features: _Features, sampling: Sampling, seed: int) -> None:
        self._features, self._sampling = features, sampling
        self._rng = torch.Generator().manual_seed(seed)
        self.rows: dict[str, list[Tensor]] = {"hidden": [], "topk": [], "labels": [], "accepted": []}

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """One example per token of the draft: node 1 + i is first token i, its child was drawn from row i."""
        drafted = ((tree.parents > 0) & (tree.required_edge_probs > 0)).nonzero().flatten()
        parents = tree.parents[drafted]
        p = self._sampling.probs(target.logits[parents]).gather(-1, tree.tokens[drafted, None])[:, 0]
        labels = (p.double() / tree.required_edge_probs[drafted].double()).clamp(max=1).float().cpu()
        uniform = torch.rand(len(labels), generator=self._rng)
        found = {kind: rows[(parents - 1).cpu()] for kind, rows in self._features.found.items()}
        for name, rows in (found | {"labels": labels, "accepted": uniform < labels}).items():
            self.rows[name].append(rows)


def collect(
    pair: Pair,
    prompts: Sequence[Prompt],
    plan: DecisionPlan,
    *,
    seed: int,
    eos_token_ids: Collection[int] = (),
    progress: bool = True,
    what: str = "examples",
) -> Examples:
    """Decode with target-initialised trees of one draft level; every drafted token is an example.

    A prompt has its own random stream, the same whatever else is decoded; one that does not fit is passed over.
    PairError where there is no draft or it keeps no hidden states, PromptError where no prompt fits.
    """
    features, sampling = _Features(), Sampling(plan.temperature)
    drafter = _drafter(pair, plan, features)
    recorders: dict[str, _Recorder] = {}
    problems: list[PromptError] = []
    for prompt in tqdm(prompts, desc=f"decision {what}", unit="prompt", disable=not progress):
        decoding, accepting = _seeds(seed, prompt)
        recorder = _Recorder(features, sampling, accepting)
        try:
            generate(
                pair.target,
                drafter,
                IndependentLongest(),
                prompt.tokens,
                max_new_tokens=plan.new_tokens,
                sampling=sampling,
                eos_token_ids=eos_token_ids,
                allow_lossy=True,
                rng=torch.Generator(pair.target.device).manual_seed(decoding),
                watch=recorder,
            )
            recorders[prompt.id] = recorder
        except PromptError as problem:
            problems.append(problem)
    if not recorders:
        raise problems[0] if problems else PromptError("no prompt to take examples from")
    if problems:
        log.warning("%d of %d prompts were passed over; the first: %s", len(problems), len(prompts), problems[0])
    return _joined(recorders)


def _drafter(pair: Pair, plan: DecisionPlan, stop: Stop) -> Drafter:
    """Trees of two draft levels at most, which `stop` ends behind the first one."""
    if pair.draft is None:
        raise PairError("a decision model scores a draft's tokens, but this pair has no draft")
    greedy = Sampling(plan.temperature).greedy
    return fork_tree(
        draft=pair.draft,
        width=plan.width,
        depth=2,
        draws="topk" if greedy else "without_replacement",
        decision=stop,
        draft_temperature=1.0 if greedy else plan.temperature,
    )


def _joined(recorders: Mapping[str, _Recorder]) -> Examples:
    """The examples of all prompts. Tensors that are made here may be learnt from; those made in decoding may not."""
    found = {
        name: torch.cat([rows for recorder in recorders.values() for rows in recorder.rows[name]])
        for name in ("hidden", "topk", "labels", "accepted")
    }
    ids = [prompt for prompt, recorder in recorders.items() for rows in recorder.rows["labels"] for _ in rows]
    labels, accepted = found.pop("labels"), found.pop("accepted")
    return Examples(features=found, labels=labels, accepted=accepted, prompt_ids=ids)


def _seeds(seed: int, prompt: Prompt) -> tuple[int, int]:
    """Of decoding, and of what is accepted."""
    state = np.random.SeedSequence((seed, crc32(prompt.id.encode()))).generate_state(2, np.uint64)
    return int(state[0] >> 1), int(state[1] >> 1)
