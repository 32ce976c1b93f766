"""One architecture: greedy outputs alone and as trees against those of the stock model, short and past every limit."""

import copy
from dataclasses import dataclass
from typing import Any

import torch

from specdec_core import CausalLM, generate
from specdec_core.drafters import Autoregressive, OptTree
from specdec_core.errors import LoadError, PromptError
from specdec_core.models.architectures import COMPARED, check_architecture
from specdec_core.models.memory import weight_bytes
from specdec_core.models.trial import scored
from specdec_core.verifiers import Greedy
from specdec_trees.architectures.zoo import VOCAB, disturb, small

LENGTHS = (3, 20, 60)
"""Of prompts: with `NEW` tokens within a window, across its end, and past it."""
NEW, TIE = 16, 1e-5
"""Tokens of an answer; logits no further apart may be chosen either way."""

CLOSE = 1e-4
"""Of the largest logit; 2e-6 is usual, and a window that is not seen makes 1e-2 and more."""
LARGEST = 2**28
"""Bytes of a small model."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one architecture."""

    name: str
    kind: str
    refused: str | None = None
    """By which sentence, before the weights are read or once they were tried."""
    alone: int = 0
    """Answers that are the stock model's, of `answers`."""
    trees: int = 0
    """The same with trees, all of whose nodes also have the stock model's logits."""
    answers: int = 0
    bounded: int = 0
    """Prompts that were refused in a sentence: they would cross a limit."""
    accepted: float = 0.0
    """Mean acceptance length with trees."""
    unbuilt: bool = False
    """Whether transformers cannot build or run a small one of the usual options."""

    @property
    def equal(self) -> bool:
        """Whether all answers are the stock model's."""
        return self.answers > 0 and self.alone == self.trees == self.answers

    @property
    def verdict(self) -> str:
        """In a word: `compared`, `tried` (equal, and tried whenever it is loaded), `refused`, `unbuilt`, `silent`."""
        if self.unbuilt:
            return "unbuilt"
        if self.refused:
            return "refused"
        if not self.equal:
            return "silent"
        return "compared" if self.kind in COMPARED else "tried"


def compare(name: str, config: Any) -> Outcome:
    """Decode with a small random model of this config; a LoadError is an outcome, other errors of ours are raised."""
    if config is None:
        return Outcome(name, name, unbuilt=True)
    kind = config.model_type
    try:
        check_architecture(config)
        if (stock := _stock(config)) is None:
            return Outcome(name, kind, unbuilt=True)
        target, draft = CausalLM(copy.deepcopy(stock)), CausalLM(disturb(copy.deepcopy(stock), 0.02, 2))
    except LoadError as error:
        return Outcome(name, kind, refused=str(error))
    arms = Autoregressive(), OptTree(draft=draft, n=25, delta=0.2)
    alone, trees, answers, bounded, lengths = 0, 0, 0, 0, []
    for length in LENGTHS:
        prompt = torch.randint(2, VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist()
        try:
            results = [generate(target, arm, Greedy(), prompt, max_new_tokens=NEW) for arm in arms]
        except PromptError:
            bounded += 1
            continue
        expected, answers = stock_greedy(stock, prompt), answers + 1
        equal = [agree(stock, prompt, result.tokens, expected) for result in results]
        alone, trees = alone + equal[0], trees + (equal[1] and paths_agree(target, stock, prompt))
        lengths += [step.acceptance_length for step in results[1].steps]
    mean = sum(lengths) / max(len(lengths), 1)
    return Outcome(name, kind, alone=alone, trees=trees, answers=answers, bounded=bounded, accepted=mean)


def paths_agree(target: CausalLM, stock: Any, prompt: list[int]) -> bool:
    """Whether every node of two trees behind a prompt has the stock model's logits behind its path."""
    ours, alone = scored(target, stock, torch.tensor(prompt))
    return bool((ours - alone).abs().max() <= CLOSE * alone.abs().max())


def _stock(config: Any) -> Any:
    """The stock model, if it can be built and decodes at all."""
    try:
        if weight_bytes(config, torch.float32) > LARGEST:
            return None  # the usual options do not reach all of its parts
        model = small(config)
        stock_greedy(model, [2, 3])
    except Exception:  # whatever transformers raises where sizes do not fit one another
        return None
    return model


@torch.inference_mode()
def stock_greedy(stock: Any, prompt: list[int]) -> list[int]:
    """Tokens of transformers' own `generate`."""
    tokens = torch.tensor([prompt])
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = stock.generate(tokens, attention_mask=torch.ones_like(tokens), repetition_penalty=1.0, **options)
    new: list[int] = found[0, len(prompt) :].tolist()
    return new


@torch.inference_mode()
def agree(stock: Any, prompt: list[int], ours: list[int], expected: list[int]) -> bool:
    """Whether answers are equal, or part at a tie of the stock model's logits."""
    at = next((i for i, pair in enumerate(zip(ours, expected, strict=True)) if pair[0] != pair[1]), None)
    if at is None:
        return True
    logits = stock(torch.tensor([prompt + expected[:at]]), use_cache=False).logits[0, -1]
    return bool(logits.max() - logits[[ours[at], expected[at]]].min() <= TIE)
