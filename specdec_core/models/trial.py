"""A few tokens of a model whose architecture was never compared: alone and as trees, against its own `generate`."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from specdec_core.errors import LoadError
from specdec_core.grown_mask import GrownMask

Logits = Float[Tensor, "texts vocab"]
_PARENTS = (-1, 0, 0, 1, 1, 2, 3)
"""Of the trial's trees: nodes whose slots and positions differ, and paths with slots of other branches between them."""
_PROMPT = 5
_RAISED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, AssertionError)
"""By models that cannot read the cache, the mask or the positions."""
_ADVICE = "choose a model of a type that docs/real_pairs.md lists"


def check_decoding(lm: Any) -> None:
    """LoadError unless a `CausalLM` scores a text and two trees behind it as its own `generate` scores each path."""
    name = f"{type(lm.model).__name__} ({lm.model.config.model_type})"
    try:
        prompt = torch.randint(lm.vocab_size, (_PROMPT,), generator=torch.Generator().manual_seed(0))
        ours, alone = scored(lm, lm.model, prompt)
        difference, largest = float((ours - alone).abs().max()), float(alone.abs().max())
    except _RAISED as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise LoadError(f"{name} cannot read a tree by mask, positions and cache ({cause}); {_ADVICE}") from error
    if not difference <= torch.finfo(lm.dtype).eps ** 0.5 * largest:
        raise LoadError(
            f"{name} decodes something else as a tree than alone: its logits differ by {difference:.2g}, and the "
            f"largest is {largest:.2g}; {_ADVICE}"
        )


@torch.inference_mode()
def scored(lm: Any, stock: Any, prompt: Int[Tensor, " prompt"]) -> tuple[Logits, Logits]:
    """Behind a prompt, a tree, another one and a token: logits of a `CausalLM` and of the stock model's `generate`.

    A row is the text down to a node. The trees' tokens are random.
    """
    rng, parents = torch.Generator().manual_seed(1), torch.tensor(_PARENTS, device=lm.device)
    draw = torch.randint(lm.vocab_size, (2 * len(_PARENTS) + 1,), generator=rng)
    prefix, draw = prompt.to(lm.device), draw.to(lm.device)
    for part in (prefix, draw):
        part[part == getattr(lm.config, "pad_token_id", None)] += 1  # some models give padding no position
    *trees, last = draw.split([len(_PARENTS), len(_PARENTS), 1])
    mask = GrownMask(parents)
    lm.reset(prefix.shape[0] + draw.shape[0])
    ours, texts = [lm.prefill(prefix).logits], [prefix]
    for tokens in trees:
        start = lm.cache.length
        layout = mask.layout(0, prefix=start, dtype=lm.dtype, max_positions=lm.max_positions)
        ours.append(lm(tokens, layout).logits)
        paths = [row.nonzero().flatten() for row in mask.ancestors]
        texts += [torch.cat((prefix, tokens[path])) for path in paths]
        lm.cache.commit(start, paths[-1])
        prefix = texts[-1]
    ours.append(lm.extend(last).logits)
    texts.append(torch.cat((prefix, last)))
    lm.reset(0)
    return torch.cat(ours).float(), torch.cat([_generated(stock, text[None]) for text in texts]).float()


def _generated(model: Any, text: Tensor) -> Tensor:
    """Logits behind a text, before anything that a generation config does to them."""
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 1, "pad_token_id": 0}
    whole = torch.ones_like(text)
    found = model.generate(text, attention_mask=whole, return_dict_in_generate=True, output_logits=True, **options)
    logits: Tensor = found.logits[0]
    return logits
