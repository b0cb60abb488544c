"""Knobs of backups of operators that run at other nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds and times of backups of operators."""

    most: Annotated[
        int, Meta(ge=0, le=4096, description="operators of other nodes of which this node keeps a backup; 0 keeps none")
    ] = 64
    most_sources: Annotated[
        int,
        Meta(ge=0, le=4096, description="replicated sources of other nodes of which this node keeps a backup; 0 keeps none"),
    ] = 64
    stream_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=2**50,
            description="bytes of frames that this node keeps in one backup, with those of a batch or transaction that is not "
            "stored yet; more are refused with backup-too-large; keep it above the retention and quotas of other nodes' streams",
        ),
    ] = 2 * 2**30
    candidates: Annotated[
        int,
        Meta(ge=1, le=1024, description="nodes that are asked at a time to keep the backup of an operator, the nearest first"),
    ] = 8
    refused_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="seconds for which a node that has refused to keep a backup is not asked again; lower it where nodes are "
            "full for a short time only",
        ),
    ] = 60.0
    replace_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="seconds for which a backup must be away before another node is chosen, which copies all of the state; "
            "the operator shows nothing meanwhile",
        ),
    ] = 10.0
    recover_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="seconds for which an operator's host must be dead before its backup goes on with it; raise it where "
            "nodes often return soon",
        ),
    ] = 0.0
    yield_after_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="seconds for which the engine of a host runs no operator before its replicated operators go on at their "
            "backups; above the time in which an engine starts",
        ),
    ] = 300.0
    watch_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="seconds between two looks of a backup at the hosts of its operators; a tenth of that if one is hot",
        ),
    ] = 1.0
    check_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="seconds after which a backup that hears nothing asks whether it is needed still"),
    ] = 60.0
    own_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="seconds after which a host reads whether its replicated operators are still its own; lower it where "
            "nodes are often cut off from others for longer than it takes to call them dead",
        ),
    ] = 20.0
    inline_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2 * 2**20,
            description="new bytes of a checkpoint that travel with a batch; more are fetched over connections of their own, as "
            "copies for moves are",
        ),
    ] = 262_144
    rehearse_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="longest time in which a node runs an operator without rows when it becomes its backup, so that a "
            "take-over is faster; 0 starts the engine only; seconds",
        ),
    ] = 60.0
    level_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="time in which the follower of a hot operator that goes on here may finish the stored batches; after "
            "that the operator is started from its stored checkpoint; seconds",
        ),
    ] = 5.0
    follow_retry_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="seconds before a follower that has failed is started again; doubles, jittered, up to the maximum",
        ),
    ] = 2.0
    follow_retry_max_s: Annotated[
        float, Meta(gt=0, le=86_400, description="longest pause in seconds between two starts of a follower")
    ] = 60.0
    store_timeout_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="longest time in which a backup stores a batch whose files it fetches; seconds"),
    ] = 600.0
