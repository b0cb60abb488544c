"""What the file sink's result holds, and whose it is: stated in a file beside it, made, taken up and withdrawn as one.

A claim is a word of chance that names one opening of one sink. Only what was made under it is ever removed for it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import msgspec

from sbon_node.connectors.sink_files import SinkFormat
from sbon_node.disk import create, named_errors, sync_folder
from sbon_node.errors import SbonError


class FilePosition(msgspec.Struct, frozen=True, kw_only=True):
    """What the result holds; stored as JSON, for people may look. ``made_folder``: the claim has made the folder of parts."""

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
    """Raises ``sink-exists`` where something is at the path already, ``bad-option`` where nothing can be."""
    if position_path(path, kind).exists() or (any(path.iterdir()) if path.is_dir() and kind == "parquet" else path.exists()):
        raise _exists(path)
    if not path.absolute().parent.is_dir():
        raise _no_folder(path)
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise SbonError("bad-option", f"{path.absolute().parent} may not be written to", where="options.path")


def position_path(path: Path, kind: SinkFormat) -> Path:
    """Where the position is kept; readers of a folder of Parquet pass over names that begin with an underscore."""
    return path / "_position.json" if kind == "parquet" else path.with_name(path.name + ".position")


def part_path(path: Path, number: int) -> Path:
    return path / f"part-{number:05d}.parquet"


def make_claim(path: Path, kind: SinkFormat, columns: tuple[str, ...], claim: str) -> FilePosition:
    """Makes an empty result, durably; or raises ``sink-exists``, ``bad-option`` or the disk's own errors and leaves nothing."""
    check_free(path, kind)
    stated = position_path(path, kind)
    try:
        with ExitStack() as made:
            made_folder = kind == "parquet" and not path.is_dir()
            if made_folder:
                path.mkdir()
                made.callback(path.rmdir)
            position = FilePosition(format=kind, columns=columns, claim=claim, made_folder=made_folder)
            create(stated, msgspec.json.encode(position), claim)
            made.callback(stated.unlink)
            if kind != "parquet":
                with open(path, "xb"):
                    made.callback(path.unlink)
            sync_folder(stated.parent)
            sync_folder(path.absolute().parent)
            made.pop_all()
    except FileExistsError as error:
        raise _exists(path) from error
    except FileNotFoundError as error:
        raise _no_folder(path) from error
    return position


def take_up(path: Path, kind: SinkFormat, columns: tuple[str, ...], claim: str) -> FilePosition:
    """As it was stated last; raises ``sink-lost`` where it is gone, or not of this claim."""
    stated = position_path(path, kind)
    try:
        position = msgspec.json.decode(stated.read_bytes(), type=FilePosition)
    except FileNotFoundError as error:
        raise lost(path, f"{stated.name} is gone") from error
    except msgspec.DecodeError as error:
        raise lost(path, f"{stated.name} cannot be read: {error}") from error
    if (position.format, position.columns, position.claim) != (kind, columns, claim):
        raise lost(path, "it holds another result")
    return position


def withdraw(path: Path, kind: SinkFormat, claim: str, *, delivered: bool) -> None:
    """Removes what was made under the claim: ``delivered`` rows as well, or else only a result that never took a frame. Of
    what is not there, or another's, nothing is touched. The position goes last, so that this may be repeated after a kill."""
    stated = position_path(path, kind)
    with named_errors(path):
        stated.with_name(f"{stated.name}.{claim}.new").unlink(missing_ok=True)
        try:
            position = msgspec.json.decode(stated.read_bytes(), type=FilePosition)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return
        if position.claim != claim or (not delivered and (position.streams or position.finished)):
            return
        # An interrupted write may have left one part more than is stated.
        parts = [part_path(path, number) for number in range(1, position.parts + 2)]
        for name in parts if kind == "parquet" else [path]:
            name.unlink(missing_ok=True)
        stated.with_name(stated.name + ".new").unlink(missing_ok=True)
        stated.unlink()
        if position.made_folder and not any(path.iterdir()):
            path.rmdir()


def lost(path: Path, reason: str) -> SbonError:
    return SbonError("sink-lost", f"the result is not what was written: {reason}", where=str(path), hint="submit the query again")


def _exists(path: Path) -> SbonError:
    return SbonError("sink-exists", f"there is something at {path} already", where="options.path", hint="name another path")


def _no_folder(path: Path) -> SbonError:
    return SbonError("bad-option", f"there is no folder {path.absolute().parent}", where="options.path")
