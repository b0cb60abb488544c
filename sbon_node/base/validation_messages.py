"""Validation errors of msgspec, in the words of the value's author."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from sbon_protocol.errors import did_you_mean

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

_Wording = Callable[[re.Match[str]], str]
_WORDINGS: tuple[tuple[str, _Wording], ...] = (
    (r"Object missing required field `(.+)`", lambda m: f"{m[1]} is missing"),
    (r"Object contains unknown field `(.+)`", lambda m: f"there is no field {m[1]}"),
    (r"Expected `(\w+)` (>=|<=|>|<) (\S+)", lambda m: f"must be {_COMPARED[m[2]]} {float(m[3]):.15g}"),
    (r"Expected `str` of length >= 1", lambda m: "must not be empty"),
    (r"Expected `(\w+)` of length (>=|<=) (\d+)", lambda m: f"must have {_COMPARED[m[2]]} {_counted(int(m[3]), m[1])}"),
    (r"Expected `str` matching regex (.+)", lambda m: "has a character that is not allowed, or is too long"),
    (r"Expected `([\w |]+)`, got `(\w+)`", lambda m: f"must be {_either(m[1])}, and is {_either(m[2])}"),
    (r"Invalid (?:enum )?value (.+)", lambda m: f"{m[1]} is not known"),
)


def in_plain_words(error: msgspec.ValidationError, kind: Any = None) -> tuple[str, str]:
    """Return the wrong field and its error.

    The field is a path from the value that was read, empty for the value itself. With ``kind``, the expected struct, the text
    lists the allowed words for a wrong word, suggests fields for an unknown one, and gives the field's description for a text
    that does not match its pattern.
    """
    message, _, path = str(error).partition(" - at `")
    of_key, _, path = path.rstrip("`").rpartition("$")
    field, owner = path.lstrip("."), "a key " if of_key else ""
    for pattern, wording in _WORDINGS:
        if match := re.fullmatch(pattern, message):
            field_path = field.replace("[...]", "[]")  # msgspec writes this for each key of a map; its dots separate no names
            allowed = _allowed(kind, field_path) if message.startswith("Invalid ") else ()
            pattern_text = _description(kind, field_path) if message.startswith("Expected `str` matching") and not of_key else ""
            words = f"it is one of {', '.join(map(str, allowed))}" if allowed else pattern_text
            if message.startswith("Object contains"):
                structs = _structs(_of_field(kind, field_path) if field_path else kind)
                words = did_you_mean(match[1], [name for struct in structs for name in struct.__struct_encode_fields__])
            elif field.endswith("_ms") and message.endswith("got `str`"):
                words = "milliseconds, 5000 for 5 s"
            return field, owner + wording(match) + (words and f": {words}")
    return field, owner + message[:1].lower() + message[1:]


def _either(kinds: str) -> str:
    return " or ".join(_KINDS.get(kind.strip(), kind.strip()) for kind in kinds.split("|"))


def _counted(number: int, kind: str) -> str:
    singular, more = ("character", "characters") if kind == "str" else ("entry", "entries")
    return f"{number} {singular if number == 1 else more}"


def _allowed(kind: Any, field: str) -> tuple[Any, ...]:
    """Return the words that a field allows; for a struct's tag, those of all possible structs."""
    owner, _, last = field.rpartition(".")
    structs = _structs(_of_field(kind, owner) if owner else kind)
    tags = [struct.__struct_config__ for struct in structs]
    words_allowed: list[Any] = [config.tag for config in tags if config.tag_field == last]
    for struct in structs:
        words_allowed += [word for word in _words(get_type_hints(struct).get(last.partition("[")[0])) if word != ""]
    return tuple(words_allowed)


def _words(kind: Any) -> tuple[Any, ...]:
    """Return the words that a value of this type may be, or hold."""
    within = get_args(kind)
    return within if get_origin(kind) is Literal else tuple(word for argument in within for word in _words(argument))


def _description(kind: Any, field: str) -> str:
    owner, _, last = field.rpartition(".")
    structs = _structs(_of_field(kind, owner) if owner else kind)
    return next(filter(None, (description_of(struct, last.partition("[")[0]) for struct in structs)), "")


def description_of(struct: type[msgspec.Struct], field: str) -> str:
    """Return the text below a field in the source of its struct, or the description of its type; empty without either."""
    for kind in struct.__mro__:
        if field in vars(kind).get("__annotations__", {}) and (text := _texts(kind).get(field)):
            return text
    metas = getattr(get_type_hints(struct, include_extras=True).get(field), "__metadata__", ())
    texts = [meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description]
    return texts[-1] if texts else ""


@cache
def _texts(kind: type) -> dict[str, str]:
    """Return the text below each field of a class, in one line."""
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _of_field(kind: Any, field: str) -> Any:
    """Return the type of a field, named by its path; None if there is none."""
    for name in field.split("."):
        hints = [get_type_hints(struct, include_extras=True) for struct in _structs(kind)]
        kind = next((hint[name.partition("[")[0]] for hint in hints if name.partition("[")[0] in hint), None)
    return kind


def _structs(kind: Any) -> list[Any]:
    """Return the structs that a value of this type may be, or hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [struct for argument in get_args(kind) for struct in _structs(argument)]
