"""Evaluates the fragments of operators for real, over what their batches bring (:mod:`sbon_node.simulation.relations`).

It knows the everyday part of Spark's expressions, as DuckDB has them; anything else is refused by name. It stands in for Spark
where virtual time needs an engine, and is no oracle for Spark's own semantics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_node.engine.interface import OperatorSpec, Schema
from sbon_node.errors import SbonError
from sbon_node.query.schema import to_arrow
from sbon_node.simulation.duck import parse, run, written
from sbon_node.simulation.relations import Kept, LateRowsError, relation_of
from sbon_node.streams.frame import Frame
from sbon_node.streams.payload import pack, unpack


class Evaluation:
    """One operator's fragment with all the rows it keeps, from no row on."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec = spec
        self._views = spec.views()
        views = tuple((inputs[0][1].schema, inputs[0][1].event_time) for inputs in self._views)
        self._relation = relation_of(spec.fragment, views)
        self._schema = to_arrow(spec.schema)
        self._kept: Kept = {}

    def arrived(self, frames: Sequence[Sequence[Frame]]) -> list[Any]:
        """The rows of each view, from the frames of each input."""
        found = []
        for inputs in self._views:
            schema = to_arrow(inputs[0][1].schema)
            tables = [decode(frame.payload) for position, _ in inputs for frame in frames[position] if frame.payload]
            found.append(pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)]))
        return found

    def advance(self, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        """The output of a batch that runs with watermark ``now_ms``, the one before it having run with ``before_ms``.

        Raises :class:`SbonError` ``broken-invariant`` where a row is late.
        """
        try:
            return self._relation.advance(self._kept, arrived, before_ms, now_ms).cast(self._schema)
        except LateRowsError as error:
            raise SbonError("broken-invariant", str(error), where=self._spec.id) from error


class StateFiles:
    """What each batch has brought to an operator with state, beside its checkpoint's logs: ``state/b``, before ``commits/b``."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "state"

    def write(self, batch: int, arrived: Sequence[Any]) -> None:
        self._folder.mkdir(exist_ok=True)
        scratch = self._folder / f".{batch}.tmp"
        scratch.write_bytes(msgspec.msgpack.encode([encode(table) for table in arrived]))
        scratch.rename(self._folder / str(batch))

    def read(self, upto: int, empty: Sequence[Any]) -> list[Any]:
        """All rows of each view up to that batch, which is included."""
        tables = [[table] for table in empty]
        for batch in range(upto + 1):
            payloads = msgspec.msgpack.decode((self._folder / str(batch)).read_bytes(), type=list[bytes])
            for found, payload in zip(tables, payloads, strict=True):
                found += [decode(payload)] if payload else []
        return [pa.concat_tables(found) for found in tables]


def rows_of(text: str, rows: Any) -> Any:
    """What a fragment without state makes of these rows, a table or a record batch."""
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return run(written(parse(text)), {"in0": table})[1]


def output_schema(text: str, inputs: tuple[Schema, ...]) -> Schema:
    """What the fragment's output would be like; runs it over no rows."""
    return relation_of(text, tuple((schema, "") for schema in inputs)).schema


def encode(table: Any) -> bytes:
    """A frame's payload; empty where there are no rows."""
    return pack(table.combine_chunks().to_batches()[0]) if table.num_rows else b""


def decode(payload: bytes) -> Any:
    """The rows of a frame as a table; ``payload`` is not empty."""
    return pa.Table.from_batches([unpack(payload)])
