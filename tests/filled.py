"""Rows of any table with something in every column that needs it."""

import types
import typing
from typing import Any

_FILLER = {str: "text", int: 3, float: 0.5, bool: True, list[int]: [1, 2]}


def row(row_type: type, **values: Any) -> Any:
    """A row with the given values, None where that is allowed and a filler elsewhere."""
    hints = typing.get_type_hints(row_type)
    empty = {name: None if isinstance(hint, types.UnionType) else _FILLER[hint] for name, hint in hints.items()}
    return row_type(**(empty | values))
