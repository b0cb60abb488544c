"""Every block of code in the documents is of a language that is checked, and is right in it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable

import pytest
import sqlglot

from sbon_node.planning.sql.syntax.dialect import parse
from tests.docs.reading import Block, blocks, typed


def console(text: str) -> object:
    return list(typed(text))


def python(text: str) -> object:
    """Compile a text that may be the top of a notebook or of a coroutine; a signature stands for its function."""
    return compile(text, "shown", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def sql(text: str) -> object:
    """Parse queries as a node does, and declarations as the shell's words for them."""
    queries = text.lstrip().upper().startswith("SELECT")
    return parse(text) if queries else sqlglot.parse(text, dialect="spark")


def mermaid(text: str) -> object:
    """A diagram of states or of packages: its kind, then arrows."""
    kind, *lines = text.splitlines()
    arrow = {"stateDiagram-v2": r" +(\[\*\]|\w+) --> (\[\*\]|\w+)", "flowchart TD": r" +\w+ --> \w+( & \w+)*"}[kind]
    return all(re.fullmatch(arrow, line) for line in lines)


CHECKS: dict[str, Callable[[str], object]] = {
    "console": console,
    "mermaid": mermaid,
    "python": python,
    "sql": sql,
    "toml": tomllib.loads,
    "": str.strip,
}
"""Those of no language are drawings and lines of files, which nothing reads."""
WITHOUT_LANGUAGE = {"README.md": 1, "connectors.md": 1}
SHOWN = list(blocks())


@pytest.mark.parametrize("block", SHOWN, ids=[f"{block.document} {number}" for number, block in enumerate(SHOWN)])
def test_a_block_is_right_in_its_language(block: Block) -> None:
    assert CHECKS[block.language](block.text)


def test_blocks_of_no_language_are_the_ones_that_are_known() -> None:
    plain = [block.document for block in SHOWN if not block.language]
    assert {name: plain.count(name) for name in plain} == WITHOUT_LANGUAGE
