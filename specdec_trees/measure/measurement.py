"""Conversations measured: both arms on the same prompts, turn after turn."""

import functools
import itertools
import logging
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from specdec_core.engine import Generation
from specdec_core.errors import PairError, PromptError
from specdec_core.models import Head, ModelOutput, Pair
from specdec_core.models.ranks import agreed
from specdec_core.tree import TokenTree, Verdict
from specdec_trees.measure import gpu_state, stalls
from specdec_trees.measure.audit import divergence
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.decoding import Decoding, Turn, first_prompts
from specdec_trees.measure.group import Group
from specdec_trees.measure.kernels import AttentionKernels
from specdec_trees.measure.recordings import Recordings
from specdec_trees.measure.second_pass import SecondPass
from specdec_trees.measure.stalls import Moment, Stalls, Timed
from specdec_trees.measure.step_costs import TOKENS, StepCosts
from specdec_trees.measure.to_rows import NO_AUDIT, Rows, failed_row, prompt_row, step_rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, PromptRow

__all__ = ["Measurement", "first_prompts"]

log = logging.getLogger(__name__)
WARMUP_TOKENS = 16
NOTED_TOKENS = 4
"""Of a decoding whose attention kernels are noted."""
WARMUP_MOST = 8
"""Rounds of a warm-up: a machine whose times never agree is told by its rows."""
WARMUP_S = 10.0
"""Behind so many seconds no round begins: what takes so long is warm."""
COLD_S = 1.0
"""The least that the first warm-up of a process takes: pages, allocators and clocks are cold, whichever cell it is."""
AGREE = 0.1
"""By what share times per token of an arm's last two decodings may differ: as far as those of one prompt mostly do."""
_warm = itertools.count()
"""Is drawn from by each warm-up, of which the first finds a cold process."""
TEN_TIMES = 10
Save = Callable[[Conversation, int, Generation], object]
"""Called behind each decoded turn with the conversation, the turn's number and the method's generation."""


class Chance:
    """A watch that adds up how many drafted tokens would be accepted if all of them were uniform guesses.

    A node of depth d is then the target's token with all above it with probability V^-d. Of a virtual root the first
    level is the target's own.
    """

    def __init__(self, vocab_size: int) -> None:
        self.accepted, self.virtual, self._vocab_size = 0.0, 0, vocab_size

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """Take one step."""
        known = int(target.root_probs is not None)
        guessed = tree.depths[1:].double() - known
        self.accepted += float((self._vocab_size ** -guessed[guessed > 0]).sum())
        self.virtual += known


class Measurement:
    """Measures conversations of one cell with loaded models, into `rows`."""

    def __init__(
        self,
        cell: Cell,
        pair: Pair,
        rows: Rows,
        runtime: Runtime,
        recordings: Recordings | None = None,
        group: Group | None = None,
    ) -> None:
        """With `recordings` the method is replayed on them, and nothing is timed. `group`: those measured with it."""
        self.cell, self.pair, self.rows, self.runtime, self.group = cell, pair, rows, runtime, group or Group()
        self.lent: MutableMapping[tuple[str, int], PromptRow] = {}
        """Turns that other runs decoded autoregressively, by conversation and number; gets this one's."""
        self.decoding = Decoding(cell, pair, runtime, recordings)
        self.drafter, self.second_pass = self.decoding.drafter, SecondPass(self.decoding, rows)
        self.attention_kernels: set[str] = set()
        """Those of torch's that the warm-up met."""
        self.arms = [METHOD, AUTOREGRESSIVE] if runtime.baseline and recordings is None else [METHOD]
        timed = recordings is None and not runtime.placement
        self.stalls = Stalls() if timed and pair.target.device.type == "cpu" else None
        self.gpu = gpu_state.Gpu.of(pair.target.device) if timed else None

    def warm_up(self, conversation: Conversation) -> None:
        """Decode a few tokens in both arms until two decodings of an arm agree in time: buffers are then in place.

        Where nothing is timed, nothing is warmed up.
        PairError for a head that accepts next to nothing, also where it is given a longer answer to show itself.
        """
        try:
            turn = self.decoding.turn(conversation, 0, [])
            if self.decoding.recordings is None:
                self._settle(turn)
                self._note_kernels(turn)
            drafts = isinstance(self.pair.draft, Head) and self.drafter.draft_model is not None
            if drafts and not self.runtime.allow_useless_draft:
                self._check_head(turn)
        except PromptError:
            return  # it will be recorded as failed where it counts

    def _settle(self, turn: Turn) -> None:
        """Rounds of both arms, until the times per step of two agree, for `COLD_S` at least in a cold process.

        The last two are the first like of what is measured. A cell that borrows its baseline warms its method alone.
        """
        begin, least = time.monotonic(), 0.0 if next(_warm) else COLD_S
        arms = (METHOD,) if self.group.lends else (METHOD, AUTOREGRESSIVE)
        rounds: list[dict[str, Timed]] = []
        ended = False
        while not ended:
            tokens = min(turn.max_new_tokens, WARMUP_TOKENS)
            rounds.append({arm: self._timed(turn, arm, tokens)[1] for arm in arms})
            spent = time.monotonic() - begin
            settled = len(rounds) >= WARMUP_MOST or _agree(rounds)
            ended = agreed(functools.partial(bool, spent > WARMUP_S or (settled and spent >= least)))
        for arm, one in itertools.chain.from_iterable(last.items() for last in rounds[-2:]):
            self._like(arm, one)
            self.group.fastest = min(self.group.fastest, one.per_token)

    def _note_kernels(self, turn: Turn) -> None:
        """The attention kernels of a few steps of both arms."""
        with AttentionKernels() as kernels, self.pair.traced():
            for arm in self.arms:
                self.decoding.decode(turn, arm, min(turn.max_new_tokens, NOTED_TOKENS))
        self.attention_kernels |= kernels.names

    def step_costs(self, conversation: Conversation) -> StepCosts:
        """Of a few steps of the first turn, decoded once more."""
        turn = self.decoding.turn(conversation, 0, [])
        with StepCosts(launches=self.runtime.count_launches) as costs, self.pair.sealed():
            self.decoding.decode(turn, METHOD, min(turn.max_new_tokens, TOKENS), watch=costs)
        return costs

    def _like(self, arm: str, one: Timed) -> None:
        """What comes is held against this decoding, if there is a step to count."""
        if self.stalls and one.steps:
            self.stalls.learn(arm, one.pace, one.load)

    def _check_head(self, turn: Turn) -> None:
        """PairError unless more drafted tokens are accepted than ten times what uniform guesses would have.

        An answer of few steps tells nothing.
        """
        for tokens in (WARMUP_TOKENS, WARMUP_TOKENS * 8):
            watched = Chance(self.pair.target.vocab_size)
            found = self.decoding.decode(turn, METHOD, min(turn.max_new_tokens, tokens), watch=watched)
            accepted = sum(step.num_accepted for step in found.steps) - watched.virtual
            if accepted > TEN_TIMES * watched.accepted or (tokens > WARMUP_TOKENS > len(found.steps)):
                return
        raise PairError(
            f"{self.cell.pair.name}: the head has {accepted} tokens accepted in {len(found.steps)} steps, no more than "
            f"ten times what uniform guesses would have ({watched.accepted:.2g}). Likely its layer ids, its id map "
            "(d2t), its output matrix (lm_head) or the pair's template are not those that it was trained with; "
            "allow_useless_draft=true measures it all the same"
        )

    def run(self, conversation: Conversation, save: Save = lambda *_: None, place: int = 0) -> None:
        """All turns in both arms, but those whose rows are there. Later turns see the method's own answers.

        A prompt that cannot be decoded is recorded as failed and ends its conversation. `place` is the conversation's
        in the cell's list: from one to the next, and from turn to turn, the arms change which goes first.
        """
        texts = self._decoded(conversation)
        for number in range(len(texts[METHOD]), len(conversation.turns)):
            try:
                done = self._both_arms(self.decoding.turn(conversation, number, texts[METHOD]), place)
            except PromptError as error:
                self.rows.prompts.append(failed_row(self.cell.run_id, conversation, number, error, self.rows.start))
                break
            for arm, generation in done.items():
                texts[arm].append(self.decoding.text(generation))
            save(conversation, number, done[METHOD])
        self.second_pass.answers(conversation, texts[METHOD], texts[AUTOREGRESSIVE])

    def _decoded(self, conversation: Conversation) -> dict[str, list[str]]:
        """The answers to the turns that an earlier start of the cell decoded, by arm."""
        texts: dict[str, list[str]] = {METHOD: [], AUTOREGRESSIVE: []}
        for row in self.rows.prompts:
            if row.prompt_id == conversation.id:
                texts[row.arm].append(self.decoding.words(row.output_ids))
        return texts

    def excerpt(self) -> str | None:
        """The start of the first answer, the target's own where there is a baseline; None if all turns failed."""
        first = {row.arm: row for row in reversed(self.rows.prompts) if row.status == "ok"}
        row = first.get(AUTOREGRESSIVE, first.get(METHOD))
        return None if row is None else beginning(self.pair.tokenizer.decode(row.output_ids, skip_special_tokens=True))

    def _both_arms(self, turn: Turn, place: int) -> dict[str, Generation]:
        """Decode a turn in both arms, which take turns at going first, and write their rows."""
        lent = self._lent(turn)
        arms = self.arms if lent is None else [METHOD]
        if (place + turn.number) % 2:
            arms = arms[::-1]
        done, columns = self._undisturbed(turn, arms)
        if lent:
            self.rows.prompts.append(replace(lent, run_id=self.cell.run_id, start=None))
            self.rows.lender = self.rows.lender or lent.run_id
            done[AUTOREGRESSIVE] = Generation(lent.output_ids, lent.finish, [], lent.prefill_s, lent.decode_s)
        key = (self.cell.run_id, turn.conversation, turn.number)
        if mean := self.decoding.expected(turn, done[METHOD]):
            columns[METHOD] |= {"expected_steps": mean.steps, "expected_length": mean.length}
        for arm in arms:
            generation = done[arm]
            audit = self._audit(turn, generation, done.get(AUTOREGRESSIVE))
            more = audit | columns[arm]
            row = prompt_row(*key, arm, turn.prompt, generation, start=self.rows.start, **more)
            self.rows.prompts.append(row)
            if arm == AUTOREGRESSIVE:
                self.lent.setdefault((turn.conversation.id, turn.number), row)  # all turns are of one lender
        self.rows.steps.extend(step_rows(*key, done[METHOD]))
        self.second_pass.record(turn, done)
        return done

    def _lent(self, turn: Turn) -> PromptRow | None:
        """The turn as the target alone has decoded it for another run; later ones follow other answers if sampled.

        PairError for a first turn of other tokens.
        """
        row = self.lent.get((turn.conversation.id, turn.number)) if AUTOREGRESSIVE in self.arms else None
        if row is None or row.prompt_ids_sha256 == output_sha256(turn.prompt):
            return row
        if turn.number == 0:
            raise PairError(f"the baseline that {row.run_id} lends of {turn.conversation.id} is of other tokens")
        return None

    def _undisturbed(self, turn: Turn, arms: Sequence[str]) -> tuple[dict[str, Generation], dict[str, dict[str, Any]]]:
        """Decode a turn in these arms, again where a CPU stalled; with what rows say of the machine, by arm."""
        for repeats in range(stalls.REPEATS + 1):
            done, columns, timed = {}, {}, {}
            for arm in arms:
                before = self.gpu.look() if self.gpu else None
                done[arm], timed[arm] = self._timed(turn, arm)
                columns[arm] = gpu_state.between(before, self.gpu.look() if self.gpu else None).columns()
            stalled = self.stalls is not None and self.stalls.stalled(timed, self.group.limit_s(timed))
            if not stalled or repeats == stalls.REPEATS:
                break
            log.info("%s: %s turn %d stalled, and is decoded again", self.cell.label, turn.conversation.id, turn.number)
        for arm, one in timed.items() if self.stalls else ():
            self._like(arm, one)
            columns[arm] |= {"repeats": repeats, "other_load": one.load}
            columns[arm] |= {} if self.gpu else {"contaminated": stalled}
        return done, columns

    def _timed(self, turn: Turn, arm: str, max_new_tokens: int | None = None) -> tuple[Generation, Timed]:
        """Decode, and take the time."""
        before, begin = Moment.now(), time.monotonic()
        generation = self.decoding.decode(turn, arm, max_new_tokens)
        wall_s = time.monotonic() - begin
        steps, tokens = [step.seconds for step in generation.steps], sum(step.kept for step in generation.steps)
        return generation, Timed(steps, wall_s, stalls.foreign_s(before, Moment.now()), tokens)

    def _audit(self, turn: Turn, generation: Generation, reference: Generation | None) -> dict[str, Any]:
        """Greedy decoding only: is the output the autoregressive one, and if not, how close was the call."""
        if reference is None or not self.cell.sampling.greedy:
            return NO_AUDIT
        parted = divergence(self.pair.target, turn.prompt, generation.tokens, reference.tokens)
        if parted is None:
            return NO_AUDIT | {"identical": True}
        columns = {"first_divergence": parted.at, "divergence_gap": parted.gap, "largest_logit": parted.largest_logit}
        return columns | {"identical": False}


def _agree(rounds: Sequence[Mapping[str, Timed]]) -> bool:
    """Whether each arm took as long for a step in the last two rounds; an answer of the prefill alone has none."""
    pairs = zip(*(last.values() for last in rounds[-2:]), strict=True) if len(rounds) > 1 else ()
    paces = [sorted(one.pace for one in both if one.steps) for both in pairs]
    return len(rounds) > 1 and all(not both or both[-1] <= (1 + AGREE) * both[0] for both in paces)


def beginning(text: str, most: int = 200) -> str:
    """A text on one line, cut behind a word where it has more than so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 4].rpartition(' ')[0] or line[: most - 4]} ..."
