"""JSON of the API: values written, and bodies read. Row values: ``timestamp`` as ISO 8601 with ``Z``, ``date`` as ``2013-01-31``,
both with a sign if the year has more than four digits, ``decimal`` as a string (JSON numbers would lose digits), ``binary`` as
base64, ``NaN``, ``Infinity`` and ``-Infinity`` as those strings (JSON has no such numbers), NULL as null. A ``bigint`` is a plain
number: beyond 2^53, readers in JavaScript need a parser that keeps it whole.
"""

import re
from typing import Any, TypeVar

import msgspec

from sbon_node.base.validation_messages import in_plain_words
from sbon_node.connectors.formats.json_values import speakable
from sbon_protocol.api.delivery import Rows
from sbon_protocol.errors import SbonError, did_you_mean

T = TypeVar("T")

MAX_DEPTH = 32
"""Lists and objects of a request's body within each other."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string")


def encode(value: object) -> bytes:
    """``value`` as JSON; the rows of a :class:`Rows` as the module says."""
    if isinstance(value, Rows):
        value = msgspec.structs.replace(value, rows=tuple(tuple(speakable(v) for v in row) for row in value.rows))
    return _encoder.encode(value)


def decode(body: bytes, kind: type[T]) -> T:
    """A request's body; raises :class:`SbonError` ``bad-request`` naming the field."""
    try:
        value = msgspec.json.decode(body, type=kind)
        _check_depth(body)
        _check_fields(body, kind)
        return value
    except RecursionError as error:
        raise _too_deep() from error
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, kind)
        raise SbonError("bad-request", message, where=field, hint="see docs/api.md") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SbonError("bad-request", f"the body is not JSON: {error}", hint="see docs/api.md") from error


def _check_depth(body: bytes) -> None:
    """Decode a JSON ``body``. A deeper nesting could be decoded, but not always be encoded again by its receiver."""
    brackets = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise _too_deep()


def _too_deep() -> SbonError:
    return SbonError("bad-request", f"the body nests more than {MAX_DEPTH} lists and objects", hint="see docs/api.md")


def _check_fields(body: bytes, kind: Any) -> None:
    """A field that is not known is a slip of the pen, which would otherwise be passed over in silence."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        for name in msgspec.json.decode(body, type=dict[str, msgspec.Raw]):
            if name not in known:
                hint = did_you_mean(name, known, f"known: {', '.join(known)}")
                raise SbonError("bad-request", f"there is no field {name[:100]!r}", where=name[:100], hint=hint)
