"""One answer, token by token, with who said it: the input of OPT-Tree's Figure 10 and GSD's Figure 6."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from specdec_core.engine import Generation, Step
from specdec_core.models import Pair
from specdec_trees.measure.cell import Cell
from specdec_trees.prompts.datasets import Conversation

TARGET, DRAFT, LISTED, MERGED = "target", "draft", "listed", "merged"
"""Who said a token: the target alone, or the draft and the target accepted it, before or behind a merge edge."""


def write_case_study(folder: Path, cell: Cell, pair: Pair, conversation: Conversation, generation: Generation) -> None:
    """Write `case_study.json`: prompt, pieces of text with who said them, MAL and tokens/s."""
    steps = generation.steps
    study = {
        "title": f"{cell.pair.name}, {cell.drafter}, temperature {cell.sampling.temperature:g}",
        "prompt": conversation.turns[0],
        "pieces": list(pieces(pair, generation)),
        "mal": sum(step.acceptance_length for step in steps) / len(steps) if steps else 0,
        "tokens_per_s": (len(generation.tokens) - 1) / generation.decode_s if steps else 0,
        "run_id": cell.run_id,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case_study.json").write_text(json.dumps(study, ensure_ascii=False, indent=1), encoding="utf-8")


def pieces(pair: Pair, generation: Generation) -> Iterator[tuple[str, str]]:
    """The answer in pieces that join to its text, each with one of `TARGET`, `DRAFT`, `LISTED`, `MERGED`.

    A token that ends inside a character is shown with the one that completes it, or with the answer's last one.
    """
    said = [TARGET, *chain.from_iterable(map(_said, generation.steps))]
    shown = ""
    for end, who in enumerate(said, start=1):
        text = pair.tokenizer.decode(generation.tokens[:end], skip_special_tokens=True)
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}") or end == len(said)
        if len(text) > len(shown) and whole:
            yield text[len(shown) :], who
            shown = text


def _said(step: Step) -> list[str]:
    """Who said each token of a step that is kept.

    All that lies behind a merge edge ends the accepted path; before it stand those whose place in the verified tree is
    not that in the graph.
    """
    behind = step.facts.get("num_behind_merge", 0)
    listed = max(step.facts.get("num_displaced", 0) - behind, 0)
    path = [DRAFT] * (step.num_accepted - behind - listed) + [LISTED] * listed + [MERGED] * behind
    return [*path, TARGET][: step.kept]
