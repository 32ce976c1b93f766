"""`python -m specdec_trees.speed.large_cell PROMPTS STEPS [override ...]`: a cell of many prompts, without the hours.

The runner runs as ever, but for the decoder: a turn is decoded once, and every prompt is given its steps over and over,
with other times.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specdec_core.engine import Generation, Step
from specdec_trees import run
from specdec_trees.measure.decoding import Decoding, Turn
from specdec_trees.results.rows import METHOD

DATASET = "gsm8k"
"""Whose file the prompts stand in."""
TIMES = ("draft_s", "tree_s", "score_s", "judge_s", "commit_s")


def write_prompts(count: int, folder: Path) -> None:
    """A folder for `data_dir` with so many conversations of one turn."""
    folder.mkdir(parents=True)
    lines = (json.dumps({"id": f"{number:05}", "turns": ["def f(x):"]}) for number in range(count))
    (folder / f"{DATASET}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def stretched(decoded: Generation, steps: int, tokens: Sequence[int]) -> Generation:
    """The steps of a decoding over and over, up to so many, with other times; they say `tokens` over and over."""
    longer = [_jittered(step) for step in itertools.islice(itertools.cycle(decoded.steps), steps)]
    said = itertools.islice(itertools.cycle(tokens), 1 + sum(step.kept for step in longer))
    seconds = sum(step.seconds for step in longer)
    return Generation([token + 0 for token in said], "length", longer, decoded.prefill_s, seconds, seconds)


def _jittered(step: Step) -> Step:
    """A step of its own, as long and with other times."""
    times = {name: getattr(step, name) * random.uniform(0.9, 1.1) for name in TIMES}
    return replace(step, **times, accepted_ranks=list(step.accepted_ranks))


class Stretched:
    """In place of `Decoding.decode`: decodes once in each arm."""

    def __init__(self, steps: int) -> None:
        self.steps, self.decode = steps, Decoding.decode
        self.decoded: dict[str, Generation] = {}
        self.num_tokens = 0

    def __call__(self, decoding: Decoding, turn: Turn, arm: str, new: int | None = None, **more: object) -> Generation:
        """As many steps as asked for of the method, and of the target alone as many tokens."""
        if new is not None or more:  # a warm-up
            return self.decode(decoding, turn, arm, new, **more)  # type: ignore[arg-type]
        if arm not in self.decoded:
            self.decoded[arm] = self.decode(decoding, turn, arm)
        decoded, tokens = self.decoded[arm], next(iter(self.decoded.values())).tokens
        longer = stretched(decoded, self.steps if arm == METHOD else max(self.num_tokens - 1, 1), tokens)
        self.num_tokens = len(longer.tokens) if arm == METHOD else self.num_tokens
        return longer


def main(prompts: str, steps: str, *overrides: str) -> None:
    """Run the cell as `specdec_trees.run` does."""
    stretch = Stretched(int(steps))

    def decode(self: Decoding, turn: Turn, arm: str, new: int | None = None, **more: object) -> Generation:
        return stretch(self, turn, arm, new, **more)

    Decoding.decode = decode  # type: ignore[method-assign,assignment]
    sys.argv[1:] = [*overrides, f"dataset={DATASET}", f"limit={prompts}"]
    run.command()


if __name__ == "__main__":
    main(*sys.argv[1:])
