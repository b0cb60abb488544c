"""Options of a connector as a user gives them: a map, checked against a struct that names and describes each."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from sbon_node.errors import SbonError
from sbon_node.plain_words import in_plain_words

S = TypeVar("S", bound=msgspec.Struct)


def read_options(kind: type[S], given: Mapping[str, Any], connector: str) -> S:
    """Texts are read as what the option is (``"5"`` as a number, JSON as a map), for command lines know only texts.

    Raises :class:`SbonError` ``unknown-option`` (naming the known ones) and ``bad-option`` (naming the option).
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            near = get_close_matches(str(name), fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known options: {', '.join(fields)}"
            raise SbonError("unknown-option", f"{connector} has no option {name!r}", where=f"options.{name}", hint=hint)
    for name, field in fields.items():
        if field.required and name not in given:
            raise SbonError("bad-option", f"{connector} needs the option {name}", where=f"options.{name}")
    try:
        return msgspec.convert({name: _unwrapped(value) for name, value in given.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        option, reason = in_plain_words(error, kind)
        raise SbonError("bad-option", reason, where=f"options.{option}".rstrip(".")) from error


def _unwrapped(value: Any) -> Any:
    """A map or list given as JSON text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    return value
