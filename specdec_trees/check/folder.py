"""What a results folder says of itself, held against itself: whose rows do not fit together, and what is missing.

It shows accidents, edits by hand and wrong code; whoever runs this code to make up rows is not found out by it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from specdec_trees.check import columns, labels, rules
from specdec_trees.check.joined import joined
from specdec_trees.check.rules import ROUNDING
from specdec_trees.check.unheld import empty, unheld
from specdec_trees.results import failures, progress
from specdec_trees.results.digests import named_digest, output_sha256
from specdec_trees.results.finished import unfinished
from specdec_trees.results.judgements import known
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.parquet import frame
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, RECORDED, TABLES
from specdec_trees.results.store import OK, Store, experiments, within
from specdec_trees.results.ties import HALF, is_tie
from specdec_trees.statistics.aggregates import of_all

_KEYS = {
    "runs": ("run_id",),
    "prompts": ("run_id", "prompt_id", "turn", "arm"),
    "steps": ("run_id", "prompt_id", "turn", "step"),
    "nodes": ("run_id", "prompt_id", "turn", "step", "node"),
    "answers": ("run_id", "prompt_id", "turn", "arm"),
}
_TURN = ["run_id", "prompt_id", "turn"]
_PHASES = ("draft_s", "tree_s", "score_s", "judge_s", "commit_s")


@dataclass(slots=True)
class Findings:
    """Counts, and sentences about what is wrong, by question."""

    experiments: int = 0
    cells: int = 0
    prompts: int = 0
    greedy: int = 0
    """Greedy outputs of lossless methods that were compared with the target's, decoded beside them."""
    replayed: int = 0
    """Outputs of replays that were compared with their recording, which they follow by themselves."""
    ties: int = 0
    float32: int = 0
    """Greedy outputs in half precision that were decoded again in float32."""
    unaudited: list[str] = field(default_factory=list)
    """Greedy cells of lossless methods without an output to compare with."""
    planned: int = 0
    unplanned: list[str] = field(default_factory=list)
    revisions: set[str] = field(default_factory=set)
    incomplete: list[str] = field(default_factory=list)
    uncommitted: list[str] = field(default_factory=list)
    conversations: int = 0
    """Of finished cells."""
    finished: int = 0
    prompt_ids: set[tuple[str, str]] = field(default_factory=set)
    """Datasets and ids of the prompts of finished cells."""
    failed: list[str] = field(default_factory=list)
    lossy: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)
    """Rows by the rule that held them."""
    unheld: Counter[str] = field(default_factory=Counter)
    """Rows by what looking at them cannot tell."""
    empty: Counter[str] = field(default_factory=Counter)
    """Rows without a value by columns that files of today fill."""
    runs: list[pd.DataFrame] = field(default_factory=list)
    digest: str = ""
    """Of all rows (`digests.digest_of`)."""


def check(root: Path) -> Findings:
    """Read all of a folder."""
    findings, sha = Findings(), hashlib.sha256()
    planned = {path.parent.relative_to(root).as_posix() for path in within(root, progress.FILE)}
    begun, answers = unfinished(root), _answers(root)
    for name in sorted(planned | {store.experiment for store in experiments(root)} | {name for name, _ in begun}):
        store = Store(root, name)
        findings.experiments += 1
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tables = {table: _rows_of(store, table, sha) for table in TABLES}
        findings.altered += dict.fromkeys(str(warning.message) for warning in said)
        _complete(store, tables["runs"], name in planned, findings)
        findings.incomplete += [
            f"{name}: cell {run_id} was begun; the same command goes on with it"
            for experiment, run_id in begun
            if experiment == name
        ]
        _committed(store, tables["runs"], findings)
        _failed(store, tables["runs"], tables["prompts"], findings)
        _lossless(store, tables["runs"], tables["prompts"], findings)
        _replayed(store, tables["runs"], tables["prompts"], answers, findings)
        misfits = _misfits(tables, store.folder.resolve(), findings)
        findings.altered += [f"{store.experiment}: {sentence}" for sentence in misfits]
        findings.runs.append(tables["runs"])
        findings.cells, findings.prompts = (
            findings.cells + len(tables["runs"]),
            findings.prompts + len(tables["prompts"]),
        )
    findings.digest = sha.hexdigest()
    return findings


def _rows_of(store: Store, table: str, sha: Any) -> pd.DataFrame:
    """All rows of a table, which are read once and go into the digest of the folder too."""

    def read() -> Iterator[pa.Table | None]:
        for run_id, rows in store.rows(table).each():
            sha.update(named_digest(store, table, run_id, rows))
            yield rows

    return frame(read(), TABLES[table])


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    """Rows with their columns as attributes."""
    return iter(frame.itertuples())


def _complete(store: Store, runs: pd.DataFrame, planned: bool, findings: Findings) -> None:
    if runs.empty and not planned:
        return
    state = progress.of(store, runs)
    if state.unreadable:
        findings.incomplete.append(f"{store.experiment}: {progress.words(state)}")
        return
    if state.planned is None:
        findings.unplanned.append(store.experiment)
        undone = runs[runs["status"] != OK]
        findings.incomplete += [f"{store.experiment}: cell {row.run_id} is {row.status}" for row in _rows(undone)]
        return
    findings.planned += 1
    if state.state != progress.DONE:
        findings.incomplete.append(f"{store.experiment}: {progress.words(state)}")


def _committed(store: Store, runs: pd.DataFrame, findings: Findings) -> None:
    for row in _rows(runs):
        if pd.isna(row.git_revision) or pd.isna(row.git_dirty):
            findings.uncommitted.append(f"{store.experiment}: cell {row.run_id} names no revision")
        elif row.git_dirty:
            findings.uncommitted.append(f"{store.experiment}: cell {row.run_id} ran with changes to {row.git_revision}")
        else:
            findings.revisions.add(str(row.git_revision))


def _failed(store: Store, runs: pd.DataFrame, prompts: pd.DataFrame, findings: Findings) -> None:
    """Conversations that finished cells could not decode to their end, and why."""
    finished = runs[runs["status"] == OK]
    totals = prompts.groupby("run_id")["prompt_id"].nunique().reindex(finished["run_id"], fill_value=0)
    findings.finished += len(finished)
    findings.conversations += int(totals.sum())
    of_dataset = prompts[["run_id", "prompt_id"]].merge(finished[["run_id", "dataset"]], on="run_id")
    findings.prompt_ids |= {*of_dataset[["dataset", "prompt_id"]].itertuples(index=False, name=None)}
    lost = dict(list(failures.failed(prompts).groupby("run_id")))
    for run in _rows(finished[finished["run_id"].isin(list(lost))]):
        said = failures.sentence(failures.errors(lost[run.run_id]), int(totals[run.run_id]))
        findings.failed.append(f"{store.experiment}: cell {run.run_id} ({run.drafter}): {said}")


def _answers(root: Path) -> dict[tuple[str, str, int], list[int]]:
    """The target's recorded answers, by recording, conversation and turn."""
    rows = Store(root, FOLDER).read("recordings")
    return {(row.run_id, row.prompt_id, row.turn): [int(token) for token in row.answer_ids] for row in _rows(rows)}


def _replayed(
    store: Store,
    runs: pd.DataFrame,
    prompts: pd.DataFrame,
    answers: Mapping[tuple[str, str, int], Sequence[int]],
    findings: Findings,
) -> None:
    """Outputs of replays are those that were recorded."""
    replays = runs[(runs["status"] == OK) & runs["recording"].notna()].set_index("run_id")
    there = {recording for recording, *_ in answers}
    findings.unaudited += [
        f"{store.experiment}: cell {run_id} was replayed on recording {recording}, which is not there to compare with"
        for run_id, recording in replays["recording"].items()
        if recording not in there
    ]
    replays = replays[replays["recording"].isin(there)]
    for row in _rows(prompts[prompts["run_id"].isin(list(replays.index)) & (prompts["status"] == OK)]):
        recording = str(replays.at[row.run_id, "recording"])
        answer = answers.get((recording, row.prompt_id, row.turn))
        output = [int(token) for token in row.output_ids]
        findings.replayed += 1
        if answer is None or [*answer[: len(output)]] != output:
            what = "has no answer" if answer is None else "has another answer"
            findings.lossy.append(
                f"{store.experiment}: cell {row.run_id}, {row.prompt_id} turn {row.turn}: recording {recording} {what}"
            )


def _lossless(store: Store, runs: pd.DataFrame, prompts: pd.DataFrame, findings: Findings) -> None:
    kept = runs[(runs["status"] == OK) & runs["lossless"] & (runs["temperature"] == 0) & runs["recording"].isna()]
    kept = kept.set_index("run_id")
    rows = prompts[(prompts["arm"] == METHOD) & prompts["identical"].notna() & prompts["run_id"].isin(list(kept.index))]
    findings.greedy += len(rows)
    findings.unaudited += [
        f"{store.experiment}: cell {run_id} ({drafter}) has no output of the target to compare with"
        for run_id, drafter in kept.loc[~kept.index.isin(rows["run_id"]), "drafter"].items()
    ]
    findings.float32 += int(rows["identical_float32"].notna().sum())
    for row in _rows(rows[~rows["identical"].astype(bool) | rows["identical_float32"].notna()]):
        exact, dtype = known(row.identical_float32), str(kept.at[row.run_id, "dtype"])
        if exact is not None and not exact:
            findings.lossy.append(
                f"{store.experiment}: cell {row.run_id}, {row.prompt_id} turn {row.turn} leaves the target's output in "
                "float32 too"
            )
            continue
        if row.identical:
            continue
        if dtype in HALF and is_tie(row.divergence_gap, row.largest_logit, dtype):
            findings.ties += 1
            continue
        findings.lossy.append(
            f"{store.experiment}: cell {row.run_id}, {row.prompt_id} turn {row.turn} leaves the target's output at "
            f"token {row.first_divergence}, {row.divergence_gap:.2g} below the best logit in {dtype}"
        )


LOOKED_AT = {
    "names and settings": ("runs", "they follow from the config, whose hash is the cell's name"),
    "labels": ("runs", "drafter, method, verifier, pair and what it is published as are those of the yamls here"),
    "averages": ("runs", "all averages of a cell follow from its turns and steps"),
    "outputs": ("prompts", "digests and counts are those of the tokens"),
    "arms": ("prompts", "where both arms part follows from their tokens"),
    "selections": ("prompts", "cells of the same prompts have the same turns"),
    "turns": ("prompts", "counts and seconds of a turn are those of its steps"),
}
"""What is held beside `rules.RULES`: rows of which table, and what they must be."""


def _misfits(tables: Mapping[str, pd.DataFrame], folder: Path, findings: Findings) -> Iterator[str]:
    """Rows that do not belong together: each table follows in part from another."""
    runs, prompts, steps = tables["runs"], tables["prompts"], tables["steps"]
    names = set(runs["run_id"])
    twice = {table: int(tables[table].duplicated(list(key)).sum()) for table, key in _KEYS.items()}
    if any(twice.values()):  # nothing can be averaged
        for table, count in twice.items():
            if count:
                yield f"{count} rows of {table} are there twice, so that no rule was looked at"
        return
    for table in ("prompts", "steps", *RECORDED):
        if strangers := set(tables[table]["run_id"]) - names:
            yield f"{table} has rows of {', '.join(sorted(strangers))}, which no row of runs is for"
    yield from _outputs(prompts)
    yield from _audits(runs, prompts)
    yield from _selections(runs, prompts)
    yield from _turns(prompts, steps)
    frames = joined(tables)
    counts = {name: len(tables[table]) for name, (table, _) in LOOKED_AT.items()}
    findings.held.update(counts | {"arms": int(frames.prompts["paired"].sum()), "selections": _shared(runs, prompts)})
    for rule, count, sentences in rules.broken(frames):
        findings.held[rule.name] += count
        yield from sentences
    findings.unheld.update(dict(unheld(frames)))
    findings.empty.update(dict(empty(frames)))
    yield from _averages(runs, prompts, steps)
    for row in runs.to_dict("records"):
        if not folder.as_posix().endswith(f"/{row['experiment']}"):  # a part of results, or results below others
            yield f"cell {row['run_id']}: its row is of experiment {row['experiment']}"
        yield from columns.misfits(row)
        yield from _labels(row)


def _outputs(prompts: pd.DataFrame) -> Iterator[str]:
    for row in _rows(prompts[[*_TURN, "arm", "output_ids", "output_sha256", "num_new_tokens"]]):
        tokens = [int(token) for token in row.output_ids]
        if output_sha256(tokens) != row.output_sha256 or len(tokens) != row.num_new_tokens:
            yield f"cell {row.run_id}, {row.prompt_id} turn {row.turn}, {row.arm}: the output is not what was recorded"


def _audits(runs: pd.DataFrame, prompts: pd.DataFrame) -> Iterator[str]:
    """Where greedy outputs part follows from both arms; of a cell's turns all have the autoregressive one, or none."""
    greedy = set(runs.loc[runs["temperature"] == 0, "run_id"])
    ok = prompts.loc[prompts["status"] == "ok", [*_TURN, "arm", "output_ids", "identical", "first_divergence"]]
    ours, theirs = (
        {(row.run_id, row.prompt_id, row.turn): row for row in _rows(ok[ok["arm"] == arm])}
        for arm in (METHOD, AUTOREGRESSIVE)
    )
    paired = {run_id for run_id, *_ in theirs}
    alone = ours.keys() ^ theirs.keys()
    for run_id, prompt_id, turn in sorted(key for key in alone if key[0] in paired):
        yield f"cell {run_id}, {prompt_id} turn {turn}: one of its two arms is missing"
    for key, row in ours.items():
        expected: tuple[bool | None, int | None] = (None, None)
        if key in theirs and key[0] in greedy:
            at = _divergence(row.output_ids, theirs[key].output_ids)
            expected = at is None, at
        written = known(row.identical), known(row.first_divergence)
        if written != expected:
            yield (
                f"cell {key[0]}, {key[1]} turn {key[2]}: identical is {written[0]} and first_divergence {written[1]}, "
                f"and its two outputs make {expected[0]} and {expected[1]}"
            )


def _divergence(output: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs, a missing one included."""
    apart = (at for at, (ours, theirs) in enumerate(zip(output, reference, strict=False)) if ours != theirs)
    shorter = min(len(output), len(reference))
    return next(apart, None if len(output) == len(reference) else shorter)


def _selections(runs: pd.DataFrame, prompts: pd.DataFrame) -> Iterator[str]:
    """Cells of the same prompts, none of which failed, have rows of the same turns."""
    turns: dict[Any, set[Any]] = defaultdict(set)
    for row in _rows(prompts[_TURN]):
        turns[row.run_id].add((row.prompt_id, row.turn))
    first: dict[str, str] = {}
    for row in _rows(runs[(runs["status"] == OK) & (runs["num_failed"] == 0)]):
        other = first.setdefault(row.prompts_sha256, row.run_id)
        if turns[row.run_id] != turns[other]:
            yield f"cells {other} and {row.run_id} are of the same prompts, and have rows of others"


def _shared(runs: pd.DataFrame, prompts: pd.DataFrame) -> int:
    """Rows of cells that share their prompts with another."""
    whole = runs[(runs["status"] == OK) & (runs["num_failed"] == 0)]
    shared = whole.loc[whole["prompts_sha256"].duplicated(keep=False), "run_id"]
    return int(prompts["run_id"].isin(shared).sum())


def _turns(prompts: pd.DataFrame, steps: pd.DataFrame) -> Iterator[str]:
    """A turn's counts and seconds are those of its steps."""
    ok = prompts[(prompts["arm"] == METHOD) & (prompts["status"] == "ok")].set_index(_TURN)
    seconds = steps.assign(seconds=steps[list(_PHASES)].sum(axis=1)).groupby(_TURN)
    sums = (
        seconds.agg(count=("step", "size"), kept=("kept", "sum"), seconds=("seconds", "sum"))
        .reindex(ok.index)
        .fillna(0)
    )
    same = (ok["num_steps"] == sums["count"]) & (ok["num_decoded_tokens"] == sums["kept"])
    apart = (ok["decode_s"] - sums["seconds"]).abs() > ROUNDING * ok["decode_s"].abs()
    for row in _rows(ok[~same | apart].reset_index()):
        yield f"cell {row.run_id}, {row.prompt_id} turn {row.turn}: its steps are not those of its row"


def _labels(row: Mapping[Any, Any]) -> Iterator[str]:
    with contextlib.suppress(ValueError, TypeError, AttributeError):  # `columns` tells of a config that is none
        yield from (f"cell {row['run_id']}: {said}" for said in labels.misnamed(json.loads(row["config"])))


def _averages(runs: pd.DataFrame, prompts: pd.DataFrame, steps: pd.DataFrame) -> Iterator[str]:
    """A finished cell's averages are those of its rows, and none is of a start that it did not have.

    Ends of intervals are as the revision that measured it made them; whatever reads rows makes its own.
    """
    ended = runs[runs["status"] == OK].set_index("run_id")
    last = prompts[prompts["arm"] == METHOD].groupby("run_id")["start"].max().reindex(ended.index)
    starts = ended["num_starts"].fillna(0).astype(int)
    for name in ended.index[(last > starts).fillna(False).astype(bool)].tolist():
        yield f"cell {name}: it has rows of start {int(last[name])}, and num_starts is {int(starts[name])}"
    averages = of_all(prompts, steps, ended.index)
    for column in map(str, averages):
        made, written = (of[column].astype("Float64").to_numpy(float, na_value=math.nan) for of in (averages, ended))
        apart = ~np.isclose(written, made, rtol=ROUNDING, atol=0, equal_nan=True)
        for name, was, follows in zip(ended.index[apart].tolist(), written[apart], made[apart], strict=True):
            yield f"cell {name}: {column} is {was:g}, and its rows make {follows:g}"
