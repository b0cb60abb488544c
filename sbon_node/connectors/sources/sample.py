"""Estimates from a source's beginning: bytes per row in a frame, rows per second."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import structlog

from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import Chunk, Source
from sbon_node.errors import SbonError
from sbon_node.model.catalogue import MAX_ROWS_S, SourceDeclaration
from sbon_node.model.frames import MAX_ROW_BYTES

log = structlog.get_logger()

MAX_ROWS = 4096
MAX_CHUNKS = 64


async def with_sample(declaration: SourceDeclaration, source: Source) -> SourceDeclaration:
    """Complete the declaration from the first chunks of a finite source.

    It stays as it is if nothing can be read, or if the source is live. Read errors appear when the source runs.
    """
    if not source.finite or (declaration.row_bytes is not None and declaration.rows_s is not None):
        return declaration
    try:
        chunks = await _first_chunks(source)
    except SbonError as error:
        log.info("source-not-sampled", source=declaration.id, reason=str(error))
        return declaration
    row_bytes, rows_s = declaration.row_bytes, declaration.rows_s
    if row_bytes is None:
        row_bytes = _row_bytes(chunks)
    if rows_s is None:
        rows_s = _pace(chunks)
    sampled = (row_bytes, rows_s) != (declaration.row_bytes, declaration.rows_s)
    unpaced = rows_s is None and _is_large(chunks)
    return msgspec.structs.replace(declaration, row_bytes=row_bytes, rows_s=rows_s, sampled=sampled, unpaced=unpaced)


async def _first_chunks(source: Source) -> list[Chunk]:
    chunks: list[Chunk] = []
    try:
        await source.open(None)
        while len(chunks) < MAX_CHUNKS and sum(chunk.rows.num_rows for chunk in chunks) < MAX_ROWS:
            chunk = await source.read()
            if chunk is None:
                break
            if chunk.rows.num_rows:
                chunks.append(chunk)
    finally:
        await source.close()
    return chunks


def _is_large(chunks: list[Chunk]) -> bool:
    """Return whether the source has at least as many rows as a sample takes, none of them with a time at which it is due."""
    return sum(chunk.rows.num_rows for chunk in chunks) >= MAX_ROWS and all(chunk.due_s is None for chunk in chunks)


def _row_bytes(chunks: list[Chunk]) -> float | None:
    """Return bytes per row in frames as the runner cuts them. A paced source makes a frame of each chunk, however small."""
    paced = any(chunk.due_s is not None for chunk in chunks)
    batches = [chunk.rows for chunk in chunks]
    together = batches if paced or not batches else [pa.concat_batches(batches)]
    cuts = [frame for rows in together for frame in frames.cut(rows) if frame.payload]
    if not cuts:
        return None
    return min(max(sum(len(frame.payload) for frame in cuts) / sum(frame.rows for frame in cuts), 1.0), float(MAX_ROW_BYTES))


def _pace(chunks: list[Chunk]) -> float | None:
    """Return rows per second between the first and last chunk's time; None for unpaced sources."""
    if len(chunks) < 2 or chunks[0].due_s is None or chunks[-1].due_s is None:
        return None
    seconds = chunks[-1].due_s - chunks[0].due_s
    rows = sum(chunk.rows.num_rows for chunk in chunks[1:])
    return min(max(rows / seconds, 1e-6), MAX_ROWS_S) if seconds > 0 else None
