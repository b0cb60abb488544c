"""Sink ``file``: writes each row exactly once despite crashes (docs/design.md, section 8).

A position file beside the result states the last frame of each stream, and the last byte (CSV, NDJSON) or part (Parquet), that
the result holds. The sink replaces it atomically after it has synced the rows. Before it writes anything else, it cuts off or
removes output beyond the position; those rows come again.

A claim is a random word that identifies one opening of a sink. A sink removes only files made under its own claim.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.base.disk import create, named_errors, no_link, replace, sync_path
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.base.private_files import publish
from sbon_node.connectors.access.roots import ANYWHERE, OpenFolder, check_within
from sbon_node.connectors.formats.text_format import format_unknown
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import file_formats
from sbon_node.connectors.sinks.buffer import Buffer
from sbon_node.connectors.sinks.file_formats import SinkFormat
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError

SUFFIXES: dict[str, SinkFormat] = {
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
}

TEXT_FLUSH_S = 0.05
MAX_BUFFERED_BYTES = 8 * 1024 * 1024


class FileSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``file``."""

    path: Annotated[str, Meta(min_length=1)]
    """the file, or for Parquet the folder of parts, at the consumer's node"""
    format: Literal["", "csv", "ndjson", "parquet"] = ""
    """by default what the name ends with"""
    part_rows: Annotated[int, Meta(ge=1, le=10**8)] = 1_000_000
    """Parquet: rows after which a part is complete"""
    part_s: Annotated[float, Meta(gt=0, le=86_400)] = 5.0
    """Parquet: seconds after which a part is complete"""


class FileSink:
    """File sink; see :class:`sbon_node.connectors.interface.Sink`.

    With ``fresh`` it makes ``claim`` at a free path, else it raises ``sink-exists``. Without, it resumes an earlier sink with
    that claim, else it raises ``sink-lost``. Construction blocks until the disk holds the claim.
    """

    refused = 0
    dead_letters = ""

    def __init__(
        self,
        options: FileSinkOptions,
        schema: pa.Schema,
        executor: Executor,
        failpoint: Failpoints = unobserved,
        *,
        claim: str,
        fresh: bool,
        roots: Sequence[str] = ANYWHERE,
    ) -> None:
        self.path, self._format = _place(options)
        file_formats.check_schema(self._format, schema)
        self._folder = _open_folder(self.path.absolute().parent, roots)
        self._at = self._folder.path / self.path.name
        """Path for writing, below the descriptor of its folder: a link created later cannot redirect it."""
        self._options, self._schema, self._executor, self._failpoint = options, schema, executor, failpoint
        columns = tuple(f"{field.name} {field.type}" for field in schema)
        with _shown(self._at, self.path), named_errors(self.path):
            if self._format == "parquet" and not fresh:
                self._enter()
            self._position = (make_claim if fresh else take_up)(self._at, self._format, columns, claim)
            if self._format == "parquet" and fresh:
                self._enter()
            self._position_file = position_path(self._at, self._format)
            if not fresh:
                self._clean()
        self._buffer = Buffer(schema, self._position.streams, self._position.ended)

    def _enter(self) -> None:
        """Hold the folder of parts too."""
        try:
            self._folder = OpenFolder(self._at, (str(self._folder.path.resolve()),))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise lost(self.path, "the folder is gone") from error
        self._at = self._folder.path

    @property
    def rows(self) -> int:
        """Rows durably delivered."""
        return self._position.rows

    def positions(self) -> dict[str, int]:
        return dict(self._position.streams)

    @property
    def ended(self) -> frozenset[str]:
        return frozenset(self._position.ended)

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        self._buffer.take(frame, unpacked)

    @property
    def wants_flush(self) -> bool:
        return self._buffer.bytes >= MAX_BUFFERED_BYTES or (
            self._format == "parquet" and self._buffer.rows >= self._options.part_rows
        )

    @property
    def flush_after_s(self) -> float:
        return self._options.part_s if self._format == "parquet" else TEXT_FLUSH_S

    async def flush(self) -> dict[str, int]:
        if self._buffer.taken != self._position.streams:
            await self._executor(lambda: self._store(finished=False))
        return self.positions()

    async def finish(self) -> None:
        """Finish the result; a result without rows still has its columns."""
        if not self._position.finished:
            await self._executor(lambda: self._store(finished=True))

    async def close(self) -> None:
        self._buffer.reset(self._position.streams, self._position.ended)

    def _store(self, *, finished: bool) -> None:
        """Store the rows, synced, then the position that counts them. Nothing else uses the sink meanwhile."""
        position = msgspec.structs.replace(
            self._position,
            streams=dict(sorted(self._buffer.taken.items())),
            ended=tuple(sorted(self._buffer.ended)),
            rows=self._position.rows + self._buffer.rows,
            finished=finished,
        )
        with _shown(self._at, self.path), named_errors(self.path):
            position = self._write_part(position) if self._format == "parquet" else self._append(position)
            self._failpoint("sink-write")
            replace(self._position_file, msgspec.json.encode(position))
        self._position = position
        self._buffer.clear()
        self._failpoint("position-write")

    def _append(self, position: FilePosition) -> FilePosition:
        content = b"" if position.length else file_formats.beginning(self._format, self._schema)
        content += b"".join(file_formats.text(self._format, frame.rows) for frame in self._buffer.frames)
        if not content:
            return position
        with open(self._at, "r+b", opener=no_link) as file:
            # An earlier attempt may have left part of this.
            file.truncate(self._position.length)
            file.seek(self._position.length)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return msgspec.structs.replace(position, length=position.length + len(content))

    def _write_part(self, position: FilePosition) -> FilePosition:
        if not self._buffer.frames and (position.parts or not position.finished):
            return position
        tables = [frame.rows for frame in self._buffer.frames]
        rows = pa.concat_tables(tables) if tables else self._schema.empty_table()
        target = part_path(self._at, position.parts + 1)
        with open(target, "wb", opener=no_link) as file:
            publish(target)
            file.write(file_formats.part(rows))
            file.flush()
            os.fsync(file.fileno())
        sync_path(self._at)
        return msgspec.structs.replace(position, parts=position.parts + 1)

    def _clean(self) -> None:
        """Remove output of an earlier run beyond its stored position."""
        self._position_file.with_name(self._position_file.name + ".new").unlink(missing_ok=True)
        if self._format == "parquet":
            if not self._at.is_dir():
                raise lost(self.path, "the folder is gone")
            expected = {part_path(self.path, number).name for number in range(1, self._position.parts + 1)}
            for entry in sorted(self._at.glob("part-*.parquet")):
                if entry.name not in expected:
                    entry.unlink()
            missing = sorted(name for name in expected if not (self._at / name).is_file())
            if missing:
                raise lost(self.path, f"{missing[0]} is gone")
            return
        size = self._at.lstat().st_size if self._at.exists() else 0
        if size < self._position.length:
            raise lost(self.path, f"it has {size:,} bytes, and {self._position.length:,} were written")
        with open(self._at, "ab", opener=no_link) as file:
            file.truncate(self._position.length)
            os.fsync(file.fileno())
        sync_path(self._at.parent)


def check_file(options: FileSinkOptions, settings: ConnectorSettings) -> None:
    """Raise the errors of a fresh :class:`FileSink` without touching any file."""
    check_within(options.path, settings.data_roots)
    check_free(*_place(options))


def withdraw(options: FileSinkOptions, claim: str, *, delivered: bool, roots: Sequence[str] = ANYWHERE) -> None:
    """Remove the files made under the claim, as :func:`_withdraw`; nothing if their folder is missing."""
    path, kind = _place(options)
    try:
        folder = _open_folder(path.absolute().parent, roots)
    except SbonError as error:
        if error.code == "bad-option":
            return  # its folder is missing, and the result with it
        raise
    with _shown(folder.path, path.absolute().parent):
        _withdraw(folder.path / path.name, kind, claim, delivered=delivered)
    folder.close()


def _open_folder(folder: Path, roots: Sequence[str]) -> OpenFolder:
    try:
        return OpenFolder(folder, roots)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SbonError("bad-option", f"there is no folder {folder}", where="options.path") from error
    except OSError as error:
        raise SbonError("bad-option", f"{folder} may not be read: {error.strerror}", where="options.path") from error


@contextmanager
def _shown(at: Path, path: Path) -> Iterator[None]:
    """Name the requested path in errors, instead of the descriptor."""
    try:
        yield
    except SbonError as error:

        def named(text: str) -> str:
            return text.replace(str(at), str(path)).replace(str(at.parent), str(path.parent))

        hint, details = error.hint, error.details
        raise SbonError(error.code, named(error.message), where=named(error.where), hint=hint, details=details) from error


def _place(options: FileSinkOptions) -> tuple[Path, SinkFormat]:
    path = Path(options.path).expanduser()
    kind = options.format or SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise format_unknown(path)
    return path, kind


class FilePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the result, stored as JSON for people to read. ``made_folder``: the claim made the folder of parts."""

    format: SinkFormat
    columns: tuple[str, ...]
    claim: str
    made_folder: bool = False
    streams: dict[str, int] = {}
    ended: tuple[str, ...] = ()
    length: int = 0
    parts: int = 0
    rows: int = 0
    finished: bool = False


def check_free(path: Path, kind: SinkFormat) -> None:
    """Raise ``sink-exists`` if the path is taken, ``bad-option`` if no file can be there."""
    if position_path(path, kind).exists() or (any(path.iterdir()) if path.is_dir() and kind == "parquet" else path.exists()):
        raise _exists(path)
    if not path.absolute().parent.is_dir():
        raise _no_folder(path)
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise SbonError("bad-option", f"{path.absolute().parent} may not be written to", where="options.path")


def position_path(path: Path, kind: SinkFormat) -> Path:
    """Return the path of the position file. Readers of a Parquet folder skip names that begin with an underscore."""
    return path / "_position.json" if kind == "parquet" else path.with_name(path.name + ".position")


def part_path(path: Path, number: int) -> Path:
    return path / f"part-{number:05d}.parquet"


def make_claim(path: Path, kind: SinkFormat, columns: tuple[str, ...], claim: str) -> FilePosition:
    """Make an empty result durably. Raises ``sink-exists``, ``bad-option`` or the disk's own errors, and then leaves nothing."""
    check_free(path, kind)
    position_file = position_path(path, kind)
    try:
        with ExitStack() as made:
            made_folder = kind == "parquet" and not path.is_dir()
            if made_folder:
                path.mkdir()
                made.callback(path.rmdir)
                publish(path)
            if kind == "parquet":
                folder = OpenFolder(path, (str(path.parent.resolve()),))
                made.callback(folder.close)
                position_file = position_path(folder.path, kind)
            position = FilePosition(format=kind, columns=columns, claim=claim, made_folder=made_folder)
            create(position_file, msgspec.json.encode(position), claim)
            made.callback(position_file.unlink)
            if kind != "parquet":
                with open(path, "xb", opener=no_link):
                    made.callback(path.unlink)
                publish(path)
            sync_path(position_file.parent)
            sync_path(path.absolute().parent)
            made.pop_all()
    except FileExistsError as error:
        raise _exists(path) from error
    except FileNotFoundError as error:
        raise _no_folder(path) from error
    return position


def take_up(path: Path, kind: SinkFormat, columns: tuple[str, ...], claim: str) -> FilePosition:
    """Read the last stored position; raise ``sink-lost`` if it is missing or has another claim.

    A process that was killed before it synced the name may have renamed the file: the name is durable on return.
    """
    position_file = position_path(path, kind)
    try:
        with open(position_file, "rb", opener=no_link) as file:
            position = msgspec.json.decode(file.read(), type=FilePosition)
    except FileNotFoundError as error:
        raise lost(path, f"{position_file.name} is gone") from error
    except msgspec.DecodeError as error:
        raise lost(path, f"{position_file.name} cannot be read: {error}") from error
    if (position.format, position.columns, position.claim) != (kind, columns, claim):
        raise lost(path, "it holds another result")
    sync_path(position_file.parent)
    return position


def _withdraw(path: Path, kind: SinkFormat, claim: str, *, delivered: bool) -> None:
    """Remove the files made under the claim.

    With ``delivered`` it removes delivered rows too, otherwise only a result that never took a frame. It ignores missing files
    and does not touch those of another claim. It removes the position last: after a kill the call can be repeated.
    """
    position_file = position_path(path, kind)
    with named_errors(path):
        position_file.with_name(f"{position_file.name}.{claim}.new").unlink(missing_ok=True)
        try:
            position = msgspec.json.decode(position_file.read_bytes(), type=FilePosition)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return
        if position.claim != claim or (not delivered and (position.streams or position.finished)):
            return
        # An interrupted write may have left one part beyond the stored position.
        paths = [part_path(path, number) for number in range(1, position.parts + 2)]
        for name in paths if kind == "parquet" else [path]:
            name.unlink(missing_ok=True)
        position_file.with_name(position_file.name + ".new").unlink(missing_ok=True)
        sync_path(position_file.parent)
        position_file.unlink()
        sync_path(position_file.parent)
        if position.made_folder and not any(path.iterdir()):
            path.rmdir()
            sync_path(path.absolute().parent)


def lost(path: Path, reason: str) -> SbonError:
    return SbonError("sink-lost", f"the result is not what was written: {reason}", where=str(path), hint="submit the query again")


def _exists(path: Path) -> SbonError:
    return SbonError("sink-exists", f"there is something at {path} already", where="options.path", hint="name another path")


def _no_folder(path: Path) -> SbonError:
    folder = path.absolute().parent
    if folder.is_dir():
        hint = "name a path in a folder on a disk"
        return SbonError("bad-option", f"no file can be made in the folder {folder}", where="options.path", hint=hint)
    return SbonError("bad-option", f"there is no folder {folder}", where="options.path")
