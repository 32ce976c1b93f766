"""Every method of every setting that was run, once, whichever experiments show it: the rows behind `which`.

A setting is a pair with its weights, a dataset with the form of its prompts, how it is decoded, and the machine of its
times. Of the runs of one method with the same arguments and rule the one with most conversations counts: for MAL
replays are among them, for times they are not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.artifacts import frame
from specdec_trees.artifacts.definitions import differing, drafter_label, rule_label
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.papers.beyond.budget import SIZES, budget
from specdec_trees.results import failures, replays, store
from specdec_trees.results.roles import Role, columns
from specdec_trees.results.rows import AUTOREGRESSIVE, OK, RunRow
from specdec_trees.statistics import samples
from specdec_trees.statistics.samples import Sample

_FORM = ("mode", "part", "frame", "prompt_tokens")
"""What a dataset's config says of the form of its prompts."""
_OPTIONS = tuple(name for name in columns(RunRow, Role.OPTIONS) if name != "seed")
DECODED = (*columns(RunRow, Role.SETTING), *_OPTIONS, "dtype", "weights", "form")
"""Columns in which runs agree whose MAL is compared."""
MACHINE = ("device_name", "num_threads", "wait_policy")
"""Those in which runs agree as well whose times are compared; days and revisions may differ."""
_METHOD = ["name", "asked", "arguments", "verifier"]
_PROMPTS = (
    *("run_id", "prompt_id", "turn", "arm", "status", "error", "num_decoded_tokens", "decode_s", "prefill_s"),
    "contaminated",
)
_STEPS = ("run_id", "prompt_id", "num_drafted", "depth", "draft_forwards", "acceptance_length", "num_accepted")
_COLUMNS = {"prompts": _PROMPTS, "steps": (*_STEPS, "draft_s", "tree_s")}
_NAMED = ("pair", "dataset", "temperature", "top_p", "device_name", "num_threads")
"""Columns that all words for a setting have."""


@dataclass(frozen=True, slots=True)
class Picked:
    """A method in a setting: where the runs are that its MAL and times are of; None for times if all were replayed."""

    block: int
    length: Any
    speed: Any


def rows(root: Path, pair: str | None = None) -> pd.DataFrame:
    """A row per setting and method, as `frame.measure` takes them; the most certain setting of a pair first.

    Its sums over conversations: `length` of MAL, `forwards` of the draft's a step, `gain` of the speedup, `drafting` of
    the milliseconds that draft and tree take of a step. NoResultsError where no setting has two methods.
    """
    runs = _drafting(root, pair)
    settings = sorted(_settings(runs), key=lambda setting: _order(runs, setting))
    picked = [one for setting in settings for one in setting]
    if not picked:
        raise NoResultsError(
            "no two methods were run in one setting: with the same pair, prompts, decoding and machine"
        )
    chosen = runs.loc[sorted({place for one in picked for place in (one.length, one.speed) if place is not None})]
    counted, _ = failures.common(chosen, {name: _read(root, chosen, name) for name in ("prompts", "steps")})
    steps = counted["steps"]
    steps = steps.assign(
        ms=1e3 * (steps["draft_s"] + steps["tree_s"]), own=steps["acceptance_length"] - steps["num_accepted"]
    )
    return _described(runs, picked, counted["prompts"], steps)


def _drafting(root: Path, pair: str | None) -> pd.DataFrame:
    """The runs of all experiments that ended well and draft, each once, those of most conversations last."""
    shown = [one for one in store.experiments(root, "runs") if "/." not in f"/{one.experiment}"]
    parts = [rows.assign(experiment=one.experiment) for one in shown if len(rows := one.read("runs"))]
    if not parts:
        raise NoResultsError("nothing was run")
    runs = pd.concat(parts, ignore_index=True)
    runs = runs[(runs["status"] == OK) & (runs["method"] != AUTOREGRESSIVE)]
    runs = runs[runs["pair"].isin(pair.split(","))] if pair else runs
    runs = runs.fillna({"node_order": "creation", "graphs": "eager", "ignore_eos": False})
    runs = runs.sort_values(["num_conversations", "created_utc"], kind="stable").drop_duplicates("run_id", keep="last")
    configs, params = (list(map(json.loads, runs[name])) for name in ("config", "drafter_params"))
    asked = [json.dumps([(one.get("dataset") or {}).get(key) for key in _FORM]) for one in configs]
    digests = map(replays.files, runs["config"])
    weights = [str(own if any(own) else hub) for own, hub in zip(digests, runs["target_revision"], strict=True)]
    runs = frame.put(
        runs,
        form=asked,
        weights=weights,
        params=params,
        name=[drafter_label(method, own) for method, own in zip(runs["method"], params, strict=True)],
        size=[frame.tree_size(own) for own in params],
    )
    own = [{key: value for key, value in given.items() if key not in SIZES} for given in params]
    return frame.put(
        runs,
        asked=[budget(run) or 0 for run in frame.named_rows(runs)],
        arguments=[json.dumps(given, sort_keys=True) for given in own],
    )


def _settings(runs: pd.DataFrame) -> list[list[Picked]]:
    """The methods of each setting that has two or more."""
    found: list[list[Picked]] = []
    for _, alike in runs.groupby([*DECODED], dropna=False, sort=False):
        replayed = alike["recording"].notna()
        machines = [own for _, own in alike[~replayed].groupby([*MACHINE], dropna=False, sort=False)]
        for own in machines or [alike[:0]]:
            setting = list(_methods(pd.concat([alike[replayed], own]).sort_index(), len(found)))
            found += [setting] * (len(setting) > 1)
    return found


def _methods(runs: pd.DataFrame, block: int) -> Iterator[Picked]:
    for _, same in runs.groupby(_METHOD, sort=False):
        same = same.sort_values(["num_conversations", "created_utc"], kind="stable")
        decoded = same[same["recording"].isna()]
        yield Picked(block, same.index[-1], decoded.index[-1] if len(decoded) else None)


def _order(runs: pd.DataFrame, setting: list[Picked]) -> tuple[object, ...]:
    """Pairs of real models before the embedded ones, by name; the settings of a pair from the most certain one on.

    That is the one of whose methods two have most conversations timed, then most in all; then the one of most methods.
    """
    first = runs.loc[setting[0].length]
    places = [one.speed for one in setting if one.speed is not None], [one.length for one in setting]
    counts = [sorted(runs.loc[own, "num_conversations"], reverse=True) for own in places]
    certain = [-most[1] if len(most) > 1 else 0 for most in counts]
    return str(first["target_id"]).startswith("tiny/"), first["pair"], *certain, -len(setting)


def _read(root: Path, runs: pd.DataFrame, table: str) -> pd.DataFrame:
    parts = [
        store.Store(root, str(name)).read(table, own["run_id"], _COLUMNS[table])
        for name, own in runs.groupby("experiment", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def _described(runs: pd.DataFrame, picked: list[Picked], prompts: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    made = runs.loc[[one.length for one in picked]].reset_index(drop=True)
    where = runs.loc[[one.length if one.speed is None else one.speed for one in picked]].reset_index(drop=True)
    timed = pd.Series([one.speed is not None for one in picked])
    own = where["run_id"].where(timed, "").tolist()
    both = zip(made["run_id"], own, strict=True)
    lengths, gains = _sums(steps, made["run_id"]), samples.speedups(prompts, own)
    drafting = zip(_sums(steps, own), gains, strict=True)
    most = steps.groupby("run_id")[["depth", "own"]].max().sum(axis=1)
    made = frame.put(
        made,
        block=[one.block for one in picked],
        ok=[True] * len(made),
        length=[
            Sample(sums, ("tokens",), ("steps",), least=1.0, most=float(most.get(run_id, math.inf)))
            for sums, run_id in zip(lengths, made["run_id"], strict=True)
        ],
        forwards=[Sample(sums, ("forwards",), ("steps",)) for sums in lengths],
        mean_size=[sums["nodes"].sum() / max(sums["steps"].sum(), 1) for sums in lengths],
        gain=gains,
        drafting=[Sample(sums[sums["timed"] > 0], ("ms",), ("timed",), gain.controls) for sums, gain in drafting],
        identical=where["identical"],
        rule=made["verifier"].map(rule_label),
        run_id=[" ".join(dict.fromkeys(filter(None, ids))) for ids in both],
        **{name: where[name].astype(object).where(timed, None) for name in MACHINE},
    )
    machine = made.groupby("block")[[*MACHINE]].transform("first")  # of those that were timed
    made = frame.put(made, **{name: machine[name] for name in MACHINE})
    busy = {block: samples.too_busy(list(rows["gain"])) for block, rows in made.groupby("block")}
    made = frame.put(made, busy=made["block"].map(busy), setting=_words(made))
    return frame.put(made, name=_names(made))


def _sums(steps: pd.DataFrame, run_ids: Iterable[str]) -> list[pd.DataFrame]:
    """Of each run the sums over the steps of every conversation."""
    of = steps.groupby(["run_id", "prompt_id"])
    sums = of.agg(
        tokens=("acceptance_length", "sum"),
        steps=("acceptance_length", "size"),
        nodes=("num_drafted", "sum"),
        forwards=("draft_forwards", "sum"),
        ms=("ms", "sum"),
        timed=("ms", "count"),
    )
    return samples.each(sums, run_ids)


def _words(made: pd.DataFrame) -> list[str]:
    """The pair, the dataset, the decoding and the machine; and what tells a setting from others that have the same."""
    base = [_base(row) for row in frame.named_rows(made)]
    differ = [name for name in (*DECODED, *MACHINE) if name not in _NAMED]
    known = made[differ].apply(lambda column: ["" if pd.isna(value) else str(value) for value in column])
    varies = known.groupby(pd.Series(map(str, base))).transform("nunique") > 1
    words: dict[int, str] = {}
    for place, ((first, last), block) in enumerate(zip(base, made["block"], strict=True)):
        more = [_word(name, known.at[place, name]) for name in differ if varies.at[place, name]]
        words.setdefault(block, ", ".join(filter(None, [first, *more, last])))
    alike = Counter(words.values())
    for number, (block, text) in enumerate(words.items(), start=1):
        words[block] = f"{text} (setting {number})" if alike[text] > 1 else text
    return [words[block] for block in made["block"]]


def _names(made: pd.DataFrame) -> Iterator[str]:
    """The names, with the size and those arguments in which a method's runs of one setting and rule differ."""
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for run in frame.named_rows(made):
        alike.setdefault((run.block, run.name, run.verifier), []).append(run)
    for run in frame.named_rows(made):
        others = alike[run.block, run.name, run.verifier]
        size = [f"n = {run.asked}"] * any(one.asked != run.asked for one in others)
        apart = differing(run.params, [one.params for one in others if one.asked == run.asked])
        yield ", ".join([run.name, *size, *(f"{key} {value}" for key, value in apart.items() if key not in SIZES)])


def _base(row: Any) -> tuple[str, str]:
    decoding = "greedy" if row.temperature == 0 else f"temperature {row.temperature:g}"
    decoding += f", top-p {row.top_p:g}" if row.top_p != 1 else ""
    threads = f"{row.device_name}, {row.num_threads} thread{'s' * (str(row.num_threads) != '1')}"
    return f"{row.pair}: {row.dataset}, {decoding}", "no times" if pd.isna(row.device_name) else threads


def _word(name: str, value: str) -> str:
    """A value of a column in words; nothing for what is usual."""
    if name == "form":
        mode, part, framed, tokens = json.loads(value)
        parts = {None: "", "all": "all of its prompts"}.get(part, f"its {part} part")
        words = (f"{mode} prompts" if mode else "", parts, f"framed {_digest(str(framed))}" if framed else "")
        return ", ".join(filter(None, (*words, f"cut to {tokens} tokens" if tokens else "")))
    usual = {"ignore_eos": ("answers go on behind EOS", ""), "max_new_tokens": (f"{value} new tokens",) * 2}
    if name in usual:
        return usual[name][value == "False"]
    return f"{name.replace('_', ' ')} {_digest(value) if name == 'weights' else value}" if value else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
