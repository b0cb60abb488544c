"""NDJSON: a JSON object per line.

Members without a column are ignored, columns without a member are NULL. Numbers with a point or an exponent stay texts until they
are converted to the type of their column: a double would change the digits of a decimal.

msgspec decodes the lines, since Arrow's own reader (as of version 26) crashes the process on lines like ``null``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from sbon_node.connectors.formats.blocks import MAX_IGNORED, MAX_IGNORED_NAME, Parsed
from sbon_node.connectors.formats.columns import fitting, value_converter
from sbon_node.connectors.interface import BadRow
from sbon_node.model.schema import type_of

_MARK = b"\xef\xbb\xbf"


class NdjsonRows:
    """See :class:`sbon_node.connectors.formats.blocks.TextFormat`."""

    def __init__(self, schema: pa.Schema, *, timestamp_format: str) -> None:
        self._schema = schema
        self._converters = [value_converter(column.type, timestamp_format) for column in schema]
        self._decoder = msgspec.json.Decoder(dict[str, Any], float_hook=msgspec.Raw)
        self._names = frozenset(schema.names)
        self._ignored: dict[str, None] = {}

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(self._ignored)

    def begin(self, head: bytes) -> int:
        return len(_MARK) if head.startswith(_MARK) else 0

    def split(self, text: bytes) -> int:
        return text.rfind(b"\n") + 1

    def parse(self, text: bytes, line: int) -> Parsed:
        lines = [(line + i, record) for i, record in enumerate(text.split(b"\n")) if record.strip()]
        bad: dict[int, str] = {}
        objects: list[dict[str, Any]] = []
        decode = self._decoder.decode
        for i, (_, record) in enumerate(lines):
            try:
                objects.append(decode(record))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                bad[i] = f"no JSON object: {error}"
        self._ignore(objects)
        good = np.array([i for i in range(len(lines)) if i not in bad], dtype=np.int64)
        arrays: list[Any] = []
        for field, convert in zip(self._schema, self._converters, strict=True):
            values = [entry.get(field.name) for entry in objects]
            array, misfits = fitting(values, convert)
            if misfits:
                for i in misfits:
                    bad[int(good[i])] = f"{field.name} is no {type_of(field.type)}: {_shown(values[i])}"
                rest = np.delete(np.arange(len(good)), misfits)
                good, objects = good[rest], [objects[i] for i in rest]
                arrays = [earlier.take(pa.array(rest)) for earlier in arrays]
            arrays.append(array)
        letters = tuple(BadRow(lines[i][0], _text(lines[i][1]), bad[i]) for i in sorted(bad))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Parsed(rows, letters, lambda i: (lines[int(good[i])][0], _text(lines[int(good[i])][1])))

    def _ignore(self, objects: list[dict[str, Any]]) -> None:
        names, ignored = self._names, self._ignored
        for entry in objects:
            if len(ignored) == MAX_IGNORED:
                return
            if not names.issuperset(entry):
                unknown = [name[:MAX_IGNORED_NAME] for name in entry if name not in names]
                ignored |= dict.fromkeys(unknown[: MAX_IGNORED - len(ignored)])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return repr(text[:80])


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")
