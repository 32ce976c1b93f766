"""One cell's prompts decoded in either arm, each from a random stream of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Generator

from specdec_core.drafters import Autoregressive
from specdec_core.engine import Generation, Watch, generate
from specdec_core.errors import PairError, PromptError
from specdec_core.models import Pair
from specdec_core.rank_replay import by_distributions, goes_by_distributions, goes_by_ranks, replay_by_ranks
from specdec_core.renewal import Expected, expected
from specdec_core.replay import replay
from specdec_core.sampling import NO_DRAWS, Sampling
from specdec_core.verifiers import TargetSample
from specdec_trees.measure.cell import RANKS, Cell, Runtime
from specdec_trees.measure.recordings import Recordings
from specdec_trees.prompts.datasets import Conversation, DatasetSpec
from specdec_trees.prompts.templates import prompt_ids
from specdec_trees.results.digests import prompts_ids_sha256
from specdec_trees.results.rows import METHOD


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt of a conversation, ready to be decoded."""

    conversation: Conversation
    number: int
    prompt: list[int]
    max_new_tokens: int


class Decoding:
    """Decodes turns of one cell with loaded models."""

    def __init__(self, cell: Cell, pair: Pair, runtime: Runtime, recordings: Recordings | None = None) -> None:
        """With `recordings`, the method is replayed on them."""
        self.cell, self.pair, self.runtime, self.recordings = cell, pair, runtime, recordings
        self.drafter = drafter = cell.build_drafter(pair.draft)
        compares = cell.by_distributions
        self._drawn = drafter if compares and goes_by_distributions(drafter, cell.rule) else None
        self.eos = [] if cell.ignore_eos else recordings.eos if recordings else pair.eos_token_ids

    def turn(self, conversation: Conversation, number: int, answers: Sequence[str]) -> Turn:
        """A turn behind the answers to the turns before it. PromptError if it leaves no room to answer."""
        dataset = self.cell.dataset
        prompt = _prompt(self.pair, self.cell.pair.template, dataset, conversation.turns[: number + 1], answers)
        room = self.cell.max_new_tokens
        if dataset.max_total_tokens is not None:
            room = min(room, dataset.max_total_tokens - len(prompt))
            if len(prompt) >= dataset.max_total_tokens:
                raise PromptError(f"the prompt has {len(prompt)} tokens of {dataset.max_total_tokens} allowed in all")
        return Turn(conversation, number, prompt, room)

    def decode(
        self,
        turn: Turn,
        arm: str,
        max_new_tokens: int | None = None,
        watch: Watch | None = None,
        *,
        sampling: Sampling | None = None,
        rng: Generator | None = None,
    ) -> Generation:
        """Decode a turn by the cell's method or by the target alone.

        Of what is not given, the length is the turn's, `sampling` the cell's and `rng` that of this turn and arm.
        """
        method = arm == METHOD
        length = turn.max_new_tokens if max_new_tokens is None else max_new_tokens
        if self.recordings and method:
            recording = self.recordings.of(turn.conversation.id, turn.number, turn.prompt)
            ends: dict[str, Any] = {"max_new_tokens": length, "eos_token_ids": self.eos}
            if self.runtime.replay == RANKS and watch is None and goes_by_ranks(self.drafter):
                return replay_by_ranks(recording, self.drafter, **ends)
            rng, target = rng or self.generator(turn, arm), self.pair.target
            if drawn := self._drawn:
                if watch:
                    raise PairError("a replay by distributions grows no tree that could be watched")
                source = by_distributions(recording, drawn, self.cell.rule, rng)
                return replay_by_ranks(recording, drawn, **ends, source=source)
            return replay(recording, self.drafter, **ends, rng=rng, watch=watch, target=target)
        return generate(
            self.pair.target,
            self.drafter if method else Autoregressive(),
            self.cell.rule if method else TargetSample(),
            turn.prompt,
            max_new_tokens=length,
            sampling=sampling or self.cell.sampling,
            eos_token_ids=self.eos,
            allow_lossy=self.cell.allow_lossy,
            node_order=self.runtime.node_order,
            rng=rng or self.generator(turn, arm),
            watch=watch,
        )

    def expected(self, turn: Turn, generation: Generation) -> Expected | None:
        """What a replay of a drawn answer comes to on average over all that draft and rule draw.

        None where the draft draws what no distribution tells of, and of greedy answers, which leave nothing to chance.
        """
        if not self.recordings or self.cell.sampling.greedy:
            return None
        if drawn := self._drawn:
            recording = self.recordings.of(turn.conversation.id, turn.number, turn.prompt)
            ends: dict[str, Any] = {"max_new_tokens": turn.max_new_tokens, "eos_token_ids": self.eos}
            return expected(recording, drawn, self.cell.rule, self.generator(turn, "shares"), **ends)
        if self.drafter.draws not in ("topk", NO_DRAWS):
            return None
        return Expected(len(generation.steps), sum(step.acceptance_length for step in generation.steps))

    def generator(self, turn: Turn, stream: str) -> Generator:
        """Its own random stream for every prompt and arm (or other purpose), the same whatever was run before."""
        key = (self.cell.seed, crc32(turn.conversation.id.encode()), turn.number, crc32(stream.encode()))
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
        return torch.Generator(self.pair.target.device).manual_seed(seed)

    def text(self, generation: Generation) -> str:
        """The answer in words."""
        return self.words(generation.tokens)

    def words(self, tokens: Sequence[int]) -> str:
        """An answer's token ids in words."""
        return str(self.pair.tokenizer.decode(tokens, skip_special_tokens=True))


def first_ids_sha256(pair: Pair, template: str, dataset: DatasetSpec, conversations: Sequence[Conversation]) -> str:
    """The digest of the token ids of all first turns, of which some may be no prompt."""

    def ids(conversation: Conversation) -> list[int] | None:
        try:
            return _prompt(pair, template, dataset, conversation.turns[:1], [])
        except PromptError:
            return None  # it will be recorded as failed where it is decoded

    return prompts_ids_sha256(map(ids, conversations))


def first_prompts(
    pair: Pair, template: str, dataset: DatasetSpec, conversations: list[Conversation]
) -> list[list[int]]:
    """Token ids of the first turns, as they are decoded."""
    return [_prompt(pair, template, dataset, conversation.turns[:1], []) for conversation in conversations]


def _prompt(pair: Pair, template: str, dataset: DatasetSpec, turns: Sequence[str], answers: Sequence[str]) -> list[int]:
    return prompt_ids(
        pair.tokenizer,
        template,
        turns,
        answers,
        mode=dataset.mode,
        prompt_tokens=dataset.prompt_tokens,
        max_prompt_tokens=dataset.max_prompt_tokens,
        frame=dataset.frame,
    )
