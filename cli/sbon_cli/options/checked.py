"""Values checked by the node's rules before they are sent, so that a refusal can name the flag or the position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def checked(fields: Mapping[str, Any], kind: type[T], node_kind: type[msgspec.Struct]) -> T:
    """Return the fields as a type of the API; raise ``msgspec.ValidationError`` where the node's type does not allow them."""
    msgspec.convert(fields, node_kind, from_attributes=True)
    return msgspec.convert(fields, kind, from_attributes=True)
