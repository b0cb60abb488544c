"""Evaluate operators' fragments for real over their batches (:mod:`sbon_node.simulation.engine.relations`).

It supports the common part of Spark's expressions, as DuckDB has them, and rejects any other by name. It replaces Spark where
virtual time needs an engine; it is no oracle for Spark's semantics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_node.engine.promise import EARLIEST_MS, FAR_MS
from sbon_node.errors import SbonError
from sbon_node.model.columns import Schema
from sbon_node.model.frames import Frame
from sbon_node.model.operators import OperatorSpec
from sbon_node.model.schema import to_arrow
from sbon_node.simulation.engine.duck import parse, run, written
from sbon_node.simulation.engine.relations import Kept, LateRowsError, relation_of
from sbon_node.streams.payload import pack, unpack


class Evaluation:
    """One operator's fragment with all the rows it keeps; it starts with none."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec = spec
        self._views = spec.views()
        views = tuple((inputs[0][1].schema, inputs[0][1].event_time) for inputs in self._views)
        self._relation = relation_of(spec.fragment, views)
        self._schema = to_arrow(spec.schema)
        self._kept: Kept = {}

    def arrived(self, frames: Sequence[Sequence[Frame]]) -> list[Any]:
        """Return the rows of each view, from the frames of each input."""
        tables_of_inputs = []
        for inputs in self._views:
            schema = to_arrow(inputs[0][1].schema)
            tables = [decode(frame.payload) for position, _ in inputs for frame in frames[position] if frame.payload]
            tables_of_inputs.append(
                pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)])
            )
        return tables_of_inputs

    def advance(self, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        """Return the output of a batch with watermark ``now_ms``; the previous batch ran with ``before_ms``.

        Raises :class:`SbonError` ``broken-invariant`` if a row is late.
        """
        if self._spec.groups_per_batch:
            return self._relation.advance({}, arrived, EARLIEST_MS, FAR_MS).cast(self._schema)
        try:
            return self._relation.advance(self._kept, arrived, before_ms, now_ms).cast(self._schema)
        except LateRowsError as error:
            raise SbonError("broken-invariant", str(error), where=self._spec.id) from error


class StateFiles:
    """The input of each batch of an operator with state, in the checkpoint: ``state/b``, before ``commits/b``."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "state"

    def write(self, batch: int, arrived: Sequence[Any]) -> None:
        self._folder.mkdir(exist_ok=True)
        scratch = self._folder / f".{batch}.tmp"
        scratch.write_bytes(msgspec.msgpack.encode([encode(table) for table in arrived]))
        scratch.rename(self._folder / str(batch))

    def read(self, upto: int, empty: Sequence[Any]) -> list[Any]:
        """Return all rows of each view up to and including that batch."""
        tables = [[table] for table in empty]
        for batch in range(upto + 1):
            payloads = msgspec.msgpack.decode((self._folder / str(batch)).read_bytes(), type=list[bytes])
            for frames, payload in zip(tables, payloads, strict=True):
                frames += [decode(payload)] if payload else []
        return [pa.concat_tables(frames) for frames in tables]


def rows_of(text: str, rows: Any) -> Any:
    """Return the output of a fragment without state for these rows, a table or a record batch."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return run(written(parse(text)), {"in0": table})[1]


def output_schema(text: str, inputs: tuple[Schema, ...]) -> Schema:
    """Return the schema of the fragment's output; runs it over no rows."""
    return relation_of(text, tuple((schema, "") for schema in inputs)).schema


def encode(table: Any) -> bytes:
    """Encode a frame's payload; empty for no rows."""
    return pack(table.combine_chunks().to_batches()[0]) if table.num_rows else b""


def decode(payload: bytes) -> Any:
    """Decode the rows of a frame into a table; ``payload`` is not empty."""
    return pa.Table.from_batches([unpack(payload)])
