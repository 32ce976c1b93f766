"""Keys taken out of texts."""

from __future__ import annotations

import html
import json
from urllib.parse import quote

SHORTEST = 8
"""Shorter ones are placeholders for servers that want some key; they are no secret, and would be found in any text."""


def without(key: str, text: str) -> str:
    """A text without the key, whether it stands there as it is or as JSON, URLs or HTML encode it."""
    if len(key) < SHORTEST:
        return text
    in_json = json.dumps(key)[1:-1]
    slashed = [form.replace("/", "\\/") for form in (key, in_json)]
    quoted = [quote(key, safe=safe) for safe in ("", "/")]
    forms = {key, in_json, *slashed, *quoted, html.escape(key), html.escape(in_json)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "[key]")
    return text


def printable(text: str) -> bool:
    """Whether a text is ASCII without blanks."""
    return all("!" <= char <= "~" for char in text)
