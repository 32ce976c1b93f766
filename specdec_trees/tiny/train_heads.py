"""`python -m specdec_trees.tiny.train_heads eagle3`, or `medusa`: trains these heads for the embedded target.

Both learn the target's own distributions. EAGLE-3's head does so by training-time test (Li et al., 2025, section 3.2):
it also reads its own predictions, behind true features, as it will in a tree. The target and its embedding stay as they
are.
"""

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from specdec_core.models.eagle import Eagle3Model
from specdec_core.models.eagle_checkpoint import EMBEDDING
from specdec_core.models.head_formats import LAYER_IDS
from specdec_core.models.medusa import medusa_heads
from specdec_core.models.medusa_checkpoint import FILES
from specdec_trees.tiny.train import HERE, Batch, train, trained_target, windows

LAYERS = (1, 3, 5)
"""Of the target's six, low, middle and high."""
KNOWN = 384
"""So many of the most frequent tokens are predicted by the EAGLE-3 head."""
HEADS = 4
DECAY = 0.8
"""Weight of a pass, or of a Medusa head, over that of the one before (Cai et al., 2024, section 2.2)."""


def frequent(stream: Tensor, vocab: int) -> Tensor:
    """The ids of the most frequent tokens, ascending."""
    return torch.bincount(stream, minlength=vocab).argsort(descending=True, stable=True)[:KNOWN].sort().values


def new_eagle_3(target: LlamaForCausalLM, known: Tensor, seed: int) -> Eagle3Model:
    """A head of the target's widths with its embedding, frozen, and its rows of the output matrix; else random."""
    torch.manual_seed(seed)
    shape = target.config.to_dict() | {"num_hidden_layers": 1, "tie_word_embeddings": False}
    hidden = target.config.hidden_size
    head = Eagle3Model(LlamaConfig(**shape), target_hidden=hidden, vocab=len(known), joined=len(LAYERS))
    head.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight.data)
    head.embed_tokens.requires_grad_(False)
    head.lm_head.weight.data.copy_(target.lm_head.weight.data[known])
    return head


def new_medusa(target: LlamaForCausalLM) -> nn.ModuleList:
    """Heads that begin as the target's output matrix, as in Medusa's own training."""
    heads = medusa_heads(HEADS, 1, target.config.hidden_size, target.config.vocab_size)
    for name, parameter in heads.named_parameters():
        if name.endswith("linear.weight"):
            nn.init.zeros_(parameter)
        elif name.endswith("1.weight"):
            parameter.data.copy_(target.lm_head.weight.data)
    return heads


def sight(length: int, before: int) -> Float[Tensor, "1 1 length slots"]:
    """What a pass sees of the slots of `before` earlier passes and of its own.

    Row i reads true features up to i - before, and then the pairs of one pass after another up to its own.
    """
    place = torch.arange(length)
    parts = [place[None] <= place[:, None] - before]
    parts += [place[None] == place[:, None] - before + number for number in range(1, before + 1)]
    visible = torch.cat(parts, 1)
    visible[:before, 0] = True  # rows that have no such past are not counted, but have to see something
    return torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None]


def passes_of(head: Eagle3Model, tokens: Tensor, features: Tensor, passes: int) -> list[Float[Tensor, "batch new k"]]:
    """Logits of every pass over the pairs of a text; of pass k the first k rows mean nothing."""
    pairs, cache, found = tokens[:, 1:], DynamicCache(config=head.config), []
    true = head.inward(features[:, :-1])
    seen, output = true, head.output(head.lm_head)
    for number in range(passes):
        mask = sight(pairs.shape[1], number)
        predicted = head.predict(
            pairs,
            seen,
            past_key_values=cache,
            attention_mask=mask.to(seen.dtype),
            position_ids=torch.arange(pairs.shape[1])[None],
        )
        found.append(output(predicted))
        seen = torch.cat((true[:, :1], predicted[:, :-1]), 1)
    return found


def divergence(logits: Tensor, goal: Tensor) -> Tensor:
    """KL(goal || logits), averaged over positions."""
    log_q, log_p = (x.float().flatten(0, 1).log_softmax(-1) for x in (logits, goal))
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def weighted(losses: list[Tensor]) -> Tensor:
    """Their mean by the weights 1, `DECAY`, ..."""
    weights = [DECAY**number for number in range(len(losses))]
    return sum((weight * loss for weight, loss in zip(weights, losses, strict=True)), torch.zeros(())) / sum(weights)


def eagle_3_loss(head: Eagle3Model, target: LlamaForCausalLM, known: Tensor, passes: int) -> Callable[[Tensor], Tensor]:
    """KL(target || head) over the head's tokens, in every pass."""

    def loss(batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                output = target(batch, output_hidden_states=True)
                features = torch.cat([output.hidden_states[layer] for layer in LAYERS], -1)
            found = passes_of(head, batch, features.float(), passes)
        goal = output.logits[:, 1:, known]
        return weighted([divergence(each[:, k:], goal[:, k:]) for k, each in enumerate(found)])

    return loss


def medusa_loss(heads: nn.ModuleList, target: LlamaForCausalLM) -> Callable[[Tensor], Tensor]:
    """KL(target || head) for each head, which reads a feature so many tokens earlier."""

    def loss(batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                features = target.model(batch).last_hidden_state
                goal = target.lm_head(features)
            found = [head(features) for head in heads]
        return weighted([divergence(q[:, : -k - 1], goal[:, k + 1 :]) for k, q in enumerate(found)])

    return loss


@torch.inference_mode()
def evaluate(
    logits: Callable[[Batch], list[tuple[Tensor, Tensor]]], batches: Iterable[Batch]
) -> list[tuple[float, float]]:
    """On held-out text, for every pass or head: how often arg maxima agree, and the overlap of p and q."""
    sums: list[list[float]] = []
    for batch in batches:
        for number, (q, p) in enumerate(logits(batch)):
            if number == len(sums):
                sums.append([0.0, 0.0, 0.0])
            q, p = q.softmax(-1), p.softmax(-1)
            found = (q.argmax(-1) == p.argmax(-1)).sum(), torch.minimum(p, q).sum(), torch.tensor(p.shape[:2].numel())
            sums[number] = [total + float(value) for total, value in zip(sums[number], found, strict=True)]
    return [(same / count, overlap / count) for same, overlap, count in sums]


def save(folder: Path, file: str, tensors: dict[str, Tensor], config: dict[str, object]) -> None:
    """config.json and tensors, numbers as float16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    halves = {name: (each.half() if each.is_floating_point() else each).contiguous() for name, each in tensors.items()}
    save_file(halves, folder / file, metadata={"format": "pt"})


def save_eagle_3(
    head: Eagle3Model,
    known: Tensor,
    folder: Path,
    vocab: int,
    layers: Sequence[int] = LAYERS,
    left_out: Collection[str] = (),
) -> None:
    """As EAGLE's authors publish them: `midlayer`, the map of ids beside the weights, no embedding.

    Of what else is `left_out`, such as the output matrix, the target's own is read.
    """
    theirs = {"layers.0.": "midlayer.", "final_norm.": "norm."}
    tensors = {}
    for name, tensor in head.state_dict().items():
        if name not in (EMBEDDING, *left_out):
            prefix = next((ours for ours in theirs if name.startswith(ours)), "")
            tensors[theirs.get(prefix, "") + name.removeprefix(prefix)] = tensor
    tensors |= {"d2t": known - torch.arange(len(known)), "t2d": torch.isin(torch.arange(vocab), known)}
    said = head.config.to_dict() | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(known)}
    said.pop("_name_or_path", None)  # of this machine
    save(folder, "model.safetensors", tensors, said | {LAYER_IDS: list(layers)})


def save_medusa(heads: nn.ModuleList, folder: Path) -> None:
    """As Medusa's authors publish them, but in a file that no pickle is needed for."""
    config = {"medusa_num_heads": HEADS, "medusa_num_layers": 1, "base_model_name_or_path": "tiny/target"}
    save(folder, FILES[0], dict(heads.state_dict()), config)


def main() -> None:
    """Train, report and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("eagle3", "medusa"))
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="tokens in a training window")
    parser.add_argument("--passes", type=int, default=3, help="how often the EAGLE-3 head is run on a window")
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    target, stream, held_out = trained_target()
    draw, vocab = windows(stream, args.batch, args.length), target.config.vocab_size
    options = {"steps": args.steps, "seed": args.seed}
    if args.kind == "medusa":
        heads = new_medusa(target)
        train(heads, medusa_loss(heads, target), draw, **options)
        save_medusa(heads, args.out / args.kind)
    else:
        known = frequent(stream, vocab)
        head = new_eagle_3(target, known, args.seed)
        train(head, eagle_3_loss(head, target, known, args.passes), draw, **options)
        save_eagle_3(head, known, args.out / args.kind, vocab)

    def of_medusa(batch: Tensor) -> list[tuple[Tensor, Tensor]]:
        features = target.model(batch).last_hidden_state
        p = target.lm_head(features)
        return [(each(features)[:, : -k - 1], p[:, k + 1 :]) for k, each in enumerate(heads)]

    def of_eagle_3(batch: Tensor) -> list[tuple[Tensor, Tensor]]:
        output = target(batch, output_hidden_states=True)
        features = torch.cat([output.hidden_states[layer] for layer in LAYERS], -1)
        found = []
        for k, each in enumerate(passes_of(head, batch, features, args.passes)):
            q = each.new_full((*each.shape[:2], vocab), -torch.inf)
            q[..., known] = each
            found.append((q[:, k:], output.logits[:, 1 + k :]))
        return found

    parts = held_out[:60_000].unfold(0, args.length, args.length).split(16)
    found = evaluate(of_medusa if args.kind == "medusa" else of_eagle_3, parts)
    for number, (same, overlap) in enumerate(found):
        print(f"{'head' if args.kind == 'medusa' else 'pass'} {number}: same arg max {same:.4f}, overlap {overlap:.4f}")


if __name__ == "__main__":
    main()
