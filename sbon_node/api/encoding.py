"""How the API writes values as JSON, and reads bodies.

Row values: ``timestamp`` as ISO 8601 with ``Z`` (``timestamp_ntz`` without), ``date`` as ``2013-01-31``, ``decimal`` as a string
(JSON numbers would lose digits), ``binary`` as base64, ``NaN``, ``Infinity`` and ``-Infinity`` as those strings (JSON has no
such numbers), intervals as ISO 8601 durations, arrays as lists, structs and maps as objects, NULL as null. A ``bigint`` is a
plain number: beyond 2^53, readers in JavaScript need a parser that keeps it whole.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from sbon_node.connectors.delivered import Rows
from sbon_node.errors import SbonError
from sbon_node.plain_words import in_plain_words

T = TypeVar("T")

_PLAIN = (str, int, bool, type(None))
_encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string")


def encode(value: object) -> bytes:
    """``value`` as JSON; the rows of a :class:`Rows` as the module says."""
    if isinstance(value, Rows):
        value = msgspec.structs.replace(value, rows=tuple(tuple(_speakable(v) for v in row) for row in value.rows))
    return _encoder.encode(value)


def decode(body: bytes, kind: type[T]) -> T:
    """A request's body; raises :class:`SbonError` ``bad-request`` naming the field."""
    try:
        value = msgspec.json.decode(body, type=kind)
        _check_fields(body, kind)
        return value
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, kind)
        raise SbonError("bad-request", message, where=field, hint="see docs/api.md") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SbonError("bad-request", f"the body is not JSON: {error}", hint="see docs/api.md") from error


def _check_fields(body: bytes, kind: Any) -> None:
    """A field that is not known is a slip of the pen, which would otherwise be passed over in silence."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        for name in msgspec.json.decode(body, type=dict[str, msgspec.Raw]):
            if name not in known:
                raise SbonError(
                    "bad-request", f"there is no field {name[:100]!r}", where=name[:100], hint=f"known: {', '.join(known)}"
                )


def _speakable(value: Any) -> Any:
    """Floats that JSON cannot say become strings, at any depth."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple):
        return [_speakable(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _speakable(v) for k, v in value.items()}
    return value
