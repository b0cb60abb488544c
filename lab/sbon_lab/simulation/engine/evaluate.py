"""Evaluate operators' fragments for real over their batches (:mod:`sbon_lab.simulation.engine.relations`).

It supports the common part of Spark's expressions, as DuckDB has them, and rejects any other by name. It replaces Spark where
virtual time needs an engine; it is no oracle for Spark's semantics.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_lab.simulation.engine.duck import as_schema, parse, run, written
from sbon_lab.simulation.engine.relations import LateRowsError, Relation, RelationState, relation_of, sides_of, stateful
from sbon_node.engine.promise import EARLIEST_MS, FAR_MS
from sbon_node.model.frames import Frame
from sbon_node.model.schema import to_arrow
from sbon_node.streams.payload import pack, unpack
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError

SNAPSHOT_EVERY = 10
"""Batches between two snapshots of the state."""
RETAINED = 10
"""Batches that stay logged before the newest one, as in the session's ``spark.sql.streaming.minBatchesToRetain``."""


class Evaluation:
    """One operator's fragment with the rows that it keeps; it starts with none."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self._views = spec.views()
        views = tuple((inputs[0][1].schema, inputs[0][1].event_time) for inputs in self._views)
        self._relation = relation_of(spec.fragment, views)
        self._schema = to_arrow(spec.schema)
        self._kept: RelationState = {}

    def arrived(self, frames: Sequence[Sequence[Frame]]) -> list[Any]:
        """Return the rows of each view, from the frames of each input."""
        tables_of_inputs = []
        for inputs in self._views:
            schema = to_arrow(inputs[0][1].schema)
            tables = [decode(frame.payload) for position, _ in inputs for frame in frames[position] if frame.payload]
            tables_of_inputs.append(
                pa.concat_tables([schema.empty_table(), *(as_schema(table.select(schema.names), schema) for table in tables)])
            )
        return tables_of_inputs

    def advance(self, arrived: Sequence[Any], before_ms: int, now_ms: int) -> Any:
        """Return the output of a batch with watermark ``now_ms``; the previous batch ran with ``before_ms``.

        Raises :class:`SbonError` ``broken-invariant`` if a row is late.
        """
        if self.spec.groups_per_batch:
            return as_schema(self._relation.advance({}, arrived, EARLIEST_MS, FAR_MS), self._schema)
        try:
            return as_schema(self._relation.advance(self._kept, arrived, before_ms, now_ms), self._schema)
        except LateRowsError as error:
            raise SbonError("broken-invariant", str(error), where=self.spec.id) from error

    def kept(self) -> list[bytes]:
        """Return the payloads of all tables that are kept, for :meth:`keep`."""
        tables = [table for one in stateful(self._relation) for table in self._kept.get(one) or _empty_tables(one)]
        return [encode(table) for table in tables]

    def keep(self, payloads: Sequence[bytes]) -> None:
        """Keep the rows of another evaluation of the same fragment, and no others."""
        given = iter(payloads)
        for relation in stateful(self._relation):
            self._kept[relation] = [
                decode(payload).cast(table.schema) if (payload := next(given)) else table for table in _empty_tables(relation)
            ]


def _empty_tables(relation: Relation) -> list[Any]:
    return [to_arrow(side.schema).empty_table() for side in sides_of(relation)]


class Snapshot(msgspec.Struct, frozen=True):
    """All rows that an operator keeps after a batch with this watermark: a payload for each table."""

    watermark_ms: int
    tables: list[bytes]


class StateFiles:
    """The state of an operator in its checkpoint, in files with Spark's names.

    Batch b leaves version b + 1 before ``commits/b``: its input in ``N.delta``, and now and then all that is kept in
    ``N.snapshot``. Versions older than the newest snapshot that ``RETAINED`` batches may need are deleted.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "state"

    def write(self, batch: int, arrived: Sequence[Any]) -> None:
        """Write the input of a batch."""
        self._folder.mkdir(exist_ok=True)
        self._write(f"{batch + 1}.delta", msgspec.msgpack.encode([encode(table) for table in arrived]))

    def compact(self, batch: int, evaluation: Evaluation, watermark_ms: int) -> None:
        """Write a snapshot after each ``SNAPSHOT_EVERY`` batches, and delete files that no retained batch needs."""
        if (batch + 1) % SNAPSHOT_EVERY:
            return
        self._write(f"{batch + 1}.snapshot", msgspec.msgpack.encode(Snapshot(watermark_ms, evaluation.kept())))
        base = self._newest(batch + 1 - RETAINED)
        for version in [version for version in self._versions("delta") if version <= base]:
            (self._folder / f"{version}.delta").unlink()
        for version in [version for version in self._versions("snapshot") if version < base]:
            (self._folder / f"{version}.snapshot").unlink()

    def restore(self, upto: int, evaluation: Evaluation, watermark_ms: int) -> None:
        """Let a new evaluation keep what it had kept after a batch with this watermark."""
        base, before_ms = self._newest(upto + 1), EARLIEST_MS
        if base:
            snapshot = msgspec.msgpack.decode((self._folder / f"{base}.snapshot").read_bytes(), type=Snapshot)
            evaluation.keep(snapshot.tables)
            before_ms = snapshot.watermark_ms
        tables = [[table] for table in evaluation.arrived([[] for _ in evaluation.spec.inputs])]
        for version in range(base + 1, upto + 2):
            payloads = msgspec.msgpack.decode((self._folder / f"{version}.delta").read_bytes(), type=list[bytes])
            for parts, payload in zip(tables, payloads, strict=True):
                parts += [decode(payload)] if payload else []
        evaluation.advance([pa.concat_tables(parts) for parts in tables], before_ms, watermark_ms)

    def _write(self, name: str, content: bytes) -> None:
        scratch = self._folder / f".{name}.tmp"
        scratch.write_bytes(content)
        scratch.rename(self._folder / name)

    def _versions(self, kind: str) -> list[int]:
        return [int(path.stem) for path in self._folder.glob(f"*.{kind}") if path.stem.isdigit()]

    def _newest(self, version: int) -> int:
        """Return the version of the newest snapshot up to ``version``; 0 if there is none."""
        return max((known for known in self._versions("snapshot") if known <= version), default=0)


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
