"""Logits to probabilities, and draws from them. Everything in float32 or better; every draw from a given generator."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

GREEDY_BELOW = 1e-3
"""Temperatures under this count as 0."""
DRAWS = ("topk", "iid", "without_replacement", "greedy_one")
"""How a node's children are picked: its best tokens, draws from q, or one draw from q without its best, and these."""
NO_DRAWS = "none"
"""What a drafter declares that never drafts a node, so that there is nothing to accept wrongly."""
_NUCLEUS = (1024, 8192)
INDEX_LIMIT = 1 << 20
"""How many items keys can tell apart."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target's next token is chosen. Temperature 0 is greedy; `top_p` 1 and `top_k` None filter nothing."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are no sampling settings."""
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 (greedy) or positive, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")

    @property
    def greedy(self) -> bool:
        """Whether the arg max is taken."""
        return self.temperature < GREEDY_BELOW

    def probs(self, logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        """P in float32: temperature, then top-k, then top-p. Greedy: one-hot at the arg max, ties to the lowest id."""
        if self.greedy:
            return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        scaled = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            best, kept = top_k(scaled.softmax(-1), self.top_k)
            chosen = scaled.gather(-1, kept) + 0 * best  # of nonsense no numbers
            scaled = torch.full_like(scaled, -torch.inf).scatter(-1, kept, chosen)
        if self.top_p < 1:
            scaled = _nucleus(scaled, self.top_p)
        return scaled.softmax(-1)

    def open_probs(self, logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        """What a virtual root keeps: P, or at temperature 0 the untempered distribution, which ranks all tokens."""
        return logits.float().softmax(-1) if self.greedy else self.probs(logits)

    def closed(self, probs: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        """P of an `open_probs`: one-hot at temperature 0."""
        return self.probs(probs) if self.greedy else probs

    def draw(self, logits: Float[Tensor, "*rows vocab"], rng: Generator) -> Int[Tensor, "*rows"]:
        """One token per row; -1 where the row's logits are NaN or have no finite maximum."""
        best, tokens = logits.max(-1)
        if not self.greedy:
            tokens = draw_tokens(self.probs(logits), 1, rng)[..., 0]
        return torch.where(best.isfinite(), tokens, -1)


def _nucleus(logits: Float[Tensor, "*rows vocab"], top_p: float) -> Float[Tensor, "*rows vocab"]:
    """Mask all but the shortest prefix, by descending probability and ascending id, that reaches `top_p`.

    The most probable tokens mostly suffice, and finding them costs a fraction of a sort of the vocabulary.
    """
    unsorted = logits.softmax(-1)
    for size in (*(size for size in _NUCLEUS if size < logits.shape[-1]), None):
        probs, ids = top_k(unsorted, size) if size else unsorted.sort(dim=-1, descending=True, stable=True)
        if size is None or bool((probs.double().sum(-1) >= top_p).all()):
            break
    before = probs.to(torch.float64, copy=True).cumsum_(-1).sub_(probs)
    dropped = torch.ones_like(logits, dtype=torch.bool).scatter(-1, ids, before >= top_p)
    return logits.masked_fill(dropped, -torch.inf)


def draft_probs(logits: Float[Tensor, "*rows vocab"], temperature: float) -> Float[Tensor, "*rows vocab"]:
    """Q in float32 at the draft's own temperature (> 0), exactly as it is used for drawing."""
    return (logits.float() / temperature).softmax(-1) if temperature != 1 else logits.float().softmax(-1)


def draw_tokens(probs: Float[Tensor, "*rows vocab"], k: int, rng: Generator) -> Int[Tensor, "*rows k"]:
    """Independent draws, `k` per row, by inversion of the CDF."""
    uniform = torch.rand((*probs.shape[:-1], k), dtype=torch.float64, device=probs.device, generator=rng)
    return tokens_at(probs, uniform)


def tokens_at(probs: Float[Tensor, "*rows vocab"], uniform: Float[Tensor, "*rows k"]) -> Int[Tensor, "*rows k"]:
    """The tokens whose stretch of the CDF, in float64, holds these numbers of [0, 1). Never one of probability 0."""
    cumulative = probs.to(torch.float64, copy=True).cumsum_(-1)
    # the largest uniform times the total must not round up to the total, behind which there is no token
    points = uniform.clamp(max=1 - 2**-52) * cumulative[..., -1:]
    # rows that are not finite would give the index behind the last token; they are reported where they are judged
    return torch.searchsorted(cumulative, points, right=True).clamp_(max=probs.shape[-1] - 1)


def _exponentials(like: Tensor, rng: Generator) -> Float[Tensor, "*rows vocab"]:
    """Positive Exponential(1) clocks in float64: zero is excluded, since 0/0 would win the race."""
    clocks = torch.empty(like.shape, dtype=torch.float64, device=like.device)
    return clocks.exponential_(generator=rng).clamp_(min=torch.finfo(torch.float64).tiny)


def _finish(probs: Float[Tensor, "*rows vocab"], clocks: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    """When each token arrives; tokens of probability 0 never do."""
    return torch.where(probs > 0, clocks / probs, torch.inf)


def race(probs: Float[Tensor, "*rows vocab"], rng: Generator) -> Float[Tensor, "*rows vocab"]:
    """Arrival times of an exponential race, float64: their order is that of draws without replacement, infinity never.

    One race fixes all draws of a row: the k-th to arrive is a draw from q without the k - 1 before it.
    """
    return _finish(probs, _exponentials(probs, rng))


def top_k(values: Float[Tensor, "*rows vocab"], k: int) -> tuple[Float[Tensor, "*rows k"], Int[Tensor, "*rows k"]]:
    """The k largest non-negative float32 values per row, descending, ties to the lower index on every device."""
    keys = torch.sub(_indices(values.device)[: values.shape[-1]], values.view(torch.int32), alpha=INDEX_LIMIT)
    ids = key_index(keys.topk(k, dim=-1, largest=False).values)
    return values.gather(-1, ids), ids


def check_draws(draws: str, known: Collection[str] = DRAWS) -> None:
    """ValueError for a word that is none of the known ways of picking children."""
    if draws not in known:
        raise ValueError(f"draws must be one of {', '.join(known)}, not {draws!r}")


def draw_children(
    probs: Float[Tensor, "rows vocab"], k: int, draws: str, rng: Generator, counts: Int[Tensor, " rows"] | None = None
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """Children, `k` per row, as (q, token ids) in draw order. ValueError if `draws` is none of `DRAWS`.

    `counts` says how many of the k a row will use, where they are not all: `greedy_one` depends on it.
    """
    check_draws(draws)
    if draws == "topk":
        return top_k(probs, k)
    if draws == "iid":
        ids = draw_tokens(probs, k, rng)
    elif draws == "greedy_one":
        ids = greedy_one(probs, k, rng, counts)
    else:
        ids = without_replacement(probs, k, rng)
    return probs.gather(-1, ids), ids


def without_replacement(probs: Float[Tensor, "rows vocab"], k: int, rng: Generator) -> Int[Tensor, "rows k"]:
    """Successive draws, `k` per row, without replacement, from one exponential race (Sequoia, section 3.2).

    The order of the race is the order of the draws. Where fewer than k tokens have positive probability, the rest is
    drawn uniformly from the others (Sequoia's fallback), in a second race behind the first.
    """
    clocks = _exponentials(probs, rng)
    times = _finish(probs, clocks)
    first = times.topk(k, dim=-1, largest=False)
    second = torch.where(probs > 0, torch.inf, clocks).topk(k, dim=-1, largest=False).indices
    drawn = first.values.isfinite()
    fallback = (torch.arange(k, device=probs.device) - drawn.sum(-1, keepdim=True)).clamp(min=0)
    return torch.where(drawn, first.indices, second.gather(-1, fallback))


def greedy_one(
    probs: Float[Tensor, "rows vocab"], k: int, rng: Generator, counts: Int[Tensor, " rows"] | None = None
) -> Int[Tensor, "rows k"]:
    """A draw from q without its k - 1 best tokens, then these (Hu et al., 2025, arXiv 2502.18779: greedy drafting).

    With `counts` of so many children a row, in the first places; the others mean nothing.
    """
    best = top_k(probs, k - 1)[1]
    used = None if counts is None else torch.arange(k - 1, device=probs.device) < counts[:, None] - 1
    return torch.cat((draw_tokens(without_best(probs, best, used), 1, rng), best), -1)


def without_best(
    probs: Float[Tensor, "*rows vocab"], best: Int[Tensor, "*rows best"], used: Bool[Tensor, "*rows best"] | None = None
) -> Float[Tensor, "*rows vocab"]:
    """What is left of q without these tokens (those `used`), not normalised; all others alike where it has none."""
    kept = torch.zeros_like(best, dtype=probs.dtype) if used is None else (~used).to(probs.dtype)
    rest = probs.scatter(-1, best, kept * probs.gather(-1, best))
    others = torch.ones_like(probs).scatter(-1, best, kept)
    return torch.where(rest.sum(-1, keepdim=True) == 0, others, rest)


def rank_keys(values: Float[Tensor, " items"], first_index: int = 0) -> Int[Tensor, " items"]:
    """Distinct int64 keys whose order is that of non-negative float64 values descending, then of indices ascending.

    The index takes the lowest bits, so values that agree in 32 bits of mantissa count as equal. A node's path
    probability is at most its parent's and its index larger, hence its key is larger, also at 1 and 0.
    """
    indices = _indices(values.device)[first_index : first_index + values.shape[0]]
    return indices - (values.view(torch.int64) & -INDEX_LIMIT)


@cache
def _indices(device: torch.device) -> Int[Tensor, " items"]:
    """All that a key can hold; made once for a device."""
    with torch.inference_mode(False):
        return torch.arange(INDEX_LIMIT, device=device)


def key_index(keys: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
    """The index inside a key."""
    return keys & (INDEX_LIMIT - 1)
