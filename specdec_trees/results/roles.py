"""What each column of `runs` is to a comparison: declared once, in its type, from which all lists of columns follow.

A missing value equals a missing value and nothing else: what an older file lacks, all rows of its revision lack.
"""

from __future__ import annotations

import typing
from enum import Enum
from functools import cache
from typing import Annotated, TypeVar


class Role(Enum):
    """What a column says of a row. Rows are compared where the first five agree, but for what is being compared."""

    SETTING = "what is decoded, as tables name it; known before it runs"
    OPTIONS = "how it is decoded, known before it runs"
    METHOD = "what drafts and judges, known before it runs"
    LOADED = "the very weights and prompts, known once they are loaded"
    MACHINE = "where it ran, by which code"
    RESULT = "what came out"
    LABEL = "a name, or what follows from other columns"


T = TypeVar("T")
Setting = Annotated[T, Role.SETTING]
Options = Annotated[T, Role.OPTIONS]
Method = Annotated[T, Role.METHOD]
Loaded = Annotated[T, Role.LOADED]
Machine = Annotated[T, Role.MACHINE]
Result = Annotated[T, Role.RESULT]
Label = Annotated[T, Role.LABEL]


@cache
def columns(row_type: type, *roles: Role) -> tuple[str, ...]:
    """Columns of a row type by their roles, in the order of the roles; TypeError where a column has none."""
    of = {name: _role(name, hint) for name, hint in typing.get_type_hints(row_type, include_extras=True).items()}
    return tuple(name for role in roles for name, own in of.items() if own is role)


def _role(name: str, hint: object) -> Role:
    declared = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Role)]
    if len(declared) != 1:
        raise TypeError(f"column {name} does not say what it is to a comparison; give its type one of the roles")
    return declared[0]
