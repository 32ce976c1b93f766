"""Drafts of the target's tokenizer whose matrices have another number of rows, as Qwen2.5's small and large models."""

from pathlib import Path

import pytest
import torch
from checkpoints import WORDS, checkpoint, word_tokenizer
from discovered import NAMES, built, parameters, rule_for
from doubles import random_llama

from specdec_core import CausalLM, Sampling, generate, load_pair
from specdec_core.drafters import Autoregressive
from specdec_core.errors import PairError
from specdec_core.models import Pair
from specdec_core.models.draft_vocabulary import AlignedLM, of_vocabulary
from specdec_core.models.loading import check_vocabularies
from specdec_core.verifiers import Greedy, LongestSubtree

VOCAB, PROMPT = 23, [3, 1, 4, 1, 5]
ROWS = {"narrower": 17, "much_narrower": 2, "wider": 31}
"""Of the draft; much narrower: fewer tokens than a node has children."""
TARGET = random_llama(0, vocab=VOCAB)


def draft(rows: int) -> CausalLM:
    return of_vocabulary(random_llama(1, vocab=rows, layers=1).model, VOCAB)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_logits_are_the_drafts_own_for_the_tokens_that_both_have(rows):
    plain, aligned, text = random_llama(1, vocab=rows, layers=1), draft(rows), torch.tensor([0, 1, 1, 0])
    shared, own = min(rows, VOCAB), []
    for model in (plain, aligned):
        model.reset(16)
        own.append(model.extend(text).logits)
    assert isinstance(aligned, AlignedLM)
    assert own[1].shape == (4, VOCAB) == (4, aligned.vocab_size)
    assert torch.equal(own[1][:, :shared], own[0][:, :shared])
    q = own[1].softmax(-1)
    assert (q[:, shared:] == 0).all()
    assert torch.allclose(q[:, :shared], own[0][:, :shared].softmax(-1))


def test_a_draft_of_the_targets_rows_is_left_as_it_is():
    assert type(draft(VOCAB)) is CausalLM


@pytest.mark.few(30)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_outputs_are_the_targets_under_every_drafter(name, rows):
    """The random target also says tokens that the draft cannot read."""
    drafter = built(parameters(name, decoding="greedy", largest=4), draft(rows))
    rule = LongestSubtree() if drafter.virtual_root else Greedy()
    prompt = torch.tensor([PROMPT])
    options = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    wanted = TARGET.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, len(PROMPT) :].tolist()
    assert max(wanted) >= ROWS["narrower"]
    found = generate(TARGET, drafter, rule, PROMPT, max_new_tokens=24, allow_lossy=True)
    assert found.tokens == wanted


@pytest.mark.few(30)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_sampled_texts_come_to_their_end_under_every_drafter(name, rows):
    """Without replacement more children are drawn than the draft has tokens: the others are those that it lacks."""
    drafter = built(parameters(name, decoding="t1", largest=4), draft(rows))
    found = generate(
        TARGET, drafter, rule_for(drafter), PROMPT, max_new_tokens=24, sampling=Sampling(1.0), allow_lossy=True
    )
    assert len(found.tokens) == 24


def load(folder: Path, target: Path, draft: Path) -> Pair:
    return load_pair(str(target), str(draft), device="cpu", dtype="float32")


@pytest.mark.parametrize("sizes", [(20, 26), (26, 20), (22, 26), (26, 22)])
def test_a_pair_of_one_tokenizer_and_other_rows_is_loaded_and_decodes_the_same(sizes, tmp_path):
    folders = []
    for name, rows in zip(("target", "draft"), sizes, strict=True):
        folders.append(checkpoint(tmp_path / name, [*WORDS, *(f"pad{n}" for n in range(rows - 20))]))
        word_tokenizer(WORDS, unk_token=WORDS[0]).save_pretrained(folders[-1])
    pair = load(tmp_path, *folders)
    assert pair.draft.vocab_size == pair.target.vocab_size == sizes[0]
    plain = generate(pair.target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=12).tokens
    drafter = built(parameters("opt_tree", decoding="greedy", largest=4), pair.draft)
    assert generate(pair.target, drafter, Greedy(), PROMPT, max_new_tokens=12).tokens == plain


@pytest.mark.parametrize(
    ("ours", "theirs", "rows", "named"),
    [
        (["a", "b", "c"], ["a", "c", "b", "d"], (3, 4), ["1 is 'b'", "2 is 'c'"]),  # two of them stand elsewhere
        (["a", "b", "c"], ["a", "b", "x"], (8, 4), ["2 is 'c' for the target and 'x' for the draft"]),
        (["a", "b", "c", "d"], ["a", "b", "d"], (4, 3), ["2 is 'c'", "3 is 'd'"]),
        (["a", "b"], ["x", "y", "z"], (2, 3), ["0 is 'a'", "1 is 'b'"]),
    ],
    ids=["other_order", "other_word", "moved", "nothing_alike"],
)
def test_tokenizers_that_do_not_agree_are_refused_with_ids(ours, theirs, rows, named):
    with pytest.raises(PairError) as refusal:
        check_vocabularies(word_tokenizer(ours), word_tokenizer(theirs), *rows)
    assert all(each in str(refusal.value) for each in named)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("ours", "theirs", "added", "rows"),
    [
        (["a", "b"], ["a", "b", "c"], ([], []), (2, 3)),
        (["a", "b", "c"], ["a", "b"], ([], []), (3, 2)),
        (["a", "b"], ["a", "b"], (["<one>"], []), (3, 2)),
        (["a", "b"], ["a", "b"], ([], ["<one>"]), (2, 3)),
        (["a", "b"], ["a", "b"], (["<one>"], ["<two>", "<three>"]), (4, 8)),  # reserved ones that were renamed
        (["a", "b", "c"], ["a", "b", "x"], ([], []), (3, 2)),  # the draft has no row for what differs
    ],
)
def test_what_one_of_them_lacks_is_no_disagreement(ours, theirs, added, rows):
    check_vocabularies(word_tokenizer(ours, added[0]), word_tokenizer(theirs, added[1]), *rows)


@pytest.mark.parametrize("words", [(["a", "b"], ["a", "b", "c"]), (["a", "b", "c"], ["a", "b"])])
def test_a_word_in_place_of_an_added_token_is_a_disagreement(words):
    tokenizers = [word_tokenizer(each, ["<end>"] * (len(each) < 3)) for each in words]
    with pytest.raises(PairError, match="2 is "):
        check_vocabularies(*tokenizers, 3, 8)


def test_an_added_token_at_two_ids_is_a_disagreement():
    with pytest.raises(PairError, match="2 is '<end>'"):
        check_vocabularies(word_tokenizer(["a", "b"], ["<end>"]), word_tokenizer(["a", "b"], ["<pad>", "<end>"]), 3, 4)
