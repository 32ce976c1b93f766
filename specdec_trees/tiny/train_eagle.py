"""Trains the embedded target's EAGLE head: `python -m specdec_trees.tiny.train_eagle`, or `make tiny-eagle`.

As EAGLE (section 4.2): regression of the target's next feature (smooth L1) and agreement of the two distributions, with
uniform noise on the features that are read. The target and its embedding stay as they are.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core.models.eagle import EagleModel
from specdec_trees.tiny.train import HERE, Batch, train, trained_target, windows

NOISE = 0.1
"""Half the width of the noise's range, for features of about unit size."""


def new_head(target: LlamaForCausalLM, seed: int) -> EagleModel:
    """A head of the target's widths with its embedding, frozen; all else is random."""
    torch.manual_seed(seed)
    shape = target.config.to_dict() | {"num_hidden_layers": 1, "tie_word_embeddings": False}
    head = EagleModel(LlamaConfig(**shape), bias=True)
    head.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight.data)
    head.embed_tokens.requires_grad_(False)
    return head


def head_loss(
    head: EagleModel,
    read: Callable[[Batch], tuple[Tensor, Tensor]],
    output: Callable[[Tensor], Tensor],
    *,
    regression: float,
    passes: int,
    noise: float,
    bfloat16: bool = True,
) -> Callable[[Batch], Tensor]:
    """KL(target || head) + `regression` x smooth L1 of the features, averaged over positions.

    `read` gives a batch's tokens and the target's features, `output` is the target's output matrix. With several
    `passes` the head also reads its own predictions, as it will in a tree; each pass counts alike.
    """

    def loss(batch: Batch) -> Tensor:
        arithmetic = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
        with torch.no_grad(), arithmetic:
            tokens, features = read(batch)
            log_p = output(features).float().log_softmax(-1)
        seen, total = features.float(), torch.zeros(())
        for _ in range(passes):
            noisy = seen + noise * (2 * torch.rand_like(seen) - 1)
            with arithmetic:
                predicted = head.predict(tokens[:, 1:], noisy[:, :-1])
                log_q = output(predicted).float().log_softmax(-1)
            goal, predicted = features[:, 1:].float(), predicted.float()
            agreement = F.kl_div(
                log_q.flatten(0, 1), log_p[:, 1:].flatten(0, 1), reduction="batchmean", log_target=True
            )
            total = total + agreement + regression * F.smooth_l1_loss(predicted, goal)
            seen = torch.cat((features[:, :1].float(), predicted), 1)
        return total / passes

    return loss


def reader(target: LlamaForCausalLM) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Tokens as they are, with the target's features behind them."""
    return lambda batch: (batch, target.model(batch).last_hidden_state)


@torch.inference_mode()
def evaluate(
    head: EagleModel,
    read: Callable[[Batch], tuple[Tensor, Tensor]],
    output: Callable[[Tensor], Tensor],
    batches: Iterable[Batch],
) -> dict[str, float]:
    """On held-out text in float32, with true features: agreement of arg maxima, overlap of p and q, feature error."""
    sums, positions = dict.fromkeys(("same_argmax", "overlap", "smooth_l1"), 0.0), 0
    for batch in batches:
        tokens, features = read(batch)
        predicted, goal = head.predict(tokens[:, 1:], features[:, :-1]), features[:, 1:]
        q, p = (output(x).softmax(-1) for x in (predicted, goal))
        sums["same_argmax"] += (q.argmax(-1) == p.argmax(-1)).float().sum().item()
        sums["overlap"] += torch.minimum(p, q).sum().item()
        sums["smooth_l1"] += F.smooth_l1_loss(predicted, goal, reduction="none").mean(-1).sum().item()
        positions += goal.shape[:2].numel()
    return {name: total / positions for name, total in sums.items()}


def save(head: EagleModel, folder: Path, left_out: tuple[str, ...] = ()) -> None:
    """In the format of the published heads: config.json and tensors, as float16 safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    head.config.save_pretrained(folder)
    tensors = {name: tensor.half().contiguous() for name, tensor in head.state_dict().items() if name not in left_out}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Train, report and write the head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "eagle")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="tokens in a training window")
    parser.add_argument("--regression", type=float, default=1.0, help="weight of the feature error")
    parser.add_argument("--passes", type=int, default=2, help="how often the head reads its own features in training")
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()

    target, stream, held_out = trained_target()
    head = new_head(target, args.seed)
    read, draw = reader(target), windows(stream, args.batch, args.length)
    loss = head_loss(head, read, target.lm_head, regression=args.regression, passes=args.passes, noise=NOISE)
    train(head, loss, draw, steps=args.steps, seed=args.seed)
    save(head, args.out)
    parts = held_out[:200_000].unfold(0, args.length, args.length).split(16)
    for name, value in evaluate(head, read, target.lm_head, parts).items():
        print(f"{name:16} {value:.4f}")


if __name__ == "__main__":
    main()
