"""Two hundred random cells of drafter, rule and decoding: each is lossless and right, lossy and declared, or refused.

Which pairs keep the target's distribution stands here once more, from the papers, so that neither `lossless_for` nor
`check_lossless` vouches for itself.
"""

import copy
import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import hydra
import torch
from composed import composed, names
from discovered import built, small
from doubles import BigramLM
from omegaconf import OmegaConf
from scipy import stats

from specdec_core import Sampling, SpecdecError, generate
from specdec_core.checks import check_lossless
from specdec_core.drafters import Drafter
from specdec_core.verifiers import Traversal, Verifier

TRIPLES, SEED, LARGEST, VOCAB = 200, 7, 4, 4
TOKENS = 120
"""Of a sampled text, which is set against the target's distribution after every token."""
SMALLEST_P = 1e-3 / TRIPLES
ANY = {"none", "topk", "iid", "without_replacement", "greedy_one"}
EXACT: dict[str, set[str]] = {
    "TargetSample": ANY,  # the target draws before it looks at the tree (OPT-Tree, section 4.1)
    "Chain": {"none", "iid", "without_replacement"},  # of one child both are a draw from q (Leviathan et al., 2023)
    "SpecInfer": {"none", "iid"},  # Miao et al. (2024), Theorem 4.2
    "KSeq": {"none", "iid"},  # Sun et al. (2023), Algorithm 2
    "WithoutReplacement": {"none", "without_replacement"},  # Chen et al. (2024), Algorithm 1
    "GreedyOne": {"none", "greedy_one"},  # Hu et al. (2025)
    "GreedyMultiPath": {"none", "iid"},  # the best of so many draws is a draw from q* (2602.16961)
    "Block": {"none", "iid", "without_replacement"},  # Sun et al. (2024), Theorem 1
    "Eagle1": {"none", "without_replacement"},  # Li et al. (2024), section 4.3
    "GsdNondeterministic": {"none"},  # the longest of paths accepted on their own is no draw from p
    "IndependentLongest": set(),
    "LongestSubtree": {"target_without_replacement"},  # MCSD below the only first token
}
"""For which draws a rule's output distribution is the target's own when it samples."""
WITH_REPLACEMENT = {True: {"none", "iid"}, False: {"none", "without_replacement"}}
"""Multi-candidate decoding (Yang et al., 2024), by its option `replacement`."""
CHILD_BY_CHILD = set(EXACT) - {"GsdNondeterministic", "IndependentLongest", "LongestSubtree"} | {
    "MultiCandidate",
    "Traversal",
}
"""Rules that take the arg max at temperature 0, whatever children there are."""


def exact(drafter: Drafter, rule: Verifier, sampling: Sampling) -> bool:
    """Whether the papers vouch for it."""
    name, draws = type(rule).__name__, drafter.draws
    if sampling.greedy:
        one_first = draws.startswith("target_") and name == "LongestSubtree"
        return draws == "none" or one_first or (draws in ANY and name in CHILD_BY_CHILD | {"Greedy"})
    if name == "Greedy" or getattr(rule, "untempered", False):  # the arg max follows
        return False
    if isinstance(rule, Traversal) and name == "Traversal":  # Weng et al. (2025), Theorem 1, of the draws it is told
        return draws in {"none", rule.draws}
    return draws in (WITH_REPLACEMENT[rule.lossless_for == {"iid"}] if name == "MultiCandidate" else EXACT[name])


@dataclass
class Triple:
    """What three yamls say, and whether what is lossy may run (None: as the rule's yaml says)."""

    names: tuple[str, str, str]
    allowed: bool | None
    config: dict[str, Any]

    def parts(self, draft: Any) -> tuple[Drafter, Verifier, Sampling, bool]:
        """The drafter, small, with the rule, the settings, and whether what is lossy may run."""
        drafter, verifier, decoding = (dict(self.config[axis]) for axis in ("drafter", "verifier", "decoding"))
        own = {key: value for key, value in small(drafter, LARGEST).items() if key not in ("name", "method")}
        allowed = verifier.pop("allow_lossy") if self.allowed is None else self.allowed
        rule = {key: value for key, value in verifier.items() if key not in ("name", "allow_lossy")}
        sampling = Sampling(decoding["temperature"], decoding["top_p"])
        return built(own, draft), hydra.utils.instantiate(rule), sampling, allowed


def triples() -> list[Triple]:
    """Drawn with a fixed seed from all yamls; each is composed once, and joined to the others."""
    draw, base = random.Random(SEED), copy.deepcopy(composed())
    OmegaConf.set_struct(base, False)
    found = []
    for _ in range(TRIPLES):
        chosen = {axis: draw.choice(names(axis)) for axis in ("drafter", "verifier", "decoding")}
        parts = {axis: composed(f"{axis}={name}")[axis] for axis, name in chosen.items()}
        joined = OmegaConf.merge(base, dict.fromkeys(parts), parts)
        config = {axis: OmegaConf.to_container(joined[axis], resolve=True) for axis in parts}
        found.append(Triple(tuple(chosen.values()), draw.choice((None, None, True, False)), config))
    return found


def bigrams(seed: int) -> BigramLM:
    """A model of four tokens whose distribution hangs on the last one."""
    return BigramLM(1.5 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)))


def follows(text: list[int], table: torch.Tensor, sampling: Sampling) -> bool:
    """Chi-square of the tokens after every token that are expected often; what has probability 0 must not be there."""
    counts = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
    for before, token in pairwise(text):
        counts[before, token] += 1
    p = sampling.probs(table).double()
    expected = counts.sum(-1, keepdim=True) * p
    often = expected >= 5
    statistic = ((counts - expected)[often] ** 2 / expected[often]).sum()
    return not counts[p == 0].any() and stats.chi2.sf(float(statistic), int(often.sum()) or 1) > SMALLEST_P


def one_sentence(words: str) -> bool:
    """Whether a refusal is of several words in one line, as it is shown to the user."""
    return len(words.split()) > 4 and "\n" not in words


def outcome(triple: Triple, target: BigramLM, draft: BigramLM) -> str:
    """How a triple ended; an AssertionError where that is none of the three."""
    drafter, rule, sampling, allowed = triple.parts(draft)
    try:
        recorded = check_lossless(drafter, rule, sampling, allow_lossy=allowed)
        rng = torch.Generator().manual_seed(1)
        new = TOKENS if recorded and not sampling.greedy else 20
        options = {"max_new_tokens": new, "sampling": sampling, "rng": rng}
        text = [0, *generate(target, drafter, rule, [0], allow_lossy=allowed, **options).tokens]
    except SpecdecError as refusal:
        return "refused" if one_sentence(str(refusal)) else f"no sentence: {refusal}"
    assert recorded is exact(drafter, rule, sampling), f"{triple.names} is recorded as lossless={recorded}"
    if not recorded:
        assert allowed, triple.names
        return "lossy"
    if sampling.greedy:
        assert text[1:] == target.table.argmax(-1)[text[:-1]].tolist(), triple.names
    else:
        assert follows(text, target.table, sampling), triple.names
    return "lossless"


def test_every_triple_is_lossless_and_right_or_lossy_and_declared_or_refused():
    target, draft = bigrams(0), bigrams(1)
    counts = Counter(outcome(triple, target, draft) for triple in triples())
    print(dict(counts))
    assert set(counts) == {"lossless", "lossy", "refused"}
    assert counts.total() == TRIPLES
