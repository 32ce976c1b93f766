"""Values of options against the type hints of what takes them, and the words for what was expected."""

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null", Path: "a path"}
MANY = {int: "whole numbers", float: "numbers", bool: "true or false", str: "words"}
"""What a list holds."""


@cache
def parameters(taker: Callable[..., Any]) -> dict[str, Any]:
    """The hints of what a constructor, a function or a dataclass can be given, by name."""
    hints = get_type_hints(taker.__init__ if inspect.isclass(taker) and not is_dataclass(taker) else taker)
    return {name: hints.get(name, Any) for name in inspect.signature(taker).parameters}


@cache
def required(taker: Callable[..., Any]) -> list[str]:
    """Those that have no default."""
    signature = inspect.signature(taker).parameters.values()
    return [one.name for one in signature if one.default is one.empty]


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a hint: true is no number, 3 is one, 3.0 is no whole one; lists are sequences."""
    if hint is Any:
        return True
    if (origin := get_origin(hint)) in (Union, UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin in (list, tuple, Sequence):
        inner = next((one for one in get_args(hint) if one is not Ellipsis), Any)
        return isinstance(value, list | tuple) and all(fits(each, inner) for each in value)
    if origin in (dict, Mapping):
        keys, values = get_args(hint)
        return isinstance(value, Mapping) and all(fits(a, keys) and fits(b, values) for a, b in value.items())
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, (str, Path) if hint is Path else origin or hint)


def bounded(value: Any) -> bool:
    """Whether all numbers in a plain value fit into 64 bits, and are no infinity and no NaN."""
    if isinstance(value, Mapping):
        return all(map(bounded, value.values()))
    if isinstance(value, list | tuple):
        return all(map(bounded, value))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)


def stays_inside(name: str) -> bool:
    """Whether files of this name lie in the folder that they are written to, and are seen there."""
    parts = name.split("/")
    return name.isprintable() and all(part.strip() and not part.startswith(".") and "\\" not in part for part in parts)


def expected(hint: Any) -> str:
    """A hint in words: a whole number or null; the hint as it is written where there are none."""
    if (origin := get_origin(hint)) in (Union, UnionType):
        return " or ".join(dict.fromkeys(expected(option) for option in get_args(hint)))
    if origin is Literal:
        return " or ".join(map(str, get_args(hint)))
    if origin in (list, tuple, Sequence):
        return f"a list of {MANY.get(get_args(hint)[0], expected(get_args(hint)[0]))}"
    if origin in (dict, Mapping):
        return "a mapping"
    return "a mapping" if is_dataclass(hint) else str(WORDS.get(hint) or getattr(hint, "__name__", hint))


def shown(value: Any) -> str:
    """A value as it is written on a command line; text that could be taken for something else is quoted."""
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][^\"]*", value) and value not in ("null", "true", "false"):
        return value
    return json.dumps(value, default=str)
