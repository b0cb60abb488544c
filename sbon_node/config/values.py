"""Allowed values of a setting's type, in words; parsing of a value from text."""

from typing import Any

import msgspec
from msgspec import inspect


def from_text(text: str, annotation: Any) -> Any:
    """The value an environment variable or flag means: numbers and truth by themselves, lists split at commas, maps as JSON.

    Raises ``msgspec.ValidationError``; ranges are for the caller to check.
    """
    kind = _bare(inspect.type_info(annotation))
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        numbers = isinstance(_bare(kind.item_type), inspect.IntType)
        return [msgspec.convert(part, int, strict=False) for part in parts] if numbers else parts
    if isinstance(kind, inspect.DictType):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise msgspec.ValidationError(str(error)) from error
    if isinstance(kind, inspect.BoolType):
        return msgspec.convert(text.strip().lower(), bool, strict=False)
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return msgspec.convert(text.strip(), int if isinstance(kind, inspect.IntType) else float, strict=False)
    return text


def allowed(annotation: Any) -> str:
    """``a whole number from 0 to 65535``, ``one of auto, json``, ``true or false`` ..."""
    return _words(inspect.type_info(annotation))


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _words(kind: inspect.Type) -> str:
    kind = _bare(kind)
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(str(value) for value in kind.values)
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType):
        return "a whole number" + _range(kind)
    if isinstance(kind, inspect.FloatType):
        return "a number" + _range(kind)
    if isinstance(kind, inspect.StrType):
        return "text" + _text_limits(kind)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        most = f" (at most {kind.max_length})" if kind.max_length is not None else ""
        items = _words(kind.item_type).replace("text", "texts", 1).replace("a whole number", "whole numbers", 1)
        return f"a list of {items}{most}"
    if isinstance(kind, inspect.DictType):
        return "a table"
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_words(each) for each in kind.types)
    if isinstance(kind, inspect.NoneType):
        return "nothing"
    return type(kind).__name__.removesuffix("Type").lower()


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    low = f"at least {_plain(kind.ge)}" if kind.ge is not None else f"above {_plain(kind.gt)}" if kind.gt is not None else ""
    high = f"at most {_plain(kind.le)}" if kind.le is not None else f"below {_plain(kind.lt)}" if kind.lt is not None else ""
    if kind.ge is not None and kind.le is not None:
        return f" from {_plain(kind.ge)} to {_plain(kind.le)}"
    return " " + " and ".join(limit for limit in (low, high) if limit) if low or high else ""


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else f"{value:g}"


def _text_limits(kind: inspect.StrType) -> str:
    limits = []
    if kind.min_length:
        limits.append(f"at least {kind.min_length} characters")
    if kind.max_length is not None:
        limits.append(f"at most {kind.max_length} characters")
    if kind.pattern:
        limits.append(f"of the form `{kind.pattern}`")
    return f" ({', '.join(limits)})" if limits else ""
