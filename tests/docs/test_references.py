"""References in docstrings, as ``:class:`Name```: each names a thing that exists."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "sbon_node",
    ROOT / "protocol" / "sbon_protocol",
    ROOT / "cli" / "sbon",
    ROOT / "cli" / "sbon_cli",
    ROOT / "lab" / "sbon_lab",
)
REFERENCE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|const):`~?([\w.]+)`")
PATHS = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names that a module or class defines; names within a class, and attributes that it sets, follow its own."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
                yield from definitions(node, f"{prefix}{name}." if isinstance(node, ast.ClassDef) else prefix)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield prefix + name
            case ast.Name(id=name, ctx=ast.Store()):
                yield prefix + name
            case _:
                yield from definitions(node, prefix)


@cache
def known() -> frozenset[str]:
    """Return the last one and the last two words of all names that our packages define."""
    names = [name.split(".") for path in PATHS for name in definitions(ast.parse(path.read_text(encoding="utf-8")))]
    return frozenset(".".join(words[-length:]) for words in names for length in (1, 2))


def exists(name: str) -> bool:
    """Return whether a name, whole or as imported, is a module, or defined in our packages, or built in."""
    if hasattr(builtins, name):
        return True
    words = name.split(".")
    if len(words) <= 2 and ".".join(words) in known():
        return True
    for length in range(len(words), 0, -1):
        try:
            module = importlib.import_module(".".join(words[:length]))
        except ImportError:
            continue
        rest = words[length:]
        return not rest or (hasattr(module, rest[0]) and (len(rest) == 1 or ".".join(rest[-2:]) in known()))
    return False


def references(path: Path) -> list[str]:
    """Return the names in a file; those that begin with a dot belong to its package."""
    package = next(one for one in PACKAGES if path.is_relative_to(one))
    parent = ".".join(path.parent.relative_to(package.parent).parts)
    return [parent + name if name.startswith(".") else name for name in REFERENCE.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", [path for path in PATHS if references(path)], ids=lambda path: str(path.relative_to(ROOT)))
def test_references_in_docstrings_name_existing_things(path: Path) -> None:
    assert [name for name in references(path) if not exists(name)] == []


@pytest.mark.parametrize("name", ["Nothing", "Outbox.nothing", "sbon_node.nothing", "sbon_node.streams.outbox.outbox.Nothing"])
def test_a_reference_to_nothing_is_noticed(name: str) -> None:
    assert not exists(name)
