"""The outbox's database file: its tables, its transactions, and its typed errors.

``synchronous`` is OFF without ``fsync``: written data then survives the death of every process, since the kernel has it, but
not the loss of power. With ``fsync`` a transaction that carries a promise is synced before it returns; acknowledgements and
trimming are not synced, for losing them only repeats work.
"""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sbon_node.base.disk import is_full
from sbon_node.model.frames import MAX_FRAME_BYTES, FrameDraft
from sbon_protocol.errors import BrokenInvariantError, SbonError

SCHEMA_VERSION = 4
APPLICATION_ID = 0x53424F4E
PAGE_BYTES = 8192
JOURNAL_LIMIT_BYTES = 16 * 1024 * 1024
SHARE_OF_SOURCES = 0.75
"""Share of ``outbox_max_bytes`` above which sources wait, while operators go on."""

# A frame's id is its stream's id and its number in one integer: one B-tree, read and deleted by ranges.
NUMBER_BITS = 40
MAX_NUMBER = 2**NUMBER_BITS - 1

TABLES = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")

LINEAGE_BITS = 62

_FULL_NAMES = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")


class FrameStore:
    """One open database with short, synchronous calls.

    Raises :class:`SbonError` ``disk-full``, ``disk-error``, ``outbox-corrupt``, ``outbox-version``, never sqlite's own.
    """

    def __init__(self, path: Path, *, fsync: bool, max_bytes: int, rng: random.Random) -> None:
        self.path, self._rng, self._fsync, self._max_bytes = path, rng, fsync, max_bytes
        self._inside = False
        with self._named_errors():
            self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
            try:
                self._prepare(max_bytes)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, max_bytes: int) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA page_size={PAGE_BYTES}")
        version = int(execute("PRAGMA user_version").fetchone()[0])
        application = int(execute("PRAGMA application_id").fetchone()[0])
        tables = int(execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if tables and application != APPLICATION_ID:
            hint = "name another data directory"
            raise SbonError("outbox-corrupt", "this file is not an outbox", where=str(self.path), hint=hint)
        if tables and version not in (2, 3, SCHEMA_VERSION):
            message = f"the outbox is of schema {version}, this program reads {SCHEMA_VERSION}"
            hint = "run the program that wrote it, or name another data directory"
            raise SbonError("outbox-version", message, where=str(self.path), hint=hint)
        if not tables:
            execute("PRAGMA auto_vacuum=INCREMENTAL")  # It only counts before the first table.
        execute("PRAGMA journal_mode=WAL")
        execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT_BYTES}")
        execute(f"PRAGMA synchronous={'FULL' if self._fsync else 'OFF'}")
        if max_bytes:
            execute(f"PRAGMA max_page_count={max(16, max_bytes // PAGE_BYTES)}")
        if not tables:
            self._connection.executescript(
                f"BEGIN; {TABLES} PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
            )
        elif version < SCHEMA_VERSION:
            self._convert(version)

    def _convert(self, version: int) -> None:
        """Convert an earlier schema: 2 had neither lineages nor epochs of readers, 3 no shares of subscriptions in payloads."""
        with self.transaction() as connection:
            if version == 2:
                connection.execute("ALTER TABLE streams ADD COLUMN lineage INTEGER NOT NULL DEFAULT 0")
                connection.execute("ALTER TABLE subscriptions ADD COLUMN reader_epoch INTEGER NOT NULL DEFAULT 0")
                for (stream,) in connection.execute("SELECT id FROM streams ORDER BY id").fetchall():
                    connection.execute("UPDATE streams SET lineage = ? WHERE id = ?", (self.new_lineage(), stream))
            connection.execute("ALTER TABLE subscriptions ADD COLUMN saved INTEGER NOT NULL DEFAULT 0")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def new_lineage(self) -> int:
        """Return a random lineage, above 0."""
        return self._rng.randrange(1, 2**LINEAGE_BITS)

    @contextmanager
    def transaction(self, *, promised: bool = True) -> Iterator[sqlite3.Connection]:
        """Run one transaction; ``promised=False`` if a loss of power may undo it without harm."""
        if self._inside:
            raise BrokenInvariantError("transactions of the outbox do not nest")
        self._inside = True
        lazy = self._fsync and not promised
        try:
            with self._named_errors():
                if lazy:
                    self._connection.execute("PRAGMA synchronous=NORMAL")
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        finally:
            self._inside = False
            if lazy:
                self._connection.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._named_errors():
            yield self._connection

    def check_room_of_sources(self) -> None:
        """Raise ``disk-full`` if only the operators' share of a limited size is left: their output frees the sources' frames."""
        if not self._max_bytes:
            return
        if self._count("page_count") * PAGE_BYTES - self.free_bytes() > SHARE_OF_SOURCES * self._max_bytes:
            raise self._full()

    def free_bytes(self) -> int:
        """Return the bytes of free pages within the file."""
        return self._count("freelist_count") * PAGE_BYTES

    def changes(self) -> int:
        """Return the number of rows changed since the file was opened."""
        return self._connection.total_changes

    def shrink(self, pages: int) -> None:
        """Return up to ``pages`` free pages to the file system, once the journal is written back."""
        with self._named_errors():
            try:
                if self._fsync:
                    self._connection.execute("PRAGMA synchronous=NORMAL")  # A loss of power may undo it without harm.
                self._connection.executescript(f"PRAGMA incremental_vacuum({pages})")  # ``execute`` stops after one page.
            finally:
                if self._fsync:
                    self._connection.execute("PRAGMA synchronous=FULL")

    def empty_journal(self) -> None:
        """Write the journal back into the database, and cut both files to what they hold."""
        with self.reading() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _count(self, pragma: str) -> int:
        with self.reading() as connection:
            return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._named(error) from error

    def _named(self, error: sqlite3.Error) -> SbonError:
        name = getattr(error, "sqlite_errorname", "") or ""
        where = str(self.path)
        if name in _FULL_NAMES or (name == "SQLITE_IOERR_WRITE" and is_full(self.path.parent)):
            return self._full()
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            message, hint = f"the outbox cannot be read: {error}", "restore the data directory"
            return SbonError("outbox-corrupt", message, where=where, hint=hint)
        if isinstance(error, sqlite3.OperationalError):
            message, hint = f"the outbox cannot be used: {error}", "check the disk and its rights"
            return SbonError("disk-error", message, where=where, hint=hint)
        raise BrokenInvariantError(f"the outbox was misused: {error}") from error

    def _full(self) -> SbonError:
        hint = "free space, or raise streams.outbox_max_bytes"
        return SbonError("disk-full", "no space for more frames", where=str(self.path), hint=hint)


def check_sizes(drafts: Sequence[FrameDraft], where: str) -> None:
    for draft in drafts:
        if len(draft.payload) > MAX_FRAME_BYTES:
            message = f"a frame of {len(draft.payload):,} bytes is over the limit of {MAX_FRAME_BYTES:,}"
            raise SbonError("frame-too-large", message, where=where, hint="emit smaller rows, or fewer in a frame")
