"""What is recorded on request: every turn once more, and whatever else must stay out of the measured time."""

from collections.abc import Mapping, Sequence
from typing import Any

from specdec_core.engine import Generation
from specdec_core.errors import PromptError
from specdec_core.sampling import Sampling
from specdec_trees.measure.decoding import Decoding, Turn
from specdec_trees.measure.quality import answer_rows, log_likelihoods, quality_rows
from specdec_trees.measure.recorders import MaskRecorder, NodeRecorder, RuleRecorder
from specdec_trees.measure.to_rows import Rows
from specdec_trees.measure.variation import DrawnVariation, FirstTokenProbs, VariationRecorder, first_token_probs
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD


class SecondPass:
    """Writes the tables that a runtime's `record_<table>` asks for into `rows`."""

    def __init__(self, decoding: Decoding, rows: Rows) -> None:
        self.decoding, self.rows = decoding, rows
        self.cell, self.runtime = decoding.cell, decoding.runtime

    def record(self, turn: Turn, done: Mapping[str, Generation]) -> None:
        """The tables about one turn; `done` is what its arms decoded."""
        if self.runtime.record_quality:
            self._quality(turn, done)
        probs_of = first_token_probs(self.cell.rule, self.decoding.drafter) if self.runtime.record_variation else None
        drawn = self.decoding.drafter.virtual_root and not self.cell.sampling.greedy
        if probs_of and drawn:
            self._drawn_variation(turn, probs_of)
        self._watched(turn, None if drawn else probs_of)

    def answers(self, conversation: Conversation, answers: Sequence[str], own: Sequence[str]) -> None:
        """The method's answers as text, and those of the target alone, whose later turns see its own answers.

        `own` are those of the paired arm, which sees the method's: where these differ, the target answers again. A turn
        that its own conversation leaves no room for has no row of the target.
        """
        if not self.runtime.record_answers:
            return
        alone = self._alone(conversation, answers, own) if own else []
        for number, answer in enumerate(answers):
            texts = {METHOD: answer} | ({AUTOREGRESSIVE: alone[number]} if number < len(alone) else {})
            self.rows.answers.extend(answer_rows(self.cell.run_id, conversation, number, texts, self.cell.dataset))

    def _alone(self, conversation: Conversation, answers: Sequence[str], own: Sequence[str]) -> list[str]:
        found: list[str] = []
        for number in range(len(answers)):
            if found == list(answers[:number]):
                found.append(own[number])
                continue
            try:
                turn = self.decoding.turn(conversation, number, found)
                found.append(self.decoding.text(self.decoding.decode(turn, AUTOREGRESSIVE)))
            except PromptError:
                break
        return found

    def _quality(self, turn: Turn, done: Mapping[str, Generation]) -> None:
        """Answers against the reference, the target's greedy answer to the same prompt, and its probabilities."""
        decoding, sampling = self.decoding, self.cell.sampling
        greedy = done.get(AUTOREGRESSIVE) if sampling.greedy else None
        greedy = greedy or decoding.decode(turn, AUTOREGRESSIVE, sampling=Sampling(0.0))
        outputs = {arm: generation.tokens for arm, generation in done.items()}
        rows = quality_rows(
            self.cell.run_id,
            turn.conversation,
            turn.number,
            {arm: decoding.text(generation) for arm, generation in done.items()},
            self.cell.dataset,
            greedy=decoding.text(greedy),
            log_likelihoods=log_likelihoods(decoding.pair.target, turn.prompt, outputs, sampling),
        )
        self.rows.quality.extend(rows)

    def _drawn_variation(self, turn: Turn, probs_of: FirstTokenProbs) -> None:
        """The first token's distribution over trees drawn anew for the same prompt, by a random stream of their own."""
        drawn, rng = DrawnVariation(probs_of, self.cell.sampling), self.decoding.generator(turn, "variation")
        while not drawn.done:
            self.decoding.decode(turn, METHOD, 1, drawn, rng=rng)
        self.rows.variation.append(drawn.row(self.cell.run_id, turn.conversation.id, turn.number))

    def _watched(self, turn: Turn, probs_of: FirstTokenProbs | None) -> None:
        """What is seen by watching the method decode with the same random numbers."""
        key = (self.cell.run_id, turn.conversation.id, turn.number)
        recorders: dict[str, Any] = {}
        if self.runtime.record_nodes:
            recorders["nodes"] = NodeRecorder(*key, self.cell.sampling)
        if self.runtime.record_masks:
            recorders["masks"] = MaskRecorder(*key, len(turn.prompt))
        if self.runtime.record_rules and not self.cell.sampling.greedy:
            recorders["rules"] = RuleRecorder(*key, self.decoding.drafter.draws, self.cell.sampling)
        if probs_of:
            recorders["variation"] = VariationRecorder(*key, probs_of, self.cell.sampling)
        if not recorders:
            return

        def watch(*judged: Any) -> None:
            for recorder in recorders.values():
                recorder(*judged)

        self.decoding.decode(turn, METHOD, watch=watch)
        for table, recorder in recorders.items():
            getattr(self.rows, table).extend(recorder.rows)
