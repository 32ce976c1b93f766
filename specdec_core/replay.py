"""A greedy answer of the target, recorded once: drafters are replayed on it without the target's forwards.

Under greedy decoding a lossless method commits exactly the target's own tokens, so that which nodes of a tree are
accepted follows from the recorded ones. Nodes off the recorded path are never asked for. Where the two best logits lie
within rounding of each other (`Recording.gaps`), a live forward over a tree may choose the other token.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from specdec_core.drafters import Autoregressive, Drafter
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.engine import Generation, Watch, generate
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.layout import Layout
from specdec_core.models import CausalLM, LayerSkip
from specdec_core.models.causal_lm import Layers, ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers import Greedy
from specdec_core.verifiers.base import ALL_DRAWS, follow

_UNKNOWN = -1
"""In place of the token behind a text that was recorded no further."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The target's own greedy answer to a prompt, and what it said on the way."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """Up to an end-of-sequence token, or as far as was asked for."""
    gaps: tuple[float, ...]
    """Of each token of the answer, the best logit less the second best, in logits; 0 is a tie."""
    ended: bool
    """Whether the answer ends in an end-of-sequence token."""
    vocab_size: int
    max_positions: int | None
    hidden: Float[Tensor, "text features"] | None = None
    """Features that heads read, of all tokens of prompt and answer; None unless asked for."""


@torch.inference_mode()
def record(
    target: CausalLM,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    beyond: int,
    eos_token_ids: Collection[int] = (),
    layers: Layers = (),
) -> Recording:
    """Decode a prompt greedily with the target alone; `layers` are those whose features are kept.

    A tree of the last step may be accepted as far as `beyond` tokens behind the output, which are recorded too, as far
    as the target has positions. PromptError where `generate` refuses the prompt.
    """
    room = target.max_positions
    longest = max_new_tokens + beyond
    if room is not None:  # what has no room for the output itself, `generate` refuses
        longest = max(max_new_tokens, min(longest, room - len(prompt_ids)))
    done = generate(target, Autoregressive(), Greedy(), prompt_ids, max_new_tokens=longest, eos_token_ids=eos_token_ids)
    prompt, answer = (torch.tensor(tokens, device=target.device) for tokens in (list(prompt_ids), done.tokens))
    target.reset(len(prompt) + len(answer))
    with target.keeping(layers):
        first = target.prefill(prompt)
        rest = target.extend(answer)
    best = torch.cat((first.logits[-1:], rest.logits[:-1])).float().topk(2).values
    hidden = None
    if first.hidden is not None and rest.hidden is not None:
        hidden = torch.cat((first.hidden, rest.hidden)).cpu()
    return Recording(
        tuple(prompt_ids),
        tuple(done.tokens),
        tuple((best[:, 0] - best[:, 1]).tolist()),
        done.finish == "eos",
        target.vocab_size,
        target.max_positions,
        hidden,
    )


def replay(
    recording: Recording,
    drafter: Drafter,
    *,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
    rng: Generator | None = None,
    watch: Watch | None = None,
) -> Generation:
    """What `generate` would return under a greedy rule; seconds in which the target had a part are nan.

    `rng` lives on the draft's device, or on the CPU. The watch is shown recorded tokens in place of logits. PairError
    for drafters that need the target itself: those that start from its distribution, and its own layers; and where the
    recording has no features, or ends too early.
    """
    draft = drafter.draft_model
    if isinstance(draft, CausalDraft) and isinstance(draft.model, LayerSkip):
        raise PairError("a draft of the target's own layers reads the target's cache, which a recording has not")
    if recording.ended and recording.answer[-1] not in eos_token_ids:
        raise PairError(f"the recording ends with token {recording.answer[-1]}, which is to end no answer; record anew")
    done = generate(
        RecordedTarget(recording, draft.device if draft else torch.device("cpu")),
        drafter,
        RecordedChoice(),
        recording.prompt,
        max_new_tokens=max_new_tokens,
        eos_token_ids=eos_token_ids,
        rng=rng,
        watch=watch,
    )
    steps = [replace(step, score_s=math.nan, judge_s=math.nan, commit_s=math.nan) for step in done.steps]
    return replace(done, steps=steps, prefill_s=math.nan, decode_s=math.nan, wall_s=math.nan)


class _Length:
    """In place of the target's cache, of which nothing but the length is asked."""

    length = 0

    def truncate(self, length: int) -> None:
        self.length = min(self.length, length)

    def commit(self, start: int, kept: Tensor) -> None:
        self.length = start + len(kept)


class RecordedTarget:
    """A recording in the target's place: after every node it says the recorded token of the node's position.

    Logits have one column, the token itself, which `RecordedChoice` reads; a prefill's are those of the vocabulary.
    """

    graphs = None
    keep_hidden: Layers = ()
    dtype = torch.float32

    def __init__(self, recording: Recording, device: torch.device) -> None:
        self.recording, self.device, self.cache = recording, device, _Length()
        self.vocab_size, self.max_positions = recording.vocab_size, recording.max_positions
        behind = 0 if recording.ended else _UNKNOWN  # what follows the end of a text counts for nothing
        self._text = torch.tensor([*recording.prompt, *recording.answer, behind], device=device)

    def reset(self, capacity: int) -> None:
        """Nothing is read yet."""
        self.cache.length = 0

    def prefill(self, tokens: Tensor) -> ModelOutput:
        """The first token of the answer, and features of the prompt."""
        self.cache.length = len(tokens)
        logits = torch.zeros(1, self.vocab_size, device=self.device)
        logits[0, self._text[len(tokens)]] = 1
        return ModelOutput(logits, self._features(torch.arange(len(tokens), device=self.device)))

    def __call__(self, tokens: Tensor, layout: Layout) -> ModelOutput:
        """The recorded token behind the position of each node."""
        places = layout.positions.flatten().clamp(max=len(self._text) - 2)
        self.cache.length += len(tokens)
        return ModelOutput(self._text[places + 1][:, None].float(), self._features(places))

    def _features(self, places: Tensor) -> Tensor | None:
        if not self.keep_hidden:
            return None
        if self.recording.hidden is None:
            raise PairError("the recording has no features, which this head reads; record it with them")
        return self.recording.hidden[places.cpu()].to(self.device)


class RecordedChoice:
    """The rule of a replay: the path that follows the recorded tokens."""

    lossless_for = ALL_DRAWS

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """PairError where a tree is accepted as far as the recording goes."""
        try:
            return follow(tree, target.logits[:, 0].long())
        except NonFiniteLogitsError:
            raise PairError(
                f"a tree of depth {int(tree.depths.max())} is accepted to the end of the recording; record more tokens "
                "behind the output"
            ) from None
