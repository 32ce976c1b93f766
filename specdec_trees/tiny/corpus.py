"""Text that every Python has: the standard library's source, and its documentation as prose."""

import ast
import hashlib
import importlib
import inspect
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SKIPPED = {"site-packages", "test", "tests", "encodings", "pydoc_data", "__pycache__", "lib2to3", "idlelib"}
"""Left out: tests and generated tables, and packages that newer Pythons no longer ship."""


class Document(NamedTuple):
    """One text, its name relative to the library, and whether it is held out for validation."""

    name: str
    text: str
    held_out: bool


def documents() -> Iterator[Document]:
    """Every source file, then one prose document per file with docstrings, then Python's help topics.

    A file is held out by a hash of its name (one in twenty-five), so that the split does not depend on order;
    a file's prose follows the file.
    """
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        if SKIPPED & set(name.split("/")):
            continue
        source = path.read_text(encoding="utf-8", errors="ignore")
        yield Document(name, source, _held_out(name))
        prose = _docstrings(source)
        if len(prose) > 500:
            yield Document(f"{name} (docstrings)", prose, _held_out(name))
    topics = importlib.import_module("pydoc_data.topics").topics
    for name, text in sorted(topics.items()):
        yield Document(f"topic {name}", text, _held_out(name))


def _held_out(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 25 == 0


def _docstrings(source: str) -> str:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return ""
    found = (ast.get_docstring(node) for node in nodes if isinstance(node, documented))
    return "\n\n".join(inspect.cleandoc(text) for text in found if text)
