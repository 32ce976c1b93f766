"""`python -m specdec_trees.architectures`: every causal architecture of transformers, small, alone and as trees."""

import argparse
import logging
import re
import sys
import warnings
from pathlib import Path

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdec_trees.architectures.compare import Outcome, compare
from specdec_trees.architectures.zoo import ZOO, config_of
from specdec_trees.artifacts.markdown import escaped

UNBUILT = "needs files or sizes that a small one has not"


def main(arguments: list[str] | None = None) -> int:
    """Print the outcomes and their counts; 1 if an architecture decoded something else without a word."""
    parser = argparse.ArgumentParser(prog="specdec_trees.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries of the zoo or model types; all unless given")
    parser.add_argument("--docs", type=Path, help="a page whose marked part is drawn anew, such as docs/real_pairs.md")
    options = parser.parse_args(arguments)
    outcomes = []
    for name in options.names or every_name():
        outcomes.append(compare(name, config_of(name)))
        print(line(outcomes[-1]), flush=True)
    print(counts(outcomes))
    if options.docs:
        drawn(options.docs, outcomes)
    return int(any(one.verdict == "silent" for one in outcomes))


def every_name() -> list[str]:
    """The zoo's entries, and every other model type of transformers' causal mapping."""
    kinds = {kind for kind, _ in ZOO.values()}
    return [*ZOO, *(kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if kind not in kinds)]


def line(one: Outcome) -> str:
    """One architecture in a line."""
    said = one.refused or (UNBUILT if one.unbuilt else f"{one.alone} and {one.trees} of {one.answers} equal")
    bounded = f", {one.bounded} prompts refused at a limit" if one.bounded else ""
    return f"{one.verdict:<9} {one.name:<22} {said}{bounded}"


def counts(outcomes: list[Outcome]) -> str:
    """The whole, counted by model type."""
    kinds = {one.kind for one in outcomes}
    compared, tried, refused, unbuilt, silent = (
        len({one.kind for one in outcomes if one.verdict == word}) for word in WORDS
    )
    decoded = {one.kind for one in outcomes if one.answers}
    alone = decoded - {one.kind for one in outcomes if one.alone < one.answers}
    trees = decoded - {one.kind for one in outcomes if one.trees < one.answers}
    return (
        f"\n{len(kinds)} model types: {compared} compared, {tried} more equal and tried whenever they are loaded, "
        f"{refused} refused in a sentence, {unbuilt} not built in small and tried whenever they are loaded, "
        f"{silent} silent\ngreedy outputs equal generate's: alone {len(alone)}, as trees {len(trees)} of {len(decoded)}"
    )


WORDS = ("compared", "tried", "refused", "unbuilt", "silent")
"""Verdicts."""
MARKS = "<!-- drawn by make architectures -->", "<!-- end -->"


def drawn(page: Path, outcomes: list[Outcome]) -> None:
    """Replace what stands between the marks of a page."""
    begin, end = MARKS
    text = page.read_text()
    if begin not in text or end not in text:
        raise SystemExit(f"{page} has no part between {begin} and {end}; add both lines")
    part = f"{begin}\n\n{table(outcomes)}\n\n{end}"
    page.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: part, text, flags=re.DOTALL))


def table(outcomes: list[Outcome]) -> str:
    """Model types by what becomes of them."""
    rows = [("model types", "what becomes of them")]
    for word, meaning in MEANINGS.items():
        kinds = sorted({one.kind for one in outcomes if one.verdict == word and not one.refused})
        rows += [(f"{escaped(', '.join(kinds))} ({len(kinds)})", meaning)] if kinds else []
    reasons: dict[str, set[str]] = {}
    for one in outcomes:
        if one.refused:
            reasons.setdefault(reason(one.refused), set()).add(one.name.replace(",", " with"))
    rows += [(escaped(", ".join(sorted(names))), f"refused: {why}") for why, names in sorted(reasons.items())]
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---|---|", *body])


MEANINGS = {
    "compared": "equal to `generate`, alone and as trees, short and past every limit of the config",
    "tried": "equal too; tried whenever one is loaded, within its windows",
    "unbuilt": "not compared: tried whenever one is loaded, and refused if trees differ",
}


def reason(sentence: str) -> str:
    """What a refusal says, as Markdown, without the model's name and numbers."""
    if "decodes something else" in sentence:
        return "decodes something else as a tree than `generate`"
    if "cannot read a tree" in sentence:
        return "does not read a tree by mask, positions and cache"
    said = sentence.partition(": it ")[2].partition(";")[0]
    return escaped(re.sub("of type .*, whose", "whose", said))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sys.exit(main())
