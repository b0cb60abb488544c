"""Knobs of the engine."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NO_ARCHIVE = "-"
LOCAL_MASTER = re.compile(r"local(\[([1-9][0-9]{0,3}|\*)\])?\Z")
"""Supported masters of Spark: rows reach the engine over loopback, and its Python processes are forked here."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spark on this node: memory, limits and restarts."""

    master: Annotated[
        str,
        Meta(
            max_length=512,
            description="local[N] is Spark in the node's own JVM on N cores, local[*] on all; a Spark cluster (spark://, k8s://, "
            "yarn) is not supported yet",
        ),
    ] = "local[2]"
    heap_mb: Annotated[
        int,
        Meta(ge=480, le=1_000_000, description="largest heap of the JVM; megabytes; raise it for much state; Spark refuses less"),
    ] = 512
    rocksdb_mb: Annotated[
        int,
        Meta(
            ge=16,
            le=1_000_000,
            description="memory outside the heap that all operators with their state in RocksDB share; megabytes; raise it for "
            "state of gigabytes",
        ),
    ] = 256
    jit: Annotated[
        Literal["c1", "c2"],
        Meta(description="c2 compiles hot code twice and carries more rows; c1 once, for machines short of CPU"),
    ] = "c2"
    archive: Annotated[
        str,
        Meta(max_length=4096, description="folder of the JVM's class archive; empty takes the user's cache folder; - for none"),
    ] = ""
    max_operators: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="operators this node hosts at once, if its cores and memory suffice; backups do not count, and go on "
            "with the operators of a lost host beyond it; lower it where batches take long",
        ),
    ] = 30
    analyses: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="analysed fragments that the node remembers, so that the same query is planned faster the next time; a "
            "few kilobytes of memory each",
        ),
    ] = 500
    start_timeout_s: Annotated[
        float, Meta(gt=0, le=3600, description="wait for the JVM, and for an operator; seconds; raise it on slow machines")
    ] = 180.0
    start_timeout_max_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="longest such wait: one that was too short is doubled until the node starts again; seconds",
        ),
    ] = 900.0
    poll_s: Annotated[
        float,
        Meta(gt=0, le=60, description="longest wait of an idle operator for new frames; seconds; longer only delays its stop"),
    ] = 1.0
    restart_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="pause before an engine process or operator that died is started again; seconds; doubles up to 30",
        ),
    ] = 0.5
    max_restarts: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="an operator that ends more often than this by itself has failed; ten batches committed in a "
            "row make the count start again; 0 fails it the first time",
        ),
    ] = 8
    max_kills: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="an operator that kills the engine this many times is quarantined until its node starts again; the "
            "others continue",
        ),
    ] = 2
    stop_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="time for which a stop waits for the batch under way; seconds; an unfinished batch is run again",
        ),
    ] = 10.0
    skipped_rows: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="skipped rows of a batch kept as dead letters (--on-error skip); more are only counted",
        ),
    ] = 100
    frame_bytes: Annotated[
        int, Meta(ge=4096, le=4 * 1024 * 1024, description="aim for the size of an output frame before compression; bytes")
    ] = 256 * 1024
    log_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="engine.log beyond this becomes engine.log.1; bytes; raise it to keep more"),
    ] = 16 * 1024 * 1024
    footprint_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="interval between two checks of the engine's heap, threads and descriptors; seconds; a check costs "
            "little",
        ),
    ] = 10.0
    settle_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="time for which an operator that is to go on at another node may finish its batch, and the other node "
            "run the same one; seconds; it stays where it is otherwise",
        ),
    ] = 30.0
    copy_max_bytes: Annotated[
        int,
        Meta(ge=1, le=2**50, description="largest checkpoint that is copied to another node while its operator runs; bytes"),
    ] = 16 * 1024**3
    copy_max_files: Annotated[
        int, Meta(ge=1, le=10_000_000, description="most files of such a checkpoint; each costs some 150 bytes of a message")
    ] = 20_000
    replace_heap_percent: Annotated[
        int,
        Meta(
            ge=10,
            le=100,
            description="live objects above this share of the heap, after a full collection, a new engine replaces this one, "
            "and its operators continue from their checkpoints; raise heap_mb if that happens often; 100 never",
        ),
    ] = 85
    replace_threads: Annotated[
        int,
        Meta(
            ge=100,
            le=1_000_000,
            description="threads of the engine process and its JVM above which the engine is replaced likewise",
        ),
    ] = 1500
    replace_descriptors: Annotated[
        int,
        Meta(
            ge=200,
            le=10_000_000,
            description="open descriptors of the engine process and its JVM above which the engine is replaced likewise",
        ),
    ] = 4000
    replace_every_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="shortest time between two replacements of the engine; seconds; raise it if a small heap causes too many",
        ),
    ] = 600.0
