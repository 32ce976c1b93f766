"""Runs cells: skip what is done, measure, write rows. A cell that fails is a row, not a crash."""

import contextlib
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from tqdm import tqdm

from bench.measure import pairs, preemption, provenance, resumed, weights
from bench.measure.bandwidth import limit_tokens_per_s
from bench.measure.cell import SHARED, Cell, Runtime
from bench.measure.decoding import first_ids_sha256
from bench.measure.measurement import Measurement
from bench.measure.to_rows import Outcome, Rows, run_row
from bench.measure.transcript import write_case_study
from bench.prompts import datasets
from bench.prompts.datasets import Conversation
from bench.prompts.templates import template_date
from bench.results import failures
from bench.results.judgements import still_valid
from bench.results.locks import CellBusyError
from bench.results.partial import Partial
from bench.results.reuse import is_committed, lent_baseline, take_over
from bench.results.roles import Role, columns
from bench.results.rows import RECORDED, PromptRow, RunRow
from bench.results.store import OK, Store, StoreError
from specdec_core.checks import check_lossless
from specdec_core.engine import Generation
from specdec_core.errors import PromptError, SpecdecError
from specdec_core.models import Pair
from specdec_core.models.graphs import EAGER, MIXED
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_core.models.ranks import agreed, world_size

log = logging.getLogger(__name__)
_SAME = columns(RunRow, Role.MACHINE)
"""What rows of another experiment must have in common with this process to be taken over."""
OOM, FAILED, INTERRUPTED, SKIPPED, BUSY = "oom", "failed", "interrupted", "skipped", "busy"
REFUSED = "refused"
"""What is no cell yet, since its config or calibration failed."""
SENTENCES = (SpecdecError, datasets.DatasetError, StoreError, ValueError)
"""Refusals whose message is all that the user needs."""


def run_cell(cell: Cell, runtime: Runtime, store: Store) -> str:
    """Measure a cell unless it is done; its status. Ctrl-C and SIGTERM write what there is and are passed on."""
    with contextlib.ExitStack() as held:
        try:
            wanted = agreed(lambda: _claimed(cell, runtime, store, held))
        except CellBusyError as error:
            log.warning("%s: %s", cell.label, error)
            return BUSY
        if not wanted:
            log.info("%s: already run as %s (force=true runs it again)", cell.label, cell.run_id)
            return SKIPPED
        return _run(cell, runtime, store)


def left_to_others(count: int) -> str:
    """What is said at the end of a sweep of cells that other processes were running."""
    return f"cells left out, since other processes run them: {count}; the same command says later whether they ended"


def _claimed(cell: Cell, runtime: Runtime, store: Store, held: contextlib.ExitStack) -> bool:
    """Take the cell's lock; whether there is something to do."""
    store.check_writable()
    held.enter_context(store.lock(cell.run_id, note=cell.pair.name))
    if _wanted(cell, runtime, store) and not _taken_over(cell, runtime, store):
        if not store.has("runs", cell.run_id) and (before := weights.replaced(cell, store)):
            log.warning("%s: run %s is of other weights in the same folders; measured anew", cell.label, before)
        return True
    _drop_left(cell, runtime, store)
    return False


def _drop_left(cell: Cell, runtime: Runtime, store: Store) -> None:
    """Delete what a kill behind a cell's last row left of its start, unless that start asked for more than is there."""
    left = Partial(store.folder, cell.run_id)
    if store.status(cell.run_id) != OK or not left.path.is_file():
        return
    if begun := left.read():
        asked: dict[str, Any] = {f"record_{table}": True for table in begun.of.get("recorded", ())}
        asked |= {"baseline": begun.of.get("baseline", True), "force": False, "retry_failed": False}
        if _wanted(cell, replace(runtime, **asked), store):
            return
    left.drop()


def _taken_over(cell: Cell, runtime: Runtime, store: Store) -> bool:
    """Whether another experiment of the same results folder has measured the very same cell, and gave its rows."""
    if runtime.force or runtime.retry_failed or runtime.case_study or store.status(cell.run_id) == OK:
        return False
    like, recorded = _same_machine(runtime) | weights.revisions(cell.pair), _recorded(runtime)
    origin = take_over(store, cell.run_id, like, baseline=bool(runtime.baseline), recorded=recorded)
    if origin:
        log.info("%s: rows taken over from %s, which runs the same cell", cell.label, origin)
    return bool(origin)


def _same_machine(runtime: Runtime) -> dict[str, Any]:
    """What rows must say if they are to stand for what would be measured here and now."""
    device = resolve_device(runtime.device)
    dtype = str(resolve_dtype(runtime.dtype, torch.device(device))).removeprefix("torch.")
    here = provenance.collect(str(device), dtype, runtime.attention, runtime.placement)
    return {key: here[key] for key in _SAME}


def _wanted(cell: Cell, runtime: Runtime, store: Store) -> bool:
    """Whether there is something to do: a cell is done if its row says `ok` and its files hold what is asked for."""
    runs = store.read("runs", [cell.run_id])
    status = None if runs.empty else runs["status"].iloc[-1]
    if runtime.retry_failed:
        return status not in (None, OK)
    if runtime.force or status != OK:
        return True
    if changed := weights.other(runs.iloc[-1].to_dict(), weights.revisions(cell.pair)):
        log.warning(
            "%s: run %s is of other weights and is measured anew: %s", cell.label, cell.run_id, "; ".join(changed)
        )
        return True
    lacks_baseline = runtime.baseline and runs["autoregressive_tokens_per_s"].isna().all()
    return bool(lacks_baseline) or not store.whole(cell.run_id, _recorded(runtime))


def _recorded(runtime: Runtime) -> list[str]:
    """The tables that are asked for beside the usual ones."""
    return [table for table in RECORDED if getattr(runtime, f"record_{table}")]


def _run(cell: Cell, runtime: Runtime, store: Store) -> str:
    """Measure and write."""
    rows, outcome = Rows(), Outcome()
    if store.has("runs", cell.run_id):
        # what a finished run recorded is recorded again, since the rows of all tables are replaced together
        again: dict[str, Any] = {f"record_{table}": True for table in RECORDED if store.has(table, cell.run_id)}
        runtime = replace(runtime, **again)
    stop: BaseException | None = None
    try:
        _measure(cell, runtime, store, rows, outcome)
    except (KeyboardInterrupt, preemption.Preempted) as asked:
        preempted = isinstance(asked, preemption.Preempted)
        outcome.error = "asked to end by SIGTERM" if preempted else "stopped by the user"
        outcome.status, stop = INTERRUPTED, asked
    except (torch.OutOfMemoryError, MemoryError) as problem:
        outcome.status, outcome.error, stop = OOM, _last_lines(problem), _end_of_all_ranks()
    except SENTENCES as problem:
        outcome.status, outcome.error = FAILED, str(problem)
    except Exception as problem:  # whatever went wrong, the sweep goes on and the row says what it was
        outcome.status, outcome.error, stop = FAILED, _last_lines(problem), _end_of_all_ranks()
    if outcome.status == OOM:  # only now does nothing hold the tensors of the failed step any more
        pairs.release()
    if outcome.error and outcome.status != INTERRUPTED:
        log.error("%s: %s: %s", cell.label, outcome.status, outcome.error)
    if outcome.status == OK or store.status(cell.run_id) != OK:  # a failure never replaces finished rows
        _write(cell, runtime, store, rows, outcome)
    if stop:
        raise stop
    return outcome.status


def _end_of_all_ranks() -> SystemExit | None:
    """What no rank but this one may have met leaves the others waiting; torchrun ends them when this one ends."""
    return SystemExit(1) if world_size() > 1 else None


def _write(cell: Cell, runtime: Runtime, store: Store, rows: Rows, outcome: Outcome) -> None:
    """The `runs` row last, since it marks the cell as finished. Grades stay where the answers did."""
    judged, before = (store.read(table, [cell.run_id]) for table in ("judgements", "answers"))
    store.forget(cell.run_id)
    for table in ("prompts", "steps", *_recorded(runtime)):
        store.write(table, cell.run_id, getattr(rows, table))
    if len(judged):
        kept = still_valid(judged, before, rows.answers)
        store.write("judgements", cell.run_id, kept)
        if dropped := len(judged) - len(kept):
            log.warning("%s: %d grades are of answers that were there before, and are dropped", cell.label, dropped)
    store.write("runs", cell.run_id, [run_row(cell, runtime, rows, outcome)])
    if outcome.status == OK:
        Partial(store.folder, cell.run_id).drop()


def _measure(cell: Cell, runtime: Runtime, store: Store, rows: Rows, outcome: Outcome) -> None:
    """Decode all conversations into `rows`; what is learnt of models and data goes into `outcome`."""
    conversations = datasets.load(cell.dataset, data_dir=runtime.data_dir, limit=cell.limit)
    outcome.prompts_sha256 = datasets.fingerprint(conversations)
    pair = pairs.loaded(cell.pair, runtime)
    outcome.device, outcome.dtype = str(pair.target.device), str(pair.target.dtype).removeprefix("torch.")
    outcome.attention, outcome.graphs = pair.target.attention, runtime.graphs if pair.graphs else EAGER
    _identify(cell, pair, conversations, outcome)
    lent: Mapping[str, PromptRow] = {}
    if runtime.baseline == SHARED:
        outcome.baseline_of, lent = agreed(lambda: _lent(cell, runtime, store, outcome))
    measurement = Measurement(cell, pair, rows, runtime, lent)
    outcome.draws = measurement.drafter.draws
    outcome.lossless = check_lossless(measurement.drafter, cell.rule, cell.sampling, allow_lossy=cell.allow_lossy)
    for conversation in conversations[: runtime.warmup_conversations]:
        measurement.warm_up(conversation)
    for graphs in pair.graphs:
        log.info("%s", graphs)
    of = resumed.header(cell, runtime, outcome, _same_machine(runtime), conversations)
    kept = resumed.Kept(cell, runtime, store, rows, of)
    _decode(store, measurement, kept, conversations)
    if world_size() == 1:  # to a rank the others are other processes
        outcome.other_load = kept.other_load
        if not (runtime.placement or cell.pair.target.offload):
            outcome.limit_tokens_per_s = limit_tokens_per_s(pair, rows.context())
    if kept.missed or any(graphs.missed for graphs in pair.graphs):
        outcome.graphs = MIXED
    outcome.excerpt = measurement.excerpt()
    _check_failures(cell, rows)


def _check_failures(cell: Cell, rows: Rows) -> None:
    """Say which conversations failed and why; PromptError where no conversation was decoded to its end."""
    names = {row.prompt_id for row in rows.prompts}
    errors = {row.prompt_id: row.error for row in reversed(rows.prompts) if row.error}
    if len(errors) == len(names):
        first = next((row.error for row in rows.prompts if row.error), "there is none")
        raise PromptError(f"no conversation could be decoded to its end; the first: {first}")
    if said := failures.sentence(errors, len(names)):
        log.warning("%s: %s", cell.label, said)


def _identify(cell: Cell, pair: Pair, conversations: Sequence[Conversation], outcome: Outcome) -> None:
    """Note the very weights and token ids that will be decoded."""
    template, dataset = cell.pair.template, cell.dataset
    outcome.prompt_ids_sha256 = first_ids_sha256(pair, template, dataset, conversations)
    outcome.template_date = template_date(pair.tokenizer, template, dataset.mode)
    found = weights.revisions(cell.pair)
    loaded = {"target_revision": pair.target, "draft_revision": pair.draft}
    for column, model in loaded.items():
        commit = getattr(model.config, "_commit_hash", None) if model else None
        setattr(outcome, column, commit or found.get(column))


def _lent(cell: Cell, runtime: Runtime, store: Store, outcome: Outcome) -> tuple[str | None, Mapping[str, PromptRow]]:
    """Another cell's baseline, that of an earlier start if it began with one; none where it began with its own."""
    begun = Partial(store.folder, cell.run_id).read()
    first, like = begun.of.get("baseline_of", "") if begun else "", _same_machine(runtime)
    if not is_committed(like):
        log.warning("%s: decodes a baseline of its own, since only committed code is lent one", cell.label)
    loaded = {name: getattr(outcome, name) for name in resumed.LOADED}
    return (None, {}) if first is None else lent_baseline(store, cell.config, like | loaded, first)


def _decode(store: Store, measurement: Measurement, kept: resumed.Kept, conversations: Sequence[Conversation]) -> None:
    """Decode what earlier starts have not; whatever is decoded is on the disk before the next prompt begins."""
    cell, pair, runtime = measurement.cell, measurement.pair, measurement.runtime
    progress = tqdm(conversations, desc=cell.label, unit="conversation", disable=not runtime.progress)
    with pair.sealed(), preemption.awaited() as stop, progress as bar:

        def keep(prompt_id: str, turn: int | None, generation: Generation | None) -> None:
            if runtime.case_study and generation and turn == 0 and prompt_id == conversations[0].id:
                write_case_study(store.folder, cell, pair, conversations[0], generation)
            kept.keep(prompt_id, turn, stop, missed=any(graphs.missed for graphs in pair.graphs))

        for place, conversation in enumerate(bar):
            if not kept.has_ended(conversation):
                measurement.run(conversation, keep, place)
            bar.set_postfix_str(measurement.rows.running(), refresh=False)


def _last_lines(problem: BaseException, lines: int = 6) -> str:
    return "\n".join("".join(traceback.format_exception(problem)).strip().splitlines()[-lines:])
