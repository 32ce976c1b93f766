"""`specdec prove NAME ...`: has a drafter of `conf/drafter`, or a rule of `conf/verifier`, a fault? On the tiny pair.

Greedy: its outputs are those of transformers' own `generate`. Sampled: how often each text of four tokens comes, held
by a chi-square test against the target's exact probability of it (temperature 1, the three best tokens). A drafter is
judged by the rule for its draws, a rule with a drafter for each way of drawing that it declares. A small p says that
they differ, a large one that so many samples show no difference. Exit status 1 where outputs differ or p < 1e-6.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from specdec_core import Sampling, generate
from specdec_core.drafters import Drafter
from specdec_core.models import Pair
from specdec_core.verifiers import Greedy, Verifier
from specdec_trees.configs import variants
from specdec_trees.configs.cells import cell_of
from specdec_trees.lossless import lossless, reference
from specdec_trees.measure import pairs
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.runner import SENTENCES
from specdec_trees.names import unknown
from specdec_trees.plan.composing import composer
from specdec_trees.statistics.fit import Fit, fit

PROMPTS = (
    "def read_config(filename):\n",
    "import os\n\n",
    "class Node:\n    def __init__(self",
    "for line in lines:\n",
)
DRAWN_BY = {
    "topk": "eagle25",
    "iid": "spec_infer_5x8",
    "without_replacement": "branching_4_2_2_1_wor",
    "greedy_one": "branching_4_2_2_1_greedy",
}
"""A drafter for each way of drawing."""
CHAINS = ("block", "chain")
"""Rules that are for chains alone."""
SETTING = ("pair=tiny", "dataset=mini", "decoding=t1", "runtime.device=cpu", "runtime.dtype=float32")
LENGTH, BEST, GREEDY_LENGTH = 4, 3, 48
"""New tokens of a sampled text, how many tokens may follow each, and new tokens of a greedy one."""
SAMPLED = 2
"""Prompts of sampled texts; all have a greedy one."""
REFUSED = 1e-6


def target_law(pair: Pair, prompt: Sequence[int], length: int = LENGTH) -> dict[tuple[int, ...], float]:
    """The target's probability of every text that it may write, by forwards of the library's model without a cache."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for text, prob in law.items():
            logits = pair.target.model(torch.tensor([[*prompt, *text]])).logits[0, -1].double()
            best, tokens = logits.topk(BEST)
            chances = best.softmax(-1).tolist()
            longer |= {(*text, token): prob * one for token, one in zip(tokens.tolist(), chances, strict=True)}
        law = longer
    return law


def judged(law: dict[tuple[int, ...], float], texts: Sequence[tuple[int, ...]]) -> Fit[tuple[int, ...]]:
    """Chi-square of texts against a law; p is 0 where a text has no probability at all."""
    fits = fit(law, Counter(texts))
    if fits.bins == 1:
        raise ValueError(f"{len(texts)} samples are too few for any two texts: give more --samples")
    return fits


def sampled(pair: Pair, drafter: Drafter, rule: Verifier, prompt: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Texts that the method writes, each from a seed of its own."""
    texts = []
    for seed in range(count):
        rng, sampling = torch.Generator().manual_seed(seed), Sampling(1.0, top_k=BEST)
        options = {"max_new_tokens": LENGTH, "sampling": sampling, "eos_token_ids": (), "allow_lossy": True}
        texts.append(tuple(generate(pair.target, drafter, rule, prompt, rng=rng, **options).tokens))  # type: ignore[arg-type]
    return texts


def cells(name: str) -> Iterator[tuple[str, Cell]]:
    """The cells that ask a method, with words for them; ValueError where nothing has the name."""
    drafters, rules = variants.choices("drafter"), variants.choices("verifier")
    if name not in (*drafters, *rules):
        raise ValueError(unknown("method", name, [*drafters, *rules]))
    with composer() as composes:

        def cell(drafter: str, rule: str) -> Cell:
            lossy = ["verifier.allow_lossy=true"] * (rule not in ("by_draws", "by_root"))
            return cell_of(composes([*SETTING, f"drafter={drafter}", f"verifier={rule}", *lossy]))

        if name in drafters:
            first = {"init", "widths"} & {*cell(name, "target_sample").drafter_params}  # some of the target's tokens
            made = cell(name, "by_root" if first else "by_draws")
            yield f"{name}, rule {made.verifier}", made
            return
        declared = sorted(cell("sd", name).rule.lossless_for & DRAWN_BY.keys())
        if name == "greedy" or not declared:
            raise ValueError(f"verifier {name} declares no draws for which samples have the target's distribution")
        for draws in declared:
            drafter = "sd" if name in CHAINS else DRAWN_BY[draws]
            yield f"{name}, draws {draws} ({drafter})", cell(drafter, name)


def proved(pair: Pair, cell: Cell, count: int) -> Iterator[tuple[bool, str]]:
    """Of each test whether it was passed, and a line."""
    drafter = cell.build_drafter(pair.draft)
    prompts = [pair.tokenizer(text)["input_ids"] for text in PROMPTS]
    if isinstance(cell.rule, Greedy) or lossless(drafter):
        outputs = [reference(pair, prompt, GREEDY_LENGTH) for prompt in prompts]
        options = {"max_new_tokens": GREEDY_LENGTH, "allow_lossy": True}
        same = [
            generate(pair.target, drafter, cell.rule, prompt, **options).tokens == output  # type: ignore[arg-type]
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
        yield all(same), f"greedy: {sum(same)} of {len(same)} outputs are those of transformers' generate"
    laws = [
        judged(target_law(pair, prompt), sampled(pair, drafter, cell.rule, prompt, count))
        for prompt in prompts[:SAMPLED]
    ]
    least = min(laws, key=lambda law: law.p)
    p = min(1.0, least.p * len(laws))
    worst = f"{pair.tokenizer.decode(least.worst)!r} {least.observed} times, {least.expected:.0f} expected"
    yield p >= REFUSED, f"sampled: p = {p:.2g} of {len(laws)} x {count} texts; farthest off: {worst}"


def main() -> int:
    """Two lines for each method; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="specdec prove", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="of conf/drafter or conf/verifier")
    parser.add_argument("--samples", type=int, default=500, help="sampled texts of each prompt (default: %(default)s)")
    args = parser.parse_args()
    passed = True
    for words, cell in [one for name in args.names for one in cells(name)]:
        pair = pairs.loaded(cell.pair, Runtime(device="cpu", dtype="float32", num_threads=1))
        print(words, flush=True)
        for fits, line in proved(pair, cell, args.samples):
            print(f"    {'yes' if fits else 'NO '} {line}", flush=True)
            passed = passed and fits
    return int(not passed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SENTENCES as refusal:
        sys.exit(str(refusal))
