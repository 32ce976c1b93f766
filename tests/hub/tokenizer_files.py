"""Files of tokenizers as publishers lay them out, all of them with the embedded vocabulary."""

import json
from functools import cache
from typing import Any

from sentencepiece import sentencepiece_model_pb2
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaTokenizer
from transformers.tokenization_utils_base import generate_merges

from specdec_trees.prompts.embedded import TINY

Files = dict[str, bytes]
BOTH = ("tokenizer.model", "tokenizer.json")
SLOW = ("vocab.json", "merges.txt")
CHAT = "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}<assistant>"
DATED = "{{ bos_token }}Today: {{ strftime_now('%d %b %Y') if strftime_now is defined else date_string }}\n" + CHAT


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@cache
def pieces() -> dict[str, int]:
    """The embedded vocabulary as SentencePiece writes such tokens: `▁` is a space, other bytes have names."""
    letters = {letter: byte for byte, letter in byte_letters().items()}
    read = json.loads((TINY / "target" / "tokenizer.json").read_bytes())["model"]["vocab"]
    return {
        _piece([letters[letter] for letter in token]) if number > 1 else token: number for token, number in read.items()
    }


def _piece(codes: list[int]) -> str:
    if len(codes) == 1 and not 32 <= codes[0] < 127:
        return f"<0x{codes[0]:02X}>"
    return "".join(map(chr, codes)).replace(" ", "▁")


@cache
def byte_letters() -> dict[int, str]:
    """The letters by which byte-level tokenizers write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(rest)}
    assert set(letters.values()) == set(ByteLevel.alphabet())
    return letters


@cache
def sentencepiece_model() -> bytes:
    """`tokenizer.model`."""
    model = sentencepiece_model_pb2.ModelProto()
    for piece, number in sorted(pieces().items(), key=lambda item: item[1]):
        kind = 3 if number < 2 else 6 if piece.startswith("<0x") else 1
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.trainer_spec.model_type, model.trainer_spec.byte_fallback = 2, True
    model.trainer_spec.bos_id, model.trainer_spec.eos_id = 0, 1
    return model.SerializeToString()


@cache
def llama_json() -> bytes:
    """`tokenizer.json` of the same vocabulary."""
    made = LlamaTokenizer(vocab=pieces(), merges=generate_merges(pieces()), unk_token="</s>", add_bos_token=True)
    return made.backend_tokenizer.to_str().encode()


def llama_tokenizer(*files: str) -> Files:
    """`tokenizer.model` or `tokenizer.json` or both, and what Llama's first converter wrote beside them."""
    options = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>"}
    added = {name: {"__type": "AddedToken", "content": token, **options} for name, token in special.items()}
    said = {"add_bos_token": True, "add_eos_token": False, "tokenizer_class": "LlamaTokenizer", "pad_token": None}
    said |= {"clean_up_tokenization_spaces": False, "model_max_length": 10**30, "sp_model_kwargs": {}, **added}
    written = {"tokenizer.model": sentencepiece_model, "tokenizer.json": llama_json}
    words = {name: {"content": token, **options} for name, token in special.items()}
    made = {"tokenizer_config.json": as_json(said), "special_tokens_map.json": as_json(words)}
    return made | {name: written[name]() for name in files}


def byte_tokenizer(name: str, *files: str, **said: Any) -> Files:
    """GPT-2's kind, as the class `name`: `tokenizer.json`, or `vocab.json` and `merges.txt`."""
    read = json.loads((TINY / "target" / "tokenizer.json").read_bytes())
    lines = [pair if isinstance(pair, str) else " ".join(pair) for pair in read["model"]["merges"]]
    known = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>", "tokenizer_class": name} | said
    if not known.get("add_bos_token"):
        read["post_processor"] = None
    written = {
        "tokenizer.json": as_json(read),
        "vocab.json": as_json(read["model"]["vocab"]),
        "merges.txt": "\n".join(["#version: 0.2", *lines, ""]).encode(),
    }
    return {"tokenizer_config.json": as_json(known)} | {file: written[file] for file in files}


def smollm2() -> Files:
    """Whose chat template is a file of its own."""
    return byte_tokenizer("GPT2Tokenizer", "tokenizer.json", *SLOW) | {"chat_template.jinja": CHAT.encode()}
