"""SPEC.md names every message, field, type, limit and default of the code, in order: the tables are compared cell by cell."""

from __future__ import annotations

import inspect
import re
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from sbon_protocol import base, calls, codec, datagram, errors, frames, measuring, messages, moving, version
from sbon_protocol.papers import ants, sand

SPEC = Path(__file__).parents[2] / "protocol" / "SPEC.md"

ALIASES = {
    "name": base.Name,
    "text": base.Text,
    "line": base.Line,
    "port": base.Port,
    "host": base.Host,
    "count": base.Count,
    "milliseconds": base.Milliseconds,
    "quantity": base.Quantity,
    "any": Any,
    "bytes": bytes,
    "bool": bool,
    "float": float,
    "integer": int,
    "string": str,
    "tag": base.Tag,
}
"""Words of SPEC.md, section 1, for field types."""


def all_messages() -> dict[str, type[base.Message]]:
    """Every message of the protocol, by its name."""
    found = {}
    for module in (base, messages, calls, measuring, moving, sand, ants):
        for name, member in vars(module).items():
            if inspect.isclass(member) and issubclass(member, base.Message) and member.__module__ == module.__name__:
                found[name] = member
    del found["Message"], found["Call"]
    return found


def words(type_: Any) -> str:
    """A field's type as SPEC.md writes it."""
    for word, alias in ALIASES.items():
        if type_ == alias:
            return word
    origin, parameters = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        return f"{words(parameters[0])}, {_limits(parameters[1])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nil" if p is types.NoneType else words(p) for p in parameters)
    if origin is Literal:
        return " or ".join(f'"{p}"' for p in parameters)
    if origin is tuple:
        return f"array of {words(parameters[0])}"
    if origin is dict:
        return f"map of {words(parameters[0])} to {words(parameters[1])}"
    assert issubclass(type_, base.Message), type_
    return str(type_.__name__)


def _limits(meta: msgspec.Meta) -> str:
    if meta.max_length is not None:
        return f"{meta.min_length} to {meta.max_length:,}" if meta.min_length else f"at most {meta.max_length:,}"
    return f"{meta.ge:,.0f} to {meta.le:,.0f}"


def rows_of(message: type[base.Message]) -> list[tuple[str, str, str, str]]:
    """Expected rows of SPEC.md for each field: position, name, type, default."""
    hints = typing.get_type_hints(message, include_extras=True)
    first = 1 if message.__struct_config__.tag else 0
    required = len(message.__struct_fields__) - len(message.__struct_defaults__)
    rows = []
    for index, field in enumerate(message.__struct_fields__):
        default = "" if index < required else _literal(message.__struct_defaults__[index - required])
        rows.append((str(first + index), field, words(hints[field]), default))
    return rows


def _literal(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "nil"}[value]
    if value == b"":
        return "empty"
    return "[]" if value == () else f'"{value}"' if isinstance(value, str) else f"{value:g}"


def sections() -> dict[str, tuple[str, list[tuple[str, ...]]]]:
    """Headings of the form ``#### Name`` or ``#### Name "tag"``, with the rows of the table below each."""
    found: dict[str, tuple[str, list[tuple[str, ...]]]] = {}
    current: list[tuple[str, ...]] = []
    for line in SPEC.read_text().splitlines():
        heading = re.fullmatch(r'#### (\w+)(?: "([a-z-]+)")?', line)
        if heading:
            assert heading[1] not in found
            current = []
            found[heading[1]] = (heading[2] or "", current)
        elif line.startswith("#"):
            current = []
        elif re.match(r"\| \d+ \|", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            current.append(tuple(cells[:4]))
            assert len(cells) == 5, line
            assert cells[4], f"no meaning: {line}"
    return found


def test_spec_describes_each_message_and_no_other() -> None:
    assert sections().keys() == all_messages().keys()


@pytest.mark.parametrize("name", all_messages())
def test_spec_table_is_the_code(name: str) -> None:
    message = all_messages()[name]
    tag, rows = sections()[name]
    assert tag == (message.__struct_config__.tag or "")
    assert rows == rows_of(message)


def test_spec_lists_the_calls_with_their_replies() -> None:
    listed = re.findall(r"^- `([a-z-]+)`: (\w+) > (\w+)$", SPEC.read_text(), re.MULTILINE)
    assert listed == [(name, call.__name__, reply.__name__ if reply else "nil") for name, (call, reply) in calls.CALLS.items()]


@pytest.mark.parametrize(
    "said",
    [
        f"at most {datagram.MAX_DATAGRAM_BYTES:,} bytes",
        f"{codec.MAX_PAYLOAD_BYTES:,} bytes",
        f"{codec.MAX_MESSAGE_BYTES:,} bytes",
        f"{codec.MAX_ITEMS:,} items",
        f"{codec.MAX_DEPTH} levels",
        f"version {version.VERSION}",
        f"{frames.LENGTH_BYTES} bytes of length",
    ],
)
def test_spec_states_the_limits_of_the_code(said: str) -> None:
    assert said in SPEC.read_text()


def test_spec_explains_every_reason_the_code_gives() -> None:
    reasons = set()
    for module in (codec, datagram, frames, version):
        reasons |= set(re.findall(r'ProtocolError\("([a-z-]+)"', inspect.getsource(module)))
    assert len(reasons) > 5
    assert {reason for reason in reasons if f"`{reason}`" not in SPEC.read_text()} == set()
    assert errors.ProtocolError("a-reason", "what").reason == "a-reason"
