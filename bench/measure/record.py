"""Recording: every turn of a cell's conversations answered by the target alone, once, and kept in `calibration`."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from safetensors.torch import save_file
from tqdm import tqdm

from bench.measure import pairs, weights
from bench.measure.cell import Cell
from bench.measure.cell_run import CellRun
from bench.measure.decoding import Decoding, Turn
from bench.measure.once import FOLDER, once
from bench.measure.recordings import Recordings, features
from bench.prompts import datasets
from bench.prompts.datasets import Conversation
from bench.results.digests import output_sha256
from bench.results.identity import identity
from bench.results.kept_rows import RecordingRow
from bench.results.parquet import hidden_name
from bench.results.partial import Entry, Partial
from bench.results.store import Store, run_id
from specdec_core.errors import PromptError
from specdec_core.models import Head, Pair
from specdec_core.models.causal_lm import Layers
from specdec_core.replay import Recording, record

log = logging.getLogger(__name__)
BEYOND = 32
"""Tokens behind each output that are recorded too, since the tree of a last step may be accepted so far."""


def kept(run: CellRun, pair: Pair, conversations: Sequence[Conversation], *, force: bool = False) -> Recordings:
    """The recordings for a cell's prompts, made unless they were; of several processes one records, others wait.

    Whoever records loads the whole pair, which may take the place of this one.
    """
    layers = pair.draft.layers if isinstance(pair.draft, Head) else ()
    store, key = Store(run.store.root, FOLDER), _key(run.cell, layers)

    def measure() -> None:
        whole = pairs.loaded(run.cell.pair, run.runtime)
        rows = _recorded(run, whole, conversations, _Place(store, key, layers))
        store.write("recordings", key, rows)
        Partial(store.folder, key).drop()
        log.info("%s: the target's answers written as recording %s", run.label, key)

    once(store, key, lambda: store.has("recordings", key), measure, force=force)
    return Recordings.read(run.store.root, key)


def of_cell(run: CellRun) -> Recordings:
    """The recordings that a cell would be replayed on."""
    cell, runtime = run.cell, run.runtime
    conversations = datasets.load(cell.dataset, data_dir=runtime.data_dir, limit=cell.limit)
    return kept(run, pairs.loaded(cell.pair, runtime), conversations, force=runtime.force)


def summary(recordings: Recordings) -> str:
    """How many answers of how many tokens a recording has, how near their closest tie is, and where it lies."""
    rows = [row for row in recordings.rows.values() if not row.error]
    gaps = [gap for row in rows for gap in row.gaps]
    nearest = f"; best and second best logit are at least {min(gaps):.2g} apart" if gaps else ""
    megabytes = sum(path.stat().st_size for path in recordings.folder.glob("*.safetensors")) / 1e6
    features = f", features {megabytes:.1f} MB" if megabytes else ""
    return (
        f"recording {recordings.key}: {len(rows)} answers, {len(gaps)} tokens{features}{nearest}\n"
        "runtime.replay=true runs cells of these prompts on it"
    )


def _key(cell: Cell, layers: Layers) -> str:
    """What tells recordings apart: target, template, prompts, the answers' end, dtype, attention, features."""
    plain = identity(cell.config)
    pair = {name: value for name, value in plain["pair"].items() if name not in ("draft", "draft_temperature")}
    decoding = {name: plain["decoding"].get(name, False) for name in ("max_new_tokens", "ignore_eos")}
    runtime = {name: value for name, value in plain["runtime"].items() if name not in ("node_order", "graphs")}
    commit = weights.commits(cell.pair).get("commits", {}).get("target_revision")
    config = {"pair": pair, "dataset": plain["dataset"], "limit": plain["limit"], "decoding": decoding}
    return run_id({"recording": config, "runtime": runtime, "commit": commit, "layers": [*layers], "beyond": BEYOND})


@dataclass(frozen=True)
class _Place:
    """Where a recording is written, and which layers' features go with it."""

    store: Store
    key: str
    layers: Layers


def _recorded(run: CellRun, pair: Pair, conversations: Sequence[Conversation], place: _Place) -> list[RecordingRow]:
    """Answer all turns with the target alone; an earlier start that was stopped goes on behind its last turn."""
    partial, header = Partial(place.store.folder, place.key), {**run.machine, "beyond": BEYOND}
    earlier = partial.read()
    earlier = earlier if earlier and earlier.header == header else None
    rows = [row for entry in earlier.entries for row in entry.rows["recordings"]] if earlier else []
    partial.begin(header, earlier)
    features(place.store, place.key).mkdir(parents=True, exist_ok=True)
    decoding = Decoding(run.cell, pair, run.runtime)
    log.info("%s: recording %s", run.label, _size(decoding, conversations, place.layers))
    bar = tqdm(conversations, desc=f"{run.label} recorded", unit="conversation", disable=not run.runtime.progress)
    for conversation in bar:
        before = [row for row in rows if row.prompt_id == conversation.id]
        for row in _turns(run, decoding, conversation, before, place):
            partial.add(Entry(conversation.id, row.turn, {"recordings": [row]}))
            rows.append(row)
    return rows


def _size(decoding: Decoding, conversations: Sequence[Conversation], layers: Layers) -> str:
    """`160 answers of at most 232 tokens, features of 41 MB`: the most that a recording may come to."""
    turns = sum(len(conversation.turns) for conversation in conversations)
    longest = decoding.cell.max_new_tokens + BEYOND
    text = f"{turns} answers of at most {longest} tokens"
    if not layers:
        return text
    tokens = 0
    for conversation in conversations:
        for number in range(len(conversation.turns)):
            with contextlib.suppress(PromptError):
                tokens += len(decoding.turn(conversation, number, [""] * number).prompt) + number * longest + longest
    target = decoding.pair.target
    megabytes = tokens * len(layers) * target.config.hidden_size * target.dtype.itemsize / 1e6
    return f"{text}, features of at most {megabytes:.0f} MB"


def _turns(
    run: CellRun, decoding: Decoding, conversation: Conversation, before: Sequence[RecordingRow], place: _Place
) -> Iterator[RecordingRow]:
    """The rows of a conversation's turns that are not there yet, up to one that the target refuses."""
    most = run.cell.max_new_tokens
    answers = [decoding.words(row.answer_ids[:most]) for row in before]
    refused = any(row.error for row in before)
    while len(answers) < len(conversation.turns) and not refused:
        try:
            turn = decoding.turn(conversation, len(answers), answers)
        except PromptError:  # whoever replays meets it too
            return
        row = _answered(run, decoding, turn, place)
        refused = row.error is not None
        answers.append(decoding.words(row.answer_ids[: turn.max_new_tokens]))
        yield row


def _answered(run: CellRun, decoding: Decoding, turn: Turn, place: _Place) -> RecordingRow:
    """The target's answer to a turn, whose features are then on the disk; or why there is none."""
    pair, sha256, error = decoding.pair, output_sha256(turn.prompt), None
    target = pair.target
    recording = Recording((*turn.prompt,), (), (), False, target.vocab_size, target.max_positions)
    try:
        recording = record(
            target,
            turn.prompt,
            max_new_tokens=turn.max_new_tokens,
            beyond=BEYOND,
            eos_token_ids=decoding.eos,
            layers=place.layers,
        )
    except PromptError as problem:
        error = str(problem)
    if recording.hidden is not None:
        path = features(place.store, place.key) / f"{sha256}.safetensors"
        temporary = path.parent / hidden_name(path.name)
        save_file({"hidden": recording.hidden.contiguous()}, temporary)
        temporary.replace(path)
    cell, machine = run.cell, run.machine
    return RecordingRow(
        run_id=place.key,
        pair=cell.pair.name,
        target_id=cell.pair.target.id,
        target_revision=weights.revisions(cell.pair).get("target_revision"),
        dataset=cell.dataset.name,
        **{name: machine[name] for name in ("device_name", "dtype", "torch_version")},
        prompt_id=turn.conversation.id,
        turn=turn.number,
        prompt_ids_sha256=sha256,
        prompt_ids=turn.prompt,
        answer_ids=[*recording.answer],
        gaps=[*recording.gaps],
        ended=recording.ended,
        eos_ids=decoding.eos,
        vocab_size=recording.vocab_size,
        max_positions=recording.max_positions,
        layers=[*place.layers] if recording.hidden is not None else [],
        error=error,
    )
