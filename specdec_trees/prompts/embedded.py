"""The pair and the prompts that are part of the package."""

from pathlib import Path

from specdec_core.models import Pair, load_pair
from specdec_trees.prompts.conversations import Conversation, read_jsonl

TINY = Path(__file__).resolve().parents[1] / "tiny"


def tiny_pair(device: str = "auto", dtype: str = "auto") -> Pair:
    """The embedded target and draft."""
    return load_pair(str(TINY / "target"), str(TINY / "draft"), device=device, dtype=dtype)


def prompts(limit: int | None = None) -> list[Conversation]:
    """The bundled conversations."""
    return read_jsonl(TINY / "prompts.jsonl")[:limit]
