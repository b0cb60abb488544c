"""A file sink's position file: content and owner, made, resumed and withdrawn together.

A claim is a random word that identifies one opening of a sink. A sink removes only files made under its own claim.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import msgspec

from sbon_node.base.disk import create, named_errors, no_link, sync_folder
from sbon_node.base.private_files import publish
from sbon_node.connectors.access.roots import OpenFolder
from sbon_node.connectors.sinks.file_formats import SinkFormat
from sbon_protocol.errors import SbonError


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
            sync_folder(position_file.parent)
            sync_folder(path.absolute().parent)
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
    sync_folder(position_file.parent)
    return position


def withdraw(path: Path, kind: SinkFormat, claim: str, *, delivered: bool) -> None:
    """Remove the files made under the claim.

    With ``delivered`` it removes delivered rows too, otherwise only a result that never took a frame. It ignores missing files
    and does not touch those of another claim. It removes the position last, so that the call can be repeated after a kill or a
    power loss.
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
        sync_folder(position_file.parent)
        position_file.unlink()
        sync_folder(position_file.parent)
        if position.made_folder and not any(path.iterdir()):
            path.rmdir()
            sync_folder(path.absolute().parent)


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
