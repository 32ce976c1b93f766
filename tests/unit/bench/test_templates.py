import pytest
from checkpoints import word_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from specdec_core.errors import PromptError
from specdec_trees.prompts.embedded import TINY
from specdec_trees.prompts.templates import NAMES, prompt_ids, render, sha256

LLAMA2 = (
    "[INST] <<SYS>>\nYou are a helpful, respectful and honest assistant. Always answer as helpfully as possible, "
    "while being safe.  Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or "
    "illegal content. Please ensure that your responses are socially unbiased and positive in nature.\n\nIf a question "
    "does not make any sense, or is not factually coherent, explain why instead of answering something not correct. "
    "If you don't know the answer to a question, please don't share false information.\n<</SYS>>\n\nHi {there} [/INST]"
)
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. USER: Hi {there} ASSISTANT:"
)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("llama2_chat", LLAMA2, " Hello. </s><s>[INST] Bye [/INST]"),
        ("vicuna", VICUNA, " Hello.</s>USER: Bye ASSISTANT:"),
        ("plain", "Hi {there}", "\n\nHello.\n\nBye"),
    ],
)
def test_templates_are_those_of_the_models(name, first, second):
    assert render(name, ["Hi {there}"]) == first
    assert render(name, ["Hi {there}", "Bye"], [" Hello.\n"]) == first + second


def test_another_system_prompt_or_none():
    assert render("llama2_chat", ["Hi"], system="Rhyme.") == "[INST] <<SYS>>\nRhyme.\n<</SYS>>\n\nHi [/INST]"
    assert render("llama2_chat", ["Hi"], system="") == "[INST] Hi [/INST]"
    assert render("vicuna", ["Hi"], system="") == "USER: Hi ASSISTANT:"
    assert render("plain", ["Hi"], system="Rhyme.") == "Rhyme.\n\nHi"


def test_hashes_and_refusals():
    assert len({sha256(name) for name in NAMES}) == len(NAMES)
    assert all(len(sha256(name)) == 64 for name in NAMES)
    with pytest.raises(ValueError, match='unknown template "llama2"; did you mean "llama2_chat"'):
        render("llama2", ["Hi"])
    with pytest.raises(ValueError, match="2 turns need 1 answers before the last; got 0"):
        render("plain", ["Hi", "Ho"])


def test_a_tokenizers_own_template_is_rendered_by_itself_and_adds_its_special_tokens_alone():
    own = AutoTokenizer.from_pretrained(TINY / "target")
    with pytest.raises(PromptError, match="the tokenizer has no chat template; template is one of llama2_chat, vicuna"):
        prompt_ids(own, "tokenizer", ["Hi"])
    own.chat_template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    ids = prompt_ids(own, "tokenizer", ["Hi", "Bye"], [" Hello.\n"], frame="({text})")
    expected = f"{own.bos_token}<user>(Hi)<assistant>Hello.<user>(Bye)<assistant>"
    assert own.decode(ids) == expected
    assert ids == own(expected, add_special_tokens=False)["input_ids"]
    cut = prompt_ids(own, "tokenizer", ["a" * 200], max_prompt_tokens=40)
    assert len(cut) <= 40
    assert own.decode(cut).endswith("a<assistant>")


@pytest.fixture(scope="module")
def tokenizer():
    """One token per byte, behind a BOS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={"<s>": 0} | {byte: i for i, byte in enumerate(alphabet, 1)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    names = {0: "<s>"} | dict(enumerate(alphabet, 1))

    def encode(text: str) -> dict[str, list[int]]:
        return {"input_ids": bpe.encode(text).ids}

    def decode(ids: list[int]) -> str:
        return "".join(names[i] for i in ids).replace("Ġ", " ").replace("Ċ", "\n")

    return encode, decode


@pytest.mark.parametrize("form", ["<s> $A </s>", "$A </s>", "<s> $A </s> </s>", "<s> $A"])
@pytest.mark.parametrize("text", ["a b", "a </s>", "b"])
def test_an_answer_follows_what_a_tokenizer_would_end(form, text):
    """What it adds before a text stays, and so does what the text itself ends in."""
    own = word_tokenizer(["a", "b"], ["<s>", "</s>"], bos_token="<s>", eos_token="</s>")
    special = [("<s>", 2), ("</s>", 3)]
    own.backend_tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=special)
    bare = [{"a": 0, "b": 1, "</s>": 3}[word] for word in text.split()]
    wanted = [2] * form.startswith("<s>") + bare
    assert prompt_ids(own, "plain", [text], mode="raw", prompt_tokens=9) == wanted
    assert prompt_ids(own, "plain", [text]) == wanted
    assert own(text)["input_ids"][: len(wanted)] == wanted


def test_raw_prompts_are_the_first_tokens_of_the_text(tokenizer):
    encode, decode = tokenizer
    ids = prompt_ids(encode, "llama2_chat", ["Once upon a time", "ignored"], mode="raw", prompt_tokens=5)
    assert decode(ids) == "<s>Once"
    assert decode(prompt_ids(encode, "plain", ["Once"], mode="raw", prompt_tokens=50)) == "<s>Once"


def test_a_prompt_that_fits_is_not_touched(tokenizer):
    encode, decode = tokenizer
    turns, answers = ["Hi", "Bye"], ["Hello."]
    text = "<s>" + render("vicuna", turns, answers)
    assert decode(prompt_ids(encode, "vicuna", turns, answers)) == text
    assert decode(prompt_ids(encode, "vicuna", turns, answers, max_prompt_tokens=len(text) - 2)) == text


def test_the_cut_spares_history_and_tail(tokenizer):
    encode, decode = tokenizer
    turns, answers = ["Hi", "word " * 100], ["Hello."]
    whole = render("vicuna", ["Hi", ""], answers)
    ids = prompt_ids(encode, "vicuna", turns, answers, max_prompt_tokens=len(whole) + 1 + 12)
    assert decode(ids) == "<s>" + render("vicuna", ["Hi", "word word wo"], answers)
    assert decode(ids).endswith("word word wo ASSISTANT:")


def test_the_cut_spares_a_short_last_paragraph(tokenizer):
    encode, decode = tokenizer
    turn = "Article: " + "x" * 500 + "\n\nSummarise it."
    ids = prompt_ids(encode, "plain", [turn], max_prompt_tokens=30)
    assert len(ids) == 30
    assert decode(ids) == "<s>Article: xxxxx\n\nSummarise it."
    ids = prompt_ids(encode, "plain", ["Article.\n\n" + "y" * 500], max_prompt_tokens=15)
    assert decode(ids) == "<s>Article.\n\nyyyy"


FRAME = "Be {brief}.\n\nQ: {text}\nA:"


def test_a_frame_stands_around_every_turn(tokenizer):
    encode, decode = tokenizer
    ids = prompt_ids(encode, "vicuna", ["Hi {you}", "Bye"], ["Hello."], frame=FRAME)
    framed = ["Be {brief}.\n\nQ: Hi {you}\nA:", "Be {brief}.\n\nQ: Bye\nA:"]
    assert decode(ids) == "<s>" + render("vicuna", framed, ["Hello."])
    assert prompt_ids(encode, "plain", ["Hi"], frame=None) == prompt_ids(encode, "plain", ["Hi"])


@pytest.mark.parametrize(
    ("text", "room", "left"),
    [
        ("x" * 500, 9, "x" * 9),
        ("Article: " + "x" * 500 + "\n\nSummarise it.", 29, "Article: xxxxx\n\nSummarise it."),
    ],
)
def test_the_cut_spares_frame_and_instruction(text, room, left, tokenizer):
    """The frame's own paragraphs are no instruction of the text's."""
    encode, decode = tokenizer
    limit = 1 + len(FRAME.replace("{text}", "")) + room
    ids = prompt_ids(encode, "plain", [text], max_prompt_tokens=limit, frame=FRAME)
    assert len(ids) == limit
    assert decode(ids) == "<s>" + FRAME.replace("{text}", left)
    with pytest.raises(PromptError, match="leaves no room"):
        prompt_ids(encode, "plain", ["x" * 500], max_prompt_tokens=limit - room, frame=FRAME)


def test_prompts_that_cannot_be(tokenizer):
    encode, _ = tokenizer
    with pytest.raises(PromptError, match="leaves no room"):
        prompt_ids(encode, "vicuna", ["word " * 100], max_prompt_tokens=20)
    with pytest.raises(PromptError, match="prompt is empty"):
        prompt_ids(lambda text: {"input_ids": []}, "plain", ["x"])
    with pytest.raises(ValueError, match='unknown prompt mode "row"'):
        prompt_ids(encode, "plain", ["x"], mode="row")
