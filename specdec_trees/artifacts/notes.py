"""The sentences below a table or figure, of rows of `frame.load` or of some of them: a clause per block, the rest once.

`of_blocks(runs)` has all that is said of any: what was run and decoded, what A/A resolves, what disturbed, stand-ins.
`titled(title, runs)` puts the setting behind a title; `not_run(paper, runs)` names the paper's models without a block,
`unshown` the runs that a figure leaves out; `excerpted(runs, table)` adds what was decoded. Of a row: `model_words`.
`facts(runs)` has the words of the clauses as a frame, a row per block; the numbers of A/A are of `noise`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from specdec_trees.artifacts import noise
from specdec_trees.artifacts.frame import NO_DRAFT, done
from specdec_trees.artifacts.tables import Table, named_rows
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import metrics, samples

LOOPS = 0.5
"""Share of repeated 4-grams from which an output is called a loop; texts of people have a few percent."""
NO_MODEL = "no draft model"
"""What stands under Draft where the target drafts for itself, or heads on it do."""
AA = (
    "A/A sets times of the same work against each other: autoregressive decoding against its own baseline in one run "
    "(speedup), and the baselines of two runs (tokens/s: of the least certain pair, and of the median one)."
)

NO_AA = "no A/A, which takes two autoregressive arms of one decoding over six conversations"


def of_blocks(runs: pd.DataFrame, *, temperatures: bool = True, **given: Any) -> list[str]:
    """What all blocks share, a clause for each with what it alone has, and what their pairs are; `given` to `facts`.

    Without `temperatures` nothing of the drafts', as where these are swept.
    """
    words = facts(runs, **given)
    same = [] if len(words.drop_duplicates()) == 1 else [kind for kind, own in words.items() if own.nunique() == 1]
    shared = [f"All: {text}." for text in [_clause(words[same].iloc[0])] if text]
    clauses = words.drop(columns=same).agg(_clause, axis=1)
    named = [f"{', '.join(own.index.unique())}: {text}." for text, own in clauses.groupby(clauses, sort=False) if text]
    controls = [AA] * any("%" in text for text in words.get("A/A", ()))
    drafted = draft_temperatures(runs) if temperatures else ()
    return [*shared, *named, *controls, *stand_ins(runs), *drafted]


def facts(
    runs: pd.DataFrame, paper: pd.DataFrame | None = None, on: Sequence[str] = (), *, timed: bool = True
) -> pd.DataFrame:
    """A row of words per block, by its name, a column per kind of fact; "" where there is nothing to say.

    With `paper`, rows of `frame.of_models`, also the hardware of those that have the same in the columns `on`; without
    `timed` nothing of times.
    """
    blocks = [rows for _, rows in runs.groupby("block", sort=False)]
    kinds = {**DECODED, **(TIMED if timed else {})}
    kinds |= {} if paper is None else {"published": partial(_published, paper=paper, on=on)}
    words = {kind: [of(rows) for rows in blocks] for kind, of in kinds.items()}
    return pd.DataFrame(words, [_name(rows.iloc[0]) for rows in blocks])


def setting(runs: pd.DataFrame, *, but: Sequence[str] = ()) -> str:
    """The words of a title: pair, dataset, temperature, device, dtype of all blocks; `but` leaves out what is swept.

    Blocks whose runs all failed count where there are no others, and know neither device nor dtype.
    """
    firsts = (runs if done(runs).empty else done(runs)).drop_duplicates("block")
    words = {
        "pair": _several(map(_pair_words, named_rows(firsts)), 3),
        "dataset": _several(firsts["dataset"], 3),
        "temperature": f"temperature {_several(firsts['temperature'], 3)}",
        "device": _several(done(firsts)["device_name"], 3),
        "dtype": _several(done(firsts)["dtype"], 3),
    }
    return ", ".join(text for kind, text in words.items() if kind not in but and text)


def titled(title: str, runs: pd.DataFrame, *, but: Sequence[str] = ()) -> str:
    """A title with the setting of what was run."""
    return f"{title} ({setting(runs, but=but) if len(runs) else 'not run'})"


def models(target: str, draft: str) -> str:
    """The words for models by their published names."""
    return f"{target} without a draft model" if draft == NO_DRAFT else f"{target} + {draft}"


def model_words(run: Any, beside: Collection[str] = ()) -> tuple[str, str]:
    """What stands under Target and Draft of a row: the published names, or the pair's.

    Behind the target stands what tells its block from others of the pair, but for what has columns `beside` it.
    """
    target, draft = (run.target, run.draft) if run.target and run.draft else (run.pair, run.pair)
    if run.stand_in:
        target, draft = f"{run.pair} (for {target})", draft if draft == NO_DRAFT else f"{run.pair} (for {draft})"
    apart = [words for words in run.variant.split(", ") if words.rpartition(" ")[0].replace(" ", "_") not in beside]
    mark = f" [{', '.join(apart)}]" if any(apart) else ""
    return target + mark, NO_MODEL if draft == NO_DRAFT else draft


def stand_ins(runs: pd.DataFrame) -> Iterator[str]:
    """A sentence on the pairs that stand in for others."""
    if names := [*dict.fromkeys(_pair_words(run) for run in named_rows(runs) if run.stand_in)]:
        yield f"{', '.join(names)}: absolute values are not comparable, rows are judged by order."


def draft_temperatures(runs: pd.DataFrame) -> Iterator[str]:
    """A sentence on the pairs whose draft's best tokens were not drafted at the paper's temperature.

    What is drawn at random has a temperature of its method's.
    """
    best = done(runs[runs["draws"] == "topk"])
    best = best.assign(value=[float(params.get("draft_temperature", 1)) for params in best["params"]])
    best = best[best["value"] != 1].sort_values("value", kind="stable")
    values = [f"{_several(own, 9)} for {pair}" for pair, own in best.groupby("pair", sort=False)["value"]]
    embedded = best.loc[best["target_id"].str.startswith("tiny/"), "pair"].unique().tolist()
    chosen = f" That of {', '.join(embedded)} was chosen to bring E(A) near MAL."
    if values:
        yield (
            f"Draft temperature {', '.join(values)} (the papers: 1; DySpec: 0.6): path probabilities and thresholds "
            "are of q at it, which grown trees depend on and others do not; bench/draft_temperature shows what it does."
            f"{chosen * bool(embedded)}"
        )


def not_run(paper: pd.DataFrame, runs: pd.DataFrame) -> Iterator[str]:
    """A sentence on the paper's models that no block is set against; none where nothing was run at all."""
    ran, paper = {*zip(runs["target"], runs["draft"], strict=True)}, paper[paper["draft"] != NO_DRAFT]
    names = dict.fromkeys(zip(paper["target"], paper["draft"], strict=True)) if ran else {}
    if missing := [models(*name) for name in names if name not in ran]:
        yield f"Not run: {', '.join(missing)}."


def unshown(runs: pd.DataFrame, shown: Collection[str], arguments: Callable[[Any], str]) -> str:
    """The drafting runs that are not shown, alike ones once: `gsd (k=2) by greedy at temperature 0 (3 runs)`."""
    hidden = runs[(runs["method"] != AUTOREGRESSIVE) & ~runs["run_id"].isin(list(shown))].drop_duplicates("run_id")
    counts = Counter(
        f"{run.name}{arguments(run)} by {run.verifier} at temperature {run.temperature:g}"
        + (f", top-p {run.top_p:g}" if run.top_p != 1 else "")
        for run in named_rows(hidden)
    )
    return "; ".join(f"{words} ({count} run{'s' * (count > 1)})" for words, count in counts.items())


def excerpted(runs: pd.DataFrame, table: Table) -> Table:
    """The table with a note: the excerpt of the first of its runs that has one; itself where none has."""
    known = runs[runs["run_id"].isin(list(table.run_ids)) & runs["excerpt"].notna()]
    if known.empty:
        return table
    run = known.iloc[0]
    text = f'What was decoded, for instance ({run["pair"]}, {run["dataset"]}): "{run["excerpt"]}"'
    return replace(table, notes=(*table.notes, text))


# what is said of the rows of one block


def _conversations(rows: pd.DataFrame) -> str:
    """How many, by category where there are several, and how many of them have no decoding step or failed."""
    ran, failed = done(rows), rows["failed"].iloc[0]["prompt_id"].nunique()
    counts = ran["num_conversations"]
    number = " to ".join(str(count) for count in dict.fromkeys((counts.min(), counts.max()))) if len(ran) else "no"
    ids = [(run.prompts["prompt_id"], run.steps["prompt_id"]) for run in named_rows(ran) if len(run.steps)]
    silent = min((asked.nunique() - stepped.nunique() for asked, stepped in ids), default=0)
    more = f", of which {silent} end with their first token" if silent else ""
    return f"{number} conversations{_categories(rows)}{more}" + f" but {failed} that failed in a run" * bool(failed)


def _categories(rows: pd.DataFrame) -> str:
    """` (3 each of writing, roleplay; 1 each of math)`; nothing where there are no two."""
    counts = _turns(rows).drop_duplicates("prompt_id")["category"].value_counts(sort=False)
    alike = counts.astype(str).groupby(counts, sort=False)
    words = [f"{count} each of {', '.join(map(str, names.index))}" for count, names in alike]
    return f" ({'; '.join(words)})" if len(counts) > 1 else ""


def _repetition(rows: pd.DataFrame) -> str:
    """The share of repeated 4-grams in both arms, and which runs are above `LOOPS`."""
    arms, turns = {" with the methods": METHOD, " in plain decoding": AUTOREGRESSIVE}, _turns(rows)
    plain = turns.loc[turns["arm"] == AUTOREGRESSIVE, "prompt_id"]
    turns = turns[turns["prompt_id"].isin(set(plain))] if len(plain) else turns  # both arms of the same text
    shares = {words: metrics.repeated_4grams(turns, arm) for words, arm in arms.items()}
    text = ", ".join(f"{share:.0%}{words}" for words, share in shares.items() if not math.isnan(share))
    names, outputs = done(rows)["name"], done(rows)["prompts"]
    loops = [name for name, own in zip(names, outputs, strict=True) if metrics.repeated_4grams(own, METHOD) >= LOOPS]
    which = "every run" if len(loops) == len(names) else ", ".join(loops)
    return text and f"repeated 4-grams: {text}{f'; loops: {which}' * bool(loops)}"


def replayed(rows: pd.DataFrame) -> str:
    """How many conversations have acceptance and no times; of which methods, unless it is so of all."""
    words: dict[str, list[str]] = {}
    runs = done(rows)
    for run in named_rows(runs):
        turns = run.prompts[run.prompts["arm"] == METHOD]
        if untimed := turns.loc[turns["decode_s"].isna(), "prompt_id"].nunique():
            words.setdefault(f"{untimed} of {turns['prompt_id'].nunique()}", []).append(run.name)
    of = {count: f" of {', '.join(dict.fromkeys(names))}" for count, names in words.items() if len(names) < len(runs)}
    each = " and ".join(f"{count} conversations{of.get(count, '')}" for count in words)
    if not each:
        return ""
    drawn = f", one drawn for each prompt{_same_answers(runs)}," * bool((runs["temperature"] > 0).any())
    devices = sorted(set(runs.get("replay_device", "")) - {"", *runs["device_name"]})
    where = f", on {' and '.join(devices)}" * bool(devices)
    return f"replayed on the target's recorded answers{drawn or ','} without times{where}: {each}"


def _same_answers(runs: pd.DataFrame) -> str:
    """Whether all replays are of the same answers, in words."""
    columns = ["prompt_id", "turn", "output_sha256"]
    every = [own.loc[(own["arm"] == METHOD) & own["decode_s"].isna(), columns] for own in runs["prompts"]]
    answers = pd.concat(every).drop_duplicates()
    return " (not the same for all)" if answers.duplicated(columns[:2]).any() else " and the same for all"


def _published(rows: pd.DataFrame, paper: pd.DataFrame, on: Sequence[str]) -> str:
    hardware = paper.loc[(paper[[*on]] == rows.iloc[0][[*on]]).all(axis=1), "hardware"].unique()
    return f"published: {' / '.join(hardware)}" if len(hardware) else "no published numbers"


def _resolved(rows: pd.DataFrame) -> str:
    """What differences of times are not resolved, or why that is not known."""
    if done(rows).empty:
        return ""
    alone, several = noise.itself(rows), rows[["temperature", "top_p"]].drop_duplicates().shape[0] > 1
    words = [f"speedup within {_percent(samples.resolution(alone))} of 1"] if alone else []
    for arm in named_rows(noise.arms(rows)):
        noisy = ", too noisy to rank" * (arm.typical > samples.TOO_BUSY)
        reach = samples.resolution(arm.widest)
        spread = f"within {_percent(reach)} (median {_percent(arm.typical)}, " if reach < 1 else "at all ("
        words.append(f"tokens/s{f' ({arm.decoding})' * several} {spread}{arm.runs} runs{noisy})")
    return f"A/A resolves no {', no '.join(words)}" if words else NO_AA


def _limit(rows: pd.DataFrame) -> str:
    """How near the baselines come to the fastest that memory allows, the median over runs."""
    timed = noise.baselines(rows[rows["limit_tokens_per_s"].notna()])
    shares = [samples.interval(run.baseline).value / run.limit_tokens_per_s for run in named_rows(timed)]
    return f"plain decoding at {statistics.median(shares):.0%} of what memory bandwidth allows" if shares else ""


def _disturbed(rows: pd.DataFrame) -> str:
    """How many outputs have times that do not count, and how many turns were measured again."""
    ran = done(rows)
    left, again = (int(ran[column].fillna(0).sum()) for column in ("num_contaminated", "num_repeated"))
    arms = [arm for turns in ran["prompts"] for arm in turns["arm"]]
    out = f"{left} of {len(arms)} outputs not timed (GPU throttled or shared, or CPU stalled)"
    repeated = f"{again} of {arms.count(METHOD)} turns decoded again (CPU stalled)"
    return ", ".join([out] * bool(left) + [repeated] * bool(again))


def _values(column: str, text: str, rows: pd.DataFrame) -> str:
    """The text with the distinct values of a column; nothing where there are none."""
    values = rows.loc[rows[column] != "", column].sort_values()
    return text.format(_several(values, 9)) if len(values) else ""


def _lent(runs: pd.DataFrame) -> str:
    """How many runs that ended well have a baseline that another decoded."""
    ended = done(runs)
    count = int(ended["baseline_of"].notna().sum())
    return f"the baseline of {count} of {len(ended)} runs was decoded in another" if count else ""


def _named(text: str, runs: pd.DataFrame) -> str:
    """The text with the names of those runs that ended well; nothing where there are none."""
    names = done(runs)["name"].unique()
    return text.format(", ".join(names)) if len(names) else ""


DECODED: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "synthetic": lambda rows: "synthetic" * bool(rows["planted"].iloc[0]),
    "dataset": partial(_values, "dataset", "{}"),
    "temperature": partial(_values, "temperature", "temperature {}"),
    "conversations": _conversations,
    "tokens": partial(_values, "max_new_tokens", "at most {} new tokens a turn"),
    "seed": partial(_values, "seed", "seed {}"),
    "replayed": replayed,
    "dtype": lambda rows: _values("dtype", "{}", done(rows)),
    "device": lambda rows: _values("device_name", "{}", done(rows)),
    "repetition": _repetition,
}
TIMED: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "A/A": _resolved,
    "shared": _lent,
    "limit": _limit,
    "disturbed": _disturbed,
    "resumed": lambda rows: _named("resumed (tokens/s of several starts): {}", rows[rows["num_starts"].fillna(1) > 1]),
}


def _clause(words: Iterable[str]) -> str:
    return "; ".join(filter(None, words))


def _name(run: pd.Series) -> str:
    """The pair, and what tells the block from others of it, but for what is said of every block."""
    marks = str(run["setting"]).split(", ")
    return ", ".join(mark for mark in marks if not mark.startswith(("dataset ", "temperature ")))


def _turns(rows: pd.DataFrame) -> pd.DataFrame:
    """The turns that ended well of the runs that did."""
    turns = done(rows)["prompts"]
    return done(pd.concat(list(turns))) if len(turns) else rows["prompts"].iloc[0].iloc[:0]


def _pair_words(run: Any) -> str:
    names = models(run.target, run.draft) if run.target and run.draft else ""
    words = ["synthetic"] * bool(run.planted) + [f"stands in for {names}"] * bool(run.stand_in and names)
    return f"{run.pair} ({', '.join(words)})" if words else str(run.pair)


def _several(values: Iterable[object], most: int) -> str:
    words = [*dict.fromkeys(f"{value:g}" if isinstance(value, float) else str(value) for value in values)]
    return " / ".join(words) if len(words) <= most else f"{words[0]} and {len(words) - 1} others"


def _percent(reach: float) -> str:
    """Rounded up, since what is said not to be resolved is not; whole percents from 10 on."""
    scale = 10 if reach < 0.1 else 1
    return f"{math.ceil(round(reach * 100 * scale, 6)) / scale:.{scale // 10}f}%"
