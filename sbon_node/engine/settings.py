"""Knobs of the engine."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NO_ARCHIVE = "-"
LOCAL_MASTER = re.compile(r"local(\[([1-9][0-9]{0,3}|\*)\])?\Z")
"""Supported masters of Spark: rows reach the engine over loopback, and its Python processes are forked here."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spark on this node: memory, limits and restarts."""

    master: Annotated[str, Meta(max_length=512)] = "local[2]"
    """local[N] is Spark in the node's own JVM on N cores, local[*] on all; a Spark cluster (spark://, k8s://, yarn) is not
    supported yet"""
    heap_mb: Annotated[int, Meta(ge=480, le=1_000_000)] = 512
    """largest heap of the JVM; megabytes; raise it for much state; Spark refuses less"""
    rocksdb_mb: Annotated[int, Meta(ge=16, le=1_000_000)] = 256
    """memory outside the heap that all operators with their state in RocksDB share; megabytes; raise it for state of gigabytes"""
    jit: Literal["c1", "c2"] = "c2"
    """c2 compiles hot code twice and carries more rows; c1 once, for machines short of CPU"""
    archive: Annotated[str, Meta(max_length=4096)] = ""
    """folder of the JVM's class archive; empty takes the user's cache folder; - for none"""
    max_operators: Annotated[int, Meta(ge=1, le=100)] = 30
    """operators this node hosts at once, if its cores and memory suffice; backups do not count, and go on with the operators
    of a lost host beyond it; lower it where batches take long"""
    analyses: Annotated[int, Meta(ge=0, le=100_000)] = 500
    """analysed fragments that the node remembers, so that the same query is planned faster the next time; a few kilobytes of
    memory each"""
    start_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 180.0
    """wait for the JVM, and for an operator; seconds; raise it on slow machines"""
    start_timeout_max_s: Annotated[float, Meta(gt=0, le=3600)] = 900.0
    """longest such wait: one that was too short is doubled until the node starts again; seconds"""
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """longest wait of an idle operator for new frames; seconds; longer only delays its stop"""
    restart_s: Annotated[float, Meta(gt=0, le=600)] = 0.5
    """pause before an engine process or operator that died is started again; seconds; doubles up to 30"""
    max_restarts: Annotated[int, Meta(ge=0, le=1000)] = 8
    """an operator that ends more often than this by itself has failed; ten batches committed in a row make the count start
    again; 0 fails it the first time"""
    max_kills: Annotated[int, Meta(ge=1, le=1000)] = 2
    """an operator that kills the engine this many times is quarantined until its node starts again; the others continue"""
    stop_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """time for which a stop waits for the batch under way; seconds; an unfinished batch is run again"""
    skipped_rows: Annotated[int, Meta(ge=0, le=10_000)] = 100
    """skipped rows of a batch kept as dead letters (--on-error skip); more are only counted"""
    frame_bytes: Annotated[int, Meta(ge=4096, le=4 * 1024 * 1024)] = 256 * 1024
    """aim for the size of an output frame before compression; bytes"""
    log_bytes: Annotated[int, Meta(ge=65_536, le=1 << 40)] = 16 * 1024 * 1024
    """engine.log beyond this becomes engine.log.1; bytes; raise it to keep more"""
    footprint_s: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    """interval between two checks of the engine's heap, threads and descriptors; seconds; a check costs little"""
    settle_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """time for which an operator that is to go on at another node may finish its batch, and the other node run the same one;
    seconds; it stays where it is otherwise"""
    copy_max_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 16 * 1024**3
    """largest checkpoint that is copied to another node while its operator runs; bytes"""
    copy_max_files: Annotated[int, Meta(ge=1, le=10_000_000)] = 20_000
    """most files of such a checkpoint; each costs some 150 bytes of a message"""
    replace_heap_percent: Annotated[int, Meta(ge=10, le=100)] = 85
    """live objects above this share of the heap, after a full collection, a new engine replaces this one, and its operators
    continue from their checkpoints; raise heap_mb if that happens often; 100 never"""
    replace_threads: Annotated[int, Meta(ge=100, le=1_000_000)] = 1500
    """threads of the engine process and its JVM above which the engine is replaced likewise"""
    replace_descriptors: Annotated[int, Meta(ge=200, le=10_000_000)] = 4000
    """open descriptors of the engine process and its JVM above which the engine is replaced likewise"""
    replace_every_s: Annotated[float, Meta(ge=0, le=86_400)] = 600.0
    """shortest time between two replacements of the engine; seconds; raise it if a small heap causes too many"""
