"""The list of the files of a copy, as it travels."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from sbon_node.engine.manifest import CopiedFile
from sbon_protocol.errors import ProtocolError

_MAX_LINE_BYTES = 2048
"""Most bytes of one file in the list: its path in JSON, with everything escaped, its size and its digest."""
FILE_OVERHEAD_BYTES = 64
"""Cost of a chunk beside its bytes, so that empty files are bounded too."""


class CopyLimits(NamedTuple):
    """The largest copy that a node sends or takes."""

    max_files: int
    max_bytes: int

    @property
    def max_list_bytes(self) -> int:
        return 1024 + self.max_files * _MAX_LINE_BYTES


class CopyList(msgspec.Struct, frozen=True, kw_only=True):
    """All files of a copy, in the order of their numbers from 1 on."""

    files: tuple[CopiedFile, ...]
    version: Annotated[int, Meta(ge=1)] = 1


def encode_list(files: Sequence[CopiedFile]) -> bytes:
    """Return the JSON text of the list."""
    return msgspec.json.encode(CopyList(files=tuple(files)))


def decode_list(content: bytes, limits: CopyLimits) -> tuple[CopiedFile, ...]:
    """Return the files in a peer's list; raise :class:`ProtocolError` ``invalid`` or ``too-large``.

    No two files have one path, and no file's path is that of another file's folder.
    """
    try:
        files = msgspec.json.decode(content, type=CopyList).files
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError("invalid", f"the list of files cannot be read: {error}") from error
    check_list(files, limits)
    return files


def check_list(files: Sequence[CopiedFile], limits: CopyLimits) -> None:
    """Raise :class:`ProtocolError` ``invalid`` or ``too-large`` for a peer's list of files: as :func:`decode_list`."""
    size = sum(file.bytes for file in files)
    if len(files) > limits.max_files or size > limits.max_bytes:
        raise ProtocolError(
            "too-large", f"{len(files)} files of {size} bytes, the limits are {limits.max_files} and {limits.max_bytes}"
        )
    parts = [tuple(file.path.split("/")) for file in files]
    if any(part in ("", ".", "..") or "\0" in part for path in parts for part in path):
        raise ProtocolError("invalid", "a path in the list of files is not plain")
    folders = {path[:length] for path in parts for length in range(1, len(path))}
    if len(set(parts)) < len(parts) or folders & set(parts):
        raise ProtocolError("invalid", "two files in the list have one path")
    if len({(file.digest, file.bytes) for file in files}) > len({file.digest for file in files}):
        raise ProtocolError("invalid", "two files in the list have one digest and different sizes")
