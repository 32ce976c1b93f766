"""The loop: grow, score, judge, commit. Every method and the autoregressive baseline run through it."""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Generator

from specdec_core.cache import ROOM_FOR_TREES
from specdec_core.checks import check_lossless, check_request
from specdec_core.drafters.base import Context, Drafter
from specdec_core.errors import NonFiniteLogitsError
from specdec_core.generation import Generation, Output, Step, Trace
from specdec_core.layout import Layout, tree_layout
from specdec_core.models.causal_lm import CausalLM, ModelOutput
from specdec_core.node_order import Placed, placed
from specdec_core.sampling import Sampling
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import Verifier

__all__ = ["Generation", "Step", "Watch", "generate"]

Watch = Callable[[TokenTree, ModelOutput, Verdict], None]
"""Called after every judgement, outside the measured spans; for instruments that need more than a `Step`."""


@torch.inference_mode()
def generate(
    target: CausalLM,
    drafter: Drafter,
    verifier: Verifier,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    eos_token_ids: Collection[int] = (),
    allow_lossy: bool = False,
    node_order: str = "creation",
    rng: Generator | None = None,
    watch: Watch | None = None,
) -> Generation:
    """Decode `prompt_ids` speculatively: greedily by default, lossless unless `allow_lossy`.

    `node_order` (one of `NODE_ORDERS`) is how a tree's nodes stand in the target's forward; nothing else sees it. `rng`
    lives on the target's device; None is seeded with 0. PromptError or PairError say what cannot be decoded,
    NonFiniteLogitsError in which step a model returned nonsense.
    """
    sampling, rng = sampling or Sampling(), rng or torch.Generator(target.device).manual_seed(0)
    check_lossless(drafter, verifier, sampling, allow_lossy=allow_lossy)
    check_request(target, drafter, prompt_ids, max_new_tokens, eos_token_ids)
    draft_rng = _draft_rng(target, drafter, rng)
    context = Context(
        list(prompt_ids),
        rng,
        Clock(target.device),
        draft_rng=draft_rng,
        eos_token_ids=frozenset(eos_token_ids),
        greedy=sampling.greedy,
    )
    output, trace, span = Output(max_new_tokens, eos_token_ids), Trace(), context.clock.span
    with span("prefill"):
        target.reset(len(prompt_ids) + max_new_tokens + ROOM_FOR_TREES)
        output.extend(_prefill(target, drafter, context, sampling))
        if sliced := getattr(drafter, "sliced", None):
            sliced.prepare(len(prompt_ids) + max_new_tokens, target.device, target.dtype)
    with context.clock.wall():
        while not output.finished:
            context.clock.next_step()
            with span("grow"):
                tree = drafter.grow(context).to(target.device)
                fed = placed(tree, node_order)
            scored = _score(target, fed, context)
            with span("judge"):
                verdict = _judge(verifier, tree, scored, sampling, context)
            if watch:
                watch(tree, scored, verdict)
            with span("commit"):
                new = _commit(target, drafter, fed, verdict, scored, context)
            trace.add(tree, verdict, *output.extend(new), virtual=scored.root_probs is not None)
    return trace.generation(output, context.clock)


def _draft_rng(target: CausalLM, drafter: Drafter, rng: Generator) -> Generator | None:
    """For a draft on another device a stream of its own, seeded by one draw."""
    draft = drafter.draft_model
    if draft is None or draft.device == target.device:
        return None
    return torch.Generator(draft.device).manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))


def _await_draft(target: CausalLM, drafter: Drafter) -> None:
    """Let the target's stream wait for a draft on another GPU, so that a span there ends with the draft's work."""
    draft = drafter.draft_model
    if draft is not None and draft.device != target.device and draft.device.type == target.device.type == "cuda":
        torch.cuda.current_stream(target.device).wait_stream(torch.cuda.current_stream(draft.device))


def _prefill(target: CausalLM, drafter: Drafter, context: Context, sampling: Sampling) -> list[int]:
    """Read the prompt; draw the first token and return it, or leave its law to a drafter that starts from it."""
    prompt = torch.tensor(context.tokens, device=target.device)
    target.keep_hidden = drafter.needs_hidden
    scored = target.prefill(prompt)
    drafter.reset(prompt, scored)
    _await_draft(target, drafter)
    if drafter.virtual_root:
        if not bool(scored.logits[-1].max().isfinite()):
            raise NonFiniteLogitsError("prefill: the target returned NaN or infinite logits")
        context.next_probs = sampling.open_law(scored.logits[-1])
        context.root_hidden = None if scored.hidden is None else scored.hidden[-1]
        return []
    first = int(sampling.draw(scored.logits[-1], context.rng))
    if first < 0:
        raise NonFiniteLogitsError("prefill: the target returned NaN or infinite logits")
    context.tokens.append(first)
    return [first]


def _score(target: CausalLM, fed: Placed, context: Context) -> ModelOutput:
    """One target forward over the tree; a row per node, as they were drafted.

    A virtual root is not fed again: its law is known already. It stands first in every order.
    """
    span, virtual, tree = context.clock.span, int(context.virtual), fed.tree
    with span("layout"):
        target.cache.truncate(len(context.tokens) - 1 + virtual)
        layout = _layout(target, tree, virtual)
    with span("score"):
        scored = _with_root(target(tree.tokens[virtual:], layout), context)
        hidden = None if scored.hidden is None else fed.restored(scored.hidden)
        return ModelOutput(fed.restored(scored.logits), hidden, scored.root_probs)


def _layout(target: CausalLM, tree: TokenTree, virtual: int) -> Layout:
    """Mask and positions of the tree, without a virtual root: sliced, where the drafter made the mask before."""
    prefix, dtype, max_positions = target.cache.length, target.dtype, target.max_positions
    if tree.sliced is not None:
        return tree.sliced.layout(
            virtual,
            tree.num_nodes - virtual,
            prefix=prefix,
            device=target.device,
            dtype=dtype,
            max_positions=max_positions,
        )
    visible, depths = tree.ancestor_mask[virtual:, virtual:], tree.depths[virtual:] - virtual
    return tree_layout(visible, depths, prefix=prefix, max_positions=max_positions, dtype=dtype)


def _with_root(scored: ModelOutput, context: Context) -> ModelOutput:
    """The rows of a tree: a virtual root's come from what is known of it."""
    if context.next_probs is None:
        return scored
    logits = torch.cat((context.next_probs.log()[None].to(scored.logits.dtype), scored.logits))
    hidden = scored.hidden
    if hidden is not None and context.root_hidden is not None:
        hidden = torch.cat((context.root_hidden[None], hidden))
    return ModelOutput(logits, hidden, context.next_probs)


def _judge(verifier: Verifier, tree: TokenTree, scored: ModelOutput, sampling: Sampling, context: Context) -> Verdict:
    try:
        return verifier.judge(tree, scored, sampling, context.rng)
    except NonFiniteLogitsError as error:
        raise NonFiniteLogitsError(f"step {context.clock.step}: {error}") from error


def _commit(
    target: CausalLM, drafter: Drafter, fed: Placed, verdict: Verdict, scored: ModelOutput, context: Context
) -> tuple[int, ...]:
    """Keep the path in the caches and return its tokens. A virtual root was in the cache before the tree."""
    start = target.cache.length - (fed.tree.num_nodes - int(context.virtual))
    slots = fed.slots(verdict.path)
    target.cache.commit(start, slots[1:] - 1 if context.virtual else slots)
    drafter.observe(verdict, scored)
    _await_draft(target, drafter)
    return context.advance(verdict, scored.hidden)
