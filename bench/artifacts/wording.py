"""The words for blocks: the setting in a title, a note of what was run and decoded, a row of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pandas as pd

from bench.artifacts.blocks import NO_DRAFT, Block, drafted, every_run
from bench.artifacts.notes import NO_MODEL as NO_MODEL
from bench.artifacts.notes import models as models
from bench.artifacts.runs import Run
from bench.results.rows import AUTOREGRESSIVE, METHOD
from bench.results.store import Results
from bench.statistics import metrics

LOOPS = 0.5
"""Share of repeated 4-grams from which an output is called a loop; texts of people have a few percent."""


def setting(found: Iterable[Block], *, but: Sequence[str] = ()) -> str:
    """The words of a title: pair, dataset, temperature, device, dtype of all blocks; `but` leaves out what is swept.

    Blocks whose runs all failed count where there are no others, and know neither device nor dtype.
    """
    listed = list(found)
    every = [block for block in listed if block.ran] or listed
    words = {
        "pair": _several(_pair_words(block) for block in every),
        "dataset": _several(block.first["dataset"] for block in every),
        "temperature": "temperature " + _several(f"{block.first['temperature']:g}" for block in every),
        "device": _several(block.first["device_name"] for block in every if block.ran),
        "dtype": _several(block.first["dtype"] for block in every if block.ran),
    }
    return ", ".join(text for name, text in words.items() if name not in but and text)


def titled(title: str, found: Sequence[Block], *, but: Sequence[str] = ()) -> str:
    """A title with the setting of what was run."""
    return f"{title} ({setting(found, but=but) if found else 'not run'})"


def scale(block: Block) -> str:
    """What was run: conversations, by category where there are several, tokens, seed, device; how much repeats."""
    temperatures = _several((f"{value:g}" for value in block.runs["temperature"].sort_values()), most=9)
    marks = [mark for mark in block.mark.split(", ") if not mark.startswith(("dataset ", "temperature "))]
    more = f" ({', '.join(marks)})" if any(marks) else ""
    first, counts = block.first, block.runs.loc[block.runs["status"] == "ok", "num_conversations"]
    prompts = "no" if counts.empty else " to ".join(str(count) for count in dict.fromkeys((counts.min(), counts.max())))
    kinds = f" ({found})" if (found := categories(block)) else ""
    ended = f", of which {silent} end with their first token" if (silent := _silent(block)) else ""
    place = f", {first['dtype']} on {first['device_name']}" if block.ran else ""
    return (
        f"{_pair_words(block)}, {first['dataset']}, temperature {temperatures}{more}: "
        f"{prompts} conversations{kinds}{ended}, at most {first['max_new_tokens']} new tokens a turn, "
        f"seed {first['seed']}"
        f"{place}. {repetition(block)}"
    ).strip()


def _silent(block: Block) -> int:
    """Conversations without a decoding step in the run that has the fewest such."""
    counts = [int(run["num_conversations"]) - run.steps["prompt_id"].nunique() for run in block.ok if len(run.steps)]
    return min(counts, default=0)


EMBEDDED = " It was chosen so that E(A) meets A in greedy decoding of the bundled prompts."
"""What is said of the embedded target's drafts (`bench/tiny/README.md`)."""


def draft_temperatures(runs: Iterable[Run]) -> Iterator[str]:
    """A sentence for every pair whose draft's best tokens were not drafted at the paper's temperature.

    What is drawn at random has a temperature of its method's.
    """
    found: dict[tuple[str, bool], set[float]] = {}
    for run in runs:
        value = run.params.get("draft_temperature", 1)
        if value != 1 and run["draws"] == "topk":
            whose = str(run["pair"]), str(run["target_id"]).startswith("tiny/")
            found.setdefault(whose, set()).add(float(value))
    for (pair, embedded), values in found.items():
        words = " and ".join(f"{value:g}" for value in sorted(values))
        yield (
            f"Draft temperature {words} for {pair} (the papers: 1; DySpec: 0.6): path probabilities and thresholds are "
            "of q at this temperature, which grown trees depend on and trees of fixed shape do not; "
            f"bench/draft_temperature shows what it does.{EMBEDDED * embedded}"
        )


def other_runs(results: Results, shown: Collection[str], arguments: Callable[[Run], str]) -> str:
    """The drafting runs that are not shown, alike ones once: `gsd (k=2) by greedy at temperature 0 (run 1a2b)`."""
    groups: dict[str, list[str]] = {}
    for run in every_run(results):
        if run.method != AUTOREGRESSIVE and run.run_id not in shown:
            top_p = "" if run["top_p"] == 1 else f", top-p {run['top_p']:g}"
            decoding = f"temperature {run['temperature']:g}{top_p}"
            words = f"{run.name}{arguments(run)} by {run['verifier']} at {decoding}"
            groups.setdefault(words, []).append(run.run_id)
    return "; ".join(
        f"{words} ({'run' if len(ids) == 1 else 'runs'} {', '.join(ids)})" for words, ids in groups.items()
    )


def who(block: Block) -> dict[str, str]:
    """What stands in a row under Target, Draft and Dataset."""
    target, draft = block.published_as or (block.pair, block.pair)
    if block.stand_in:
        target, draft = f"{block.pair} (for {target})", draft if draft == NO_DRAFT else f"{block.pair} (for {draft})"
    draft = NO_MODEL if draft == NO_DRAFT else draft
    return {"Target": target, "Draft": draft, "Dataset": str(block.first["dataset"])}


def stand_ins(found: Sequence[Block]) -> Iterator[str]:
    """A sentence for every pair that stands in for others."""
    for pair in dict.fromkeys(block.pair for block in found if block.stand_in):
        yield f"{pair} stands in for the paper's models: absolute values are not comparable; rows are judged by order."


def left_out(paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """A sentence on the paper's models that no block is set against; none where nothing was run at all."""
    done, paper = {block.published_as for block in found}, drafted(paper)
    missing = dict.fromkeys(zip(paper["target"], paper["draft"], strict=True)) if found else {}
    if left := [models(*names) for names in missing if names not in done]:
        yield f"Not run: {', '.join(left)}."


def categories(block: Block) -> str:
    """`1 each of writing, roleplay` or `3 of writing, 2 of roleplay`; nothing where there are no two."""
    rows = _prompts(block).drop_duplicates("prompt_id")
    counts = rows["category"].value_counts(sort=False)
    if len(counts) < 2:
        return ""
    if counts.nunique() == 1:
        return f"{counts.iloc[0]} each of {', '.join(map(str, counts.index))}"
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def repetition(block: Block) -> str:
    """A sentence: the share of repeated 4-grams in both arms, and which runs are above `LOOPS`; "" without a run."""
    prompts = _prompts(block)
    arms = {"the method outputs'": METHOD, "the autoregressive": AUTOREGRESSIVE}
    shares = {words: metrics.repeated_4grams(prompts, arm) for words, arm in arms.items()}
    said = ", ".join(f"{share:.0%} of {words}" for words, share in shares.items() if share == share)
    by_run = {run.name: metrics.repeated_4grams(run.prompts, METHOD) for run in block.ok}
    loops = [drafter for drafter, share in by_run.items() if share >= LOOPS]
    which = "every run" if len(loops) == len(by_run) else ", ".join(loops)
    marked = f"; loops ({LOOPS:.0%} or more): {which}" if loops else ""
    return f"Repeated 4-grams: {said}{marked}." if said else ""


def _prompts(block: Block) -> pd.DataFrame:
    """The turns of all runs of a block that ended well."""
    every, runs = block.results.prompts, [run.run_id for run in block.ok]
    return every[every["run_id"].isin(runs) & (every["status"] == "ok")]


def _pair_words(block: Block) -> str:
    names = models(*block.published_as) if block.published_as else ""
    notes = ["synthetic"] * block.planted + [f"stands in for {names}"] * (block.stand_in and bool(names))
    return f"{block.pair} ({', '.join(notes)})" if notes else block.pair


def _several(words: Iterable[object], most: int = 3) -> str:
    distinct = list(dict.fromkeys(str(word) for word in words))
    return " / ".join(distinct) if len(distinct) <= most else f"{distinct[0]} and {len(distinct) - 1} others"
