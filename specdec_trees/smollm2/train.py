"""Trains drafts for SmolLM2 on text that it wrote: `python -m specdec_trees.smollm2.train eagle`, or `draft`.

`eagle` is an EAGLE-1 head that takes the target's own embedding and output matrix; `draft` is a small Llama over the
most frequent tokens. Both learn the target's distribution over these tokens, from its kept features.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from specdec_core.models.draft_vocabulary import FILE
from specdec_core.models.eagle import EagleModel
from specdec_core.models.eagle_checkpoint import EMBEDDING
from specdec_trees.smollm2.__main__ import FOLDER
from specdec_trees.smollm2.text import OUT, read_text
from specdec_trees.tiny import train_eagle
from specdec_trees.tiny.train import train

HERE = Path(__file__).parent
VOCABULARY = 8192
"""So many of the most frequent tokens; the first three are the chat template's own."""
DRAFT = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 768,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
NOISE = 0.1
RIDGE = 1e-3


class Conversations(NamedTuple):
    """A batch: tokens [batch, length] and the target's features behind them [batch, length, hidden]."""

    tokens: Tensor
    features: Tensor


def read(batch: Conversations) -> tuple[Tensor, Tensor]:
    """As training a head wants it."""
    return batch.tokens, batch.features.float()


def frequent(tokens: Tensor) -> Tensor:
    """The ids of the most frequent tokens, ascending, 0 among them."""
    counts = torch.bincount(tokens.flatten(), minlength=VOCABULARY)
    counts[0] = counts.max() + 1
    return counts.argsort(descending=True, stable=True)[:VOCABULARY].sort().values


class Standardised(nn.Linear):
    """A head's `fc` while it is trained: inputs of mean 0 and deviation 1, whatever the embedding's and features' are.

    Features have dimensions of up to 50 and others near 0, and an embedding is thirty times smaller.
    """

    @torch.no_grad()
    def __init__(self, fc: nn.Linear, inputs: Tensor) -> None:
        """The same function as `fc`; `inputs` [positions, in] tell means and deviations."""
        super().__init__(fc.in_features, fc.out_features)
        self.mean, self.deviation = inputs.mean(0), inputs.std(0)
        self.weight.copy_(fc.weight * self.deviation)
        self.bias.copy_(fc.bias + fc.weight @ self.mean)

    def forward(self, inputs: Tensor) -> Tensor:
        """The same as `folded` on the inputs as they are."""
        return super().forward((inputs - self.mean) / self.deviation)

    @torch.no_grad()
    def folded(self) -> nn.Linear:
        """An ordinary layer, mean and deviation in its weights."""
        made = nn.Linear(self.in_features, self.out_features)
        made.weight.copy_(self.weight / self.deviation)
        made.bias.copy_(self.bias - made.weight @ self.mean)
        return made


def example(head: EagleModel, batch: Conversations) -> tuple[Tensor, Tensor]:
    """What the head's `fc` reads, [positions, 2 hidden], and what it is to predict, [positions, hidden]."""
    tokens, features = read(batch)
    inputs = torch.cat((head.embed_tokens(tokens[:, 1:]), features[:, :-1]), -1)
    return inputs.flatten(0, 1), features[:, 1:].flatten(0, 1)


@torch.no_grad()
def linear_start(head: EagleModel, inputs: Tensor, goal: Tensor) -> None:
    """Make the head the best linear predictor of the next feature, by ridge regression; its layer is silent."""
    fc = head.fc
    assert isinstance(fc, Standardised)
    x = (inputs - fc.mean) / fc.deviation
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1])
    fc.weight.copy_(torch.linalg.solve(gram, x.T @ (goal - goal.mean(0))).T)
    fc.bias.copy_(goal.mean(0))
    layer = head.layers[0]
    for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
        last.weight.zero_()


def distillation_loss(
    draft: LlamaForCausalLM, output: Callable[[Tensor], Tensor], inward: Tensor
) -> Callable[[Conversations], Tensor]:
    """KL(target || draft) over the draft's vocabulary, averaged over positions; `inward` maps ids into it."""

    def loss(batch: Conversations) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = output(batch.features.float()), draft(inward[batch.tokens]).logits
        log_p, log_q = (one.float().log_softmax(-1) for one in logits)
        return F.kl_div(log_q.flatten(0, 1), log_p.flatten(0, 1), reduction="batchmean", log_target=True)

    return loss


def save_map(kept: Tensor, folder: Path) -> None:
    """Which of the target's tokens a draft knows."""
    save_file({"d2t": kept - torch.arange(VOCABULARY)}, folder / FILE)


def main() -> None:
    """Train, report and write one draft."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("eagle", "draft"))
    parser.add_argument("--text", type=Path, default=OUT)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=8, help="conversations of 512 tokens")
    parser.add_argument("--passes", type=int, default=2, help="how often a head reads its own features in training")
    parser.add_argument("--regression", type=float, default=1.0, help="weight of the feature error")
    parser.add_argument("--rate", type=float, default=8e-3, help="of Muon")
    parser.add_argument("--start", type=Path, help="folder of a head to go on from")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    target = AutoModelForCausalLM.from_pretrained(FOLDER).requires_grad_(False)
    tokens, features = read_text(target, args.text)
    held = len(tokens) // 25
    kept = frequent(tokens[held:])
    matrix = target.lm_head.weight[kept]
    print(f"{len(tokens)} conversations, {tokens.numel():,} tokens; {held} are held out")
    print(f"{torch.isin(tokens[:held], kept).float().mean():.2%} of the held-out tokens are in the draft's vocabulary")

    def draw(rng: torch.Generator) -> Conversations:
        rows = torch.randint(held, len(tokens), (args.batch,), generator=rng)
        return Conversations(tokens[rows], features[rows])

    def output(hidden: Tensor) -> Tensor:
        return F.linear(hidden, matrix)

    rest = [Conversations(*pair) for pair in zip(tokens[:held].split(8), features[:held].split(8), strict=True)]
    if args.kind == "eagle":
        head = train_eagle.new_head(target, args.seed)
        if args.start:
            head.load_state_dict(load_file(args.start / "model.safetensors"), strict=False)
        inputs, goal = example(head, Conversations(tokens[held::20], features[held::20]))
        head.fc = Standardised(head.fc, inputs)
        if not args.start:
            linear_start(head, inputs, goal)
        options = {"regression": args.regression, "passes": args.passes, "noise": NOISE}
        train(
            head,
            train_eagle.head_loss(head, read, output, **options),
            draw,
            steps=args.steps,
            seed=args.seed,
            rate=args.rate,
        )
        head.fc = head.fc.folded()
        head.config.draft_vocab_size = VOCABULARY
        train_eagle.save(head, args.out / "eagle", left_out=(EMBEDDING,))
        save_map(kept, args.out / "eagle")
        for name, value in train_eagle.evaluate(head, read, target.lm_head, rest).items():
            print(f"{name:16} {value:.4f}")
        return
    torch.manual_seed(args.seed)
    config = target.config.to_dict() | DRAFT | {"vocab_size": VOCABULARY}
    draft = LlamaForCausalLM(LlamaConfig(**config))
    axes = torch.linalg.eigh(matrix.T @ matrix).eigenvectors[:, -DRAFT["hidden_size"] :]
    draft.model.embed_tokens.weight.data.copy_(matrix @ axes)
    inward = torch.zeros(target.config.vocab_size, dtype=torch.long)
    inward[kept] = torch.arange(VOCABULARY)
    loss = distillation_loss(draft, output, inward)
    train(draft, loss, draw, steps=args.steps, seed=args.seed, rate=args.rate)
    draft.half().save_pretrained(args.out / "draft")
    save_map(kept, args.out / "draft")
    draft.float()
    with torch.inference_mode():
        print(f"{'loss':16} {torch.stack([loss(batch) for batch in rest]).mean():.4f}")


if __name__ == "__main__":
    main()
