"""Conversations measured: both arms on the same prompts, turn after turn."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from bench.measure.audit import divergence_gap, first_divergence
from bench.measure.cell import Cell, Runtime
from bench.measure.decoding import Decoding, Turn, eos_token_ids, first_prompts
from bench.measure.second_pass import SecondPass
from bench.measure.to_rows import NO_AUDIT, Rows, failed_row, prompt_row, step_rows
from bench.prompts.datasets import Conversation
from bench.results.rows import AUTOREGRESSIVE, METHOD, PromptRow
from specdec_core.engine import Generation
from specdec_core.errors import PromptError
from specdec_core.models import Pair

__all__ = ["Measurement", "eos_token_ids", "first_prompts"]

WARMUP_TOKENS = 16


class Measurement:
    """Measures conversations of one cell with loaded models, into `rows`."""

    def __init__(
        self, cell: Cell, pair: Pair, rows: Rows, runtime: Runtime, lent: Mapping[str, PromptRow] | None = None
    ) -> None:
        """`lent` are first turns that another run decoded autoregressively, by conversation."""
        self.cell, self.pair, self.rows, self.runtime, self.lent = cell, pair, rows, runtime, lent or {}
        self.decoding = Decoding(cell, pair, runtime)
        self.drafter, self.second_pass = self.decoding.drafter, SecondPass(self.decoding, rows)

    def warm_up(self, conversation: Conversation) -> None:
        """Decode a few tokens in both arms and forget them: buffers and kernels are then in place."""
        try:
            turn = self.decoding.turn(conversation, 0, [])
            for arm in (METHOD, AUTOREGRESSIVE):
                self.decoding.decode(turn, arm, min(turn.max_new_tokens, WARMUP_TOKENS))
        except PromptError:
            return  # it will be recorded as failed where it counts

    def run(self, conversation: Conversation) -> list[Generation]:
        """All turns in both arms; the method's generations. Later turns see the method's own answers.

        A prompt that cannot be decoded is recorded as failed and ends its conversation.
        """
        generations: list[Generation] = []
        texts: dict[str, list[str]] = {METHOD: [], AUTOREGRESSIVE: []}
        for number in range(len(conversation.turns)):
            try:
                done = self._both_arms(self.decoding.turn(conversation, number, texts[METHOD]))
            except PromptError as error:
                self.rows.prompts.append(failed_row(self.cell.run_id, conversation, number, error))
                break
            for arm, generation in done.items():
                texts[arm].append(self.decoding.text(generation))
            generations.append(done[METHOD])
        self.second_pass.answers(conversation, texts[METHOD], texts[AUTOREGRESSIVE])
        return generations

    def excerpt(self) -> str | None:
        """The start of the first answer, the target's own where there is a baseline; None if all turns failed."""
        first = {row.arm: row for row in reversed(self.rows.prompts) if row.status == "ok"}
        row = first.get(AUTOREGRESSIVE, first.get(METHOD))
        return None if row is None else beginning(self.pair.tokenizer.decode(row.output_ids, skip_special_tokens=True))

    def _both_arms(self, turn: Turn) -> dict[str, Generation]:
        """Decode a turn in both arms, which take turns at going first, and write their rows."""
        lent = self.lent.get(turn.conversation.id) if turn.number == 0 else None
        arms = [METHOD, AUTOREGRESSIVE] if self.runtime.baseline and lent is None else [METHOD]
        if (crc32(turn.conversation.id.encode()) + turn.number) % 2:
            arms.reverse()
        done = {arm: self.decoding.decode(turn, arm) for arm in arms}
        if lent:
            self.rows.prompts.append(replace(lent, run_id=self.cell.run_id))
            done[AUTOREGRESSIVE] = Generation(lent.output_ids, lent.finish, [], lent.prefill_s, lent.decode_s)
        key = (self.cell.run_id, turn.conversation, turn.number)
        for arm in arms:
            generation = done[arm]
            audit = self._audit(turn, generation, done.get(AUTOREGRESSIVE))
            self.rows.prompts.append(prompt_row(*key, arm, len(turn.prompt), generation, **audit))
        self.rows.steps.extend(step_rows(*key, done[METHOD]))
        self.second_pass.record(turn, done)
        return done

    def _audit(self, turn: Turn, generation: Generation, reference: Generation | None) -> dict[str, Any]:
        """Greedy decoding only: is the output the autoregressive one, and if not, how close was the call."""
        if reference is None or not self.cell.sampling.greedy:
            return NO_AUDIT
        at = first_divergence(generation.tokens, reference.tokens)
        gap = None if at is None else divergence_gap(self.pair.target, turn.prompt, generation.tokens[:at])
        return {"identical": at is None, "first_divergence": at, "divergence_gap": gap}


def beginning(text: str, most: int = 200) -> str:
    """A text on one line, cut behind a word where it has more than so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 4].rpartition(' ')[0] or line[: most - 4]} ..."
