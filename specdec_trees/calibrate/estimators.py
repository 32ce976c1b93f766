"""Which child of a node is accepted, prompt by prompt: computed from both distributions, or counted while decoding."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.checks import check_lossless
from specdec_core.drafters import Autoregressive, StaticTree
from specdec_core.engine import generate
from specdec_core.errors import PairError, PromptError
from specdec_core.models import ModelOutput, Pair
from specdec_core.sampling import Sampling, draw_children
from specdec_core.shapes import star
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers import ChildByChild, TargetSample, Verifier
from specdec_core.verifiers.rounds import Independent
from specdec_trees.calibrate.teacher_forced import draft_logits_along, logits_along
from specdec_trees.names import unknown

ELEMENTS = 2**24
"""Numbers in the largest tensor of a chunk: 128 MiB in float64, of which a rule holds a handful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRequest:
    """What is measured, beyond the models and the prompts."""

    verifier: str  # name of the rule, for the record
    draws: str  # one of sampling.DRAWS
    temperature: float
    top_p: float
    draft_temperature: float
    draft_top_p: float = 1.0
    width: int = 32  # children k = 1..width; no more than the vocabulary has tokens
    new_tokens: int = 128
    repeats: int = 4  # draws of children per position; once where draws are topk or the temperature is 0
    estimator: str = "analytic"  # analytic | text | counts
    smooth: str = "isotonic"  # isotonic | none: what a tree search is given
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("estimator", ("analytic", "text", "counts")), ("smooth", ("isotonic", "none"))):
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, str(getattr(self, name)), known))
        for name in ("width", "new_tokens", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def sampling(self) -> Sampling:
        """The target's."""
        return Sampling(self.temperature, self.top_p)


class Sums(NamedTuple):
    """Of one prompt, over its positions."""

    accepted: np.ndarray  # [width] probability that child k is the accepted one
    rejected: np.ndarray  # [width] probability that k children are all rejected; nan where it is not known
    num_positions: int


class Estimator:
    """Sums over the positions of one prompt at a time; the same random stream whatever was measured before.

    PairError for a rule and draws that do not keep the target's distribution, and for a pair without a draft:
    `analytic` follows the target's own text, which is the text of a lossless method only.
    """

    def __init__(
        self,
        pair: Pair,
        rule: Verifier,
        request: AcceptanceRequest,
        eos_token_ids: Collection[int] = (),
        num_prompt: int | None = None,
    ) -> None:
        """`num_prompt`: with the estimator `text`, so many tokens of each text are the prompt."""
        if pair.draft is None:
            raise PairError("acceptance is measured between a target and a draft, but this pair has no draft")
        if pair.draft.vocab_size != pair.target.vocab_size:
            raise PairError(f"vocabularies of {pair.target.vocab_size} and {pair.draft.vocab_size} tokens differ")
        self.target, self.draft, self.rule = pair.target, pair.draft, rule
        self.request, self.sampling, self.eos, self.num_prompt = request, request.sampling, eos_token_ids, num_prompt
        self.width = min(request.width, pair.target.vocab_size)
        self.star = StaticTree(
            draft=pair.draft,
            shape=star(self.width),
            draws=request.draws,
            draft_temperature=request.draft_temperature,
            draft_top_p=request.draft_top_p,
        )
        check_lossless(self.star, rule, self.sampling)

    def __call__(self, index: int, prompt: list[int]) -> Sums:
        """Of the prompt with this number. PromptError where it does not fit."""
        seed = int(np.random.SeedSequence((self.request.seed, index)).generate_state(1, np.uint64)[0] >> 1)
        rng = torch.Generator(self.target.device).manual_seed(seed)
        return {"analytic": self._analytic, "text": self._along, "counts": self._counts}[self.request.estimator](
            prompt, rng
        )

    def _counts(self, prompt: list[int], rng: Generator) -> Sums:
        """Decode with a star of children and count; an `Independent` rule is only seen with all of them."""
        found = np.zeros(self.width + 1)

        def watch(tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
            found[int(verdict.path[1]) - 1 if verdict.path.shape[0] > 1 else self.width] += 1

        generate(
            self.target,
            self.star,
            self.rule,
            prompt,
            max_new_tokens=self.request.new_tokens,
            sampling=self.sampling,
            eos_token_ids=self.eos,
            rng=rng,
            watch=watch,
        )
        steps, accepted = found.sum(), found[:-1]
        rejected = steps - accepted.cumsum()
        if isinstance(self.rule, Independent) and not self.sampling.greedy:
            rejected[:-1] = np.nan
        return Sums(accepted, rejected, int(steps))

    def _analytic(self, prompt: list[int], rng: Generator) -> Sums:
        """Sample a text from the target, and judge drawn children at each of its new tokens."""
        self._check_room(len(prompt), self.request.new_tokens)
        text = generate(
            self.target,
            Autoregressive(),
            TargetSample(),
            prompt,
            max_new_tokens=self.request.new_tokens,
            sampling=self.sampling,
            eos_token_ids=self.eos,
            rng=rng,
        ).tokens
        return self._judged(prompt, text, rng)

    def _along(self, text: list[int], rng: Generator) -> Sums:
        """The same along the dataset's own text: one forward of either model, where the target decodes none.

        PromptError for a text that ends with its prompt.
        """
        prompt, rest = text[: self.num_prompt], text[self.num_prompt :][: self.request.new_tokens]
        if not rest:
            raise PromptError(f"the text has {len(text)} tokens, all of them of the prompt")
        self._check_room(len(prompt), len(rest))
        return self._judged(prompt, rest, rng)

    def _check_room(self, prompt: int, new: int) -> None:
        room = self.draft.max_positions
        if room is not None and prompt + new > room:
            raise PromptError(f"{prompt} and {new} new tokens do not fit the draft's {room}")

    @torch.inference_mode()
    def _judged(self, prompt: list[int], text: list[int], rng: Generator) -> Sums:
        """Children drawn at each token of a text behind the prompt, and what the rule makes of them."""
        request = self.request
        p = self.sampling.probs(logits_along(self.target, prompt, text))
        q = self.star.draft_sampling.probs(draft_logits_along(self.draft, self.target, prompt, text))
        repeats = 1 if request.draws == "topk" or self.sampling.greedy else request.repeats
        draws = [draw_children(q, self.width, request.draws, rng)[1] for _ in range(repeats)]
        accepted, rejected = expected(self.rule, p, q, torch.stack(draws, 1), greedy=self.sampling.greedy)
        return Sums(accepted.cpu().numpy(), rejected.cpu().numpy(), len(text))


def expected(
    rule: Verifier,
    p: Float[Tensor, "positions vocab"],
    q: Float[Tensor, "positions vocab"],
    children: Int[Tensor, "positions repeats width"],
    *,
    greedy: bool = False,
) -> tuple[Float[Tensor, " width"], Float[Tensor, " width"]]:
    """Sums over positions of P(child k is the accepted one) and P(k children are all rejected), float64.

    Means over the repeats; of an `Independent` rule exact, without the children. At temperature 0 every rule accepts
    the target's arg max alone, as `TargetSample` does with that distribution. PairError for a rule that has no
    `rounds`.
    """
    if not isinstance(rule, ChildByChild) and not greedy:
        raise PairError(f"{type(rule).__name__} gives no acceptance probabilities when sampling; use another rule")
    judge = rule if isinstance(rule, ChildByChild) and not greedy else TargetSample()
    repeats, width = children.shape[1:]
    accepted, rejected = p.new_zeros(2, width, dtype=torch.float64)
    for part in torch.arange(p.shape[0], device=p.device).split(max(1, ELEMENTS // (p.shape[1] * repeats))):
        if isinstance(judge, Independent):
            some, none = _independent(judge, p[part], q[part], width)
        else:
            wanted, drawn = (probs[part, None].expand(-1, repeats, -1) for probs in (p, q))
            accept = judge.rounds(wanted, drawn, children[part]).accept
            left = (1 - accept).cumprod(-1)
            reach = torch.cat((torch.ones_like(left[..., :1]), left[..., :-1]), -1)
            some, none = (chance.mean(1).sum(0) for chance in (reach * accept, left))
        accepted += some
        rejected += none
    return accepted, rejected


def _independent(
    rule: Independent, p: Float[Tensor, "positions vocab"], q: Float[Tensor, "positions vocab"], width: int
) -> tuple[Float[Tensor, " width"], Float[Tensor, " width"]]:
    """With chance c all of k children are rejected by (1 - c)^k, and child i of all by c (1 - c)^(i - 1) accepted."""
    none = torch.stack([((1 - rule.chance(p, q, k)) ** k).sum() for k in range(1, width + 1)])
    chance = rule.chance(p, q, width)[:, None]
    return (chance * (1 - chance) ** torch.arange(width, device=p.device)).sum(0), none
