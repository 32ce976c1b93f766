"""An answer of the target, recorded once: drafters are replayed on it without the target's forwards.

Under greedy decoding a lossless method commits exactly the target's own tokens, so that which nodes of a tree are
accepted follows from the recorded ones. Nodes off the recorded path are never asked for. Where the two best logits lie
within rounding of each other (`Recording.gaps`), a live forward over a tree may choose the other token.

`TargetSample` draws the target's token without looking at the tree. On an answer that the target drew, a replay under
it has the law of live decoding, whatever the draft draws. Other rules need the distributions that it was drawn from
(`rank_replay`).
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from transformers import DynamicCache

from specdec_core.cache import ROOM_FOR_TREES
from specdec_core.checks import check_request
from specdec_core.drafters import Autoregressive, Drafter
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.engine import Generation, Step, Watch, generate
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.layout import Layout
from specdec_core.models import CausalLM, LayerSkip
from specdec_core.models.causal_lm import Layers, ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers import TargetSample
from specdec_core.verifiers.base import ALL_DRAWS, follow

GREEDY = Sampling(0.0)
_UNKNOWN = -1
"""In place of the token behind a text that was recorded no further."""


@dataclass(frozen=True, slots=True, eq=False)
class Distributions:
    """P of every token of a drawn answer but the first, which no tree has: what it was drawn from."""

    vocab_size: int
    ends: Int[Tensor, " tokens"]
    """Where each token's support ends in `ids` and `probs`; it begins where the one before ends."""
    ids: Int[Tensor, " support"]
    probs: Float[Tensor, " support"]

    @staticmethod
    def stack(rows: Iterable[Float[Tensor, " vocab"]], vocab_size: int) -> "Distributions":
        """What is not zero of each row."""
        ids, probs = [torch.zeros(0, dtype=torch.int)], [torch.zeros(0)]
        for row in rows:
            support = row.nonzero().flatten()
            ids.append(support.int().cpu())
            probs.append(row[support].cpu())
        ends = torch.tensor([len(own) for own in ids[1:]], dtype=torch.long).cumsum(0)
        return Distributions(vocab_size, ends, torch.cat(ids), torch.cat(probs))

    def of(self, place: int) -> Float[Tensor, " vocab"]:
        """P of the token at a place of the answer, from 1 on; float32."""
        begin, end = (int(self.ends[place - 2]) if place > 1 else 0), int(self.ends[place - 1])
        return torch.zeros(self.vocab_size).index_put_((self.ids[begin:end].long(),), self.probs[begin:end])


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The target's own answer to a prompt, and what it said on the way."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """Up to an end-of-sequence token, or as far as was asked for."""
    gaps: tuple[float, ...]
    """Of each token of a greedy answer, the best logit less the second best, in logits; 0 is a tie. Empty where only
    the tokens are known, as of another engine's answer, and where they were drawn."""
    ended: bool
    """Whether the answer ends in an end-of-sequence token."""
    vocab_size: int
    max_positions: int | None
    hidden: Float[Tensor, "text features"] | None = None
    """Features that heads read, of all tokens of prompt and answer; None unless asked for."""
    distributions: Distributions | None = None
    """None unless asked for."""

    @property
    def complete(self) -> bool:
        """Whether nothing stands behind the answer: it has ended, or the target has no more positions."""
        return self.ended or self.max_positions == len(self.prompt) + len(self.answer)


def record(
    target: CausalLM,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    beyond: int,
    eos_token_ids: Collection[int] = (),
    layers: Layers = (),
    sampling: Sampling = GREEDY,
    rng: Generator | None = None,
    distributions: bool = False,
) -> Recording:
    """Decode a prompt with the target alone; `layers` are those whose features are kept.

    The answer is greedy, or drawn by `sampling` with the stream `rng`, and then with its `distributions` if asked for.

    A tree of the last step may be accepted as far as `beyond` tokens behind the output, which are recorded too, as far
    as the target has positions. PromptError where `generate` refuses the prompt.
    """
    length = recorded_length(target, prompt_ids, max_new_tokens, beyond)
    ends: dict[str, Any] = {"max_new_tokens": length, "eos_token_ids": eos_token_ids}
    done = generate(target, Autoregressive(), TargetSample(), prompt_ids, **ends, sampling=sampling, rng=rng)
    recording, _ = _read(target, prompt_ids, done.tokens, eos_token_ids, layers)
    if sampling.greedy:
        return recording
    drawn = replace(recording, gaps=())
    return with_distributions(target, drawn, sampling) if distributions else drawn


@torch.inference_mode()
def with_distributions(target: CausalLM, recording: Recording, sampling: Sampling) -> Recording:
    """The same drawn answer with what it was drawn from, by one forward along it.

    Where rounding takes a drawn token out of the support, at the edge of top-p or top-k, its probability is the
    smallest of the support.
    """
    text = torch.tensor([*recording.prompt, *recording.answer], device=target.device)
    target.reset(len(text))
    target.prefill(text[: len(recording.prompt)])
    logits = target.extend(text[len(recording.prompt) :]).logits
    drawn = zip(sampling.probs(logits[:-1]), recording.answer[1:], strict=True)
    return replace(recording, distributions=Distributions.stack((_held(*one) for one in drawn), target.vocab_size))


def _held(probs: Float[Tensor, " vocab"], token: int) -> Float[Tensor, " vocab"]:
    """P, with the token in its support."""
    if float(probs[token]) > 0:
        return probs
    probs = probs.index_fill(0, torch.tensor(token, device=probs.device), float(probs[probs > 0].min()))
    return probs / probs.sum()


def record_together(
    target: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    beyond: int,
    eos_token_ids: Collection[int] = (),
    layers: Layers = (),
) -> list[Recording]:
    """The same of several prompts, whose best tokens are decoded in one batch, by transformers' own cache.

    Every answer is then read in one forward: where the batch has chosen another token than this reading does, the
    prompt is decoded alone. PromptError where `generate` refuses a prompt.
    """
    ends: dict[str, Any] = {"eos_token_ids": eos_token_ids, "layers": layers}
    one: dict[str, Any] = {"max_new_tokens": max_new_tokens, "beyond": beyond, **ends}
    lengths = {recorded_length(target, prompt, max_new_tokens, beyond) for prompt in prompts}
    if len(prompts) < 2 or lengths != {max_new_tokens + beyond}:
        return [record(target, prompt, **one) for prompt in prompts]
    for prompt in prompts:
        check_request(target, Autoregressive(), prompt, max_new_tokens, eos_token_ids)
    try:
        answers = _decoded(target, prompts, max_new_tokens + beyond, eos_token_ids)
    except torch.OutOfMemoryError:  # a batch needs keys and values that one prompt does not
        return [record(target, prompt, **one) for prompt in prompts]
    recordings = []
    for prompt, tokens in zip(prompts, answers, strict=True):
        recording, agrees = _read(target, prompt, tokens, eos_token_ids, layers)
        recordings.append(recording if agrees else record(target, prompt, **one))
    return recordings


def recorded_length(target: CausalLM, prompt: Sequence[int], new: int, beyond: int) -> int:
    """Tokens to be decoded; what has no room for the output itself, `generate` refuses."""
    room = target.max_positions
    return new + beyond if room is None else max(new, min(new + beyond, room - len(prompt)))


@torch.inference_mode()
def _decoded(
    target: CausalLM, prompts: Sequence[Sequence[int]], length: int, eos_token_ids: Collection[int]
) -> list[list[int]]:
    """The greedy tokens of each prompt up to its end; prompts are padded on their left."""
    widest, device = max(map(len, prompts)), target.device
    rows = [[0] * (widest - len(prompt)) + [*prompt] for prompt in prompts]
    mask = torch.tensor([[0] * (widest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    tokens, cache, answers = torch.tensor(rows, device=device), DynamicCache(config=target.model.config), []
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    ends = torch.tensor([*eos_token_ids], dtype=torch.long, device=device)
    ended = torch.zeros_like(mask[:, :1], dtype=torch.bool)
    for _ in range(length):
        out = target.model(
            tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        tokens = out.logits[:, -1:].argmax(-1)
        answers.append(tokens)
        ended |= torch.isin(tokens, ends)
        if bool(ended.all()):
            break
        mask, positions = torch.cat((mask, mask.new_ones(len(rows), 1)), 1), positions[:, -1:] + 1
    texts = torch.cat(answers, 1).tolist()
    lengths = [next((n for n, token in enumerate(text, 1) if token in eos_token_ids), length) for text in texts]
    return [text[:long] for text, long in zip(texts, lengths, strict=True)]


@torch.inference_mode()
def _read(
    target: CausalLM, prompt_ids: Sequence[int], tokens: Sequence[int], eos_token_ids: Collection[int], layers: Layers
) -> tuple[Recording, bool]:
    """An answer with its gaps and features, by one forward along it; whether that would choose the same tokens."""
    prompt, answer = (torch.tensor([*ids], device=target.device) for ids in (prompt_ids, tokens))
    target.reset(len(prompt) + len(answer))
    with target.keeping(layers):
        first = target.prefill(prompt)
        rest = target.extend(answer)
    best = torch.cat((first.logits[-1:], rest.logits[:-1])).float().topk(2)
    hidden = None
    if first.hidden is not None and rest.hidden is not None:
        hidden = torch.cat((first.hidden, rest.hidden)).cpu()
    recording = Recording(
        tuple(prompt_ids),
        tuple(tokens),
        tuple((best.values[:, 0] - best.values[:, 1]).tolist()),
        tokens[-1] in eos_token_ids,
        target.vocab_size,
        target.max_positions,
        hidden,
    )
    return recording, bool((best.indices[:, 0] == answer).all())


def replay(
    recording: Recording,
    drafter: Drafter,
    *,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
    rng: Generator | None = None,
    watch: Watch | None = None,
    target: CausalLM | None = None,
) -> Generation:
    """What `generate` would return under a greedy rule; on a drawn answer, under `TargetSample` and in law.

    All seconds are nan. `rng` lives where the target's would. The watch is shown recorded tokens in place of logits. A
    draft of the `target`'s own layers needs it: it reads the text once, and its keys and values stand behind every
    step. PairError without it, for drafters that start from its distribution, and where the recording has no features
    or ends too early.
    """
    draft = drafter.draft_model
    shares = isinstance(draft, CausalDraft) and isinstance(draft.model, LayerSkip)
    if shares and target is None:
        raise PairError("a draft of the target's own layers reads the target's cache, which a recording has not")
    check_end(recording, eos_token_ids)
    device = rng.device if rng else draft.device if draft else torch.device("cpu")
    cache = _TextCache(target, recording) if shares and target else _Length()
    done = generate(
        RecordedTarget(recording, device, cache),
        drafter,
        RecordedChoice(),
        recording.prompt,
        max_new_tokens=max_new_tokens,
        eos_token_ids=eos_token_ids,
        rng=rng,
        watch=watch,
    )
    steps = [_untimed(step) for step in done.steps]
    return replace(done, steps=steps, prefill_s=math.nan, decode_s=math.nan, wall_s=math.nan)


def _untimed(step: Step) -> Step:
    """Without seconds: the draft's are of a process that has no target beside it."""
    times: dict[str, Any] = {name.name: math.nan for name in fields(Step) if name.name.endswith("_s")}
    facts = {name: math.nan if name.endswith("_s") else fact for name, fact in step.facts.items()}
    return replace(step, **times, facts=facts)


def check_end(recording: Recording, eos_token_ids: Collection[int]) -> None:
    """PairError where the answer has ended in a token that is to end none."""
    if recording.ended and recording.answer[-1] not in eos_token_ids:
        raise PairError(f"the recording ends with token {recording.answer[-1]}, which is to end no answer; record anew")


def too_short(depth: int) -> PairError:
    """Why a replay ends before its answer does."""
    return PairError(
        f"a tree of depth {depth} is accepted to the end of the recording; record more tokens behind the output"
    )


class _Length:
    """In place of the target's cache, of which nothing but the length is asked."""

    length = 0

    def truncate(self, length: int) -> None:
        self.length = min(self.length, length)

    def commit(self, start: int, kept: Tensor) -> None:
        self.length = start + len(kept)


class _TextCache(_Length):
    """The target's own cache, in which a draft of its layers writes: what is committed is as the target read it."""

    @torch.inference_mode()
    def __init__(self, target: CausalLM, recording: Recording) -> None:
        text = torch.tensor([*recording.prompt, *recording.answer], device=target.device)
        target.reset(len(text) + ROOM_FOR_TREES)
        target.prefill(text)
        self._cache = target.cache
        self._text = [buffer[..., : len(text), :].clone() for buffer in target.cache.buffers]

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._cache.truncate(length)

    def commit(self, start: int, kept: Tensor) -> None:
        super().commit(start, kept)
        for buffer, text in zip(self._cache.buffers, self._text, strict=True):
            known = text[..., start : self.length, :]  # what follows an end of the text counts for nothing
            buffer[..., start : start + known.shape[-2], :] = known
        self._cache.length = self.length


class RecordedTarget:
    """A recording in the target's place: after every node it says the recorded token of the node's position.

    Logits have one column, the token itself, which `RecordedChoice` reads; a prefill's are those of the vocabulary.
    """

    graphs = None
    keep_hidden: Layers = ()
    eos_token_ids: Collection[int] = ()
    dtype = torch.float32

    def __init__(self, recording: Recording, device: torch.device, cache: _Length | None = None) -> None:
        self.recording, self.device, self.cache = recording, device, cache or _Length()
        self.vocab_size, self.max_positions = recording.vocab_size, recording.max_positions
        behind = 0 if recording.complete else _UNKNOWN  # what follows the end of a text counts for nothing
        self._text = torch.tensor([*recording.prompt, *recording.answer, behind], device=device)

    def reset(self, capacity: int) -> None:
        """Nothing is read yet."""
        self.cache.truncate(0)

    def prefill(self, tokens: Tensor) -> ModelOutput:
        """The first token of the answer, and features of the prompt."""
        self.cache.commit(0, tokens)
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
            raise too_short(int(tree.depths.max())) from None
