"""Greedy answers that another engine decoded, such as vLLM: a line of JSON per prompt, token ids alone.

A line is a `RequestOutput` (`prompt_token_ids`, `outputs[0].token_ids`) or a completion of an OpenAI server that
returns token ids (`choices[0].prompt_token_ids`, `choices[0].token_ids`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_core.errors import PairError
from specdec_core.replay import Recording
from specdec_trees.measure.decoding import Turn
from specdec_trees.results.digests import output_sha256

MISSING = ".missing.jsonl"
"""What stands behind the name of a file of answers, of the prompts that have none."""


def read(path: Path) -> dict[str, list[int]]:
    """The answers by the digest of their prompts' token ids; PairError with the first line that is none."""
    answers: dict[str, list[int]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else (), start=1):
        try:
            whole = json.loads(line)
            (one, *_) = whole.get("outputs") or whole.get("choices") or [whole]
            prompt = whole.get("prompt_token_ids") or one["prompt_token_ids"]
            answers[output_sha256(prompt)] = [int(token) for token in one["token_ids"]]
        except (ValueError, TypeError, LookupError, AttributeError) as problem:
            raise PairError(f"{path}: line {number} has no prompt_token_ids and token_ids ({problem!r})") from problem
    return answers


def recording(
    turn: Turn, answers: Mapping[str, Sequence[int]], length: int, sizes: Mapping[str, Any]
) -> Recording | None:
    """The answer to a turn; None where there is none that ends or has `length` tokens. `sizes` are the target's."""
    answer = answers.get(output_sha256(turn.prompt), ())
    end = next((place for place, token in enumerate(answer, start=1) if token in sizes["eos"]), None)
    if end is None and len(answer) < length:
        return None
    kept, ended = tuple(answer[: end or length]), end is not None and end <= length
    return Recording(tuple(turn.prompt), kept, (), ended, sizes["vocab_size"], sizes["max_positions"])


def ask(path: Path, turns: Sequence[Turn], lengths: Sequence[int]) -> PairError:
    """What is to be decoded yet, written beside the file of answers; the error says so."""
    beside = path.with_name(path.name + MISSING)
    lines = [
        json.dumps({"prompt_token_ids": turn.prompt, "max_tokens": length})
        for turn, length in zip(turns, lengths, strict=True)
    ]
    beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return PairError(
        f"{path} has no answer, or one too short, to {len(turns)} prompts; decode those of {beside} greedily, append "
        "the engine's lines, and run this again"
    )
