"""Recording: every turn of a cell's conversations answered by the target alone, once, and kept in `calibration`."""

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from specdec_core.checks import check_request
from specdec_core.drafters import Autoregressive
from specdec_core.errors import PromptError
from specdec_core.models import CausalLM, Head, Pair
from specdec_core.models.causal_lm import Layers
from specdec_core.replay import Recording, record, record_together, recorded_length, with_distributions
from specdec_trees.measure import engine_answers, pairs, weights
from specdec_trees.measure.cell import Cell
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.measure.decoding import Decoding, Turn
from specdec_trees.measure.once import once
from specdec_trees.measure.recordings import Recordings, features, features_of, recorded
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.identity import identity
from specdec_trees.results.kept_rows import FOLDER, RecordingRow
from specdec_trees.results.parquet import hidden_name
from specdec_trees.results.partial import Entry, Partial
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Store, run_id

log = logging.getLogger(__name__)
BEYOND = 64
"""Tokens behind each output that are recorded too, since the tree of a last step may be accepted so far."""
TOGETHER = 8
"""Prompts whose answers are decoded in one batch."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What of the target is recorded beside its tokens."""

    layers: Layers = ()
    """Those whose features the draft reads."""
    distributions: bool = False
    """What the tokens were drawn from."""

    @classmethod
    def needed(cls, cell: Cell, pair: Pair) -> "Beside":
        """What a cell is replayed on: its draft may read features, its rule compare p with q."""
        layers = pair.draft.layers if isinstance(pair.draft, Head) else ()
        return cls(layers, cell.by_distributions)

    def tensors(self, recording: Recording) -> dict[str, Tensor]:
        """Those of an answer, by name."""
        drawn_from = recording.distributions
        of_draws = {name: getattr(drawn_from, name) for name in ("ends", "ids", "probs") if drawn_from}
        return of_draws | ({} if recording.hidden is None else {"hidden": recording.hidden.contiguous()})


def kept(run: CellRun, beside: Beside, conversations: Sequence[Conversation], *, force: bool = False) -> Recordings:
    """The recordings for a cell's prompts, made unless they were; of several processes one records, others wait.

    Drawn answers that have their distributions beside them serve where those are not needed too. Whoever records loads
    the whole pair, but where `runtime.answers` has what another engine decoded.
    """
    store = Store(run.store.root, FOLDER)
    if not (run.cell.sampling.greedy or force):
        more = replace(beside, distributions=True)
        beside = more if _complete(store, _keys(run.cell, more)[0]) else beside
    key, series = _keys(run.cell, beside)

    def measure() -> None:
        if run.runtime.answers and not run.cell.sampling.greedy:
            raise ValueError(f"{run.runtime.answers} is taken for greedy answers; leave out decoding.temperature")
        if run.runtime.answers and beside.layers:
            raise ValueError(f"{run.runtime.answers} has token ids alone, and this head reads the target's features")
        whole = pairs.loaded(run.cell.pair, run.runtime, target_weights=not run.runtime.answers)
        plain = _keys(run.cell, replace(beside, distributions=False))
        rows = _recorded(run, whole, conversations, _Place(store, key, series, beside, plain))
        store.write("recordings", key, rows)
        Partial(store.folder, key).drop()
        log.info("%s: the target's answers written as recording %s", run.label, key)

    once(store, key, lambda: _complete(store, key), measure, force=force)
    return Recordings.read(run.store.root, key)


def _complete(store: Store, key: str) -> bool:
    """Whether a recording is there, with all that it had beside its tokens."""
    if not store.has("recordings", key):
        return False
    rows = Recordings.read(store.root, key).rows.values()
    return all(features_of(features(store, key), row).is_file() for row in rows if row.layers or row.distributions)


def of_cell(run: CellRun) -> Recordings:
    """The recordings that a cell would be replayed on."""
    cell, runtime = run.cell, run.runtime
    conversations = datasets.load(cell.dataset, data_dir=runtime.data_dir, limit=cell.limit)
    if runtime.tensor_parallel:
        raise ValueError("a recording is made by one process; use runtime.device_map in place of tensor_parallel")
    return kept(run, Beside.needed(cell, pairs.loaded(cell.pair, runtime)), conversations, force=runtime.force)


def summary(recordings: Recordings) -> str:
    """How many answers of how many tokens a recording has, how near their closest tie is, and where it lies."""
    rows = [row for row in recordings.rows.values() if not row.error]
    gaps, tokens = [gap for row in rows for gap in row.gaps], sum(len(row.answer_ids) for row in rows)
    nearest = f"; best and second best logit are at least {min(gaps):.2g} apart" if gaps else ""
    megabytes = sum(path.stat().st_size for path in recordings.folder.glob("*.safetensors")) / 1e6
    features = f", features and distributions {megabytes:.1f} MB" if megabytes else ""
    return (
        f"recording {recordings.key}: {len(rows)} answers, {tokens} tokens{features}{nearest}\n"
        "runtime.replay=true runs cells of these prompts on it"
    )


def _keys(cell: Cell, beside: Beside) -> tuple[str, str]:
    """What tells recordings apart: target, template, prompts, the answers' end, dtype, attention, what is beside them.

    The second key is of all that differ in how many prompts and tokens they have.
    """
    plain = identity(cell.config)
    nothing = ("draft_temperature", *["draft"] * (not cell.pair.planted))  # planted targets are made with their draft
    pair = {name: value for name, value in plain["pair"].items() if name not in nothing}
    decoding = {name: plain["decoding"].get(name, False) for name in ("max_new_tokens", "ignore_eos")}
    drawn = {} if cell.sampling.greedy else {"sampling": asdict(cell.sampling), "seed": cell.seed}
    runtime = {name: value for name, value in plain["runtime"].items() if name not in ("node_order", "graphs")}
    commit = weights.commits(cell.pair).get("commits", {}).get("target_revision")
    config = {"pair": pair, "dataset": plain["dataset"], "limit": plain["limit"], "decoding": decoding}
    config |= drawn | ({"distributions": True} if beside.distributions else {})
    whole = {"recording": config, "runtime": runtime, "commit": commit, "layers": [*beside.layers], "beyond": BEYOND}
    decoding = {name: value for name, value in decoding.items() if name != "max_new_tokens"}
    return run_id(whole), run_id(whole | {"recording": config | {"limit": None, "decoding": decoding}})


@dataclass(frozen=True)
class _Place:
    """Where a recording is written, and what goes with it."""

    store: Store
    key: str
    series: str
    beside: Beside
    plain: tuple[str, str]
    """Key and series of the same answers without distributions."""

    def write(self, row: RecordingRow, tensors: dict[str, Tensor]) -> None:
        """An answer's features and distributions."""
        path = features_of(features(self.store, self.key), row)
        temporary = path.parent / hidden_name(path.name)
        save_file(tensors, temporary)
        temporary.replace(path)


def _recorded(run: CellRun, pair: Pair, conversations: Sequence[Conversation], place: _Place) -> list[RecordingRow]:
    """Answer all turns with the target alone; an earlier start that was stopped goes on behind what it answered.

    First turns come first, since the answers to several prompts are decoded together.
    """
    partial = Partial(place.store.folder, place.key)
    header = {**run.machine, "beyond": BEYOND, "answers": run.runtime.answers}
    earlier = partial.read()
    earlier = earlier if earlier and earlier.header == header else None
    answered: dict[str, list[RecordingRow]] = {conversation.id: [] for conversation in conversations}
    for entry in earlier.entries if earlier else ():
        answered[entry.prompt_id].extend(entry.rows["recordings"])
    partial.begin(header, earlier)
    features(place.store, place.key).mkdir(parents=True, exist_ok=True)
    decoding = Decoding(run.cell, pair, run.runtime)
    others = _lenders(run, place)
    before = f", of which {len(earlier.entries)} are there" if earlier and earlier.entries else ""
    log.info("%s: recording %s%s", run.label, _size(decoding, conversations, place.beside), before)
    total, hidden = sum(len(conversation.turns) for conversation in conversations), not run.runtime.progress
    bar = tqdm(total=total, desc=f"{run.label} recorded", unit="turn", disable=hidden)
    for number in range(max(len(conversation.turns) for conversation in conversations)):
        turns = [turn for one in conversations if (turn := _turn(decoding, one, number, answered[one.id]))]
        lent = [(turn, row) for turn in turns if (row := _lent(run, pair.target, turn, others, place))]
        missing = [turn for turn in turns if all(turn is not one for one, _ in lent)]
        made = _of_engine if run.runtime.answers else _of_target
        for turn, row in itertools.chain(lent, made(run, decoding, missing, place)):
            partial.add(Entry(turn.conversation.id, number, {"recordings": [row]}))
            answered[turn.conversation.id].append(row)
            bar.update()
    return [row for rows in answered.values() for row in rows]


def _lenders(run: CellRun, place: _Place) -> list[RecordingRow]:
    """Answers of the series that this start would decode too: no engine's, and drawn ones of this machine alone.

    Of another stream those that end early would be lent, and the others drawn anew: short answers would be too many.
    The very answers that other methods are replayed on come first, of whatever machine.
    """
    series = (place.series, place.plain[1])
    others = [row for row in recorded(place.store) if row.series in series and not row.error]
    if run.cell.sampling.greedy:
        return others if run.runtime.answers else [row for row in others if row.gaps]
    here = run.machine["device_name"], run.machine["torch_version"]
    same = [row for row in others if row.run_id == place.plain[0]]
    return [*same, *(row for row in others if (row.device_name, row.torch_version) == here)]


def _lent(
    run: CellRun, target: CausalLM, turn: Turn, others: Sequence[RecordingRow], place: _Place
) -> RecordingRow | None:
    """The answer that another recording of the series has, if it is as long as is needed, with what lies beside it.

    A drawn one is of the very turn, whose stream it is of. Where it lacks distributions the target reads it.
    """
    sha256, length = output_sha256(turn.prompt), recorded_length(target, turn.prompt, turn.max_new_tokens, BEYOND)
    stream = turn.conversation.id, turn.number
    for row in others:
        own = run.cell.sampling.greedy or (row.prompt_id, row.turn) == stream
        if row.prompt_ids_sha256 != sha256 or not own or not (row.ended or len(row.answer_ids) >= length):
            continue
        path = features_of(features(place.store, row.run_id), row)
        stored = bool(row.layers or row.distributions)
        if stored and not path.is_file():
            continue
        tensors = load_file(path) if stored else {}
        if place.beside.distributions and not row.distributions:
            answer = Recording((*turn.prompt,), (*row.answer_ids,), (), row.ended, row.vocab_size, row.max_positions)
            tensors |= place.beside.tensors(with_distributions(target, answer, run.cell.sampling))
        if tensors:
            place.write(row, tensors)
        lent = replace(row, run_id=place.key, series=place.series, distributions=place.beside.distributions)
        return replace(lent, prompt_id=turn.conversation.id, turn=turn.number)
    return None


def _of_target(
    run: CellRun, decoding: Decoding, turns: Sequence[Turn], place: _Place
) -> Iterator[tuple[Turn, RecordingRow]]:
    for batch in _batches(turns):
        yield from zip(batch, _answered(run, decoding, batch, place), strict=True)


def _of_engine(
    run: CellRun, decoding: Decoding, turns: Sequence[Turn], place: _Place
) -> Iterator[tuple[Turn, RecordingRow]]:
    """Those of `runtime.answers`; PairError names the file of the prompts that have none there."""
    target, path = decoding.pair.target, Path(run.runtime.answers or "")
    sizes = {"eos": decoding.eos, "vocab_size": target.vocab_size, "max_positions": target.max_positions}
    answers, missing = engine_answers.read(path), []
    for turn in turns:
        error, length = _refusal(decoding, turn), recorded_length(target, turn.prompt, turn.max_new_tokens, BEYOND)
        nothing = Recording((*turn.prompt,), (), (), False, target.vocab_size, target.max_positions)
        if recording := nothing if error else engine_answers.recording(turn, answers, length, sizes):
            yield turn, replace(_row(run, decoding, turn, recording, error, place), device_name=path.name)
        else:
            missing.append((turn, length))
    if missing:
        raise engine_answers.ask(path, *zip(*missing, strict=True))


def _batches(turns: Sequence[Turn]) -> Iterator[Sequence[Turn]]:
    """Turns of one length of answer, those with prompts of similar lengths together."""
    for _, alike in itertools.groupby(sorted(turns, key=_lengths), key=lambda turn: turn.max_new_tokens):
        several = list(alike)
        yield from (several[start : start + TOGETHER] for start in range(0, len(several), TOGETHER))


def _lengths(turn: Turn) -> tuple[int, int]:
    return turn.max_new_tokens, len(turn.prompt)


def _turn(decoding: Decoding, conversation: Conversation, number: int, rows: Sequence[RecordingRow]) -> Turn | None:
    """A turn that is next behind those answered; None where there is none, or an earlier one was refused."""
    if len(rows) != number or number >= len(conversation.turns) or any(row.error for row in rows):
        return None
    answers: list[str] = []
    try:
        for place, row in enumerate(rows):
            new = decoding.turn(conversation, place, answers).max_new_tokens
            answers.append(decoding.words(row.answer_ids[:new]))
        return decoding.turn(conversation, number, answers)
    except PromptError:  # whoever replays meets it too
        return None


def _answered(run: CellRun, decoding: Decoding, turns: Sequence[Turn], place: _Place) -> Iterator[RecordingRow]:
    """The target's answers to turns of one length, or why there is none; the features of each are then on the disk."""
    target, errors = decoding.pair.target, [_refusal(decoding, turn) for turn in turns]
    answered = [turn for turn, error in zip(turns, errors, strict=True) if not error]
    ends = {"max_new_tokens": turns[0].max_new_tokens, "beyond": BEYOND, "eos_token_ids": decoding.eos}
    options: dict[str, Any] = {**ends, "layers": place.beside.layers}
    if run.cell.sampling.greedy:
        recordings = iter(record_together(target, [turn.prompt for turn in answered], **options))
    else:  # by the stream that plain decoding draws from
        options |= {"sampling": run.cell.sampling, "distributions": place.beside.distributions}
        streams = ((turn, decoding.generator(turn, AUTOREGRESSIVE)) for turn in answered)
        recordings = (record(target, turn.prompt, **options, rng=rng) for turn, rng in streams)
    for turn, error in zip(turns, errors, strict=True):
        nothing = Recording((*turn.prompt,), (), (), False, target.vocab_size, target.max_positions)
        yield _row(run, decoding, turn, nothing if error else next(recordings), error, place)


def _refusal(decoding: Decoding, turn: Turn) -> str | None:
    """Why the target decodes nothing behind a prompt."""
    try:
        check_request(decoding.pair.target, Autoregressive(), turn.prompt, turn.max_new_tokens, decoding.eos)
    except PromptError as problem:
        return str(problem)
    return None


def _row(
    run: CellRun, decoding: Decoding, turn: Turn, recording: Recording, error: str | None, place: _Place
) -> RecordingRow:
    """The row of an answer, whose features are written."""
    cell, machine = run.cell, run.machine
    row = RecordingRow(
        run_id=place.key,
        pair=cell.pair.name,
        target_id=cell.pair.target.id,
        target_revision=weights.revisions(cell.pair).get("target_revision"),
        dataset=cell.dataset.name,
        **{name: machine[name] for name in ("device_name", "dtype", "torch_version", "git_revision")},
        prompt_id=turn.conversation.id,
        turn=turn.number,
        prompt_ids_sha256=output_sha256(turn.prompt),
        prompt_ids=turn.prompt,
        answer_ids=[*recording.answer],
        gaps=[*recording.gaps],
        ended=recording.ended,
        eos_ids=decoding.eos,
        vocab_size=recording.vocab_size,
        max_positions=recording.max_positions,
        layers=[*place.beside.layers] if recording.hidden is not None else [],
        error=error,
        distributions=recording.distributions is not None,
        series=place.series,
    )
    if tensors := place.beside.tensors(recording):
        place.write(row, tensors)
    return row


def _size(decoding: Decoding, conversations: Sequence[Conversation], beside: Beside) -> str:
    """`160 answers of at most 232 tokens, features of 41 MB`: the most that a recording may come to."""
    turns = sum(len(conversation.turns) for conversation in conversations)
    longest, target = decoding.cell.max_new_tokens + BEYOND, decoding.pair.target
    sizes = [f"{turns} answers of at most {longest} tokens"]
    if beside.layers:
        tokens = 0
        for conversation in conversations:
            for number in range(len(conversation.turns)):
                with contextlib.suppress(PromptError):
                    prompt = decoding.turn(conversation, number, [""] * number).prompt
                    tokens += len(prompt) + (number + 1) * longest
        megabytes = tokens * len(beside.layers) * target.config.hidden_size * target.dtype.itemsize / 1e6
        sizes.append(f"features of at most {megabytes:.0f} MB")
    if beside.distributions:  # a token id and a probability for each token of the support
        sizes.append(f"distributions of at most {turns * longest * target.vocab_size * 8 / 1e6:.0f} MB")
    return ", ".join(sizes)
