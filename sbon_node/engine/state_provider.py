"""The state providers of Spark: an operator's specification names one, and its checkpoint is bound to it for life."""

from typing import get_args

from sbon_protocol.api.operators import StateProvider
from sbon_protocol.errors import SbonError

CLASS = "spark.sql.streaming.stateStore.providerClass"
"""Spark's setting, which each entry of its offset log repeats. A resumed query takes the logged value, whatever is set."""

_PACKAGE = "org.apache.spark.sql.execution.streaming.state."
CLASSES: dict[StateProvider, str] = {
    "hdfs": f"{_PACKAGE}HDFSBackedStateStoreProvider",
    "rocksdb": f"{_PACKAGE}RocksDBStateStoreProvider",
}
assert set(CLASSES) == set(get_args(StateProvider))

_FILE_SYSTEMS: dict[StateProvider, str] = {
    "hdfs": "org.apache.hadoop.fs.RawLocalFileSystem",
    "rocksdb": "org.apache.hadoop.fs.LocalFileSystem",
}
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."


def settings_of(provider: StateProvider, rocksdb_mb: int) -> dict[str, str]:
    """Return Spark's settings for the provider; RocksDB stores of one engine share ``rocksdb_mb`` megabytes outside the heap.

    RocksDB writes a batch's changes, and a snapshot now and then. Hadoop copies the snapshot's files only from a file system with
    checksums; the engine's usual one has none and is cached. Sessions are used again, so all settings are set for both.
    """
    return {
        CLASS: CLASSES[provider],
        "fs.file.impl": _FILE_SYSTEMS[provider],
        "fs.file.impl.disable.cache": "true" if provider == "rocksdb" else "false",
        f"{_ROCKSDB}changelogCheckpointing.enabled": "true",
        f"{_ROCKSDB}boundedMemoryUsage": "true",
        f"{_ROCKSDB}maxMemoryUsageMB": str(rocksdb_mb),
    }


def check_pinned(logged: str, provider: StateProvider, where: str) -> None:
    """Raise :class:`SbonError` ``state-provider-differs`` if a checkpoint's log names another provider; empty is Spark's default.

    Spark would silently use the logged one.
    """
    logged = logged or CLASSES["hdfs"]
    if logged == CLASSES[provider]:
        return
    pinned = next((name for name, of in CLASSES.items() if of == logged), logged)
    raise SbonError(
        "state-provider-differs",
        f"the checkpoint has its state in {pinned}, the operator asks for {provider}",
        where=where,
        hint="an operator keeps its state provider; submit the query again to have another",
    )
