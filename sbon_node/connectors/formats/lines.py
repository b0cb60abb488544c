"""Plain lines: each is a row, whole in a column ``line`` or split by a pattern.

Patterns are RE2's (through Arrow), which takes time proportional to the text: no pattern can block the node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.blocks import Parsed
from sbon_node.connectors.formats.columns import fitting, supports_text, text_converter
from sbon_node.connectors.interface import BadRow
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

LINE = "line"


class LineRows:
    """Line format; see :class:`sbon_node.connectors.formats.blocks.TextFormat`.

    Columns are the pattern's named groups, and ``line``.
    """

    def __init__(self, schema: pa.Schema, *, pattern: str, timestamp_format: str) -> None:
        self._schema, self._pattern = schema, pattern
        groups = _groups(pattern)
        for column in schema:
            if column.name not in (*groups, LINE):
                hint = f"a column is {LINE}, or a group of the pattern: (?P<{column.name}>...)"
                message = f"a line has no {column.name}"
                raise SbonError("missing-columns", message, where="options.pattern", hint=hint)
            if not supports_text(column.type):
                raise SbonError("bad-option", f"a line cannot hold a column of type {type_of(column.type)}", where=column.name)
        self._converters = [text_converter(column.type, timestamp_format) for column in schema]
        self._groups = groups

    @property
    def ignored(self) -> tuple[str, ...]:
        return ()

    def begin(self, head: bytes) -> int:
        return 0

    def split(self, text: bytes) -> int:
        return text.rfind(b"\n") + 1

    def parse(self, text: bytes, line: int) -> Parsed:
        lines = [(line + i, record.rstrip(b"\r")) for i, record in enumerate(text.split(b"\n")) if record.strip()]
        texts, misfits = fitting(pa.array([record for _, record in lines], pa.binary()), lambda raw: raw.cast(pa.string()))
        bad = dict.fromkeys(misfits, "not UTF-8")
        good = np.delete(np.arange(len(lines)), misfits)
        groups: Any = None
        if self._groups:
            groups = pc.extract_regex(texts, self._pattern)
            matching = groups.is_valid().to_numpy(zero_copy_only=False)
            bad |= {int(i): "does not match the pattern" for i in good[~matching]}
            good, texts, groups = good[matching], texts.filter(pa.array(matching)), groups.filter(pa.array(matching))
        arrays: list[Any] = []
        for field, convert in zip(self._schema, self._converters, strict=True):
            column = texts if groups is None or field.name not in self._groups else pc.struct_field(groups, field.name)
            array, misfits = fitting(column.cast(pa.binary()), convert)
            if misfits:
                for i in misfits:
                    bad[int(good[i])] = f"{field.name} is no {type_of(field.type)}: {column[i].as_py()[:80]!r}"
                rest = np.delete(np.arange(len(good)), misfits)
                good, texts = good[rest], texts.take(pa.array(rest))
                groups = None if groups is None else groups.take(pa.array(rest))
                arrays = [earlier.take(pa.array(rest)) for earlier in arrays]
            arrays.append(array)
        letters = tuple(BadRow(lines[i][0], _text(lines[i][1]), bad[i]) for i in sorted(bad))
        rows = _batch(arrays, self._schema, len(good))
        return Parsed(rows, letters, lambda i: (lines[int(good[i])][0], _text(lines[int(good[i])][1])))


def _batch(arrays: list[Any], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch; it may have no columns."""
    struct = pa.StructArray.from_arrays(arrays, fields=list(schema)) if arrays else pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(struct)


def _groups(pattern: str) -> tuple[str, ...]:
    """Return the names of the pattern's groups; raise ``bad-option``."""
    if not pattern:
        return ()
    try:
        groups = pc.extract_regex(pa.array([""]), pattern)
    except pa.ArrowException as error:
        hint = "as in (?P<host>\\S+) (?P<status>\\d+): every group has a name"
        raise SbonError("bad-option", f"no pattern: {error}", where="options.pattern", hint=hint) from error
    return tuple(field.name for field in groups.type)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
