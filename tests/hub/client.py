"""What a machine that has nothing yet does with a hub: `python client.py WHAT NAME ...` prints JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cells import config
from transformers import AutoTokenizer

from specdec_core import generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.errors import LoadError
from specdec_core.verifiers import Greedy
from specdec_trees.configs.cells import cell_of
from specdec_trees.prompts.datasets import DatasetError, load
from specdec_trees.prompts.embedded import TINY
from specdec_trees.prompts.templates import prompt_ids

QUESTION = "def area(width, height):\n    return"
LENGTH = 16
"""Tokens of an answer."""


def load_targets(*names: str) -> dict[str, str | None]:
    """Why each of these cannot be loaded; None where it is."""
    said: dict[str, str | None] = {}
    for name in names:
        try:
            load_pair(name, device="cpu")
            said[name] = None
        except LoadError as error:
            said[name] = str(error)
    return said


def decode(*overrides: str) -> dict[str, dict[str, Any]]:
    """Of pairs, or of other overrides of a cell, the prompt and the greedy answer to it."""
    return {each: _decoded(each) for each in overrides}


def _decoded(override: str) -> dict[str, Any]:
    cell = cell_of(config(*override.split()))
    try:
        pair = load_pair(cell.pair.target, cell.pair.draft, device="cpu", dtype="float32")
    except LoadError as error:
        return {"refused": str(error)}
    prompt = prompt_ids(pair.tokenizer, cell.pair.template, [QUESTION])
    out = generate(pair.target, OptTree(draft=pair.draft, n=12, delta=0.1), Greedy(), prompt, max_new_tokens=LENGTH)
    said = {
        "target": cell.pair.target.id,
        "text": pair.tokenizer.decode(prompt),
        "prompt": prompt,
        "answer": out.tokens,
        "steps": len(out.steps),
    }
    return said | {"kind": type(pair.draft).__name__}


def read(*overrides: str) -> dict[str, Any]:
    """Of datasets, or of other overrides of a cell, the conversations and their first prompts in the plain template."""
    return {each: _read(each) for each in overrides}


def _read(override: str) -> Any:
    dataset = cell_of(config(*override.split())).dataset
    tokenizer = AutoTokenizer.from_pretrained(TINY / "target")
    options = {name: getattr(dataset, name) for name in ("mode", "prompt_tokens", "max_prompt_tokens", "frame")}
    try:
        conversations = load(dataset)
    except DatasetError as error:
        return str(error)
    prompts = [prompt_ids(tokenizer, "plain", each.turns[:1], **options) for each in conversations]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in prompts]
    return [
        asdict(each) | {"text": text, "tokens": len(ids)}
        for each, text, ids in zip(conversations, texts, prompts, strict=True)
    ]


ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {"load": load_targets, "decode": decode, "read": read}

if __name__ == "__main__":
    print(json.dumps(ACTIONS[sys.argv[1]](*sys.argv[2:])))
