"""The tour of the code names what is there: every function by its file, and every package in the order of the import rules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, text_of

TOUR = text_of(ROOT / "docs" / "code.md")
ENTRY = re.compile(r"`([\w./-]+\.py)`: (`[\w.]+`(?:, `[\w.]+`)*)")
ROW = re.compile(r"^\| `([\w./]+)` \| \S", re.MULTILINE)
PATH = re.compile(r"`((?:sbon_node|protocol|cli|tests|docs)/[\w./-]+)`")
DESIGN = [ROOT / "docs" / "design.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]
SOURCES = ("sbon_node", "protocol", "cli", "lab", "tests", "docs")
QUOTED = re.compile(r"`(/?[\w.-]+(?:/[\w.-]+)*)`")
PATHS = {
    "From a probe to a coordinate": 15,
    "From a SQL text to a running operator": 15,
    "From a row of a file to a sink": 15,
    "How it moves": 5,
}
"""Headings, each with the fewest steps it has."""
MAP = "The packages, from the bottom up"
CHANGES = (
    "weight of load",
    "link comes back",
    "partial average",
    "strategy is added",
    "sink is added",
    "source goes",
    "error code",
    "states of an operator",
    "time buckets",
    "setting is added",
)
MOST_LINES = 260
BEGINS_MOVES = re.compile(r"mover\.call\(|(?<!def )\b(?:_move_operators|MoveOperator)\(")
"""Calls of a decider of moves."""


def names_of(source: str) -> set[str]:
    """Functions, classes and constants of a module, and all of these within its classes as ``Class.name``."""
    return set(_names(ast.parse(source).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from _names(node.body, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name


def missing(text: str) -> list[str]:
    """The entries of a text whose file or name is not there."""
    found = []
    for path, names in ENTRY.findall(text):
        file = ROOT / path
        known = names_of(file.read_text(encoding="utf-8")) if file.is_file() else set[str]()
        found += [f"{path}: {name}" for name in re.findall(r"`([\w.]+)`", names) if name not in known]
    return found


def section(heading: str) -> str:
    (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", TOUR, re.DOTALL | re.MULTILINE)
    return str(text)


def test_everything_named_is_there() -> None:
    assert len(ENTRY.findall(TOUR)) > 70
    assert missing(TOUR) == []
    assert [path for path in PATH.findall(TOUR) if not (ROOT / path).exists()] == []


@cache
def ends_of_paths() -> frozenset[str]:
    """Every file and folder of the sources, by the whole of its path and by each end of it."""
    paths = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    parts = [path.relative_to(ROOT).parts for path in [*paths, *(ROOT / folder for folder in SOURCES)]]
    return frozenset("/".join(one[begin:]) for one in parts for begin in range(len(one)))


def dead_paths(text: str) -> list[str]:
    """The paths in backquotes that lead nowhere: what ends in ``.py``, or begins with the name of a folder and has a slash."""
    quoted = [path for path in QUOTED.findall(text) if path.endswith(".py") or path.partition("/")[0] in folders()]
    return [path for path in quoted if path not in ends_of_paths() and ("/" in path or path.endswith(".py"))]


@cache
def folders() -> frozenset[str]:
    return frozenset(path for path in ends_of_paths() if "/" not in path and "." not in path)


@pytest.mark.parametrize("document", DESIGN, ids=lambda path: path.name)
def test_every_path_in_the_design_is_there(document: Path) -> None:
    assert dead_paths(text_of(document)) == []


def test_dead_paths_are_noticed() -> None:
    text = (
        "`net/sockets.py`, `sockets.py`, `sbon_node/net`, `net/nowhere.py`, `nowhere.py`, `net/nowhere`, `offsets/n`, `/metrics`"
    )
    assert dead_paths(text) == ["net/nowhere.py", "nowhere.py", "net/nowhere"]


@pytest.mark.parametrize(
    "entry",
    [
        "`sbon_node/net/nowhere.py`: `SocketTransport`",
        "`sbon_node/net/sockets.py`: `SocketTransport.nothing`",
        "`sbon_node/net/sockets.py`: `connect`",
        "`sbon_node/net/sockets.py`: `SocketTransport`, `Nothing`",
    ],
)
def test_missing_functions_are_noticed(entry: str) -> None:
    assert len(missing(entry)) == 1


@pytest.mark.parametrize("heading, fewest", PATHS.items())
def test_a_path_is_a_list_of_functions_with_a_sentence_each(heading: str, fewest: int) -> None:
    steps = re.findall(r"^\d+\. (.*)$", section(heading), re.MULTILINE)
    assert len(steps) >= fewest
    assert [step for step in steps if not re.fullmatch(ENTRY.pattern + r"\. [A-Z`].*\.", step)] == []


def test_the_map_has_every_package_in_the_order_of_the_import_rules() -> None:
    rows = ROW.findall(TOUR)
    packages = {file.parent.relative_to(ROOT).as_posix() for file in (ROOT / "sbon_node").glob("*/__init__.py")}
    assert len(packages) > 15
    assert [package for package in sorted(packages) if package not in rows and f"`{package}`" not in section(MAP)] == []
    rules = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    within = {tuple(rule.get("containers", ())): rule["layers"] for rule in rules if rule["type"] == "layers"}
    outer, inner = within[()], within["sbon_node",]
    above, node = outer[: outer.index("sbon_node")], [f"sbon_node.{layer}" for layer in inner if "|" not in layer]
    assert [module_of(row) for row in rows] == [*reversed([*above, *node, "sbon_protocol"])]


def module_of(row: str) -> str:
    """A row's path as a module."""
    return row.removeprefix("cli/").removeprefix("lab/").removeprefix("protocol/").removesuffix(".py").replace("/", ".")


def test_the_tour_names_where_to_change() -> None:
    headings = re.findall(r"^\*\*(.*?)\.\*\*", section("Where to change"), re.MULTILINE)
    assert [change for change in CHANGES if not any(change in heading for heading in headings)] == []
    for part in section("Where to change").split("\n**")[1:]:
        assert ENTRY.search(part), part


def test_all_that_decide_moves_are_named() -> None:
    mover = ROOT / "sbon_node/adaptation/mover.py"
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "sbon_node").rglob("*.py")}
    texts[mover] = texts[mover][texts[mover].index("class RequestedMoves") :]  # after Mover, through which all begin them
    deciders = {path.relative_to(ROOT).as_posix() for path, text in texts.items() if BEGINS_MOVES.search(text)}
    assert deciders == {path for path, _ in ENTRY.findall(section("Who decides that an operator moves"))}


def test_it_is_short() -> None:
    """Not counting the picture, which is looked at."""
    text = re.sub(r"^```mermaid\n.*?^```\n", "", TOUR, flags=re.DOTALL | re.MULTILINE)
    assert len(text.splitlines()) < MOST_LINES
