"""Which of the target's layers an EAGLE-3 head reads: tried on a text, where its config is silent or may be wrong."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from specdec_core.errors import LoadError
from specdec_core.models.causal_lm import CausalLM, Layers
from specdec_core.models.head import Head
from specdec_core.models.spec import ModelSpec

log = logging.getLogger(__name__)
TEXT = """To read a file in Python, open it and iterate over its lines. For example:

def count_lines(path):
    with open(path, encoding="utf-8") as file:
        return sum(1 for line in file if line.strip())

The function returns the number of lines that are not empty. If the file does not exist, it raises an error. The sun
rises in the east and sets in the west, because the earth turns towards the east once a day. What is the capital of
France? The capital of France is Paris, a city on the river Seine with about two million inhabitants."""
"""Prose and code of the kind that heads are trained on."""
FEWEST = 24
"""Tokens below which a text tells nothing."""
SURE = 4.0
"""Standard errors by which other layers must be better, and a tenth."""


def settle(spec: ModelSpec, head: Head, stated: Sequence[Layers], target: CausalLM, tokenizer: Any) -> None:
    """Give a head the layers that it was trained with.

    Of several conventions the one is taken under which its distributions overlap most with the target's; a log line
    says which. LoadError where its config names layers and their neighbours are clearly better.
    """
    tokens = torch.tensor(tokenizer(TEXT)["input_ids"], dtype=torch.long)
    most = min(filter(None, (target.max_positions, head.max_positions)), default=len(tokens))
    tokens = tokens[:most]
    if len(tokens) < FEWEST or int(tokens.max()) >= target.vocab_size:
        return
    others = stated if len(stated) > 1 else [stated[0], *_neighbours(stated[0], target.config.num_hidden_layers)]
    found = {layers: overlaps(head, target, layers, tokens) for layers in others}
    means = {layers: float(here.mean()) for layers, (here, _) in found.items()}
    best = max(means, key=means.__getitem__)
    if len(stated) > 1:
        head.layers = best
        said = " and ".join(f"{mean:.3f} with {list(layers)}" for layers, mean in means.items())
        log.warning("%s leaves open which layers it reads: overlap is %s, taken are %s", spec.id, said, list(best))
        return
    if best != stated[0] and _clearly(*(here - elsewhere for here, elsewhere in (found[best], found[stated[0]]))):
        raise LoadError(
            f"{spec.id} says that it reads layers {list(stated[0])}, and its ids seem wrong: {list(best)} would fit "
            f"better on a text (overlap {means[best]:.3f}, not {means[stated[0]]:.3f}); see how it was trained, and "
            f"give feature_layers: {list(best)}, or the ids that are right, in the pair's yaml"
        )


@torch.inference_mode()
def overlaps(
    head: Head, target: CausalLM, layers: Layers, tokens: Tensor
) -> tuple[Float[Tensor, " read"], Float[Tensor, " read"]]:
    """Sum of min(p, q) behind each token but the first: the chance that a drafted token is accepted.

    The second is with p of another place of the text: what a head has that knows nothing of it.
    """
    before, target.keep_hidden = target.keep_hidden, layers
    target.reset(tokens.shape[0])
    tokens = tokens.to(target.device)
    output = target.extend(tokens)
    target.keep_hidden = before
    target.cache.truncate(0)
    assert output.hidden is not None
    q = head.along(tokens, output.hidden).float().softmax(-1)
    p = output.logits[1:].float().softmax(-1).to(q.device)
    head.reset(0)
    here, elsewhere = (torch.minimum(each, q).sum(-1).double().cpu() for each in (p, p.roll(len(p) // 2, 0)))
    return here, elsewhere


def _neighbours(layers: Layers, count: int) -> list[Layers]:
    """The layers one below and one above, where there are such."""
    moved = (tuple(layer + by for layer in layers) for by in (-1, 1))
    return [] if min(layers) < 0 else [each for each in moved if min(each) >= 0 and max(each) <= count]


def _clearly(better: Tensor, worse: Tensor) -> bool:
    """Whether one is above 0 and above the other by more than chance, position by position, and by a tenth."""
    gain = better - worse
    sure = all(float(each.mean()) > SURE * float(each.std()) / math.sqrt(len(each)) for each in (better, gain))
    return sure and float(gain.mean()) > 0.1 * float(better.mean())
