"""Connector options given by users: maps, checked against a struct that describes each."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from sbon_node.base.validation_messages import in_plain_words
from sbon_protocol.errors import SbonError, did_you_mean

S = TypeVar("S", bound=msgspec.Struct)


def read_options(kind: type[S], options: Mapping[str, Any], connector: str) -> S:
    """Read options into the struct ``kind``.

    Texts are converted to the option's type (``"5"`` to a number, JSON to a map), since command lines pass only texts.

    Raises :class:`SbonError` ``unknown-option`` (with the known names) and ``bad-option`` (with the option's name).
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in options:
        if name not in fields:
            hint = did_you_mean(str(name), fields, f"known options: {', '.join(fields)}")
            raise SbonError("unknown-option", f"{connector} has no option {name!r}", where=f"options.{name}", hint=hint)
    for name, field in fields.items():
        if field.required and name not in options:
            raise SbonError("bad-option", f"{connector} needs the option {name}", where=f"options.{name}")
    try:
        return msgspec.convert({name: _unwrapped(value) for name, value in options.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        option, reason = in_plain_words(error, kind)
        raise SbonError("bad-option", reason, where=f"options.{option}".rstrip(".")) from error


def _unwrapped(value: Any) -> Any:
    """Return a map or list that was given as JSON text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value
