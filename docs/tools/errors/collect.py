"""Error codes in the source, read from its syntax trees.

A code is the first argument of ``SbonError`` or ``ProtocolError``, or the ``code`` of a failure or a body that
travels. Where that is a name,
it is looked up: a constant, a local variable, or a parameter ``code``, whose values are what the function's callers pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("protocol", "sbon_node", "cli", "lab")
ERRORS = {"SbonError": 0, "ProtocolError": 0, "Failure": -1, "Reason": -1}
"""Calls that take a code, and its position; -1 where it is the keyword ``code`` only."""
CODE = re.compile(r"[a-z]+(-[a-z]+)*")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = ast.expr | None
Seen = set[tuple[str, str]]
"""Functions and names in them that are being looked up, so that each is looked up once."""


class Call(NamedTuple):
    """A call, the functions around it from the outermost inwards, and its file."""

    node: ast.Call
    around: tuple[Function, ...]
    file: Path


def codes(root: Path) -> dict[str, list[Path]]:
    """Every error code of the packages below ``root``, with the files that raise it."""
    return Source(root).codes()


class Source:
    """The syntax trees of all packages."""

    def __init__(self, root: Path) -> None:
        trees = {file: ast.parse(file.read_bytes()) for package in PACKAGES for file in sorted((root / package).rglob("*.py"))}
        self._listed = [
            (file, code)
            for package in PACKAGES
            for file in sorted((root / package).rglob("*.toml"))
            for code in re.findall(r'^code = "(.+)"$', file.read_text(encoding="utf-8"), re.MULTILINE)
        ]
        """Codes in tables of refusals, which are data files beside the code that raises them."""
        self._calls: dict[str, list[Call]] = {}
        self._constants: dict[str, list[ast.expr]] = {}
        self._functions: dict[str, list[Function]] = {}
        self._bodies: list[tuple[Path, ast.Dict]] = []
        for file, tree in trees.items():
            for call in _calls(tree, (), file):
                self._calls.setdefault(_name(call.node.func), []).append(call)
            for name, value in _assigned(tree.body):
                self._constants.setdefault(name, []).append(value)
            for part in ast.walk(tree):
                if isinstance(part, ast.Dict):
                    self._bodies.append((file, part))
                elif isinstance(part, Function):
                    self._functions.setdefault(part.name, []).append(part)

    def codes(self) -> dict[str, list[Path]]:
        files_by_code: dict[str, set[Path]] = {}
        for name, position in ERRORS.items():
            for call in self._calls.get(name, ()):
                for code in self._values(_argument(call.node, position, "code"), call.around, set()):
                    files_by_code.setdefault(code, set()).add(call.file)
        for file, body in self._bodies:
            for key, value in zip(body.keys, body.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    for code in self._values(value, (), set()):
                        files_by_code.setdefault(code, set()).add(file)
        for file, code in self._listed:
            files_by_code.setdefault(code, set()).add(file)
        return {code: sorted(files) for code, files in sorted(files_by_code.items())}

    def _values(self, value: Node, around: tuple[Function, ...], seen: Seen) -> Iterator[str]:
        """The codes an expression may be, as far as the source shows them; of a tuple its first element."""
        match value:
            case ast.Constant(value=str(text)) if CODE.fullmatch(text):
                yield text
            case ast.Tuple(elts=[first, *_]):
                yield from self._values(first, around, seen)
            case ast.IfExp(body=body, orelse=other):
                yield from self._values(body, around, seen)
                yield from self._values(other, around, seen)
            case ast.BoolOp(values=several):
                for one in several:
                    yield from self._values(one, around, seen)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get"), args=[_, *default]):
                for one in (*self._in_table(table), *default):
                    yield from self._values(one, around, seen)
            case ast.Call(func=ast.Name(id=name)) if (name, "return") not in seen:
                seen.add((name, "return"))
                for function in self._functions.get(name, ()):
                    for one in ast.walk(function):
                        if isinstance(one, ast.Return):
                            yield from self._values(one.value, (function,), seen)
            case ast.Name(id=name):
                yield from self._named(name, around, seen)
            case ast.Attribute(value=ast.Name(), attr=name) if name.isupper():  # a constant of another module
                yield from self._named(name, (), seen)

    def _in_table(self, name: str) -> Iterator[ast.expr]:
        for table in self._constants.get(name, ()):
            if isinstance(table, ast.Dict):
                yield from table.values

    def _in_rows(self, loop: ast.AST, name: str) -> Iterator[ast.expr]:
        """The values of one of the names of a loop over a table whose rows are tuples."""
        match loop:
            case ast.For(target=ast.Tuple(elts=names), iter=ast.Name(id=table)):
                for position, one in enumerate(names):
                    if isinstance(one, ast.Name) and one.id == name:
                        for rows in self._constants.get(table, ()):
                            each = rows.elts if isinstance(rows, ast.Tuple) else ()
                            yield from (row.elts[position] for row in each if isinstance(row, ast.Tuple))

    def _named(self, name: str, around: tuple[Function, ...], seen: Seen) -> Iterator[str]:
        for function in reversed(around):
            parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args) if one.arg not in ("self", "cls")]
            if name in (*parameters, *(one.arg for one in function.args.kwonlyargs)):
                if (function.name, name) in seen:
                    return
                seen.add((function.name, name))
                position = parameters.index(name) if name in parameters else -1
                for call in self._calls.get(function.name, ()) if name == "code" else ():
                    yield from self._values(_argument(call.node, position, name), call.around, seen)
                return
            local = [value for target, value in _assigned(ast.walk(function)) if target == name]
            local += [value for loop in ast.walk(function) for value in self._in_rows(loop, name)]
            if local:
                if (function.name, name) in seen:
                    return
                seen.add((function.name, name))
                for value in local:
                    yield from self._values(value, around, seen)
                return
        if ("", name) not in seen:
            seen.add(("", name))
            for value in self._constants.get(name, ()):
                yield from self._values(value, (), seen)


def _argument(call: ast.Call, position: int, keyword: str) -> Node:
    if 0 <= position < len(call.args):
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == keyword), None)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


def _calls(node: ast.AST, around: tuple[Function, ...], file: Path) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield Call(child, around, file)
        yield from _calls(child, (*around, child) if isinstance(child, Function) else around, file)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names and what is assigned to them; of several names at once, the first."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name) | ast.Tuple(elts=[ast.Name(id=name), *_])], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
