"""Trains the embedded target's EAGLE head: `python -m bench.tiny.train_eagle`, or `make tiny-eagle`.

As EAGLE (section 4.2): regression of the target's next feature (smooth L1) and agreement of the two laws, with uniform
noise on the features that are read. The target and its embedding stay as they are.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from bench.tiny.corpus import documents
from bench.tiny.train import HERE, token_stream, train
from specdec_core.models.eagle import EagleModel

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
    head: EagleModel, target: LlamaForCausalLM, regression: float, passes: int, noise: float
) -> Callable[[Tensor], Tensor]:
    """KL(target || head) + `regression` x smooth L1 of the features, averaged over positions.

    With several `passes` the head also reads its own predictions, as it will in a tree; each pass counts alike.
    """

    def loss(batch: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            features = target.model(batch).last_hidden_state
            log_p = target.lm_head(features).float().log_softmax(-1)
        read, total = features.float(), torch.zeros(())
        for _ in range(passes):
            noisy = read + noise * (2 * torch.rand_like(read) - 1)
            with torch.autocast("cpu", torch.bfloat16):
                predicted = head.predict(batch[:, 1:], noisy[:, :-1])
                log_q = target.lm_head(predicted).float().log_softmax(-1)
            goal, predicted = features[:, 1:].float(), predicted.float()
            agreement = F.kl_div(
                log_q.flatten(0, 1), log_p[:, 1:].flatten(0, 1), reduction="batchmean", log_target=True
            )
            total = total + agreement + regression * F.smooth_l1_loss(predicted, goal)
            read = torch.cat((features[:, :1].float(), predicted), 1)
        return total / passes

    return loss


@torch.inference_mode()
def evaluate(head: EagleModel, target: LlamaForCausalLM, stream: Tensor, length: int) -> dict[str, float]:
    """On held-out text in float32, with true features: agreement of arg maxima, overlap of the laws, feature error."""
    sums, windows = dict.fromkeys(("same_argmax", "overlap", "smooth_l1"), 0.0), stream.unfold(0, length, length)
    for batch in windows.split(16):
        features = target.model(batch).last_hidden_state
        predicted, goal = head.predict(batch[:, 1:], features[:, :-1]), features[:, 1:]
        q, p = (target.lm_head(x).softmax(-1) for x in (predicted, goal))
        sums["same_argmax"] += (q.argmax(-1) == p.argmax(-1)).float().sum().item()
        sums["overlap"] += torch.minimum(p, q).sum().item()
        sums["smooth_l1"] += F.smooth_l1_loss(predicted, goal, reduction="none").mean(-1).sum().item()
    return {name: total / (windows.shape[0] * (length - 1)) for name, total in sums.items()}


def save(head: EagleModel, folder: Path) -> None:
    """In the format of the published heads: config.json and tensors, as float16 safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    head.config.save_pretrained(folder)
    tensors = {name: tensor.half().contiguous() for name, tensor in head.state_dict().items()}
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

    target = LlamaForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32).requires_grad_(False)
    tokenizer, corpus = AutoTokenizer.from_pretrained(HERE / "target"), list(documents())
    stream, held_out = (
        token_stream(tokenizer, [document for document in corpus if document.held_out == part])
        for part in (False, True)
    )
    head = new_head(target, args.seed)
    train(head, head_loss(head, target, args.regression, args.passes, NOISE), stream, args, args.steps)
    save(head, args.out)
    for name, value in evaluate(head, target, held_out[:200_000], args.length).items():
        print(f"{name:16} {value:.4f}")


if __name__ == "__main__":
    main()
