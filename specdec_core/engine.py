"""The loop: grow, score, judge, commit. Every method and the autoregressive baseline run through it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Generator

from specdec_core.cache import ROOM_FOR_TREES
from specdec_core.checks import check_lossless, check_request
from specdec_core.drafters.base import Context, Drafter
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.generation import Generation, Output, Step, Trace
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.models.placement import draft_stream
from specdec_core.models.target import Target
from specdec_core.node_order import Placed, placed
from specdec_core.roots import after_prompt
from specdec_core.sampling import Sampling
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import Verifier

__all__ = ["Generation", "Step", "Watch", "generate"]

Watch = Callable[[TokenTree, ModelOutput, Verdict], None]
"""Called after every judgement, outside the measured spans; for instruments that need more than a `Step`."""


@torch.inference_mode()
def generate(
    target: Target,
    drafter: Drafter,
    verifier: Verifier,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    eos_token_ids: Collection[int] | None = None,
    allow_lossy: bool = False,
    node_order: str = "creation",
    rng: Generator | None = None,
    watch: Watch | None = None,
    on_tokens: Callable[[list[int]], None] | None = None,
) -> Generation:
    """Decode `prompt_ids` speculatively: greedily by default, lossless unless `allow_lossy`.

    It ends behind the first of `eos_token_ids` (None: the target's own; an empty collection: none). `node_order` (one
    of `NODE_ORDERS`) is how a tree's nodes stand in the target's forward. `rng` lives on the target's device; None is
    seeded with 0. `on_tokens` gets the new tokens of the prefill and of every step, as they enter the output: to stream
    it. PromptError or PairError say what cannot be decoded, NonFiniteLogitsError in which step a model
    returned nonsense.
    """
    sampling, rng = sampling or Sampling(), rng or torch.Generator(target.device).manual_seed(0)
    eos_token_ids = frozenset(target.eos_token_ids if eos_token_ids is None else eos_token_ids)
    check_lossless(drafter, verifier, sampling, allow_lossy=allow_lossy)
    check_request(target, drafter, prompt_ids, max_new_tokens, eos_token_ids)
    stream, clock = draft_stream(rng, target.device, drafter.draft_model), Clock(target.device)
    context = Context(list(prompt_ids), stream, clock, eos_token_ids=eos_token_ids, greedy=sampling.greedy)
    run = _Run(target, drafter, verifier, sampling, rng, context, watch)
    output, trace = Output(max_new_tokens, eos_token_ids, on_tokens), Trace()
    output.extend(run.prefill(max_new_tokens))
    with clock.wall():
        while not output.finished:
            tree, fed = run.grow(node_order)
            scored = run.score(fed)
            verdict = run.judge(tree, scored)
            trace.add(tree, verdict, *output.extend(run.commit(fed, scored, verdict)))
    return trace.generation(output, clock)


@dataclass(frozen=True, slots=True)
class _Run:
    """The verbs of the loop, each in its span."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    sampling: Sampling
    rng: Generator
    context: Context
    watch: Watch | None

    def prefill(self, new: int) -> tuple[int, ...]:
        """Read the prompt, with room for `new` tokens behind it.

        Returns the first new token, or nothing if the drafter wants its distribution instead.
        """
        target, drafter, context = self.target, self.drafter, self.context
        with context.clock.span("prefill"):
            room = len(context.tokens) + new
            target.reset(room + ROOM_FOR_TREES)
            target.keep_hidden = drafter.needs_hidden
            prompt = torch.tensor(context.tokens, device=target.device)
            scored = target.prefill(prompt)
            drafter.reset(prompt, scored)
            drafter.prepare(room, target.device, target.dtype)
            verdict = after_prompt(scored, self.sampling, self.rng, virtual=drafter.virtual_root)
            return context.advance(verdict, scored.hidden)

    def grow(self, node_order: str) -> tuple[TokenTree, Placed]:
        """The next step's tree, and as the target reads it."""
        self.context.clock.next_step()
        with self.context.clock.span("grow"):
            tree = self.drafter.grow(self.context).to(self.target.device)
            return tree, placed(tree, node_order)

    def score(self, fed: Placed) -> ModelOutput:
        """One target forward over what it has not read of the tree; a row per node, as they were drafted.

        The root stands first in every order.
        """
        target, root, tree, span = self.target, self.context.root, fed.tree, self.context.clock.span
        with span("layout"):
            target.cache.truncate(len(self.context.tokens) - 1 + root.first)
            prefix, dtype, most = target.cache.length, target.dtype, target.max_positions
            layout = tree.mask.layout(root.first, prefix=prefix, dtype=dtype, max_positions=most)
        with span("score"):
            scored = root.whole(target(tree.tokens[root.first :], layout))
            hidden = None if scored.hidden is None else fed.restored(scored.hidden)
            return ModelOutput(fed.restored(scored.logits), hidden, scored.root_probs)

    def judge(self, tree: TokenTree, scored: ModelOutput) -> Verdict:
        """The rule's verdict, which the watch is shown. NonFiniteLogitsError names the step."""
        try:
            with self.context.clock.span("judge"):
                verdict = self.verifier.judge(tree, scored, self.sampling, self.rng)
        except NonFiniteLogitsError as error:
            raise NonFiniteLogitsError(f"step {self.context.clock.step}: {error}") from error
        if self.watch:
            self.watch(tree, scored, verdict)
        return verdict

    def commit(self, fed: Placed, scored: ModelOutput, verdict: Verdict) -> tuple[int, ...]:
        """Keep the path in the caches, whose last slots are the tree's, and return the new tokens."""
        with self.context.clock.span("commit"):
            self.target.cache.commit(self.target.cache.length - fed.tree.num_nodes, fed.slots(verdict.path))
            self.drafter.observe(verdict, scored)
            return self.context.advance(verdict, scored.hidden)
