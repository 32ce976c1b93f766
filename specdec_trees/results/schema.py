"""From a row type to the parquet schema of its table."""

import dataclasses
import types
import typing
from functools import cache

import pyarrow as pa

_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@cache
def schema(row_type: type) -> pa.Schema:
    """The parquet schema of a row type; a column is nullable exactly where its annotation allows None."""
    hints = typing.get_type_hints(row_type)
    return pa.schema([_field(field.name, hints[field.name]) for field in dataclasses.fields(row_type)])


def _field(name: str, hint: object) -> pa.Field:
    nullable = isinstance(hint, types.UnionType)
    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return pa.field(name, pa.list_(_ARROW[item]), nullable)
    return pa.field(name, _ARROW[hint], nullable)  # type: ignore[index]
