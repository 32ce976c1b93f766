"""The text that drafts for SmolLM2 are trained on: whose turn it is, what is left out; and the drafts as committed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import LlamaConfig

from specdec_core.models.draft_vocabulary import FILE, check_map
from specdec_core.models.eagle import EagleModel
from specdec_trees.smollm2 import text, train
from specdec_trees.smollm2.text import LOOP, QUESTION, Conversation, Frame, verdicts

HERE = Path(text.__file__).parent
FRAME = Frame(start=[1], answer=[2, 10, 11], question=[2, 10, 12], end=2)
VOCAB = 49_152


def said(row: Conversation, sampled: list[int], best: list[int]) -> list[int]:
    """What a conversation appends where these are drawn and best."""
    return [row.next(*both, FRAME) for both in zip(sampled, best, strict=True)]


def test_a_question_is_sampled_and_its_answer_greedy_or_not() -> None:
    row = Conversation(greedy=[True, False])
    sampled, best = [30, 2, 0, 0, 31, 32, 0, 0, 33, 2, 0, 0, 34], [50] * 4 + [51, 2] + [52] * 7
    asked, answered, again, sampled_answer = [30, 2, 10, 11], [51, 2, 10, 12], [33, 2, 10, 11], [34]
    assert said(row, sampled, best) == asked + answered + again + sampled_answer


def test_an_endless_question_and_a_loop_end_by_the_whole_header() -> None:
    row = Conversation(greedy=[True])
    assert said(row, [*range(100, 100 + QUESTION), 0, 0, 0], [0] * (QUESTION + 3))[-4:] == [99 + QUESTION, 2, 10, 11]
    loop = [*range(LOOP)] * 2
    answer = said(row, [0] * (2 * LOOP + 3), [token + 50 for token in loop] + [0] * 3)
    assert answer == [token + 50 for token in loop] + FRAME.question


def conversation(question: str, answer: str) -> str:
    return f"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>{answer}"


def test_what_repeats_itself_was_asked_before_or_is_a_test_prompt_is_left_out() -> None:
    first, other = "one two three four five six seven eight nine", "how do I boil an egg so that its yolk stays soft"
    test = "a b c d e f g h"
    texts = [
        conversation(first, "fine"),
        conversation(first + " ten", "sure"),
        conversation(other, "go on " * 60),
        conversation("please say what comes next in this list of mine", f"it is {test}"),
        conversation("who painted the ceiling of that chapel in Rome and when", "him"),
    ]
    found = list(verdicts(texts, {tuple(test.split())}))
    assert [found[0], found[4]] == [None, None]
    assert ["before" in found[1], "repeats" in found[2], "test prompt" in found[3]] == [True] * 3


def test_words_of_prompts_are_found_under_any_key(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": ["A b, c d e f g h!"], "n": 1}) + "\n")
    assert text._words_of(tmp_path) == {tuple("abcdefgh")}


def test_the_vocabulary_is_of_the_most_frequent_tokens_and_begins_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "VOCABULARY", 3)
    assert train.frequent(torch.tensor([[7, 7, 9], [9, 4, 7]])).tolist() == [0, 7, 9]


def test_a_head_begins_as_the_best_linear_predictor() -> None:
    """Of features that follow linearly from the token and the feature before, the untrained head predicts all."""
    rng = torch.Generator().manual_seed(0)
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    head = EagleModel(LlamaConfig(vocab_size=30, **shape), bias=True)
    tokens, features = torch.randint(30, (4, 200), generator=rng), torch.zeros(4, 200, 8)
    matrix = torch.randn(16, 8, generator=rng) / 6
    for place in range(1, 200):
        inputs = torch.cat((head.embed_tokens(tokens[:, place]).detach() * 20, features[:, place - 1]), -1)
        features[:, place] = 3 + inputs @ matrix
    inputs, goal = train.example(head, train.Conversations(tokens, features))
    before, head.fc = head.fc, train.Standardised(head.fc, inputs)
    assert torch.allclose(before(inputs), head.fc(inputs), atol=1e-4)
    assert torch.allclose(before.weight, head.fc.folded().weight, atol=1e-6)
    train.linear_start(head, inputs, goal)
    for fc in (head.fc, head.fc.folded()):
        head.fc = fc
        found = head.predict(tokens[:, 1:], features[:, :-1])
        assert (found - features[:, 1:]).abs().max() < 0.03 * features.std()


def test_the_committed_text_begins_as_the_template_does() -> None:
    tokens = np.load(text.TEXT)["tokens"]
    assert tokens.dtype == np.uint16
    assert tokens.shape[1] == text.LENGTH
    assert tokens.max() < VOCAB
    assert len(np.unique(tokens[:, :20], axis=0)) == 1, "the system prompt is everyone's"
    assert len(np.unique(tokens, axis=0)) == len(tokens)


def test_committed_drafts_are_small_and_of_their_target() -> None:
    for folder in ("eagle", "draft"):
        assert sum(path.stat().st_size for path in (HERE / folder).iterdir()) < 12e6
    with safe_open(HERE / "draft" / FILE, "pt") as file:
        d2t = file.get_tensor("d2t")
    assert check_map("draft", d2t, train.VOCABULARY, VOCAB)[0] == 0
    with safe_open(HERE / "eagle" / "model.safetensors", "pt") as file:
        assert file.get_slice("fc.weight").get_shape() == [576, 1152]
        assert "embed_tokens.weight" not in file.keys()  # noqa: SIM118 -- no dictionary
