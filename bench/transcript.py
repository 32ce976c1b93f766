"""One answer, token by token, with who said it: the input of OPT-Tree's Figure 10."""

import json
from collections.abc import Iterator
from pathlib import Path

from bench.cell import Cell
from bench.datasets import Conversation
from specdec_core.engine import Generation
from specdec_core.models import Pair


def write_case_study(folder: Path, cell: Cell, pair: Pair, conversation: Conversation, generation: Generation) -> None:
    """Write `case_study.json`: prompt, pieces of text with whether the draft proposed them, MAL and tokens/s."""
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


def pieces(pair: Pair, generation: Generation) -> Iterator[tuple[str, bool]]:
    """The answer in pieces that join to its text; True where the draft proposed the token and the target accepted it.

    A token that ends inside a character is shown with the one that completes it, or with the answer's last one.
    """
    drafted = [False]
    for step in generation.steps:
        accepted = min(step.num_accepted, step.kept)
        drafted += [True] * accepted + [False] * (step.kept - accepted)
    shown = ""
    for end, by_draft in enumerate(drafted, start=1):
        text = pair.tokenizer.decode(generation.tokens[:end], skip_special_tokens=True)
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}") or end == len(drafted)
        if len(text) > len(shown) and whole:
            yield text[len(shown) :], by_draft
            shown = text
