"""What msgspec says of a value that is not of its type, in the words of whoever wrote the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}
_COMPARED = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}

_Told = Callable[[re.Match[str]], str]
_SAID: tuple[tuple[str, _Told], ...] = (
    (r"Object missing required field `(.+)`", lambda m: f"{m[1]} is missing"),
    (r"Object contains unknown field `(.+)`", lambda m: f"there is no field {m[1]}"),
    (r"Expected `(\w+)` (>=|<=|>|<) (\S+)", lambda m: f"must be {_COMPARED[m[2]]} {float(m[3]):g}"),
    (r"Expected `str` of length >= 1", lambda m: "must not be empty"),
    (r"Expected `(\w+)` of length (>=|<=) (\d+)", lambda m: f"must have a length of {_COMPARED[m[2]]} {m[3]}"),
    (r"Expected `str` matching regex (.+)", lambda m: "has a character that is not allowed, or is too long"),
    (r"Expected `([\w |]+)`, got `(\w+)`", lambda m: f"must be {_either(m[1])}, and is {_either(m[2])}"),
    (r"Invalid enum value (.+)", lambda m: f"{m[1]} is not known"),
)


def in_plain_words(error: msgspec.ValidationError, kind: Any = None) -> tuple[str, str]:
    """The field, as a path from the value that was read (empty for itself), and what is wrong with it. With ``kind``, the struct
    that was asked for, a word that is none of those allowed is told these."""
    said, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    for pattern, told in _SAID:
        if match := re.fullmatch(pattern, said):
            allowed = _allowed(kind, field) if said.startswith("Invalid enum") else ()
            return field, told(match) + (f": it is one of {', '.join(map(str, allowed))}" if allowed else "")
    return field, said[:1].lower() + said[1:]


def _either(kinds: str) -> str:
    return " or ".join(_KINDS.get(kind.strip(), kind.strip()) for kind in kinds.split("|"))


def _allowed(kind: Any, field: str) -> tuple[Any, ...]:
    """The words a field takes."""
    for name in field.split("."):
        struct = next((one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
        kind = get_type_hints(struct).get(name) if struct is not None else None
    return tuple(word for word in get_args(kind) if word != "") if get_origin(kind) is Literal else ()
