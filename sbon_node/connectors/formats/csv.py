"""CSV (RFC 4180): Arrow parses whole blocks; blocks with bad rows are parsed record by record.

A quote is special only at the beginning of a field, as in Arrow; elsewhere it is an ordinary character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from sbon_node.connectors.formats.blocks import MAX_IGNORED, MAX_IGNORED_NAME, Parsed
from sbon_node.connectors.formats.columns import MISFIT, fitting_rows, supports_text, text_converter
from sbon_node.connectors.interface import BadRow
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

NO_HEADER = "set header=false (for sbon stream push: --no-header; in a post: text/csv; header=absent)"
"""How to say that the first line is a row."""
_MARK = b"\xef\xbb\xbf"
_LINE_END = rb"(?:\r\n|\n|\r(?=[^\n]))"


class CsvRows:
    """See :class:`~sbon_node.connectors.formats.blocks.TextFormat`. Without a header, columns are in the order of the schema."""

    def __init__(self, schema: pa.Schema, *, header: bool, delimiter: str, null: str, timestamp_format: str) -> None:
        self._schema, self._header, self._null = schema, header, null
        self._parse = {"delimiter": delimiter, "newlines_in_values": True}
        d = re.escape(delimiter.encode())
        quoted, plain = rb'"(?:[^"]|"")*+"[^%s\r\n]*+' % d, rb'[^"%s\r\n][^%s\r\n]*+' % (d, d)
        field = rb"(?:%s|%s)?+" % (quoted, plain)
        self._delimiter = delimiter.encode()
        self._next_field = re.compile(field + d)
        self._record = re.compile(rb"%s(?:%s%s)*+%s" % (field, d, field, _LINE_END))
        for column in schema:
            if not supports_text(column.type):
                raise SbonError("bad-option", f"CSV cannot hold a column of type {type_of(column.type)}", where=column.name)
        self._converters = [text_converter(column.type, timestamp_format) for column in schema]
        self._set_columns(schema.names)

    @property
    def ignored(self) -> tuple[str, ...]:
        return self._ignored

    def begin(self, head: bytes) -> int:
        mark = len(_MARK) if head.startswith(_MARK) else 0
        if not self._header:
            return mark
        text = head[mark:] if head.endswith(b"\n") else head[mark:] + b"\n"
        match = self._record.match(text)
        if not text.strip():
            hint = "write rows to it first; connector tail waits for a file's first rows"
            raise SbonError("bad-header", "it is empty: not even a line of column names", where="options.path", hint=hint)
        if match is None or not match[0].strip():
            raise SbonError("bad-header", "there is no line of column names", where="options.path", hint=NO_HEADER)
        # Names stay as they are written: with a type that Arrow infers, true becomes True, and 1.50 becomes 1.5.
        types = {f"f{i}": pa.binary() for i in range(match[0].count(self._delimiter) + 1)}
        table = arrow_csv.read_csv(
            pa.py_buffer(match[0]),
            read_options=arrow_csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            parse_options=arrow_csv.ParseOptions(**self._parse),
            convert_options=arrow_csv.ConvertOptions(column_types=types),
        )
        self._set_columns([column[0].as_py().decode(errors="replace").strip() for column in table])
        return min(mark + match.end(), len(head))

    def split(self, text: bytes) -> int:
        if b'"' not in text and text.count(b"\r") == text.count(b"\r\n"):
            return text.rfind(b"\n") + 1
        end = 0
        while (match := self._record.match(text, end)) is not None:
            end = match.end()
        return end

    def first(self, text: bytes) -> int:
        """Return the bytes of the first record, with a byte order mark; an incomplete record counts in full."""
        mark = len(_MARK) if text.startswith(_MARK) else 0
        match = self._record.match(text, mark)
        return match.end() if match is not None else len(text)

    def parse(self, text: bytes, line: int) -> Parsed:
        table = self._table(text)
        if table is not None:
            try:
                arrays = [convert(_flat(column)) for convert, column in zip(self._converters, table, strict=True)]
            except MISFIT:
                pass
            else:
                return self._parsed(arrays, (), _Records(self, text, line), None)
        return self._parse_slowly(text, line)

    def records(self, text: bytes, line: int) -> list[tuple[int, bytes]]:
        """Return line number and text of each record; empty lines are skipped."""
        records = [match[0] for match in self._record.finditer(text)]
        lines = accumulate((record.count(b"\n") for record in records), initial=line)
        return [(number, record) for number, record in zip(lines, records, strict=False) if record.strip(b"\r\n")]

    def _set_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in self._schema.names if name not in names]
        if missing:
            hint = f"its columns: {', '.join(names)[:500]}"
            if len(missing) == len(self._schema):
                hint += f"; if they are a row: {NO_HEADER}"
            raise SbonError("missing-columns", f"there is no column {', '.join(missing)}", where="options.path", hint=hint)
        twice = [name for name in self._schema.names if names.count(name) > 1]
        if twice:
            raise SbonError("bad-header", f"there are several columns {twice[0]}", where="options.path")
        others = [name[:MAX_IGNORED_NAME] for name in names if name not in self._schema.names]
        self._ignored = tuple(dict.fromkeys(others))[:MAX_IGNORED]
        self._names = [f"{i}" for i in range(len(names))]
        self._wanted = [str(names.index(name)) for name in self._schema.names]

    def _table(self, text: bytes) -> pa.Table | None:
        """Return the wanted columns as bytes; ``None`` if a record has another number of columns."""
        if not text.strip(b"\r\n"):
            return pa.table({name: pa.array([], pa.binary()) for name in self._wanted})
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(text),
                read_options=arrow_csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(text) + 1),
                parse_options=arrow_csv.ParseOptions(**self._parse),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: pa.binary() for name in self._wanted},
                    include_columns=self._wanted,
                    null_values=[self._null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError):  # the latter from Arrow's message, which quotes the record
            return None
        return table.combine_chunks()

    def _width(self, record: bytes) -> int:
        """Return the number of columns of a record."""
        if b'"' not in record:
            return record.count(self._delimiter) + 1
        width, end = 1, 0
        while (match := self._next_field.match(record, end)) is not None:
            width, end = width + 1, match.end()
        return width

    def _parse_slowly(self, text: bytes, line: int) -> Parsed:
        records = self.records(text, line)
        widths = [self._width(record) for _, record in records]
        expected = len(self._names)
        bad = {i: f"{width} columns, not {expected}" for i, width in enumerate(widths) if width != expected}
        table = self._table(b"".join(record for i, (_, record) in enumerate(records) if i not in bad))
        if table is None or table.num_rows != len(records) - len(bad):
            table = self._one_by_one(records, bad)
        good = np.array([i for i in range(len(records)) if i not in bad], dtype=np.int64)
        columns = [_flat(column) for column in table]
        arrays, fit, misfits = fitting_rows(self._schema, self._converters, columns, len(good), _shown)
        bad |= {int(good[i]): reason for i, reason in misfits.items()}
        good = good[fit]
        letters = tuple(BadRow(records[i][0], _text(records[i][1]), bad[i]) for i in sorted(bad))
        return self._parsed(arrays, letters, _Records(self, text, line), good)

    def _one_by_one(self, records: list[tuple[int, bytes]], bad: dict[int, str]) -> pa.Table:
        tables = [self._table(b"")]
        for i, (_, record) in enumerate(records):
            if i in bad:
                continue
            table = self._table(record)
            if table is not None and table.num_rows == 1:
                tables.append(table)
            else:
                bad[i] = "not CSV"
        return pa.concat_tables(tables).combine_chunks()

    def _parsed(self, arrays: list[Any], bad: tuple[BadRow, ...], records: _Records, good: Any) -> Parsed:
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Parsed(rows, bad, lambda i: records[i if good is None else int(good[i])])


class _Records:
    """Origins of a block's rows, looked up only on request."""

    def __init__(self, rows: CsvRows, text: bytes, line: int) -> None:
        self._rows, self._text, self._line = rows, text, line
        self._records: list[tuple[int, bytes]] | None = None

    def __getitem__(self, index: int) -> tuple[int, str]:
        if self._records is None:
            self._records = self._rows.records(self._text, self._line)
        line, record = self._records[index]
        return line, _text(record)


def _flat(column: Any) -> Any:
    """Return a chunked column as a single array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _text(record: bytes) -> str:
    return record.decode("utf-8", "replace").rstrip("\r\n")


def _shown(value: pa.Scalar) -> str:
    return repr((value.as_py() or b"")[:80].decode("utf-8", "replace"))
