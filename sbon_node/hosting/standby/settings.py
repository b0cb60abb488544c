"""Knobs of backups of operators and sources that run at other nodes."""

from typing import Annotated

import msgspec
from msgspec import Meta


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds and times of backups of operators."""

    most: Annotated[int, Meta(ge=0, le=4096)] = 64
    """operators of other nodes of which this node keeps a backup; 0 keeps none"""
    most_sources: Annotated[int, Meta(ge=0, le=4096)] = 64
    """replicated sources of other nodes of which this node keeps a backup; 0 keeps none"""
    stream_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 2 * 2**30
    """bytes of frames that this node keeps in one backup, with those of a batch or transaction that is not stored yet; more
    are refused with backup-too-large; keep it above the retention and quotas of other nodes' streams"""
    candidates: Annotated[int, Meta(ge=1, le=1024)] = 8
    """nodes that are asked at a time to keep the backup of an operator, the nearest first"""
    refused_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    """seconds for which a node that has refused to keep a backup is not asked again; lower it where nodes are full for a
    short time only"""
    replace_after_s: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    """seconds for which a backup must be away before another node is chosen, which copies all of the state; the operator
    shows nothing meanwhile"""
    recover_after_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """seconds for which an operator's host must be dead before its backup goes on with it; raise it where nodes often return
    soon"""
    yield_after_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """seconds for which the engine of a host runs no operator before its replicated operators go on at their backups; above
    the time in which an engine starts"""
    watch_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    """seconds between two looks of a backup at the hosts of its operators; a tenth of that if one is hot"""
    check_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """seconds after which a backup that hears nothing asks whether it is needed still"""
    own_s: Annotated[float, Meta(gt=0, le=86_400)] = 20.0
    """seconds after which a host reads whether its replicated operators are still its own; lower it where nodes are often cut
    off from others for longer than it takes to call them dead"""
    inline_bytes: Annotated[int, Meta(ge=0, le=2 * 2**20)] = 262_144
    """new bytes of a checkpoint that travel with a batch; more are fetched over connections of their own, as copies for moves
    are"""
    rehearse_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """longest time in which a node runs an operator without rows when it becomes its backup, so that a take-over is faster; 0
    starts the engine only; seconds"""
    level_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """time in which the follower of a hot operator that goes on here may finish the stored batches; after that the operator
    is started from its stored checkpoint; seconds"""
    follow_retry_s: Annotated[float, Meta(gt=0, le=3600)] = 2.0
    """seconds before a follower that has failed is started again; doubles, jittered, up to the maximum"""
    follow_retry_max_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """longest pause in seconds between two starts of a follower"""
    store_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """longest time in which a backup stores a batch whose files it fetches; seconds"""
