"""A head whose tokens are not accepted fails its cell with the likely causes, unless it is measured on purpose."""

import pytest
import torch
from cells import cell

from specdec_core import TokenTree, Verdict, load_pair
from specdec_core.errors import PairError
from specdec_core.models import Medusa, ModelOutput, ModelSpec, Pair
from specdec_core.models.medusa import medusa_heads
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.measurement import Chance, Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.prompts.embedded import TINY

PROMPT = Conversation("one", ("def read_file(path):\n    with open(path) as file:\n",))


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")


def warmed_up(pair: Pair, drafter: str, **options: bool) -> Rows:
    """What a warm-up leaves behind where it does not refuse the head: no rows."""
    rows = Rows()
    Measurement(cell(f"drafter={drafter}", new=64), pair, rows, Runtime(**options)).warm_up(PROMPT)
    return rows


def ignorant(pair: Pair) -> Pair:
    """With heads that know nothing: they propose the tokens that come first."""
    heads = medusa_heads(2, 1, pair.target.config.hidden_size, pair.target.vocab_size)
    torch.nn.init.zeros_(heads[0][1].weight)
    torch.nn.init.zeros_(heads[1][1].weight)
    return Pair(pair.target, Medusa(heads, pair.target.config), pair.tokenizer)


@pytest.mark.parametrize("drafter", ["chain4", "eagle25", "opt_tree"])
def test_a_head_that_accepts_nothing_is_an_error(drafter, pair):
    with pytest.raises(PairError, match=r"no more than ten times .*\(d2t\).*lm_head.*template") as refusal:
        warmed_up(ignorant(pair), drafter)
    assert "\n" not in str(refusal.value)
    assert warmed_up(ignorant(pair), drafter, allow_useless_draft=True) == Rows()


@pytest.mark.parametrize(
    "drafter", ["chain4", "eagle25", "opt_tree", "prompt_lookup", "suffix_decoding", "autoregressive"]
)
def test_one_that_is_of_use_is_none_nor_is_a_drafter_without_it(drafter, pair):
    assert warmed_up(pair, drafter) == Rows()
    if drafter in ("prompt_lookup", "suffix_decoding", "autoregressive"):
        assert warmed_up(ignorant(pair), drafter) == Rows()


def test_uniform_guesses_are_accepted_with_the_probability_of_their_path():
    tree = TokenTree(torch.arange(4), torch.tensor([-1, 0, 0, 1]), edge_probs=None)
    verdict, pending, virtual = Verdict(torch.tensor([0]), (), 1), Chance(10), Chance(10)
    pending(tree, ModelOutput(torch.zeros(4, 10)), verdict)
    assert (pending.accepted, pending.virtual) == (pytest.approx(0.1 + 0.1 + 0.01), 0)
    virtual(tree, ModelOutput(torch.zeros(4, 10), root_probs=torch.ones(10) / 10), verdict)
    assert (virtual.accepted, virtual.virtual) == (pytest.approx(0.1), 1)
