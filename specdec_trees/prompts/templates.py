"""Prompt templates: turns of a conversation -> text -> token ids.

BOS at the very start is the tokenizer's own business and not in the text: Llama's, Vicuna's and OPT's tokenizers put it
there, GPT-2's and BLOOM's models were trained without. BOS and EOS *between* turns are text, which tokenizers parse.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from specdec_core.errors import PromptError
from specdec_trees.names import unknown

Tokenizer = Callable[..., Mapping[str, Any]]
"""A transformers tokenizer: text -> {"input_ids": [int, ...]}."""
OWN = "tokenizer"
"""The name of the chat template that a model's tokenizer has."""

DATE = datetime(2024, 7, 26, 12, tzinfo=UTC)
"""Today, to every template: prompts must not change at midnight. It is what Llama-3.1's writes without a clock."""
_DATE_WORDS = ("strftime_now", "date_string")
_DATED = """{% macro strftime_now(format) -%}
{%- set written = namespace(text=format) -%}
{%- for code, value in date_codes.items() -%}
{%- set written.text = written.text | replace(code, value) -%}
{%- endfor -%}
{{- written.text -}}
{%- endmacro %}
"""
"""Stands before a template that asks for the date: transformers gives templates data alone, no functions."""

MAX_INSTRUCTION_CHARS = 200
"""A last paragraph up to this length is kept as an instruction when the text before it is cut."""


@dataclass(frozen=True, slots=True)
class Template:
    """Format strings: the first user turn with a system prompt, any other user turn, an answer that has been given."""

    name: str
    system: str
    """The model's own system prompt; empty if it has none."""
    first: str
    later: str
    answer: str


LLAMA2_SYSTEM = (
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, while being safe.  "
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "
    "Please ensure that your responses are socially unbiased and positive in nature.\n\n"
    "If a question does not make any sense, or is not factually coherent, explain why instead of answering something "
    "not correct. If you don't know the answer to a question, please don't share false information."
)
VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)

TEMPLATES = {
    template.name: template
    for template in (
        Template(
            "llama2_chat",
            LLAMA2_SYSTEM,
            first="[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST]",
            later="[INST] {user} [/INST]",
            answer=" {answer} </s><s>",
        ),
        Template(  # FastChat's v1.1
            "vicuna",
            VICUNA_SYSTEM,
            first="{system} USER: {user} ASSISTANT:",
            later="USER: {user} ASSISTANT:",
            answer=" {answer}</s>",
        ),
        Template("plain", "", first="{system}\n\n{user}", later="{user}", answer="\n\n{answer}\n\n"),
    )
}


NAMES = (*TEMPLATES, OWN)


def check(name: str) -> str:
    """The name itself. ValueError suggests the nearest names."""
    if name not in NAMES:
        raise ValueError(unknown("template", name, NAMES))
    return name


def get(name: str) -> Template:
    """The template of that name, which is written here. ValueError suggests the nearest names."""
    check(name)
    return TEMPLATES[name]


def sha256(name: str) -> str:
    """A hash of everything the template adds to a conversation; part of a cell's identity.

    A tokenizer's own is known by the files or the revision of its model, which are part of it, too.
    """
    if check(name) == OWN:
        return hashlib.sha256(name.encode()).hexdigest()
    return hashlib.sha256("\0".join(astuple(get(name))).encode()).hexdigest()


def render(template: str, turns: Sequence[str], answers: Sequence[str] = (), system: str | None = None) -> str:
    """The text up to the point where the answer to the last turn begins, without BOS.

    `answers` are those of the earlier turns, one fewer than `turns`. `system` None means the template's own, "" none.
    """
    form = get(template)
    if not turns or len(answers) != len(turns) - 1:
        raise ValueError(
            f"{len(turns)} turns need {max(len(turns) - 1, 0)} answers before the last; got {len(answers)}"
        )
    system = form.system if system is None else system
    text = (form.first if system else form.later).format(system=system, user=turns[0])
    for answer, turn in zip(answers, turns[1:], strict=True):
        text += form.answer.format(answer=answer.strip()) + form.later.format(user=turn)
    return text


def prompt_ids(
    tokenizer: Tokenizer,
    template: str,
    turns: Sequence[str],
    answers: Sequence[str] = (),
    *,
    mode: str = "chat",
    prompt_tokens: int | None = None,
    max_prompt_tokens: int | None = None,
    frame: str | None = None,
) -> list[int]:
    """Token ids of the prompt for the last turn, with BOS if the tokenizer adds it.

    raw: the first `prompt_tokens` tokens of the first turn, BOS among them; no template.
    chat: the rendered template, with each user text in place of `{text}` in the `frame`. A prompt longer than
    `max_prompt_tokens` loses the end of the last user text, but neither frame nor template nor a short last paragraph,
    which is the instruction (GSD's "Summarize ...").
    PromptError if nothing is left.
    """
    if mode not in ("chat", "raw"):
        raise ValueError(unknown("prompt mode", mode, ("chat", "raw")))
    if mode == "raw":
        ids = _encode(tokenizer, turns[0])[:prompt_tokens]
    else:
        ids = _chat_ids(tokenizer, template, turns, answers, max_prompt_tokens, frame or "{text}")
    if not ids:
        raise PromptError("the prompt is empty: the tokenizer finds no token in it")
    return ids


def _chat_ids(
    tokenizer: Tokenizer, template: str, turns: Sequence[str], answers: Sequence[str], limit: int | None, frame: str
) -> list[int]:
    def encode(last: str) -> list[int]:
        framed = [frame.replace("{text}", turn) for turn in (*turns[:-1], last)]
        if template == OWN:
            return _encode(tokenizer, _own(tokenizer, framed, answers), add_special_tokens=False)
        return _encode(tokenizer, render(template, framed, answers))

    ids = encode(turns[-1])
    if limit is None or len(ids) <= limit:
        return ids
    body, instruction = _split(turns[-1])
    sizes = range(len(body) + 1)
    size = bisect_right(sizes, limit, key=lambda size: len(encode(body[:size] + instruction))) - 1
    if size < 1:
        raise PromptError(f"max_prompt_tokens={limit} leaves no room for the user's text beside template and history")
    return encode(body[:size] + instruction)


def _own(tokenizer: Any, turns: Sequence[str], answers: Sequence[str]) -> str:
    """The conversation as the tokenizer's chat template has it, special tokens among the text."""
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(f"the tokenizer has no chat template; template is one of {', '.join(TEMPLATES)}")
    form = tokenizer.get_chat_template()
    messages = [{"role": "user", "content": turns[0]}]
    for answer, turn in zip(answers, turns[1:], strict=True):
        messages += [{"role": "assistant", "content": answer.strip()}, {"role": "user", "content": turn}]
    fixed = {"chat_template": _DATED + form, "date_string": _date_string(), "date_codes": _codes()}
    dated = fixed if _writes_date(form) else {}
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **dated))


def template_date(tokenizer: Any, template: str, mode: str = "chat") -> str | None:
    """The date that a tokenizer's own template is given, where it may write one; None where it does not."""
    if mode != "chat" or template != OWN or not getattr(tokenizer, "chat_template", None):
        return None
    return DATE.date().isoformat() if _writes_date(tokenizer.get_chat_template()) else None


def _writes_date(form: str) -> bool:
    return any(word in form for word in _DATE_WORDS)


def _date_string() -> str:
    """As Llama's templates write it: `26 Jul 2024`."""
    return DATE.strftime("%d %b %Y")


@cache
def _codes() -> dict[str, str]:
    """What each code of strftime writes; %% goes first and comes back last."""
    letters = "aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ"
    given = {f"%{flag}{letter}": DATE.strftime(f"%{flag}{letter}") for letter in letters for flag in ("", "-")}
    return {"%%": "\0"} | given | {"\0": "%"}


def _split(text: str) -> tuple[str, str]:
    """What may be cut, and the short last paragraph that may not (empty if there is none)."""
    body, gap, last = text.rpartition("\n\n")
    return (body, gap + last) if body.strip() and len(last) <= MAX_INSTRUCTION_CHARS else (text, "")


def _encode(tokenizer: Tokenizer, text: str, **options: bool) -> list[int]:
    """Token ids without what the tokenizer puts behind every text, such as EOS: an answer is to follow."""
    ids = list(tokenizer(text, **options)["input_ids"])
    if not ids or ids[-1] not in getattr(tokenizer, "all_special_ids", ()):
        return ids
    bare = list(tokenizer(text, **options | {"add_special_tokens": False})["input_ids"])
    ends = (at + len(bare) for at in range(len(ids) - len(bare) + 1) if ids[at : at + len(bare)] == bare)
    return ids[: next(ends, len(ids))] if bare else ids
