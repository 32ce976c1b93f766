"""Conversations measured: both arms on the same prompts, turn after turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Generator

from bench.audit import divergence_gap, first_divergence
from bench.cell import Cell, Runtime
from bench.datasets import Conversation, DatasetSpec
from bench.masks import MaskRecorder
from bench.nodes import NodeRecorder
from bench.quality import quality_rows
from bench.records import AUTOREGRESSIVE, METHOD
from bench.rows import NO_AUDIT, Rows, failed_row, prompt_row, step_rows
from bench.templates import prompt_ids
from bench.variation import VariationRecorder, first_token_law
from specdec_core.drafters import Autoregressive
from specdec_core.engine import Generation, Watch, generate
from specdec_core.errors import PromptError
from specdec_core.models import Pair
from specdec_core.verifiers import TargetSample

WARMUP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt of a conversation, ready to be decoded."""

    conversation: Conversation
    number: int
    prompt: list[int]
    max_new_tokens: int


class Measurement:
    """Measures conversations of one cell with loaded models, into `rows`."""

    def __init__(self, cell: Cell, pair: Pair, rows: Rows, runtime: Runtime) -> None:
        self.cell, self.pair, self.rows, self.runtime = cell, pair, rows, runtime
        self.drafter = cell.build_drafter(pair.draft)
        self.eos = [] if cell.ignore_eos else eos_token_ids(pair)

    def warm_up(self, conversation: Conversation) -> None:
        """Decode a few tokens in both arms and forget them: buffers and kernels are then in place."""
        try:
            turn = self._turn(conversation, 0, [])
            for arm in (METHOD, AUTOREGRESSIVE):
                self._decode(turn, arm, min(turn.max_new_tokens, WARMUP_TOKENS))
        except PromptError:
            return  # it will be recorded as failed where it counts

    def run(self, conversation: Conversation) -> list[Generation]:
        """All turns in both arms; the method's generations. Later turns see the method's own answers.

        A prompt that cannot be decoded is recorded as failed and ends its conversation.
        """
        generations: list[Generation] = []
        answers: list[str] = []
        for number in range(len(conversation.turns)):
            try:
                generations.append(self._both_arms(self._turn(conversation, number, answers)))
            except PromptError as error:
                self.rows.prompts.append(failed_row(self.cell.run_id, conversation, number, error))
                break
            answers.append(self._text(generations[-1]))
        return generations

    def _turn(self, conversation: Conversation, number: int, answers: list[str]) -> Turn:
        dataset = self.cell.dataset
        prompt = _prompt(self.pair, self.cell.pair.template, dataset, conversation.turns[: number + 1], answers)
        room = self.cell.max_new_tokens
        if dataset.max_total_tokens is not None:
            room = min(room, dataset.max_total_tokens - len(prompt))
            if len(prompt) >= dataset.max_total_tokens:
                raise PromptError(f"the prompt has {len(prompt)} tokens of {dataset.max_total_tokens} allowed in all")
        return Turn(conversation, number, prompt, room)

    def _both_arms(self, turn: Turn) -> Generation:
        """Decode a turn in both arms, which take turns at going first, and write their rows."""
        arms = [METHOD, AUTOREGRESSIVE] if self.runtime.baseline else [METHOD]
        if (crc32(turn.conversation.id.encode()) + turn.number) % 2:
            arms.reverse()
        done = {arm: self._decode(turn, arm, turn.max_new_tokens) for arm in arms}
        key = (self.cell.run_id, turn.conversation, turn.number)
        for arm, generation in done.items():
            audit = self._audit(turn, generation, done.get(AUTOREGRESSIVE))
            self.rows.prompts.append(prompt_row(*key, arm, len(turn.prompt), generation, **audit))
        self.rows.steps.extend(step_rows(*key, done[METHOD]))
        if self.runtime.record_quality:
            texts = {arm: self._text(generation) for arm, generation in done.items()}
            self.rows.quality.extend(quality_rows(*key, texts, self.cell.dataset))
        self._record(turn)
        return done[METHOD]

    def _record(self, turn: Turn) -> None:
        """A pass of its own, with the same random numbers: instruments would be in the measured time."""
        key, law = (self.cell.run_id, turn.conversation.id, turn.number), first_token_law(self.cell.rule, self.drafter)
        recorders: dict[str, Any] = {}
        if self.runtime.record_nodes:
            recorders["nodes"] = NodeRecorder(*key, self.cell.sampling)
        if self.runtime.record_masks:
            recorders["masks"] = MaskRecorder(*key, len(turn.prompt))
        if self.runtime.record_variation and law:
            recorders["variation"] = VariationRecorder(*key, law, self.cell.sampling)
        if not recorders:
            return

        def watch(*judged: Any) -> None:
            for recorder in recorders.values():
                recorder(*judged)

        self._decode(turn, METHOD, turn.max_new_tokens, watch)
        for table, recorder in recorders.items():
            getattr(self.rows, table).extend(recorder.rows)

    def _text(self, generation: Generation) -> str:
        return str(self.pair.tokenizer.decode(generation.tokens, skip_special_tokens=True))

    def _decode(self, turn: Turn, arm: str, max_new_tokens: int, watch: Watch | None = None) -> Generation:
        method = arm == METHOD
        return generate(
            self.pair.target,
            self.drafter if method else Autoregressive(),
            self.cell.rule if method else TargetSample(),
            turn.prompt,
            max_new_tokens=max_new_tokens,
            sampling=self.cell.sampling,
            eos_token_ids=self.eos,
            allow_lossy=self.cell.allow_lossy,
            node_order=self.runtime.node_order,
            rng=self._generator(turn, arm),
            watch=watch,
        )

    def _generator(self, turn: Turn, arm: str) -> Generator:
        """Its own random stream for every prompt and arm, the same whatever was run before."""
        key = (self.cell.seed, crc32(turn.conversation.id.encode()), turn.number, crc32(arm.encode()))
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
        return torch.Generator(self.pair.target.device).manual_seed(seed)

    def _audit(self, turn: Turn, generation: Generation, reference: Generation | None) -> dict[str, Any]:
        """Greedy decoding only: is the output the autoregressive one, and if not, how close was the call."""
        if reference is None or not self.cell.sampling.greedy:
            return NO_AUDIT
        at = first_divergence(generation.tokens, reference.tokens)
        gap = None if at is None else divergence_gap(self.pair.target, turn.prompt, generation.tokens[:at])
        return {"identical": at is None, "first_divergence": at, "divergence_gap": gap}


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


def eos_token_ids(pair: Pair) -> list[int]:
    """The tokens that end an answer: the generation config's, else the tokenizer's."""
    generation = getattr(pair.target.model, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    if found is None:
        found = pair.tokenizer.eos_token_id
    return [] if found is None else [found] if isinstance(found, int) else list(found)
