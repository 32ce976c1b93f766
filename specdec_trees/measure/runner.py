"""Runs cells: skip what is done, measure, write rows. A cell that fails is a row, not a crash."""

import contextlib
import logging
import traceback
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch

from specdec_core.checks import check_lossless
from specdec_core.drafters import Drafter
from specdec_core.engine import Generation
from specdec_core.errors import PromptError, SpecdecError
from specdec_core.models import Pair
from specdec_core.models.graphs import COMPILE, together
from specdec_core.models.ranks import agreed, world_size
from specdec_trees.measure import pairs, preemption, record, resumed, weights
from specdec_trees.measure.bandwidth import limit_tokens_per_s
from specdec_trees.measure.cell import IF_POSSIBLE, SHARED, Cell, Runtime
from specdec_trees.measure.cell_run import CellRun, claim, decoded_before, other_code, shared_baseline
from specdec_trees.measure.decoding import first_ids_sha256
from specdec_trees.measure.float32_audit import audit_in_float32
from specdec_trees.measure.group import Ended, Group, Way
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.recordings import Recordings, unrecorded
from specdec_trees.measure.to_rows import Outcome, Rows, run_row
from specdec_trees.measure.transcript import write_case_study
from specdec_trees.names import without_paths
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.prompts.templates import template_date
from specdec_trees.results import failures
from specdec_trees.results.judgements import still_valid
from specdec_trees.results.locks import CellBusyError
from specdec_trees.results.rows import PromptRow
from specdec_trees.results.store import OK, Store, StoreError

T = TypeVar("T")
log = logging.getLogger(__name__)
OOM, FAILED, INTERRUPTED, SKIPPED, BUSY = "oom", "failed", "interrupted", "skipped", "busy"
REFUSED = "refused"
"""What is no cell yet, since its config or calibration failed."""


class NotReplayedError(ValueError):
    """A cell that can be decoded alone; the message says why."""


MEASURED = (OK, OOM, FAILED)
"""How a cell ends that took its time."""
MEMORY = (torch.OutOfMemoryError, MemoryError)
SENTENCES = (SpecdecError, datasets.DatasetError, StoreError, ValueError)
"""Refusals whose message is all that the user needs."""


def run_cell(cell: Cell, runtime: Runtime, store: Store) -> str:
    """Measure a cell unless it is finished; its status. Ctrl-C and SIGTERM write what there is and are passed on."""
    (status,) = run_cells([CellRun(cell, runtime, store)]).values()
    if isinstance(status, Exception):
        raise status
    return status


def run_cells(runs: Sequence[CellRun], place: str = "") -> dict[str, Ended]:
    """Measure cells of one setting by turns, each as `run_cell` does; how each ended, by run id.

    `place` says where they stand in a sweep: on the progress bar, or in the log where there is none.
    """
    cell, runtime = runs[0].cell, runs[0].runtime
    group = Group(1) if runtime.baseline == SHARED else Group()
    label = ", ".join(filter(None, (f"{cell.pair.name}/{cell.dataset.name}", place)))
    if place and not runtime.progress:
        log.info("%s", label)
    label = label if runtime.progress else ""
    ended = group.run({run.run_id: _way(run, group) for run in runs}, (TypeError, OSError, *MEMORY, *SENTENCES), label)
    full = any(status == OOM or isinstance(status, MEMORY) for status in ended.values())
    if full:  # the others of the group had the pair until now
        pairs.release()
    return ended


def _way(run: CellRun, group: Group) -> Way:
    """Measure a cell unless it is finished, and stop behind each conversation; returns its status."""
    with contextlib.ExitStack() as held:
        try:
            wanted = agreed(lambda: claim(run, held))
        except CellBusyError as error:
            log.warning("%s: %s", run.label, error)
            return BUSY
        if not wanted:
            return skipped(run)
        return (yield from _measure_and_write(run.recording_as_before(), group))


def skipped(run: CellRun) -> str:
    """Say that a cell was run before; its status."""
    log.info("%s: already run as %s%s (force=true runs it again)", run.label, run.run_id, other_code(run))
    return SKIPPED


def left_to_others(count: int) -> str:
    """What is said at the end of a sweep of cells that other processes were running."""
    return f"cells left out, since other processes run them: {count}; the same command says later whether they ended"


def _measure_and_write(run: CellRun, group: Group) -> Way:
    """Measure a claimed cell and write its rows, however it ends; returns its status."""
    rows, outcome = Rows(), Outcome()
    stop: BaseException | None = None
    try:
        yield from _measure(run, rows, outcome, group)
    except (KeyboardInterrupt, preemption.Preempted) as asked:
        preempted = isinstance(asked, preemption.Preempted)
        outcome.error = "asked to end by SIGTERM" if preempted else "stopped by the user"
        outcome.status, stop = INTERRUPTED, asked
    except NotReplayedError:  # the cell itself is sound, and has no row of it
        raise
    except MEMORY as problem:
        outcome.status, outcome.error, stop = OOM, _last_lines(problem), _end_of_all_ranks()
    except SENTENCES as problem:
        outcome.status, outcome.error = FAILED, str(problem)
    except Exception as problem:  # whatever went wrong, the sweep goes on and the row says what it was
        outcome.status, outcome.error, stop = FAILED, _last_lines(problem), _end_of_all_ranks()
    outcome.error = outcome.error and without_paths(outcome.error)
    if outcome.status == OOM:  # only now does nothing hold the tensors of the failed step any more
        pairs.collect()
    _say_how_it_ended(run, rows, outcome)
    if outcome.status == OK or not run.ended_well:  # a failure never replaces rows that ended well
        _write(run, rows, outcome)
    if stop:
        raise stop
    return outcome.status


def _say_how_it_ended(run: CellRun, rows: Rows, outcome: Outcome) -> None:
    """A line of the log: a failure always, what ended well where no bar has shown it."""
    if outcome.error and outcome.status != INTERRUPTED:
        log.error("%s: %s: %s", run.label, outcome.status, outcome.error)
    elif outcome.status == OK and not run.runtime.progress:
        conversations = len({row.prompt_id for row in rows.prompts})
        log.info("%s: ok, %d conversations, %s", run.label, conversations, rows.running())


def _end_of_all_ranks() -> SystemExit | None:
    """What no rank but this one may have met leaves the others waiting; torchrun ends them when this one ends."""
    return SystemExit(1) if world_size() > 1 else None


def _write(run: CellRun, rows: Rows, outcome: Outcome) -> None:
    """Write the rows, that of `runs` last, since it marks the cell as finished. Grades stay where the answers did."""
    store, run_id = run.store, run.run_id
    judged, answers_before = (store.read(table, [run_id]) for table in ("judgements", "answers"))
    store.forget(run_id)
    for table in ("prompts", "steps", *run.runtime.instruments):
        store.write(table, run_id, getattr(rows, table))
    if len(judged):
        valid = still_valid(judged, answers_before, rows.answers)
        store.write("judgements", run_id, valid)
        if dropped := len(judged) - len(valid):
            log.warning("%s: %d grades are of answers that were there before, and are dropped", run.label, dropped)
    store.write("runs", run_id, [run_row(run, rows, outcome)])
    if outcome.status == OK:
        run.partial.drop()


def _measure(run: CellRun, rows: Rows, outcome: Outcome, group: Group) -> Iterator[tuple[int, str]]:
    """Decode all conversations into `rows`; what is learnt of models and data goes into `outcome`.

    It stops before the first conversation and behind each, so that cells of a group take turns.
    """
    cell, runtime = run.cell, run.runtime
    conversations = datasets.load(cell.dataset, data_dir=runtime.data_dir, limit=cell.limit)
    outcome.prompts_sha256 = datasets.fingerprint(conversations)
    pair, drafter, recordings = _loaded(run, conversations)
    _identify(run, pair, conversations, outcome)
    baseline: Mapping[str, PromptRow] = {}
    if runtime.baseline == SHARED and recordings is None:
        loaded = {name: getattr(outcome, name) for name in resumed.LOADED}
        outcome.baseline_of, baseline = agreed(lambda: shared_baseline(run, loaded))
    outcome.draws = drafter.draws
    outcome.lossless = check_lossless(drafter, cell.rule, cell.sampling, allow_lossy=cell.allow_lossy)
    if recordings:
        outcome.recording = recordings.key
        outcome.graphs = runtime.graphs_of(cell.pair)
    measurement = Measurement(cell, pair, rows, runtime, recordings, group)
    for conversation in conversations[: runtime.warmup_conversations]:
        measurement.warm_up(conversation)
    outcome.attention_kernels = ",".join(sorted(measurement.attention_kernels)) or None
    for graphs in pair.graphs:
        log.info("%s", graphs)
    measurement.lent = ChainMap(group.join(run.run_id), {(name, 0): row for name, row in baseline.items()})
    journal = resumed.Journal(run, rows, resumed.header(run, outcome, conversations), group)
    yield len(conversations), cell.drafter
    yield from _decode(run, measurement, journal, conversations)
    if outcome.lossless and cell.sampling.greedy and not recordings:
        audited = (cell, pair, runtime, rows.prompts, conversations)
        _spared(run, "audit in float32", lambda: audit_in_float32(*audited))
    outcome.baseline_of = outcome.baseline_of or rows.lender
    if world_size() == 1:  # to a rank the others are other processes
        outcome.other_load = journal.other_load
        if not (recordings or runtime.placement or cell.pair.target.offload):
            limit = _spared(run, "limit of tokens/s", lambda: limit_tokens_per_s(pair, rows.context()))
            outcome.limit_tokens_per_s = limit
        if not recordings:
            _note_costs(run, measurement, outcome, conversations[0])
    # a replay is of the cell that decodes so, whatever its draft does
    outcome.graphs = outcome.graphs if recordings else together(journal.modes) or outcome.graphs
    outcome.excerpt = measurement.excerpt()
    if failed := _failed_conversations(rows):
        log.warning("%s: %s", run.label, failed)


def _note_costs(run: CellRun, measurement: Measurement, outcome: Outcome, conversation: Conversation) -> None:
    """Waits and launches of a step, on a GPU."""
    if measurement.pair.target.device.type == "cuda" and (
        costs := _spared(run, "waits of a step", lambda: measurement.step_costs(conversation))
    ):
        outcome.waits_per_step, outcome.launches_per_step = costs.waits_per_step, costs.launches_per_step


def _spared(run: CellRun, what: str, measure: Callable[[], T]) -> T | None:
    """What is measured behind the last prompt; None, with a warning, where that fails: the cell itself stands."""
    try:
        return measure()
    except Exception as error:  # of any library: a cell that is lost for it would be lost at every start
        log.warning("%s: no %s (%s)", run.label, what, error)
        return None


def _loaded(run: CellRun, conversations: Sequence[Conversation]) -> tuple[Pair, Drafter, Recordings | None]:
    """A cell's pair, its drafter, and what it is replayed on; None where it is decoded.

    NotReplayedError where only a replay was asked for, and the cell has none.
    """
    cell, runtime = run.cell, run.runtime
    pair = pairs.loaded(cell.pair, runtime, target_weights=not runtime.replay)
    drafter, beside = cell.build_drafter(pair.draft), record.Beside.needed(cell, pair)
    if not runtime.replay:
        return pair, drafter, None
    reason = unrecorded(
        cell, drafter, [*(f"record_{table}" for table in runtime.instruments), *["case_study"] * runtime.case_study]
    )
    reason = reason or decoded_before(run)
    del pair, drafter  # the whole pair may be loaded in their place
    if reason and runtime.replay != IF_POSSIBLE:
        raise NotReplayedError(
            f"{run.label} is not replayed: {reason}; runtime.replay={IF_POSSIBLE} decodes such cells"
        )
    recordings = None if reason else record.kept(run, beside, conversations)
    pair = pairs.loaded(cell.pair, runtime, target_weights=recordings is None)
    return pair, cell.build_drafter(pair.draft), recordings


def _identify(run: CellRun, pair: Pair, conversations: Sequence[Conversation], outcome: Outcome) -> None:
    """Note the very weights and token ids that will be decoded, and on what."""
    template, dataset, target = run.cell.pair.template, run.cell.dataset, pair.target
    outcome.device, outcome.dtype = str(target.device), str(target.dtype).removeprefix("torch.")
    outcome.attention, outcome.graphs = target.attention, pair.mode or COMPILE
    outcome.prompt_ids_sha256 = first_ids_sha256(pair, template, dataset, conversations)
    outcome.template_date = template_date(pair.tokenizer, template, dataset.mode)
    revisions = weights.revisions(run.cell.pair)
    loaded = {"target_revision": pair.target, "draft_revision": pair.draft}
    for column, model in loaded.items():
        commit = getattr(model.config, "_commit_hash", None) if model else None
        setattr(outcome, column, commit or revisions.get(column))


def _decode(
    run: CellRun, measurement: Measurement, journal: resumed.Journal, conversations: Sequence[Conversation]
) -> Iterator[tuple[int, str]]:
    """Decode what earlier starts have not; whatever is decoded is on the disk before the next prompt begins."""
    pair = measurement.pair

    def save(conversation: Conversation, turn: int | None, generation: Generation | None = None) -> None:
        shown = turn == 0 and conversation is conversations[0]
        if run.runtime.case_study and generation and shown:
            write_case_study(run.store.folder, run.cell, pair, conversation, generation)
        journal.save(conversation.id, turn, mode=pair.mode)

    for place, conversation in enumerate(conversations):
        if not journal.has_ended(conversation):
            with pair.sealed(), journal.stop.heard():
                measurement.run(conversation, save, place)
                save(conversation, resumed.END)
        yield len(conversations), f"{run.cell.drafter} {measurement.rows.running()}"


def _failed_conversations(rows: Rows) -> str:
    """A sentence on which conversations failed and why; PromptError where none was decoded to its end."""
    names = {row.prompt_id for row in rows.prompts}
    errors = {row.prompt_id: row.error for row in reversed(rows.prompts) if row.error}
    if len(errors) == len(names):
        first = next((row.error for row in rows.prompts if row.error), "there is none")
        raise PromptError(f"no conversation could be decoded to its end; the first: {first}")
    return failures.sentence(errors, len(names))


def _last_lines(problem: BaseException, lines: int = 6) -> str:
    return "\n".join("".join(traceback.format_exception(problem)).strip().splitlines()[-lines:])
