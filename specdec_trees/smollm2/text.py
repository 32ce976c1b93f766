"""Text that SmolLM2 itself wrote, for training its drafts: `python -m specdec_trees.smollm2.text`, then with `--keep`.

Questions are sampled behind the bare user header of the chat template, then their answers, greedy or sampled, until a
conversation has 512 tokens (Xu et al., "Magpie", 2024). With `--openers` the first question begins with one of 64
openers: left to itself the model asks for advice and hardly ever for a text, a proof or a program. Every batch has its
own seed, so several processes can share the work. The features behind each token are kept: a head is trained on them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from specdec_core.cache import KVCache
from specdec_core.sampling import draw_tokens
from specdec_trees.smollm2.__main__ import FOLDER

OUT = FOLDER.parent / "smollm2_text"
TEXT = Path(__file__).parent / "text.npz"
ROWS, LENGTH = 64, 512
"""Conversations in a batch; tokens in a conversation."""
QUESTION, TEMPERATURE = 96, 0.8
"""Tokens after which a question ends, finished or not; its sampling temperature. An answer's is 1."""
GREEDY = 2 / 3
"""Share of the answers that are greedy."""
LOOP = 12
"""An answer that repeats so many tokens in a row ends there."""
NGRAM = 8
"""Words in a row that tell whether two texts are alike."""
OPENERS = """
    Write a|Write an|Write|Compose|Draft|Describe|Explain|Explain why|Explain how|Imagine you are|Imagine|
    Pretend that you are|Act as|You are|Create|Design|Develop|Implement|Solve|Calculate|Find|Prove that|How many|
    How much|If|Given|Suppose|A|The|Read the following|Extract|Identify|Classify|Summarize|Compare|Discuss|Analyze|
    Evaluate|List|Name|Translate|Rewrite|Edit|Correct|What is|What are|Why|When|Which|Who|Where|Is|In|Please|
    Help me|Give|Tell me|Provide|Suggest|Outline|Define|Consider|Two|There are
"""
"""Beginnings of instructions, from no data set."""


@dataclass
class Conversation:
    """One row: whose turn it is, what is forced to come next, and what this turn said so far."""

    greedy: list[bool]
    asks: bool = True
    turns: int = 0
    forced: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)

    def next(self, sampled: int, best: int, frame: Frame) -> int:
        """The token to append, of what was sampled and the arg max."""
        if self.forced:
            return self.forced.pop(0)
        token = best if not self.asks and self.greedy[self.turns] else sampled
        self.said.append(token)
        last = tuple(self.said[-LOOP:])
        loops = len(self.said) > LOOP and last in self.seen
        self.seen.add(last)
        if token == frame.end or loops or (self.asks and len(self.said) == QUESTION):
            self.forced = list((frame.answer if self.asks else frame.question)[token == frame.end :])
            self.turns += not self.asks
            self.asks, self.said, self.seen = not self.asks, [], set()
        return token


@dataclass(frozen=True)
class Frame:
    """The chat template's own tokens: before the first question, from a question to its answer, and back."""

    start: list[int]
    answer: list[int]
    question: list[int]
    end: int


def frame_of(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Read from the rendered template, so that no header is written twice."""
    turns = [{"role": role, "content": mark} for role, mark in zip(("user", "assistant", "user"), "①②③", strict=True)]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    pieces = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in _split(text, "①②③")]
    return Frame(pieces[0], pieces[1], pieces[2], tokenizer.eos_token_id)


def _split(text: str, marks: str) -> Iterator[str]:
    for mark in marks:
        piece, text = text.split(mark)
        yield piece


class Bfloat16(nn.Module):
    """A matrix product in bfloat16, twice as fast here; the residual stream stays in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight.detach().bfloat16()

    def forward(self, inputs: Tensor) -> Tensor:
        """float32 [..., out] of float32 [..., in]."""
        return F.linear(inputs.bfloat16(), self.weight).float()


def hastened(model: Any) -> Any:
    """The model with all its matrix products in bfloat16."""
    for module in [*model.modules()]:
        for name, part in [*module.named_children()]:
            if isinstance(part, nn.Linear):
                setattr(module, name, Bfloat16(part))
    return model


@torch.inference_mode()
def write(model: Any, frame: Frame, cache: KVCache, seed: int, openers: list[list[int]]) -> tuple[Tensor, Tensor]:
    """A batch of conversations: tokens [rows, length] and the feature behind each token [rows, length, hidden].

    First questions begin with one of the `openers`, each a list of tokens.
    """
    rng = torch.Generator().manual_seed(seed)
    coins = (torch.rand(ROWS, LENGTH, generator=rng) < GREEDY).tolist()
    first = torch.randint(len(openers), (ROWS,), generator=rng).tolist()
    rows = [Conversation(greedy, forced=[*openers[which]]) for greedy, which in zip(coins, first, strict=True)]
    cache.truncate(0)
    tokens = torch.empty(ROWS, LENGTH, dtype=torch.long)
    tokens[:, : len(frame.start)] = torch.tensor(frame.start)
    features = torch.empty(ROWS, LENGTH, model.config.hidden_size, dtype=torch.float16)
    new = len(frame.start)
    for end in tqdm(range(new, LENGTH + 1), mininterval=30, desc=f"batch {seed}"):
        positions = torch.arange(end - new, end).expand(ROWS, -1)
        read = tokens[:, end - new : end]
        hidden = model.model(read, past_key_values=cache, use_cache=True, position_ids=positions).last_hidden_state
        cache.advance(new)
        features[:, end - new : end] = hidden
        if end < LENGTH:
            logits = model.lm_head(hidden[:, -1])
            best = logits.argmax(-1).tolist()
            heat = torch.tensor([TEMPERATURE if row.asks else 1.0 for row in rows])[:, None]
            sampled = draw_tokens((logits / heat).softmax(-1), 1, rng)[:, 0].tolist()
            chosen = [row.next(s, b, frame) for row, s, b in zip(rows, sampled, best, strict=True)]
            tokens[:, end] = torch.tensor(chosen)
        new = 1
    return tokens, features


def keep(folder: Path, prompts: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """What is worth training on: tokens into `TEXT`, features into the folder; prints what is left out."""
    batches = [np.load(path) for path in sorted(folder.glob("[0-9]*.npz"))]
    tokens = np.concatenate([batch["tokens"] for batch in batches])
    reasons = [*verdicts(tokenizer.batch_decode(tokens), _words_of(prompts))]
    kept = [row for row, reason in enumerate(reasons) if reason is None]
    for reason, count in Counter(filter(None, reasons)).items():
        print(f"{count} of {len(tokens)} conversations left out: {reason}")
    print(f"{len(kept)} kept, {len(kept) * tokens.shape[1]:,} tokens: {TEXT}")
    np.savez_compressed(TEXT, tokens=tokens[kept])
    np.save(_features(folder), np.concatenate([batch["features"] for batch in batches])[kept])


def verdicts(texts: Iterable[str], tests: set[tuple[str, ...]]) -> Iterator[str | None]:
    """For each conversation why it is left out, or None; `tests` are the n-grams of words that are no one's to see."""
    asked: set[tuple[str, ...]] = set()
    for text in texts:
        words = _ngrams(text)
        question = set(_ngrams(text.split("<|im_start|>")[2]))
        if len(set(words)) < len(words) / 2:
            yield "it repeats itself"
        elif len(question & asked) > len(question) / 2:
            yield "its question was asked before"
        elif tests.intersection(words):
            yield f"it shares {NGRAM} words in a row with a test prompt"
        else:
            yield None
        asked |= question


def _words_of(prompts: Path) -> set[tuple[str, ...]]:
    """N-grams of all words in a folder of JSONL files, whatever their keys."""
    files = sorted(prompts.glob("*.jsonl"))
    return {ngram for path in files for line in path.open() for ngram in _ngrams(" ".join(_strings(json.loads(line))))}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(part)


def _ngrams(text: str) -> list[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return [*zip(*(words[offset:] for offset in range(NGRAM)), strict=False)]


def _features(folder: Path, *which: int) -> Path:
    """The file of the features behind the tokens of `TEXT`, and of no other text."""
    name = "-".join((hashlib.sha256(TEXT.read_bytes()).hexdigest()[:12], *map(str, which)))
    return folder / f"features-{name}.npy"


def read_text(model: Any, folder: Path) -> tuple[Tensor, Tensor]:
    """Tokens [rows, length] of `TEXT`, and the features behind them, which are computed unless they are kept."""
    tokens = torch.from_numpy(np.load(TEXT)["tokens"].astype(np.int64))
    return tokens, _kept(_features(folder), tokens, lambda rows: model.model(rows).last_hidden_state)


def read_layers(model: Any, folder: Path, layers: Sequence[int], every: int) -> tuple[Tensor, Tensor]:
    """The same of one conversation in `every`, with hidden states of several layers side by side."""
    tokens = torch.from_numpy(np.load(TEXT)["tokens"][::every].astype(np.int64))

    def side_by_side(rows: Tensor) -> Tensor:
        states = model.model(rows, output_hidden_states=True).hidden_states
        return torch.cat([states[layer] for layer in layers], -1)

    return tokens, _kept(_features(folder, every, *layers), tokens, side_by_side)


@torch.inference_mode()
def _kept(path: Path, tokens: Tensor, features_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Features [rows, length, ...] as float16, computed once."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [features_of(rows).half() for rows in tqdm(tokens.split(4), desc="features")]
        np.save(path, torch.cat(parts).numpy())
    return torch.from_numpy(np.load(path))


def main() -> None:
    """Write the batches that are not there yet, or keep what they are worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--batches", default="0-19", help="first and last, each of 64 x 512 tokens")
    parser.add_argument("--openers", action="store_true", help="begin first questions with one of 64 openers")
    parser.add_argument("--keep", type=Path, help="write no more; filter by this folder of test prompts (JSONL)")
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    if args.keep:
        keep(args.out, args.keep, tokenizer)
        return
    first, last = map(int, args.batches.split("-"))
    model = hastened(AutoModelForCausalLM.from_pretrained(FOLDER).eval())
    openers = tokenizer([opener.strip() for opener in OPENERS.split("|")])["input_ids"] if args.openers else [[]]
    frame, cache = frame_of(tokenizer), KVCache(model.config.num_hidden_layers, LENGTH)
    args.out.mkdir(parents=True, exist_ok=True)
    for batch in range(first, last + 1):
        path = args.out / f"{batch:03}.npz"
        if not path.is_file():
            tokens, features = write(model, frame, cache, batch, openers)
            half = path.with_name(f".{path.name}")
            np.savez(half, tokens=tokens.numpy().astype(np.uint16), features=features.numpy())
            half.rename(path)


if __name__ == "__main__":
    main()
