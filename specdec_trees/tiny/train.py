"""Trains the embedded pair from the standard library's own text: `python -m specdec_trees.tiny.train`, or `make tiny`.

A byte-level BPE tokenizer, a Llama target trained on next tokens, and a one-layer Llama draft distilled from it by
minimising KL(target || draft). Everything is seeded; the weights are written as float16 safetensors.
"""

import argparse
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdec_trees.tiny.corpus import Document, documents

HERE = Path(__file__).parent
Batch = TypeVar("Batch")
BOS, EOS = "<s>", "</s>"
VOCAB, POSITIONS = 512, 2048
TARGET = {
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 768,
}
DRAFT = {
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 384,
}


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `VOCAB` entries: no text is out of vocabulary."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=VOCAB, special_tokens=[BOS, EOS], show_progress=False)
    begin = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bpe.token_to_id(BOS))])
    bpe._tokenizer.post_processor = begin
    return PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, bos_token=BOS, eos_token=EOS)


def token_stream(tokenizer: PreTrainedTokenizerFast, chosen: list[Document]) -> Tensor:
    """All documents behind one another, each as BOS text EOS. Shape [tokens]."""
    encoded = tokenizer([document.text for document in chosen], add_special_tokens=False)["input_ids"]
    framed = [[tokenizer.bos_token_id, *ids, tokenizer.eos_token_id] for ids in encoded]
    return torch.tensor([token for ids in framed for token in ids])


def new_model(shape: dict[str, int], seed: int) -> LlamaForCausalLM:
    """A Llama with tied embeddings and seeded random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        **shape,
        vocab_size=VOCAB,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def trained_target() -> tuple[LlamaForCausalLM, Tensor, Tensor]:
    """The embedded target, which its heads learn to foresee, and token streams to train and to evaluate them on."""
    target = LlamaForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32).requires_grad_(False)
    tokenizer, corpus = AutoTokenizer.from_pretrained(HERE / "target"), list(documents())
    stream, held_out = (
        token_stream(tokenizer, [document for document in corpus if document.held_out == part])
        for part in (False, True)
    )
    return target, stream, held_out


def windows(stream: Tensor, batch: int, length: int) -> Callable[[torch.Generator], Tensor]:
    """Draws a batch of windows that start anywhere in a stream. Shape [batch, length]."""

    def draw(rng: torch.Generator) -> Tensor:
        starts = torch.randint(0, len(stream) - length, (batch,), generator=rng)
        return torch.stack([stream[start : start + length] for start in starts.tolist()])

    return draw


def train(
    model: nn.Module,
    loss_of: Callable[[Batch], Tensor],
    draw: Callable[[torch.Generator], Batch],
    *,
    steps: int,
    seed: int,
    rate: float = 8e-3,
) -> None:
    """Muon on the matrices inside the layers, AdamW on the rest; warm-up, then a linear decay to zero."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    inner = {
        name: p for name, p in trained.items() if p.ndim == 2 and not {"embed_tokens", "lm_head"} & set(name.split("."))
    }
    outer = [p for name, p in trained.items() if name not in inner]
    optimizers = [
        torch.optim.Muon(inner.values(), lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, lr=3e-3, weight_decay=0.0),
    ]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 50) * (1 - step / steps))
        for opt in optimizers
    ]
    rng = torch.Generator().manual_seed(seed)
    with tqdm(range(steps), mininterval=10) as bar:
        for _ in bar:
            loss = loss_of(draw(rng))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                schedule.step()
            bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


def next_token_loss(model: LlamaForCausalLM) -> Callable[[Tensor], Tensor]:
    """Cross-entropy of the next token, in bfloat16 arithmetic where the CPU has it."""

    def loss(batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch[:, :-1]).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    return loss


def distillation_loss(draft: LlamaForCausalLM, target: LlamaForCausalLM) -> Callable[[Tensor], Tensor]:
    """KL(target || draft), averaged over positions."""

    def loss(batch: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            p = target(batch).logits
        with torch.autocast("cpu", torch.bfloat16):
            q = draft(batch).logits
        log_q, log_p = (x.float().flatten(0, 1).log_softmax(-1) for x in (q, p))
        return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)

    return loss


@torch.inference_mode()
def evaluate(target: LlamaForCausalLM, draft: LlamaForCausalLM, stream: Tensor, length: int) -> dict[str, float]:
    """Validation figures on held-out text, in float32: losses and entropies in nats per token, agreement as a share."""
    sums: dict[str, float] = {}
    windows = stream[: len(stream) // length * length].view(-1, length)
    for batch in windows.split(16):
        log_p, log_q = (m(batch[:, :-1]).logits.log_softmax(-1) for m in (target, draft))
        goal = batch[:, 1:, None]
        figures = {
            "target_loss": -log_p.gather(-1, goal),
            "draft_loss": -log_q.gather(-1, goal),
            "target_entropy": -(log_p.exp() * log_p).sum(-1),
            "draft_entropy": -(log_q.exp() * log_q).sum(-1),
            "same_argmax": (log_p.argmax(-1) == log_q.argmax(-1)).float(),
            "overlap": torch.minimum(log_p.exp(), log_q.exp()).sum(-1),
        }
        for name, values in figures.items():
            sums[name] = sums.get(name, 0.0) + values.sum().item()
    tokens = windows.shape[0] * (length - 1)
    return {name: total / tokens for name, total in sums.items()} | {"tokens": tokens}


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights as float16 safetensors and the tokenizer beside them, as `from_pretrained` reads them."""
    model.half().save_pretrained(folder)
    model.float()
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Train, report and write the pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--target-steps", type=int, default=5000)
    parser.add_argument("--draft-steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="tokens in a training window")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    corpus = list(documents())
    training = [d for d in corpus if not d.held_out]
    tokenizer = train_tokenizer(d.text for d in training)
    stream = token_stream(tokenizer, training)
    held_out = token_stream(tokenizer, [d for d in corpus if d.held_out])
    chars = sum(len(d.text) for d in corpus)
    print(
        f"{len(corpus)} documents, {chars:,} characters, {len(stream):,} training and {len(held_out):,} held-out tokens"
    )

    target, draft = new_model(TARGET, args.seed), new_model(DRAFT, args.seed + 1)
    draw = windows(stream, args.batch, args.length)
    train(target, next_token_loss(target), draw, steps=args.target_steps, seed=args.seed)
    save(target, tokenizer, args.out / "target")
    train(draft, distillation_loss(draft, target), draw, steps=args.draft_steps, seed=args.seed)
    save(draft, tokenizer, args.out / "draft")
    for name, value in evaluate(target, draft, held_out[:200_000], args.length).items():
        print(f"{name:16} {value:.4f}" if math.modf(value)[0] else f"{name:16} {value:,.0f}")


if __name__ == "__main__":
    main()
