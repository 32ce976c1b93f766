"""Which sublayers a target leaves out when it drafts for itself: a seeded local search on calibration prompts.

Zhang et al. (2023) search for the set with the least time per token by Bayesian optimisation. Here a set is judged
without decoding: one forward along the target's own greedy answers says where the draft's arg max is the answer's.
"""

import json
import math
import os
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_core.drafters import Autoregressive
from specdec_core.engine import generate
from specdec_core.errors import PairError, PromptError
from specdec_core.models import CausalLM, LayerSkip, ModelSpec, Pair
from specdec_core.models.kinds import kind_of
from specdec_core.models.memory import parameter_bytes
from specdec_core.models.placement import hook_again
from specdec_core.verifiers import Greedy
from specdec_trees.calibrate.forward_times import forward_times
from specdec_trees.calibrate.kept import Setting
from specdec_trees.calibrate.teacher_forced import draft_logits_along
from specdec_trees.measure import pairs
from specdec_trees.measure.cell import LatencyGrid
from specdec_trees.measure.measurement import first_prompts
from specdec_trees.prompts import datasets

Sublayers = frozenset[int]
"""A set, of a model of L layers: l is the attention of layer l, L + l its MLP."""
Answer = tuple[list[int], list[int]]
"""Token ids of a prompt and of the target's greedy answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What chain drafting makes of a set; costs are in forwards of the target."""

    agreement: float
    """Share of the answers' tokens that are the draft's arg max behind the target's own keys and values."""
    steps: int
    """Draft forwards of a decoding step: as many as cost least."""
    mal: float
    cost: float
    """Of a draft forward."""

    @property
    def per_token(self) -> float:
        """Cost of a new token: the draft's forwards and one verification, by MAL. 1 is autoregressive decoding."""
        return (self.cost * self.steps + 1) / self.mal


def chain_mal(agreed: Iterable[Sequence[bool]], steps: int) -> float:
    """MAL of chains of `steps` tokens; `agreed` says of every token of each answer whether the draft has it right.

    A step takes what is right in a row and one token of the target's. The first token belongs to no step.
    """
    num_tokens = num_steps = 0
    for answer in agreed:
        place = 1
        while place < len(answer):
            ahead = answer[place : place + steps]
            place += next((n for n, right in enumerate(ahead) if not right), len(ahead)) + 1
            num_steps += 1
        num_tokens += len(answer) - 1
    return num_tokens / num_steps if num_steps else 1.0


def judged(agreed: Sequence[Sequence[bool]], cost: float, max_steps: int) -> Judged:
    """A draft that is right at these places, with the number of steps up to `max_steps` that costs least."""
    places = [right for answer in agreed for right in answer[1:]]
    agreement = sum(places) / len(places) if places else 0.0
    found = (
        Judged(agreement=agreement, steps=steps, mal=chain_mal(agreed, steps), cost=cost)
        for steps in range(1, max_steps + 1)
    )
    return min(found, key=lambda one: one.per_token)


def search(
    judge: Callable[[Sublayers], Judged], count: int, *, evaluations: int, seed: int, first: Iterable[Sublayers] = ()
) -> dict[Sublayers, Judged]:
    """So many sets of `count` sublayers, judged: those given, random ones, then local searches.

    A local search changes one sublayer at a time and keeps what is better. The first one begins at the best set so far,
    another wherever two or more sublayers of the best are changed. One sublayer at least is kept. The same for the same
    seed.
    """
    found = _Search(judge, count, min(evaluations, 2**count - 1), random.Random(seed))
    for chosen in (*first, *(found.random_set() for _ in range(evaluations // 4))):
        found.value(chosen)
    found.descend(found.best)
    while not found.spent:
        found.descend(found.kicked())
    return found.seen


class _Search:
    """What was judged so far."""

    def __init__(self, judge: Callable[[Sublayers], Judged], count: int, evaluations: int, rng: random.Random) -> None:
        self.judge, self.count, self.evaluations, self.rng = judge, count, evaluations, rng
        self.seen: dict[Sublayers, Judged] = {}

    @property
    def spent(self) -> bool:
        return len(self.seen) >= self.evaluations

    @property
    def best(self) -> Sublayers:
        return best_of(self.seen)

    def value(self, chosen: Sublayers) -> float:
        """Cost per token; infinite for all sublayers, and for what was not judged before the evaluations were spent."""
        if chosen not in self.seen and (self.spent or len(chosen) == self.count):
            return math.inf
        if chosen not in self.seen:
            self.seen[chosen] = self.judge(chosen)
        return self.seen[chosen].per_token

    def descend(self, here: Sublayers | None) -> None:
        """Go on to a better set as long as one differs in one sublayer."""
        while here is not None:
            now, order = self.value(here), self.rng.sample(range(self.count), self.count)
            near = [here ^ {sublayer} for sublayer in order]
            here = next((other for other in near if self.value(other) < now), None)

    def kicked(self) -> Sublayers:
        """The best set with some sublayers changed."""
        return self.best ^ set(self.rng.sample(range(self.count), self.rng.randint(2, self.count)))

    def random_set(self) -> Sublayers:
        """Any set; small and large ones alike."""
        share = self.rng.random()
        return frozenset(sublayer for sublayer in range(self.count) if self.rng.random() < share)


def best_of(found: dict[Sublayers, Judged]) -> Sublayers:
    """The set of least cost per token, of equal ones the first that was judged."""
    return min(found, key=lambda chosen: found[chosen].per_token)


def sublayers_of(spec: ModelSpec, layers: int) -> Sublayers:
    """The set that a draft of kind layer_skip leaves out."""
    attention, mlp = (
        {*spec.skipped_layers, *spec.skipped_attention},
        {*spec.skipped_layers, *spec.skipped_mlp},
    )
    return frozenset(attention | {layers + number for number in mlp})


def skipped_of(chosen: Sublayers, layers: int) -> dict[str, tuple[int, ...]]:
    """The same as the options of a pair's draft."""
    attention = {number for number in chosen if number < layers}
    mlp = {number - layers for number in chosen if number >= layers}
    found = {"layers": attention & mlp, "attention": attention - mlp, "mlp": mlp - attention}
    return {f"skipped_{name}": tuple(sorted(numbers)) for name, numbers in found.items()}


class Judge:
    """Judges sets for a target: agreement by one forward along each answer, cost by kept weights or by the clock."""

    def __init__(
        self, target: CausalLM, answers: Sequence[Answer], *, max_steps: int, timed: LatencyGrid | None = None
    ) -> None:
        """With `timed`, the cost of a draft forward is measured in seconds, else it is its share of the weights."""
        self.target, self.answers, self.max_steps, self.timed = target, answers, max_steps, timed
        self.layers = int(target.config.num_hidden_layers)
        self.whole = self._forward(target)

    def __call__(self, chosen: Sublayers) -> Judged:
        """Of one set."""
        skipped = skipped_of(chosen, self.layers)
        layers, attention, mlp = skipped.values()
        draft = LayerSkip(self.target, layers, attention=attention, mlp=mlp)
        hook_again(draft.model)
        agreed = [self._agreed(draft, *answer) for answer in self.answers]
        return judged(agreed, self._forward(draft) / self.whole, self.max_steps)

    @torch.inference_mode()
    def _agreed(self, draft: LayerSkip, prompt: list[int], text: list[int]) -> list[bool]:
        logits = draft_logits_along(draft, self.target, prompt, text)
        return [ours == theirs for ours, theirs in zip(logits.argmax(-1).tolist(), text, strict=True)]

    def _forward(self, model: CausalLM) -> float:
        """Seconds of a forward over one token, or bytes of the weights that it reads."""
        if self.timed is None:
            return parameter_bytes(model.model)
        return statistics.median(forward_times(model, 1, self.timed))


def answers_of(pair: Pair, prompts: Iterable[list[int]], new_tokens: int) -> list[Answer]:
    """The target's greedy answers to prompts; those that do not fit are left out. PromptError where none does."""
    found, eos, problem = list[Answer](), pair.eos_token_ids, PromptError("there is no prompt to search on")
    decode = partial(generate, pair.target, Autoregressive(), Greedy(), max_new_tokens=new_tokens, eos_token_ids=eos)
    for prompt in prompts:
        try:
            found.append((prompt, decode(prompt).tokens))
        except PromptError as error:
            problem = error
    if not any(len(text) > 1 for _, text in found):
        raise problem
    return found


def summary(setting: Setting) -> str:
    """Search for the set of a pair whose draft is of kind layer_skip, and say what to write into its yaml.

    PairError for another kind of draft.
    """
    name, spec, plan = setting.pair.name, setting.pair.draft, setting.plan.skips
    if spec is None or kind_of(spec).own_weights:
        raise PairError(f"pair {name} does not draft for itself: its draft must be of kind layer_skip")
    pair, timed = pairs.loaded(setting.pair, setting.runtime), replace(setting.plan.latency, num_tokens=[1])
    answers = _answers(setting, pair)
    judge = Judge(pair.target, answers, max_steps=plan.max_steps, timed=timed if plan.cost == "seconds" else None)
    today, count = sublayers_of(spec, judge.layers), 2 * judge.layers
    with tqdm(desc="skip search", total=plan.evaluations, unit="set", disable=not setting.runtime.progress) as bar:

        def shown(chosen: Sublayers) -> Judged:
            bar.update()
            return judge(chosen)

        found = search(shown, count, evaluations=plan.evaluations, seed=setting.seed, first=[today])
    rows = {"today": today, "found": best_of(found)}
    table = {row: (found[chosen], skipped_of(chosen, judge.layers)) for row, chosen in rows.items()}
    said = f"{len(found)} of {2**count - 1:,} sets, {len(answers)} answers to {setting.dataset.name}'s calibration part"
    return "\n".join((f"{name}: {said}", *_table(table), yaml_line(spec, table["found"][1])))


def _answers(setting: Setting, pair: Pair) -> list[Answer]:
    """To prompts of the dataset's calibration part."""
    plan, dataset = setting.plan.skips, replace(setting.dataset, part="calibration")
    limit = min(plan.prompts, setting.limit or plan.prompts)
    conversations = datasets.load(dataset, data_dir=setting.runtime.data_dir, limit=limit)
    prompts = first_prompts(pair, setting.pair.template, dataset, conversations)
    return answers_of(pair, prompts, min(plan.new_tokens, setting.max_new_tokens))


def _table(rows: Mapping[str, tuple[Judged, Mapping[str, tuple[int, ...]]]]) -> Iterable[str]:
    """A line for each set: what was judged, and what is left out."""
    yield f"{'':<8} {'agreement':>9} {'forward':>8} {'steps':>6} {'MAL':>6} {'cost/token':>11}  left out"
    for name, (one, skipped) in rows.items():
        left_out = (f"{key.removeprefix('skipped_')} {list(numbers)}" for key, numbers in skipped.items() if numbers)
        numbers = f"{one.agreement:>9.3f} {one.cost:>8.3f} {one.steps:>6} {one.mal:>6.2f} {one.per_token:>11.3f}"
        yield f"{name:<8} {numbers}  {', '.join(left_out) or 'nothing'}"


def yaml_line(spec: ModelSpec, skipped: Mapping[str, tuple[int, ...]]) -> str:
    """The draft of a pair's yaml with this set."""
    known = {"id": json.dumps(spec.id) if "," in spec.id else spec.id}
    if spec.folder and not spec.id.startswith("tiny/"):  # embedded models are found by their id
        known["folder"] = os.path.relpath(spec.folder, Path(__file__).parents[2])
    known |= {"revision": spec.revision or "null", "gated": str(spec.gated).lower(), "kind": spec.kind}
    lists = {name: list(numbers) for name, numbers in skipped.items() if numbers}
    return f"draft: {{{', '.join(f'{key}: {value}' for key, value in (known | lists).items())}}}"
