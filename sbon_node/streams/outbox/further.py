"""Readers that are added to a stream that has flowed before: the further sinks of a query (docs/design.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Reader, Stream, Subscription
from sbon_node.streams.outbox.retention import Retention
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.errors import SbonError

Begin = Literal["earliest", "now"]
"""Where a further sink begins: at the first row of all, or after the newest."""


class Beginning(NamedTuple):
    """The last frame that the reader does not get, the ``rows`` up to there, and whether the stream has ended with it."""

    frame: int
    rows: int
    ended: bool


class FurtherReaders:
    """Further sinks over the streams of one outbox."""

    def __init__(self, store: FrameStore, streams: Mapping[str, Stream], retention: Retention) -> None:
        self._store, self._streams, self._retention = store, streams, retention

    def begin(self, stream: str, subscriber: str, reader_epoch: int, begin: Begin) -> Beginning:
        """Subscribe a further sink, which has yet to connect: its frames are kept from now on.

        A repeated call returns the same beginning, once that is behind the first frame. Raises ``stream-unknown``,
        ``reader-fenced``, ``not-retained`` (the first frames are gone), ``too-many-subscribers``.
        """
        known = self._streams.get(stream)
        if known is None:
            raise SbonError("stream-unknown", "no such stream on this node", where=stream)
        before = known.subscriptions.get(subscriber)
        self._retention.check_reader(known, before, Reader(epoch=reader_epoch))
        repeats = before is not None and before.reader_epoch == reader_epoch and not before.failed
        if before is None or not repeats or (begin == "now" and before.acknowledged == 0):
            before = self._subscribe(known, subscriber, reader_epoch, begin)
        after = statements.rows_after(self._store, known, before.acknowledged)
        return Beginning(
            frame=before.acknowledged,
            rows=known.visible.rows - after,
            ended=known.visible.ended and before.acknowledged >= known.visible.last,
        )

    def _subscribe(self, stream: Stream, subscriber: str, reader_epoch: int, begin: Begin) -> Subscription:
        if begin == "earliest" and stream.trimmed:
            reason = f"the first {stream.trimmed:,} frames of the result are delivered and gone"
            raise SbonError("not-retained", reason, where=stream.name, hint="begin with the rows from now on: --from now")
        after = stream.visible.last if begin == "now" else 0
        upto = stream.visible.upto if begin == "now" else stream.trimmed_upto
        new = Subscription(subscriber, after, upto, after, upto, counted=after, reader_epoch=reader_epoch)
        self._retention.replace(stream, new)
        return new

    def names(self, stream: str) -> list[str]:
        """Return the further sinks that subscribe to a stream of this node."""
        known = self._streams.get(stream)
        return [] if known is None else sorted(one for one in known.subscriptions if is_further_sink(one))
