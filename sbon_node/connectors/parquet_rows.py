"""Parquet: a block is some rows of one row group; the position is the row group and the row in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbon_node.connectors.blocks import Block
from sbon_node.connectors.columns import fitting
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.text_rows import open_file
from sbon_node.errors import SbonError
from sbon_node.query.schema import type_of

MAX_BLOCK_ROWS = 8192
FOOTER_BYTES = 65_536


class ParquetPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The next row is ``row`` of ``group``; bad rows up to row number ``told`` of the file are done with."""

    group: int
    row: int
    told: int = 0
    file: bytes = b""


class ParquetRows:
    """See :class:`sbon_node.connectors.blocks.BlockReader`."""

    def __init__(self, path: Path, schema: pa.Schema, settings: ConnectorSettings) -> None:
        self._path, self._schema, self._settings = path, schema, settings
        self._file: BinaryIO | None = None
        self._reader: Any = None
        self._batches: Iterator[Any] | None = None
        self._next = ParquetPosition(group=0, row=0)

    def check(self) -> None:
        try:
            self._load()
            self._check_columns()
        finally:
            self.close()

    def open(self, position: bytes | None) -> None:
        self._load()
        identity = self._identity()
        self._next = ParquetPosition(group=0, row=0, file=identity)
        if position is not None:
            self._next = msgspec.msgpack.decode(position, type=ParquetPosition)
            if self._next.file != identity:
                raise SbonError(
                    "source-changed",
                    "the file is not the one that was read before",
                    where=str(self._path),
                    hint="attach the new file as a source of its own",
                )
        self._check_columns()

    def read(self) -> Block | None:
        metadata = self._reader.metadata
        while self._next.group < metadata.num_row_groups:
            batch = self._batch()
            if batch is not None:
                return self._block(batch)
            self._batches = None
            self._next = msgspec.structs.replace(self._next, group=self._next.group + 1, row=0)
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._reader = self._batches = None

    def _load(self) -> None:
        self.close()
        self._file = open_file(self._path)
        try:
            self._reader = pq.ParquetFile(self._file, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise SbonError("file-unreadable", f"not a Parquet file: {error}", where="options.path") from error

    def _identity(self) -> bytes:
        """Size and footer, which names the place of every column chunk."""
        assert self._file is not None
        size = self._file.seek(0, 2)
        self._file.seek(max(0, size - FOOTER_BYTES))
        return hashlib.blake2b(b"%d:" % size + self._file.read(), digest_size=8).digest()

    def _check_columns(self) -> None:
        found = self._reader.schema_arrow
        missing = [name for name in self._schema.names if name not in found.names]
        if missing:
            raise SbonError(
                "missing-columns",
                f"the file has no column {', '.join(missing)}",
                where="options.path",
                hint=f"its columns: {', '.join(found.names)[:500]}",
            )
        for field in self._schema:
            self._check_type(field, found.field(field.name).type)

    def _check_type(self, field: pa.Field, found: pa.DataType) -> None:
        try:
            pa.nulls(0, found).cast(field.type)
        except pa.ArrowException as error:
            raise SbonError(
                "type-mismatch",
                f"{field.name} is {type_of(found)} in the file and {type_of(field.type)} in the stream",
                where="options.path",
            ) from error

    def _batch(self) -> Any:
        """The next batch of this group from the row on, or ``None`` at its end."""
        try:
            if self._batches is None:
                group = self._reader.metadata.row_group(self._next.group)
                row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
                self._batches = self._reader.iter_batches(
                    batch_size=max(1, min(MAX_BLOCK_ROWS, self._settings.block_bytes // row_bytes)),
                    row_groups=[self._next.group],
                    columns=self._schema.names,
                    use_threads=False,
                )
                skip = self._next.row
                for batch in self._batches:
                    if batch.num_rows > skip:
                        return batch.slice(skip)
                    skip -= batch.num_rows
                return None
            return next(self._batches, None)
        except (pa.ArrowException, OSError) as error:
            raise SbonError("file-unreadable", f"row group {self._next.group}: {error}", where=str(self._path)) from error

    def _block(self, batch: Any) -> Block:
        start = self._next
        first = sum(self._reader.metadata.row_group(g).num_rows for g in range(start.group)) + start.row + 1
        bad: dict[int, str] = {}
        kept = np.arange(batch.num_rows, dtype=np.int64)
        arrays: list[Any] = []
        for field in self._schema:
            column = batch.column(batch.schema.get_field_index(field.name)).take(pa.array(kept))
            array, misfits = fitting(column, partial(_cast, kind=field.type))
            if misfits:
                bad |= {int(kept[i]): f"{field.name} is no {type_of(field.type)}: {_text(column[i])[:80]}" for i in misfits}
                rest = np.delete(np.arange(len(kept)), misfits)
                kept, arrays = kept[rest], [earlier.take(pa.array(rest)) for earlier in arrays]
            arrays.append(array)
        following = msgspec.structs.replace(start, row=start.row + batch.num_rows)
        self._next = following
        told = max(start.told, first + batch.num_rows - 1)
        letters = tuple(BadRow(first + i, _shown(batch, i), bad[i]) for i in sorted(bad) if first + i > start.told)

        def position(done: int) -> bytes:
            row = start.row + int(kept[done]) if done < len(kept) else following.row
            return msgspec.msgpack.encode(msgspec.structs.replace(start, row=row, told=told))

        return Block(
            pa.RecordBatch.from_arrays(arrays, schema=self._schema),
            letters,
            lambda i: (first + int(kept[i]), _shown(batch, int(kept[i]))),
            position,
        )


def _cast(values: Any, kind: pa.DataType) -> Any:
    # Nanoseconds are finer than what streams carry: they are cut, not refused.
    finer = pa.types.is_timestamp(values.type) and values.type.unit == "ns"
    return values.cast(kind, safe=not finer)


def _shown(batch: Any, row: int) -> str:
    return ", ".join(f"{name}={_text(batch.column(i)[row])}" for i, name in enumerate(batch.schema.names))


def _text(value: Any) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):  # a time that Python has no word for
        return f"{value.type} {value.cast(pa.int64()).as_py()}"
