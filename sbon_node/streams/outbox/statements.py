"""The outbox's SQL statements: layout of streams, batches, frames and subscriptions in the database."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from sbon_node.model.frames import NO_WATERMARK_MS, Frame, InputOffset
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox.ledger import NO_BATCH, Kind, Stream, Subscription, Tail
from sbon_node.streams.outbox.store import MAX_NUMBER, FrameStore
from sbon_protocol.api.subscribers import is_follower
from sbon_protocol.errors import SbonError

_encode = msgspec.msgpack.encode
_decoder = msgspec.msgpack.Decoder(tuple[InputOffset, ...])


TAIL = "batch, last, upto, watermark_ms, ended, offsets, frames, rows, bytes"
"""The columns of a :class:`~sbon_node.streams.outbox.ledger.Tail`, named as its fields."""
SUBSCRIPTION = ("subscriber", "acknowledged", "failed", "frames", "rows", "bytes", "dropped", "reader_epoch", "saved")
"""The columns of a :class:`~sbon_node.streams.outbox.ledger.Subscription` beside its stream, named as its fields."""


# -- streams ----------------------------------------------------------------------------------------------------------


def create(store: FrameStore, name: str, kind: Kind, finite: bool, epoch: int, lineage: int) -> Stream:
    """Create a stream without frames."""
    with store.transaction() as connection:
        cursor = connection.execute(
            "INSERT INTO streams VALUES (NULL, ?, ?, ?, ?, 0, 0, ?, 0, ?, ?, 0, 0, 0, NULL, 0, ?)",
            (name, kind, finite, epoch, NO_WATERMARK_MS, NO_BATCH, _encode(()), lineage),
        )
    assert cursor.lastrowid is not None
    return Stream(cursor.lastrowid, name, kind, finite, epoch, lineage, Tail())


def delete(store: FrameStore, stream: Stream) -> None:
    with store.transaction() as connection:
        connection.execute("DELETE FROM frames WHERE id BETWEEN ? AND ?", (stream.base, stream.base + MAX_NUMBER))
        connection.execute("DELETE FROM pending WHERE stream = ?", (stream.id,))
        connection.execute("DELETE FROM subscriptions WHERE stream = ?", (stream.id,))
        connection.execute("DELETE FROM streams WHERE id = ?", (stream.id,))


def rename(connection: sqlite3.Connection, stream: Stream) -> None:
    """Store the name and the epoch of a stream that was stored under another name."""
    connection.execute("UPDATE streams SET name = ?, epoch = ? WHERE id = ?", (stream.name, stream.epoch, stream.id))


def become_source(connection: sqlite3.Connection, stream: Stream) -> None:
    """Store the kind of a stream that was kept for another node's source, with the position of its connector."""
    connection.execute(
        "UPDATE streams SET kind = ?, finite = ?, position = ? WHERE id = ?",
        (stream.kind, stream.finite, stream.position, stream.id),
    )


def set_epoch(store: FrameStore, stream: Stream, epoch: int) -> None:
    with store.transaction() as connection:
        connection.execute("UPDATE streams SET epoch = ? WHERE id = ?", (epoch, stream.id))
    stream.epoch = epoch


def load(store: FrameStore) -> dict[str, Stream]:
    """Load all streams as stored; received falls back to acknowledged until subscribers report again."""
    streams: dict[int, Stream] = {}
    with store.reading() as connection:
        columns = f"id, name, kind, finite, epoch, lineage, position, dropped, {TAIL}"
        for id_, name, kind, finite, epoch, lineage, position, dropped, *tail in connection.execute(
            f"SELECT {columns} FROM streams ORDER BY id"
        ):
            stream = Stream(id_, name, kind, bool(finite), epoch, lineage, _tail(store, tail))
            stream.position, stream.dropped_rows = position, dropped
            streams[id_] = stream
        for id_, *tail in connection.execute(f"SELECT stream, {TAIL} FROM pending ORDER BY stream, batch"):
            streams[id_].pending.append(_tail(store, tail))
        for stream in streams.values():
            _load_bounds(connection, stream)
        for id_, *row in connection.execute(f"SELECT stream, {', '.join(SUBSCRIPTION)} FROM subscriptions").fetchall():
            stored = dict(zip(SUBSCRIPTION, row, strict=True))
            if is_follower(stored["subscriber"]):
                continue  # Its connection is over.
            stream, acknowledged = streams[id_], stored["acknowledged"]
            upto = weighed_upto(store, stream, max(acknowledged, stream.trimmed))
            stream.subscriptions[stored["subscriber"]] = Subscription(
                received=acknowledged, received_upto=upto, acknowledged_upto=upto, counted=None, **stored
            )
    return {stream.name: stream for stream in streams.values()}


def _tail(store: FrameStore, row: list[Any]) -> Tail:
    batch, last, upto, watermark_ms, ended, offsets, *totals = row
    try:
        batch, last, upto, watermark_ms, *totals = map(int, (batch, last, upto, watermark_ms, *totals))
        return Tail(batch, last, upto, watermark_ms, bool(ended), _decoder.decode(offsets), *totals)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise SbonError("outbox-corrupt", f"a batch cannot be read: {error}", where=str(store.path)) from error


def _load_bounds(connection: sqlite3.Connection, stream: Stream) -> None:
    within = (stream.base, stream.base + stream.visible.last)
    first = connection.execute(
        "SELECT id, upto, payload FROM frames WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1", (within[0], stream.base + MAX_NUMBER)
    ).fetchone()
    if first is None:
        stream.trimmed, stream.trimmed_upto = stream.visible.last, stream.visible.upto
        return
    stream.trimmed, stream.trimmed_upto = first[0] - stream.base - 1, first[1] - weight(first[2])
    newest = connection.execute("SELECT born_ms FROM frames WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", within).fetchone()
    stream.newest_born_ms = newest[0] if newest else 0


def update_tail(connection: sqlite3.Connection, stream: Stream, tail: Tail, position: bytes | None = None) -> None:
    """Store the visible tail and, of a source, its position, which stays as it is if none is given."""
    connection.execute(
        "UPDATE streams SET batch=?, last=?, upto=?, watermark_ms=?, ended=?, offsets=?, frames=?, rows=?, bytes=?,"
        " position=coalesce(?, position) WHERE id = ?",
        (*_columns(tail), position, stream.id),
    )


def _columns(tail: Tail) -> tuple[int | bytes, ...]:
    return tuple(_encode(tail.offsets) if name == "offsets" else getattr(tail, name) for name in TAIL.split(", "))


# -- batches ----------------------------------------------------------------------------------------------------------


def insert_pending(connection: sqlite3.Connection, stream: Stream, tail: Tail) -> None:
    connection.execute(f"INSERT INTO pending (stream, {TAIL}) VALUES (?,?,?,?,?,?,?,?,?,?)", (stream.id, *_columns(tail)))


def delete_pending(connection: sqlite3.Connection, stream: Stream, batch: int, *, after: int) -> None:
    """Delete the batch and those after it, which are planned anew, with their frames: those after number ``after``."""
    delete_after(connection, stream, after)
    connection.execute("DELETE FROM pending WHERE stream = ? AND batch >= ?", (stream.id, batch))


def forget_pending(connection: sqlite3.Connection, stream: Stream, *, upto: int) -> None:
    """Delete the pending batches up to ``upto``, which are visible: their frames belong to the stream."""
    connection.execute("DELETE FROM pending WHERE stream = ? AND batch <= ?", (stream.id, upto))


# -- frames -----------------------------------------------------------------------------------------------------------


def insert_frames(connection: sqlite3.Connection, stream: Stream, frames: Iterable[Frame], upto: int) -> None:
    for frame in frames:
        upto += weight(frame.payload)
        connection.execute(
            "INSERT INTO frames VALUES (?,?,?,?,?,?,?)",
            (stream.base + frame.number, frame.rows, frame.watermark_ms, frame.ended, frame.born_ms, upto, frame.payload),
        )


def read(store: FrameStore, stream: Stream, after: int, max_bytes: int, upto: int | None = None) -> list[Frame]:
    """Return the frames after number ``after`` up to the last visible one, or to ``upto``: as :meth:`Outbox.read`."""
    last = stream.visible.last if upto is None else upto
    frames: list[Frame] = []
    with store.reading() as connection:
        cursor = connection.execute(
            "SELECT id, rows, watermark_ms, ended, born_ms, payload FROM frames WHERE id > ? AND id <= ? ORDER BY id",
            (stream.base + after, stream.base + last),
        )
        for id_, rows, watermark_ms, ended, born_ms, payload in cursor:
            max_bytes -= weight(payload)
            if frames and max_bytes < 0:
                break
            frames.append(
                Frame(
                    stream=stream.name,
                    number=id_ - stream.base,
                    payload=payload,
                    rows=rows,
                    watermark_ms=watermark_ms,
                    ended=bool(ended),
                    born_ms=born_ms,
                )
            )
        cursor.close()
    return frames


def delete_after(connection: sqlite3.Connection, stream: Stream, last: int) -> None:
    """Delete the frames after number ``last``."""
    connection.execute("DELETE FROM frames WHERE id > ? AND id <= ?", (stream.base + last, stream.base + MAX_NUMBER))


def weighed_upto(store: FrameStore, stream: Stream, number: int) -> int:
    """Return the bytes weighed from frame 1 to ``number``, which is retained or the last deleted frame."""
    if number == stream.visible.last:
        return stream.visible.upto
    if number <= stream.trimmed:
        return stream.trimmed_upto
    with store.reading() as connection:
        row = connection.execute("SELECT upto FROM frames WHERE id = ?", (stream.base + number,)).fetchone()
    if row is None:
        raise SbonError("outbox-corrupt", f"frame {number} of {stream.name} is missing", where=str(store.path))
    return int(row[0])


def rows_after(store: FrameStore, stream: Stream, number: int) -> int:
    """Return the rows in the visible frames after ``number``, all of which are retained."""
    within = (stream.base + number, stream.base + stream.visible.last)
    with store.reading() as connection:
        return int(connection.execute("SELECT coalesce(sum(rows), 0) FROM frames WHERE id > ? AND id <= ?", within).fetchone()[0])


def born_after_ms(store: FrameStore, stream: Stream, number: int) -> int | None:
    """Return ``born_ms`` of the first visible frame with rows after ``number``; None if there is none."""
    within = (stream.base + number, stream.base + stream.visible.last)
    query = "SELECT born_ms FROM frames WHERE id > ? AND id <= ? AND rows > 0 ORDER BY id LIMIT 1"
    with store.reading() as connection:
        row = connection.execute(query, within).fetchone()
    return int(row[0]) if row is not None else None


def delete_frames(connection: sqlite3.Connection, stream: Stream, upto: int) -> None:
    connection.execute("DELETE FROM frames WHERE id > ? AND id <= ?", (stream.base, stream.base + upto))


def last_overdue(store: FrameStore, stream: Stream, upto: int, full: int, old_ms: int) -> int:
    """Return the last overdue frame up to number ``upto``; ``stream.trimmed`` if there is none.

    A frame is overdue before the ``full``-th byte, or if it was created before ``old_ms``.
    """
    last = stream.trimmed
    with store.reading() as connection:
        cursor = connection.execute(
            "SELECT id, upto, born_ms FROM frames WHERE id > ? AND id <= ? ORDER BY id",
            (stream.base + stream.trimmed, stream.base + upto),
        )
        for id_, weighed, born_ms in cursor:
            if weighed > full and born_ms >= old_ms:
                break
            last = id_ - stream.base
        cursor.close()
    return last


# -- subscriptions ----------------------------------------------------------------------------------------------------


def save_subscription(connection: sqlite3.Connection, stream: Stream, subscription: Subscription) -> None:
    values = (stream.id, *(getattr(subscription, name) for name in SUBSCRIPTION))
    connection.execute(f"INSERT OR REPLACE INTO subscriptions VALUES ({', '.join('?' * len(values))})", values)


def save_dropped(connection: sqlite3.Connection, stream: Stream) -> None:
    connection.execute("UPDATE streams SET dropped = ? WHERE id = ?", (stream.dropped_rows, stream.id))


def delete_subscription(connection: sqlite3.Connection, stream: Stream, subscriber: str) -> None:
    connection.execute("DELETE FROM subscriptions WHERE stream = ? AND subscriber = ?", (stream.id, subscriber))
