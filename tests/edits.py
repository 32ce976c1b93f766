"""Edits of a results folder as a stranger could make them: what each changes, and whether looking can tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specdec_trees.results.digests import output_sha256
from specdec_trees.results.identity import identity
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, TABLES
from specdec_trees.results.store import Store, run_id
from specdec_trees.statistics.aggregates import aggregates

Tables = dict[str, pd.DataFrame]
PHASES = ("draft_s", "tree_s", "score_s", "judge_s", "commit_s")
MT_BENCH, SAMPLED, VIRTUAL, REPLAYED, GRAPHS = range(5)
"""Which of the folders of `folders` an edit is made in."""


@dataclass(frozen=True)
class Edit:
    """`change` alters tables in place; with `fit` whoever does so writes turns and averages anew to match."""

    name: str
    change: Callable[[Tables], None]
    unheld: str | None = None
    """The entry of what cannot be held that it is printed in; None: rules see it."""
    fit: bool = True
    folder: int = MT_BENCH


def fitted(tables: Tables) -> None:
    """Turns' sums, and the averages of `runs`, as the changed rows make them."""
    prompts, steps, runs = tables["prompts"], tables["steps"], tables["runs"]
    key = ["run_id", "prompt_id", "turn"]
    sums = steps.assign(seconds=steps[list(PHASES)].sum(axis=1, skipna=False)).groupby(key)
    sums = sums.agg(
        num_steps=("step", "size"),
        num_decoded_tokens=("kept", "sum"),
        decode_s=("seconds", lambda s: s.sum(skipna=False)),
    )
    mine = (prompts["arm"] == METHOD) & (prompts["status"] == "ok")
    turns = pd.MultiIndex.from_frame(prompts.loc[mine, key])
    there = turns.isin(sums.index)
    for column in sums.columns:
        values = prompts.loc[mine, column].to_numpy(copy=True)
        values[there] = sums[column].reindex(turns[there]).to_numpy()
        prompts.loc[mine, column] = values
    for place in runs.index[runs["status"] == "ok"]:
        name = runs.at[place, "run_id"]
        rows = [tables[table][tables[table]["run_id"] == name] for table in ("prompts", "steps")]
        for column, value in aggregates(*rows).items():
            runs.at[place, column] = pd.NA if value is None and str(runs[column].dtype) == "Int64" else value


def first(frame: pd.DataFrame, **where: Any) -> Any:
    """The place of the first row with these values."""
    rows = frame
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.index[0]


def at(table: str, column: str, change: Callable[[Any], Any], **where: Any) -> Callable[[Tables], None]:
    """Another value in the first such row."""

    def edit(tables: Tables) -> None:
        frame = tables[table]
        frame.at[first(frame, **where), column] = change(frame.at[first(frame, **where), column])

    return edit


def all_of(table: str, columns: str, change: Callable[[Any], Any], **where: Any) -> Callable[[Tables], None]:
    """Other values in all such rows, of one column or of several with commas."""

    def edit(tables: Tables) -> None:
        frame = tables[table]
        rows = pd.Series(True, frame.index)
        for column, value in where.items():
            rows &= frame[column] == value
        for column in columns.split(","):
            frame.loc[rows, column] = change(frame.loc[rows, column])

    return edit


def of_method(tables: Tables) -> str:
    """The run whose rows are edited where an edit is of one cell: the first that drafts."""
    runs = tables["runs"]
    return str(runs.loc[first(runs, method=runs.loc[runs["method"] != AUTOREGRESSIVE, "method"].iloc[0]), "run_id"])


def both(*edits: Callable[[Tables], None]) -> Callable[[Tables], None]:
    """One after the other."""

    def edit(tables: Tables) -> None:
        for one in edits:
            one(tables)

    return edit


def more_accepted(tables: Tables) -> None:
    """MAL + 1 on every step of a cell, with the counts that follow."""
    mine = tables["steps"]["run_id"] == of_method(tables)
    for column in ("num_accepted", "acceptance_length"):
        tables["steps"].loc[mine, column] += 1


def more_ranks(tables: Tables) -> None:
    """MAL + 1 on every step, deeper trees and ranks that fit."""
    more_accepted(tables)
    steps = tables["steps"]
    mine = steps["run_id"] == of_method(tables)
    for column in ("depth", "num_drafted"):
        steps.loc[mine, column] += 1
    for place in steps.index[mine]:
        steps.at[place, "accepted_ranks"] = np.append(steps.at[place, "accepted_ranks"], 0)


def without(table: str, keep: Callable[[pd.DataFrame, Tables], pd.Series]) -> Callable[[Tables], None]:
    """Rows left out."""

    def edit(tables: Tables) -> None:
        tables[table] = tables[table][keep(tables[table], tables)].reset_index(drop=True)

    return edit


def without_prompt(tables: Tables, runs: Callable[[pd.Series], pd.Series] | None = None) -> None:
    """A conversation left out of one cell, or of those that `runs` chooses."""
    prompts = tables["prompts"]
    chosen = runs or (lambda names: names == of_method(tables))
    lost = prompts.loc[prompts["run_id"] == of_method(tables), "prompt_id"].iloc[-1]
    for table in ("prompts", "steps"):
        frame = tables[table]
        tables[table] = frame[~((frame["prompt_id"] == lost) & chosen(frame["run_id"]))].reset_index(drop=True)


def without_turn(tables: Tables) -> None:
    """The first turn of a conversation left out."""
    name, prompts = of_method(tables), tables["prompts"]
    lost = prompts.loc[prompts["run_id"] == name, "prompt_id"].iloc[0]
    for table in ("prompts", "steps"):
        frame = tables[table]
        gone = (frame["run_id"] == name) & (frame["prompt_id"] == lost) & (frame["turn"] == 0)
        tables[table] = frame[~gone].reset_index(drop=True)


def without_slow_steps(tables: Tables) -> None:
    """The steps that accepted least left out, numbered anew, with their tokens."""
    steps = tables["steps"]
    gone = (steps["run_id"] == of_method(tables)) & (steps["acceptance_length"] == 1)
    steps = steps[~gone].reset_index(drop=True)
    steps["step"] = steps.groupby(["run_id", "prompt_id", "turn"]).cumcount()
    tables["steps"] = steps


def copied_prompt(tables: Tables) -> None:
    """A good conversation stands for another: its rows under that one's name."""
    name = of_method(tables)
    ids = tables["prompts"].loc[tables["prompts"]["run_id"] == name, "prompt_id"].unique()
    for table in ("prompts", "steps"):
        frame = tables[table]
        mine = frame["run_id"] == name
        copy = frame[mine & (frame["prompt_id"] == ids[0])].assign(prompt_id=ids[1])
        tables[table] = pd.concat([frame[~(mine & (frame["prompt_id"] == ids[1]))], copy], ignore_index=True)


def other_config(change: Callable[[dict[str, Any]], None], **columns: Any) -> Callable[[Tables], None]:
    """Another config of a cell, its name and its columns written anew everywhere."""

    def edit(tables: Tables) -> None:
        old, runs = of_method(tables), tables["runs"]
        place = first(runs, run_id=old)
        config = json.loads(runs.at[place, "config"])
        change(config)
        runs.at[place, "config"] = json.dumps(config, sort_keys=True)
        for column, value in columns.items():
            runs.at[place, column] = value
        for frame in tables.values():
            if "run_id" in frame:
                frame.loc[frame["run_id"] == old, "run_id"] = run_id(identity(config))

    return edit


def tokens(
    arms: tuple[str, ...], cells: Callable[[Tables], list[str]], finish: str | None = None
) -> Callable[[Tables], None]:
    """Another token in the middle of a first turn, with its digest."""

    def edit(tables: Tables) -> None:
        prompts, names = tables["prompts"], cells(tables)
        name = prompts.loc[prompts["run_id"] == names[0], "prompt_id"].iloc[0]
        for place in prompts.index[prompts["run_id"].isin(names) & prompts["arm"].isin(arms)]:
            if prompts.at[place, "prompt_id"] == name and prompts.at[place, "turn"] == 0:
                ids = np.array(prompts.at[place, "output_ids"])
                ids[len(ids) // 2] = 7
                prompts.at[place, "output_ids"] = ids
                prompts.at[place, "output_sha256"] = output_sha256(ids.tolist())

    return edit


def one(tables: Tables) -> list[str]:
    """The cell that is edited."""
    return [of_method(tables)]


def every(tables: Tables) -> list[str]:
    """All cells."""
    return list(tables["runs"]["run_id"])


def last_steps(tables: Tables) -> None:
    """More accepted by the last step of turns that were cut off at their length, where the tree has room."""
    steps = tables["steps"]
    last = steps.groupby(["run_id", "prompt_id", "turn"])["step"].transform("max") == steps["step"]
    room = (steps["num_accepted"] < steps["depth"]) & (steps["kept"] < steps["acceptance_length"])
    for place in steps.index[last & room]:
        steps.at[place, "num_accepted"] += 1
        steps.at[place, "acceptance_length"] += 1
        steps.at[place, "accepted_ranks"] = np.append(steps.at[place, "accepted_ranks"], 0)


def inner_steps(tables: Tables) -> list[tuple[int, int]]:
    """Places of an edited cell's steps and the next ones, both before the last of their turn."""
    steps = tables["steps"]
    mine = steps[steps["run_id"] == of_method(tables)]
    turns = [rows.index for _, rows in mine.sort_values("step").groupby(["prompt_id", "turn"])]
    return [pair for turn in turns for pair in zip(turn[:-2:2], turn[1:-1:2], strict=True)]


def numbered(tables: Tables, steps: pd.DataFrame) -> None:
    """Steps under new numbers."""
    steps = steps.sort_values(["run_id", "prompt_id", "turn", "step"]).reset_index(drop=True)
    tables["steps"] = steps.assign(step=steps.groupby(["run_id", "prompt_id", "turn"]).cumcount())


def fits(steps: pd.DataFrame, place: int, ranks: np.ndarray) -> bool:
    """Whether a step's tree may have accepted nodes of these ranks."""
    room = steps.at[place, "num_drafted"] - steps.at[place, "depth"]
    return bool(len(ranks) <= steps.at[place, "depth"] and ranks.sum() <= room)


def accepted(steps: pd.DataFrame, ranks: Mapping[int, np.ndarray]) -> None:
    """Other accepted tokens, and the counts that follow, at these places."""
    column = [ranks.get(place, old) for place, old in steps["accepted_ranks"].items()]
    steps["accepted_ranks"] = pd.Series(column, steps.index, dtype=object)
    for place, values in ranks.items():
        steps.at[place, "num_accepted"] = len(values)
        for name in ("acceptance_length", "kept"):
            steps.at[place, name] = len(values) + 1


def merged_steps(tables: Tables) -> None:
    """Two steps are one where the tree is large enough."""
    steps = tables["steps"]
    ranks = steps["accepted_ranks"]
    pairs = {one: (two, np.concatenate([ranks[one], [0], ranks[two]]).astype(int)) for one, two in inner_steps(tables)}
    pairs = {one: (two, values) for one, (two, values) in pairs.items() if fits(steps, one, values)}
    accepted(steps, {one: values for one, (_, values) in pairs.items()})
    numbered(tables, steps.drop([two for two, _ in pairs.values()]))


def split_steps(tables: Tables) -> None:
    """Steps that accepted are two, of which the first accepts nothing."""
    steps = tables["steps"]
    places = [one for one, _ in inner_steps(tables) if steps.at[one, "num_accepted"] > 0]
    steps.loc[places, [*PHASES, "layout_s"]] *= 0.5
    more = steps.loc[places].assign(step=steps.loc[places, "step"] - 0.5)
    accepted(more, {place: np.zeros(0, int) for place in places})
    accepted(steps, {place: np.asarray(steps.at[place, "accepted_ranks"][1:]) for place in places})
    numbered(tables, pd.concat([steps, more], ignore_index=True))


def exchanged_steps(tables: Tables) -> None:
    """What two steps of a turn accepted, exchanged."""
    steps = tables["steps"]
    ranks = steps["accepted_ranks"]
    one, two = next(
        (one, two)
        for one, two in inner_steps(tables)
        if len(ranks[one]) != len(ranks[two]) and fits(steps, one, ranks[two]) and fits(steps, two, ranks[one])
    )
    accepted(steps, {one: ranks[two], two: ranks[one]})


def without_second_turns(tables: Tables) -> None:
    """No second turns in any cell."""
    for table in ("prompts", "steps"):
        tables[table] = tables[table][tables[table]["turn"] == 0].reset_index(drop=True)


def slower(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with times that are a little longer, so that none was measured twice."""
    columns = [column for column in rows if str(column).endswith("_s") and rows[column].notna().any()]
    return rows.assign(**{column: rows[column] * 1.001 for column in columns})


def added_turn(tables: Tables, *, guessed: bool = False) -> None:
    """A third turn in all cells, a copy of the second under another digest; with `guessed` E(A) is others."""
    prompts = tables["prompts"]
    name = prompts.loc[prompts["turn"] == 1, "prompt_id"].iloc[0]
    for table in ("prompts", "steps"):
        frame = tables[table]
        more = slower(frame[(frame["prompt_id"] == name) & (frame["turn"] == 1)].assign(turn=2))
        if table == "prompts":
            more = more.assign(prompt_ids_sha256="0" * 64, num_prompt_tokens=more["num_prompt_tokens"] + 60)
        elif guessed:
            more["expected_acceptance"] += (more["expected_acceptance"] - 1) / 1e3
        tables[table] = pd.concat([frame, more], ignore_index=True)


def of_another(tables: Tables, *, digest: bool = False) -> None:
    """A conversation has the answers, steps and times of another in all cells; with `digest` its prompts too."""
    ids = tables["prompts"]["prompt_id"].unique()
    for table in ("prompts", "steps"):
        frame = tables[table]
        copy = slower(frame[frame["prompt_id"] == ids[0]].assign(prompt_id=ids[1]))
        if table == "prompts" and not digest:
            key = ["run_id", "turn", "arm"]
            old = frame[frame["prompt_id"] == ids[1]].set_index(key)
            turns = pd.MultiIndex.from_frame(copy[key])
            for column in ("prompt_ids_sha256", "num_prompt_tokens", "category"):
                copy[column] = old[column].reindex(turns).to_numpy()
        tables[table] = pd.concat([frame[frame["prompt_id"] != ids[1]], copy], ignore_index=True)


def shallow(tables: Tables) -> None:
    """Depths no larger than what was accepted, with E(A) that fits."""
    steps, mine = tables["steps"], tables["steps"]["run_id"] == of_method(tables)
    steps.loc[mine, "depth"] = steps.loc[mine, "num_accepted"].clip(lower=1)
    most = steps.loc[mine, "depth"] + 1.0
    steps.loc[mine, "expected_acceptance"] = steps.loc[mine, "expected_acceptance"].clip(upper=most)


def moved_phases(tables: Tables) -> None:
    """Most of a cell's tree time is the target's, with the same sums."""
    steps, mine = tables["steps"], tables["steps"]["run_id"] == of_method(tables)
    moved = steps["tree_s"] * 0.8
    steps.loc[mine, "score_s"] += moved[mine]
    steps.loc[mine, ["tree_s", "layout_s"]] *= 0.2


def lent_by(lender: str | None) -> Callable[[Tables], None]:
    """The baseline of a cell without any is another's: of a cell that is not here, or of the last one."""

    def edit(tables: Tables) -> None:
        runs, prompts = tables["runs"], tables["prompts"]
        own = runs.loc[runs["baseline_of"].isna(), "run_id"]
        borrower, name = own.iloc[0], lender or own.iloc[1]
        runs.loc[runs["run_id"] == borrower, "baseline_of"] = name
        alone = prompts["arm"] == AUTOREGRESSIVE
        mine = alone & (prompts["run_id"] == borrower)
        if lender:
            prompts.loc[mine, ["decode_s", "wall_s"]] *= 1.5
            return
        there = prompts[alone & (prompts["run_id"] == name)].assign(run_id=borrower)
        tables["prompts"] = pd.concat([prompts[~mine], there], ignore_index=True)

    return edit


def faster_turn(tables: Tables) -> None:
    """A turn three times as fast."""
    steps = tables["steps"]
    place = first(steps, run_id=of_method(tables))
    turn = steps[["run_id", "prompt_id", "turn"]].eq(steps.loc[place, ["run_id", "prompt_id", "turn"]]).all(axis=1)
    steps.loc[turn, [*PHASES, "layout_s"]] /= 3


def reversed_rows(tables: Tables) -> None:
    """Conversations the other way round."""
    for table in ("prompts", "steps"):
        tables[table] = tables[table].sort_values("prompt_id", ascending=False, kind="stable").reset_index(drop=True)


def failed_prompt(tables: Tables) -> None:
    """A bad conversation is said to have failed, and leaves no steps."""
    name, prompts = of_method(tables), tables["prompts"]
    lost = prompts.loc[prompts["run_id"] == name, "prompt_id"].iloc[-1]
    gone = (prompts["run_id"] == name) & (prompts["prompt_id"] == lost)
    tables["prompts"] = prompts[~(gone & ((prompts["arm"] == AUTOREGRESSIVE) | (prompts["turn"] > 0)))].reset_index(
        drop=True
    )
    prompts, place = tables["prompts"], first(tables["prompts"], run_id=name, prompt_id=lost)
    for column in ("num_new_tokens", "num_decoded_tokens", "num_steps"):
        prompts.at[place, column] = 0
    for column in ("prefill_s", "decode_s", "wall_s"):
        prompts.at[place, column] = 0.0
    prompts.at[place, "output_ids"] = np.array([], int)
    more = {
        "status": "failed",
        "error": "too long",
        "finish": "failed",
        "output_sha256": output_sha256([]),
        "identical": pd.NA,
    }
    for column, value in more.items():
        prompts.at[place, column] = value
    steps = tables["steps"]
    tables["steps"] = steps[~((steps["run_id"] == name) & (steps["prompt_id"] == lost))].reset_index(drop=True)


def half_failed(tables: Tables) -> None:
    """The same, and the rows of the steps are left."""
    steps = tables["steps"].copy()
    failed_prompt(tables)
    tables["steps"] = steps


def contaminated(tables: Tables) -> None:
    """The slowest conversations are said to have been disturbed, so that no time is of them."""
    prompts = tables["prompts"]
    slow = prompts[(prompts["run_id"] == of_method(tables)) & (prompts["arm"] == METHOD)]
    worst = slow.loc[(slow["decode_s"] / slow["num_decoded_tokens"]).idxmax(), "prompt_id"]
    prompts.loc[(prompts["run_id"] == of_method(tables)) & (prompts["prompt_id"] == worst), "contaminated"] = True


def published(config: dict[str, Any]) -> None:
    """The pair stands for another of the papers' tables."""
    config["pair"]["published"] = {"target": "llama2_70b", "draft": "jf68m", "stand_in": False}


def relabelled(name: str, method: str) -> Callable[[dict[str, Any]], None]:
    """A drafter under another's names."""
    return lambda config: config["drafter"].update(name=name, method=method)


def seed(config: dict[str, Any]) -> None:
    """Another seed."""
    config["seed"] = 1


def empty(values: Any) -> Any:
    """No values."""
    return pd.Series([None] * len(values), values.index, dtype=object)


def times(factor: float) -> Callable[[Any], Any]:
    """So many times the value."""
    return lambda values: values * factor


def plus(number: float) -> Callable[[Any], Any]:
    """So much more."""
    return lambda values: values + number


PHASE_TIMES = ",".join(PHASES)
EDITS = (
    Edit("MAL + 1 on every step", more_accepted),
    Edit("MAL + 1 on every step, with ranks and deeper trees", more_ranks),
    Edit("acceptance length + 1, of a step", at("steps", "acceptance_length", plus(1), step=1)),
    Edit("acceptance length + 1, of all steps", all_of("steps", "acceptance_length", plus(1))),
    Edit("accepted + 1, of a step", at("steps", "num_accepted", plus(1), step=1)),
    Edit("accepted 0, of all steps", all_of("steps", "num_accepted", times(0))),
    Edit("kept - 1, of a step", at("steps", "kept", plus(-1), step=1)),
    Edit(
        "kept and A + 1, of a step",
        both(at("steps", "kept", plus(1), step=1), at("steps", "acceptance_length", plus(1), step=1)),
    ),
    Edit("ranks of a step 0", at("steps", "accepted_ranks", lambda ids: np.zeros(len(ids) + 1, int), step=1)),
    Edit("ranks of a step left out", at("steps", "accepted_ranks", lambda _: None, step=1)),
    Edit("ranks of a step larger", at("steps", "accepted_ranks", lambda ids: np.full(len(ids), 99), num_accepted=2)),
    Edit(
        "ranks of all steps 0",
        all_of("steps", "accepted_ranks", lambda rows: rows.map(np.zeros_like)),
        "guesses and trees",
    ),
    Edit("depth of all steps halved", all_of("steps", "depth", lambda rows: rows // 2)),
    Edit("depth of a step larger", at("steps", "depth", plus(500), step=1)),
    Edit("drafted of all steps halved", all_of("steps", "num_drafted", lambda rows: rows // 2), folder=SAMPLED),
    Edit("drafted of all steps doubled", all_of("steps", "num_drafted", times(2))),
    Edit("E(A) + 30", all_of("steps", "expected_acceptance", plus(30))),
    Edit(
        "E(A) of all steps a tenth larger",
        all_of("steps", "expected_acceptance", lambda rows: rows + (rows - 1) / 99),
        "guesses and trees",
    ),
    Edit("E(A) of a step left out", at("steps", "expected_acceptance", lambda _: None, step=1)),
    Edit("draft forwards 0", all_of("steps", "draft_forwards", times(0))),
    Edit("draft forwards doubled", all_of("steps", "draft_forwards", times(2))),
    Edit("draft tokens one more", all_of("steps", "draft_tokens", plus(1)), "guesses and trees", folder=SAMPLED),
    Edit("a phase of a step halved", at("steps", "score_s", times(0.5), step=1), fit=False),
    Edit("all phases halved", all_of("steps", PHASE_TIMES, times(0.5))),
    Edit(
        "all phases and the wall time halved",
        both(
            all_of("steps", PHASE_TIMES + ",layout_s", times(0.5)), all_of("prompts", "wall_s", times(0.5), arm=METHOD)
        ),
        "scaled times",
    ),
    Edit(
        "a phase moved into another",
        both(all_of("steps", "judge_s", plus(1e-4)), all_of("steps", "commit_s", plus(-1e-4))),
    ),
    Edit("layout longer than the tree's time", all_of("steps", "layout_s", times(1000))),
    Edit("the target alone twice as slow", all_of("prompts", "decode_s", times(2), arm=AUTOREGRESSIVE)),
    Edit("the target alone half as slow", all_of("prompts", "decode_s", times(0.5), arm=AUTOREGRESSIVE)),
    Edit(
        "the target alone twice as slow, wall time too",
        all_of("prompts", "decode_s,wall_s", times(2), arm=AUTOREGRESSIVE),
        "scaled times",
    ),
    Edit("wall times left out", all_of("prompts", "wall_s", lambda rows: rows * np.nan)),
    Edit("wall times halved", all_of("prompts", "wall_s", times(0.5))),
    Edit("a prefill of 0", at("prompts", "prefill_s", times(0))),
    Edit(
        "times of replays",
        both(all_of("prompts", "decode_s,prefill_s", lambda rows: rows.fillna(1.0))),
        folder=REPLAYED,
    ),
    Edit("mal", at("runs", "mal", plus(0.5)), fit=False),
    Edit("speedup", at("runs", "speedup", plus(0.5)), fit=False),
    Edit("tokens/s", at("runs", "tokens_per_s", plus(5)), fit=False),
    Edit("the interval of the speedup elsewhere", all_of("runs", "speedup_low,speedup_high", plus(2)), fit=False),
    Edit("a prompt left out of a cell", without_prompt),
    Edit(
        "a prompt left out of all cells",
        lambda tables: without_prompt(tables, lambda names: names.notna()),
        "prompts left out",
    ),
    Edit("a turn left out", without_turn),
    Edit("bad steps left out", without_slow_steps),
    Edit(
        "a step doubled",
        lambda tables: tables.update(steps=pd.concat([tables["steps"], tables["steps"].head(1)], ignore_index=True)),
    ),
    Edit(
        "a run doubled",
        lambda tables: tables.update(runs=pd.concat([tables["runs"], tables["runs"].head(1)], ignore_index=True)),
        fit=False,
    ),
    Edit("a good prompt stands for another", copied_prompt),
    Edit(
        "prompts of one arm left out", without("prompts", lambda rows, _: (rows["arm"] == METHOD) | (rows["turn"] > 0))
    ),
    Edit("a cell left out", without("runs", lambda rows, tables: rows["run_id"] != of_method(tables)), fit=False),
    Edit("a failure of a bad conversation", failed_prompt, "reasons of failures"),
    Edit("a failure with steps", half_failed),
    Edit("bad conversations were disturbed", contaminated),
    Edit("repeats", at("prompts", "repeats", lambda _: 9)),
    Edit("method", at("runs", "method", lambda _: "eagle2"), fit=False),
    Edit("method, and the config's", other_config(relabelled("eagle2", "eagle2"), drafter="eagle2", method="eagle2")),
    Edit("the config's published label", other_config(published)),
    Edit(
        "the config's pair",
        other_config(lambda config: config["pair"].update(name="llama2_7b_jf68m"), pair="llama2_7b_jf68m"),
    ),
    Edit("dataset", at("runs", "dataset", lambda _: "gsm8k"), fit=False),
    Edit("dataset's source", at("runs", "dataset_id", lambda _: "hub:openai/gsm8k"), fit=False),
    Edit(
        "verifier, and the config's",
        other_config(lambda config: config["verifier"].update(name="spec_infer"), verifier="spec_infer"),
    ),
    Edit("draws", at("runs", "draws", lambda _: "iid"), fit=False),
    Edit("temperature", at("runs", "temperature", lambda _: 1.0), fit=False),
    Edit("seed", at("runs", "seed", lambda _: 1), fit=False),
    Edit("seed, the config's and the name", other_config(seed, seed=1), "renamed settings"),
    Edit("limit of the config", other_config(lambda config: config.update(limit=2))),
    Edit(
        "tokens to decode",
        other_config(lambda config: config["decoding"].update(max_new_tokens=128), max_new_tokens=128),
    ),
    Edit("a token of the method", tokens((METHOD,), one)),
    Edit("a token in both arms of a cell", tokens((METHOD, AUTOREGRESSIVE), one)),
    Edit("a token in both arms of all cells", tokens((METHOD, AUTOREGRESSIVE), every), "greedy answers"),
    Edit("a token of a sampled answer", tokens((METHOD,), one), "drawn answers", folder=SAMPLED),
    Edit("an output's digest", at("prompts", "output_sha256", lambda _: "0" * 64)),
    Edit("a prompt's digest", at("prompts", "prompt_ids_sha256", lambda _: "0" * 64)),
    Edit("a prompt's length", at("prompts", "num_prompt_tokens", plus(1))),
    Edit("the prompts' digest of a cell", at("runs", "prompts_sha256", lambda _: "0" * 64), fit=False),
    Edit("the token ids' digest of a cell", at("runs", "prompt_ids_sha256", lambda _: "0" * 64), fit=False),
    Edit("identical", at("prompts", "identical", lambda _: False, arm=METHOD)),
    Edit("a gap where nothing parted", at("prompts", "divergence_gap", lambda _: 0.0, arm=METHOD)),
    Edit("a second decoding in float32", at("prompts", "identical_float32", lambda _: True, arm=METHOD)),
    Edit("finish", at("prompts", "finish", lambda _: "eos", finish="length")),
    Edit("finish of an answer that ended", at("prompts", "finish", lambda _: "length", finish="eos"), folder=SAMPLED),
    Edit("category", at("prompts", "category", lambda _: "other")),
    Edit("last steps of cut answers", last_steps, "last steps"),
    Edit(
        "kind of first token",
        all_of("runs", "draws", lambda rows: rows.str.replace("targets?_", "", regex=True)),
        fit=False,
        folder=VIRTUAL,
    ),
    Edit("MAL + 1 below virtual roots", all_of("steps", "acceptance_length", plus(1)), folder=VIRTUAL),
    Edit("accepted behind merges", all_of("steps", "num_behind_merge", plus(99)), folder=GRAPHS),
    Edit("aliases", all_of("steps", "num_alias", plus(1)), "sizes of graphs", folder=GRAPHS),
    Edit("threads", all_of("runs", "num_threads", lambda _: 64), "machine and versions", fit=False),
    Edit("device", all_of("runs", "device_name", lambda _: "NVIDIA H100"), "machine and versions", fit=False),
    Edit("torch's version", all_of("runs", "torch_version", lambda _: "9.9"), "machine and versions", fit=False),
    Edit("revision", all_of("runs", "git_revision", lambda _: "main"), fit=False),
    Edit("revision, another", all_of("runs", "git_revision", lambda _: "a" * 40), "machine and versions", fit=False),
    Edit("the target's files", at("runs", "target_revision", lambda _: "files:0"), fit=False),
    Edit("the day", at("runs", "created_utc", lambda _: "2999-01-01T00:00:00.000+00:00"), fit=False),
    Edit("memory's limit", all_of("runs", "limit_tokens_per_s", times(2)), "machine and versions", fit=False),
    Edit("load of others", all_of("runs", "other_load", lambda _: 0.0), "machine and versions", fit=False),
    Edit("first answer", at("runs", "excerpt", lambda _: "Paris"), "other figures", fit=False),
    Edit("an error of what ended well", at("runs", "error", lambda _: "none"), fit=False),
    Edit("the status of a run", at("runs", "status", lambda _: "failed"), fit=False),
    Edit("a lent baseline's time", lambda tables: _lent(tables, (0,))),
    Edit("all of a lent baseline's times", lambda tables: _lent(tables, (0, 1)), "lenders"),
    Edit("steps merged", merged_steps, "steps taken"),
    Edit("steps split", split_steps, "steps taken"),
    Edit("steps exchanged", exchanged_steps, "steps taken"),
    Edit("second turns left out of all cells", without_second_turns, "all turns"),
    Edit("a turn that is a copy, added to all cells", added_turn),
    Edit("a turn added to all cells", lambda tables: added_turn(tables, guessed=True), "all turns"),
    Edit("a conversation is another's in all cells", of_another),
    Edit(
        "a conversation is another's in all cells, its prompt too",
        lambda tables: of_another(tables, digest=True),
        "answers to prompts",
    ),
    Edit("depths as accepted", shallow, "guesses and trees"),
    Edit("phases moved", moved_phases, "phases and prefills"),
    Edit("no time of layouts", all_of("steps", "layout_s", times(0))),
    Edit("prefills a tenth", all_of("prompts", "prefill_s", times(0.1), arm=METHOD)),
    Edit("prefills a fifth shorter", all_of("prompts", "prefill_s", times(0.8), arm=METHOD), "phases and prefills"),
    Edit(
        "no digests, and a token in both arms of a cell",
        both(
            all_of("runs", "prompt_ids_sha256", empty),
            all_of("prompts", "prompt_ids_sha256", empty),
            tokens((METHOD, AUTOREGRESSIVE), one),
        ),
    ),
    Edit("no wall times, and a faster turn", both(all_of("prompts", "wall_s", times(np.nan)), faster_turn)),
    Edit(
        "no E(A)",
        both(
            all_of("steps", "expected_acceptance", times(np.nan)), all_of("runs", "expected_acceptance", times(np.nan))
        ),
        "empty columns",
    ),
    Edit("no ranks", all_of("steps", "accepted_ranks", empty)),
    Edit("no categories", all_of("prompts", "category", empty), "empty columns"),
    Edit(
        "no repeats",
        all_of("prompts", "repeats,contaminated,other_load", lambda rows: rows.mask(rows.notna())),
        "empty columns",
    ),
    Edit("repeats of all turns", all_of("prompts", "repeats", lambda rows: rows * 0 + 1), "starts and disturbances"),
    Edit("the lender is not here", lent_by("0" * 12), "lenders", folder=SAMPLED),
    Edit("a baseline exchanged for another cell's", lent_by(None), "lenders", folder=SAMPLED),
    Edit(
        "a baseline exchanged, with its start",
        both(all_of("prompts", "start", lambda rows: rows.fillna(1)), lent_by(None)),
        folder=SAMPLED,
    ),
    Edit("a later prompt that is shorter", all_of("prompts", "num_prompt_tokens", lambda rows: rows * 0 + 3, turn=1)),
    Edit("longer prompts", all_of("prompts", "num_prompt_tokens", plus(1)), "prompts themselves"),
    Edit("launches on a CPU", all_of("runs", "launches_per_step", lambda rows: rows.fillna(12.0)), fit=False),
    Edit("a GPU's power on a CPU", all_of("prompts", "power_w", lambda rows: rows.fillna(300.0))),
    Edit("a graph's columns of a tree", all_of("steps", "num_live", lambda rows: rows.fillna(9))),
    Edit("DySpec's parts of a tree", all_of("steps", "choice_s", lambda rows: rows.fillna(1e-9))),
    Edit("starts of a run", all_of("runs", "num_starts", lambda _: 3), "starts and disturbances", fit=False),
    Edit("no starts of a run", all_of("runs", "num_starts", lambda rows: rows.mask(rows.notna())), fit=False),
    Edit("conversations in another order", reversed_rows, "prompts themselves"),
    Edit("waiting policy", all_of("runs", "wait_policy", lambda _: "ACTIVE"), "machine and versions", fit=False),
    Edit("kernels", all_of("runs", "attention_kernels", lambda _: "flash"), "machine and versions", fit=False),
    Edit("jobs", all_of("runs", "slurm_job_id", lambda _: "1"), "machine and versions", fit=False),
    Edit(
        "the template's date", all_of("runs", "template_date", lambda _: "2024-01-01"), "prompts themselves", fit=False
    ),
)


def _lent(tables: Tables, turns: tuple[int, ...]) -> None:
    """A borrower's baseline is slower than the lender's."""
    runs, prompts = tables["runs"], tables["prompts"]
    borrower = runs.loc[runs["baseline_of"].notna(), "run_id"].iloc[0]
    rows = (prompts["run_id"] == borrower) & (prompts["arm"] == AUTOREGRESSIVE) & prompts["turn"].isin(turns)
    prompts.loc[rows, ["decode_s", "wall_s"]] *= 2


CELLS = (
    ("bench/mt_bench", ("fe697d8c484f", "43d7e2fedb55", "69e92c733d6d", "3e5e25995d26")),
    ("improving_mcsd/table2", ("22bdedfcb7d3", "059fe92b266f")),
    ("improving_mcsd/table2", ("63fd97dbda14",)),
    ("sequoia/table6", ("0a9ef0b48ca5", "1dbf07b67cd4")),
    ("gsd/table1", ("14c03ca0b9cc", "7991f95737f2")),
)
"""Committed cells by folder: lent baselines, drawn answers, roots of the target's, replays, token graphs."""


def folder(root: Path, number: int) -> tuple[str, Tables]:
    """The tables of such a folder, and its experiment."""
    experiment, names = CELLS[number]
    tables = {table: Store(root, experiment).read(table, names) for table in TABLES}
    runs = tables["runs"].set_index("run_id", drop=False)
    return experiment, tables | {"runs": runs.loc[list(names)].reset_index(drop=True)}


def copied(tables: Mapping[str, pd.DataFrame]) -> Tables:
    """Tables to change."""
    return {name: frame.copy() for name, frame in tables.items()}
