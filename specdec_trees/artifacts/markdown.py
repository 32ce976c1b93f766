"""Text that shows as it is where Markdown is rendered, in a cell of a table too."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARKUP = re.compile(
    r"""
    [\\`|~]                          # anywhere: an escape, code, the end of a cell, strikethrough
    | \*(?=\S) | (?<=\S)\* | ^\*     # emphasis or a list, unless it stands between spaces
    | (?<![^\W_])_ | _(?![^\W_])     # emphasis, unless it stands in a word
    | <(?=\S)                        # a tag, or a link
    | &(?=\#?\w)                     # an entity
    | \](?=[(\[])                    # a link
    | ^\[(?=[\sxX]\]|.*\]:)          # a task, or where links lead to
    | ^[#>] | \#$                    # a heading or a quotation; the end of a heading
    | ^[-+](?=\s|-|$)                # a list, or a rule
    | ^\d(?=\d*[.)](?:\s|$))         # a numbered list
    """,
    re.VERBOSE,
)
_BY_NUMBER = frozenset("~&<[]0123456789")
"""Characters that not all dialects escape by a backslash."""


def escaped(text: str) -> str:
    """One line of Markdown that shows this text, whatever is in it; white space is one blank."""
    return _MARKUP.sub(_escape, " ".join(text.split()))


def bold(text: str) -> str:
    """The same in bold."""
    shown = escaped(text)
    return f"**{shown[:-1]}\\***" if shown.endswith(" *") else f"**{shown}**"


def row(cells: Iterable[str]) -> str:
    """A line of a table with these texts."""
    return f"| {' | '.join(map(escaped, cells))} |"


def _escape(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};" if found[0] in _BY_NUMBER else f"\\{found[0]}"
