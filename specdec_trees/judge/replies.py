"""The body of a chat completion."""

from __future__ import annotations

import json


class ReplyError(Exception):
    """A body is no chat completion; the message says what it lacks."""


def content(body: bytes) -> str:
    """The text of the first choice. ReplyError where there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply is not JSON ({str(error)[:80]})") from None
    for step in ("choices", 0, "message", "content"):
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            raise ReplyError(f"the reply is no chat completion: it has no {step!r}") from None
    if not isinstance(found, str):
        raise ReplyError("the reply is no chat completion: its content is no text")
    return found
