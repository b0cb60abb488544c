"""Settings of streams, each with the reason to change it."""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

KIB = 1024
MIB = 1024 * KIB


class BatchLimits(NamedTuple):
    """Limits of an operator's batches beside bytes and frames.

    A batch takes at most ``rows`` over all inputs; None is without limit. An aggregate with large groups takes ``grouped_rows``.
    It waits ``linger_s`` seconds for more input than the first news.
    """

    rows: int | None = None
    grouped_rows: int | None = None
    linger_s: float = 0.0


NO_LIMITS = BatchLimits()


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of the outbox, of links and of retention. Bytes count payload and a small overhead for each frame."""

    inbox_credit_bytes: Annotated[int, Meta(ge=5 * MIB, le=2**34)] = 16 * MIB
    """bytes a link holds in memory until they are acknowledged, at least the largest frame; raise it for fast links over long
    distances"""
    shared_window_bytes: Annotated[int, Meta(ge=0, le=2**34)] = 16 * MIB
    """bytes of a stream that this node remembers for those of its readers that are behind others, so that they cross the
    network once for all; a reader further behind gets them once more; 0: each reads alone"""
    outbox_quota_bytes: Annotated[int, Meta(ge=1, le=2**40)] = 32 * MIB
    """bytes of a stream its subscribers have not received, above which its producer pauses; raise it if consumers are often
    away and the disk is large"""
    outbox_max_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    """largest size of the outbox database in bytes, 0 for the whole disk; set it if other programs share the disk"""
    fsync: bool = False
    """sync outbox, records and checkpoints before a batch becomes visible, so that loss of power loses no rows either; each
    batch then waits for the disk"""
    batch_span_bytes: Annotated[int, Meta(ge=1, le=2**32)] = 8 * MIB
    """bytes of input one batch may take over all inputs, one frame at least; lower it if the engine is short of memory; keep
    it at most half of inbox_credit_bytes"""
    batch_span_rows: Annotated[int, Meta(ge=1, le=2**40)] = 200_000
    """rows one batch of an operator with state may take over all inputs, one frame at least: some 500 bytes of the engine's
    heap for each"""
    batch_span_grouped_rows: Annotated[int, Meta(ge=1, le=2**40)] = 500_000
    """rows instead of batch_span_rows for an aggregate whose groups so far have twenty rows or more each; some 500 bytes of
    the engine's heap for each group"""
    follow_span_rows: Annotated[int, Meta(ge=1, le=2**40)] = 50_000
    """rows one batch may take of an operator that catches up with its host before it goes on in its place; raise it if that
    takes too many batches"""
    batch_linger_s: Annotated[float, Meta(ge=0, le=60)] = 0.5
    """seconds for which a batch of rows without a pace, as of files at full speed, waits for more of them; lower it to see
    such results sooner, at the price of more batches"""
    batch_span_frames: Annotated[int, Meta(ge=1, le=2**20)] = 4096
    """frames one batch may take of each input; as batch_span_bytes, for tiny frames"""
    read_bytes: Annotated[int, Meta(ge=1, le=2**32)] = MIB
    """bytes read from the outbox at once for one subscriber; memory each subscription costs"""
    live_retention_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 256 * MIB
    """bytes of a live source kept after everyone acknowledged them, for later queries to start from; raise it for more
    history, at the price of disk"""
    live_retention_s: Annotated[float, Meta(gt=0, le=1e9)] = 3600.0
    """seconds that frames of a live source are kept after everyone acknowledged them"""
    operator_history_bytes: Annotated[int, Meta(ge=0, le=2**40)] = MIB
    """bytes of an operator's stream kept from its first frame on after all readers acknowledged them, so that a later query
    may share the operator and read all of it; raise it for more sharing, at the price of longer moves"""
    subscription_quota_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 512 * MIB
    """bytes of a live source, or of an operator that several queries share, a subscriber may leave unacknowledged before its
    subscription fails (of a source at least live_retention_bytes counts); raise it if consumers are away for long"""
    sink_quota_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 512 * MIB
    """bytes of a query's result that a further sink, or a second follower, may leave unacknowledged before it fails alone;
    raise it if one is often away and the disk is large"""
    follower_quota_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 1024 * MIB
    """bytes of a live source that an operator may leave unacknowledged while it moves, or its next host (at least
    subscription_quota_bytes counts); then its move is given up, and subscription_quota_bytes more are kept for it; raise it
    if operators with much state move"""
    trim_frames: Annotated[int, Meta(ge=1, le=2**20)] = 1024
    """frames deleted in one transaction; lower it if deleting delays other work"""
    max_subscribers: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """subscribers one stream may have; one more is refused"""
    max_followers: Annotated[int, Meta(ge=1, le=65_536)] = 32
    """subscribers of one stream that are next hosts of operators that move; one more is refused; raise it where many
    operators that read the same stream move at once"""
    spill_max_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 1024 * MIB
    """bytes an input keeps on disk while it is held back for inputs that are behind, before its producer must wait; raise it
    if a stream is joined with a much later part of itself"""
    spill_patience_s: Annotated[float, Meta(gt=0, le=1e9)] = 600.0
    """seconds an operator waits for inputs that are behind after it has filled spill_max_bytes; then its query fails; raise
    it if nodes are away for long"""
    measures_half_life_s: Annotated[float, Meta(gt=0, le=1e9)] = 60.0
    """seconds after which a measure of an operator's rates and work counts half; lower it to see changes sooner, raise it for
    steadier measures"""
    delay_window_s: Annotated[float, Meta(gt=0, le=1e9)] = 300.0
    """seconds back to which a query's delay is computed; lower it to see changes sooner"""
    delay_frames: Annotated[int, Meta(ge=1, le=2**20)] = 1024
    """newest frames at a sink from which a query's delay is computed, if streams.delay_window_s has more"""
    reconnect_s: Annotated[float, Meta(gt=0, le=3600)] = 0.2
    """seconds before a lost link is first tried again; doubles, jittered, up to the maximum"""
    reconnect_max_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """longest pause in seconds between two tries of a lost link"""
    handshake_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """seconds a link waits for a connection and the answer to its subscription"""

    def batch_limits(self, *, has_state: bool, joins: bool, unpaced: bool = False) -> BatchLimits:
        """Return the limits of an operator's batches."""
        return BatchLimits(
            rows=self.batch_span_rows if has_state else None,
            grouped_rows=self.batch_span_grouped_rows if has_state and not joins else None,
            linger_s=self.batch_linger_s if unpaced else 0.0,
        )
