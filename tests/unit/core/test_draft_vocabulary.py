"""A draft that knows some of the target's tokens: ids are mapped in and out, answers stay the target's."""

from pathlib import Path

import pytest
import torch
from checkpoints import WORDS, checkpoint
from discovered import NAMES, built, parameters, rule_for
from safetensors.torch import save_file

from specdec_core import Sampling, TokenTree, generate
from specdec_core.drafters import Autoregressive
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, Pair, load_pair
from specdec_core.models.draft_vocabulary import FILE
from specdec_core.verifiers import Greedy

KNOWN = torch.tensor([0, 2, 3, 5, 8, 13, 19])
PROMPT = [4, 5, 6, 13]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A target of twenty tokens with a draft that knows seven of them."""
    folder = tmp_path_factory.mktemp("pair")
    return load_pair(str(checkpoint(folder / "target")), reduced(folder / "draft"), device="cpu", dtype="float32")


def reduced(folder: Path, **tensors: torch.Tensor) -> ModelSpec:
    """A random draft of `KNOWN`, with a map of its own if `tensors` say so."""
    checkpoint(folder, WORDS[: len(KNOWN)])
    for file in folder.glob("tokenizer*"):
        file.unlink()
    save_file(tensors or {"d2t": KNOWN - torch.arange(len(KNOWN))}, folder / FILE)
    return ModelSpec(id="draft", folder=str(folder), kind="reduced_lm")


def test_logits_are_the_stock_models_at_the_ids_it_knows(pair: Pair) -> None:
    text = torch.tensor([2, 19, 4, 8])
    pair.draft.reset(8)
    found = pair.draft.extend(text).logits
    stock = pair.draft.model(torch.tensor([[1, 6, 0, 4]]), use_cache=False).logits[0]
    torch.testing.assert_close(found[:, KNOWN], stock)
    assert pair.draft.vocab_size == found.shape[1] == 20
    others = [token for token in range(20) if token not in KNOWN.tolist()]
    assert (found[:, others] == -torch.inf).all()


@pytest.mark.few(16)
@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_drafts_known_tokens_with_finite_probabilities(name: str, pair: Pair) -> None:
    """Sampled text keeps the target's distribution with such a draft: `test_declared_draws.py`."""

    def watch(tree: TokenTree, *_: object) -> None:
        assert tree.edge_probs is None or tree.edge_probs.isfinite().all()
        if any(part is pair.draft for part in vars(drafter).values()):
            assert set(tree.tokens[1:].tolist()) <= set(KNOWN.tolist())

    drafter = built(parameters(name, decoding="t1", largest=6), pair.draft)
    rng, sampling = torch.Generator().manual_seed(0), Sampling(1.0)
    options = {"max_new_tokens": 24, "eos_token_ids": (), "sampling": sampling, "rng": rng, "watch": watch}
    assert len(generate(pair.target, drafter, rule_for(drafter), PROMPT, **options).tokens) == 24


@pytest.mark.few(16)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_answers_are_the_targets_under_every_drafter(name: str, pair: Pair) -> None:
    expected = generate(pair.target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=24).tokens
    drafter = built(parameters(name, decoding="greedy", largest=6), pair.draft)
    assert generate(pair.target, drafter, rule_for(drafter), PROMPT, max_new_tokens=24).tokens == expected


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"t2d": KNOWN}, "must hold d2t, a whole offset for each of its 7 tokens"),
        ({"d2t": KNOWN.float()}, "must hold d2t, a whole offset for each of its 7 tokens"),
        ({"d2t": KNOWN[:5]}, "must hold d2t, a whole offset for each of its 7 tokens"),
        ({"d2t": KNOWN}, "different ids below 20, the target's vocabulary"),
        ({"d2t": -torch.arange(7)}, "different ids below 20, the target's vocabulary"),
    ],
    ids=["no_map", "no_numbers", "short", "ids_in_place_of_offsets", "one_id_for_all"],
)
def test_a_wrong_map_is_a_sentence(tensors: dict[str, torch.Tensor], said: str, tmp_path: Path) -> None:
    draft = reduced(tmp_path / "draft", **tensors)
    with pytest.raises(LoadError, match=said):
        load_pair(str(checkpoint(tmp_path / "target")), draft, device="cpu", dtype="float32")


def test_a_missing_map_names_the_file(tmp_path: Path) -> None:
    draft = reduced(tmp_path / "draft")
    (tmp_path / "draft" / FILE).unlink()
    with pytest.raises(LoadError, match=f"lacks {FILE}, a file of tensors"):
        load_pair(str(checkpoint(tmp_path / "target")), draft, device="cpu", dtype="float32")
