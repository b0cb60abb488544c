"""Files of a copy as they arrive on this node's disk, each under its digest, so that a copy goes on where it broke off."""

import hashlib
import os
import shutil
from collections.abc import Collection, Container, Iterable, Sequence
from pathlib import Path

from sbon_node.base.disk import named_errors, sync_path
from sbon_node.engine.manifest import CopiedFile
from sbon_protocol.errors import SbonError

_CHUNK_BYTES = 1 << 20
_PART = ".part"


class ReceivedFiles:
    """The complete files and partial ones in ``folder``. All methods block, and raise ``disk-full`` or ``disk-error``.

    Files ``also`` needed, named by their digests, stay beside those of a copy.
    """

    def __init__(self, folder: Path, also: Collection[str] = ()) -> None:
        self._folder, self._also = folder, also
        self._hash = hashlib.sha256()

    def keep(self, files: Sequence[CopiedFile]) -> list[CopiedFile]:
        """Delete all that belongs to none of the ``files``; return those to fetch, each content once.

        Raises :class:`SbonError` ``disk-full`` where the disk has too little room for them, installed once more.
        """
        self.keep_begun(files)
        with named_errors(self._folder):
            contents = {file.digest: file for file in files if not (self._folder / file.digest).exists()}
            lacking = sum(file.bytes for file in contents.values()) + sum(file.bytes for file in files)
            if shutil.disk_usage(self._folder).free < lacking:
                raise SbonError("disk-full", f"a copy needs {lacking:,} bytes", where=str(self._folder), hint="free space")
        return list(contents.values())

    def keep_begun(self, files: Iterable[CopiedFile]) -> None:
        """Delete all that belongs to none of the ``files``, complete or not."""
        names = {name for file in files for name in (file.digest, file.digest + _PART)}.union(self._also)
        with named_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(self._folder.iterdir()):
                if path.name not in names:
                    path.unlink()

    def has_begun(self, file: CopiedFile) -> bool:
        """Return whether some bytes of the file are here; a short look at the folder."""
        return self._part(file).exists()

    def begin(self, file: CopiedFile) -> int:
        """Go on with a file that has begun; return the offset of the next byte."""
        self._hash = hashlib.sha256()
        part = self._part(file)
        with named_errors(part), part.open("ab+") as existing:
            if existing.tell() >= file.bytes:  # all its bytes, of which nobody has checked the digest
                existing.truncate(0)
            existing.seek(0)
            while chunk := existing.read(_CHUNK_BYTES):
                self._hash.update(chunk)
            return existing.tell()

    def add(self, file: CopiedFile, offset: int, payload: bytes) -> bool | None:
        """Append bytes to a file; with its last ones give it its final name, or delete it if its digest is wrong.

        Return whether it was right, None before its last byte. Files come one after another.
        """
        part = self._part(file)
        if offset == 0:
            self._hash = hashlib.sha256()
        with named_errors(part):
            with part.open("wb" if offset == 0 else "ab") as open_file:
                open_file.write(payload)
            self._hash.update(payload)
            if offset + len(payload) < file.bytes:
                return None
            if self._hash.hexdigest() != file.digest:
                part.unlink()
                return False
            part.rename(self._folder / file.digest)
            return True

    def store(self, contents: Iterable[bytes], files: Sequence[CopiedFile]) -> None:
        """Store the contents of whole files that are among ``files``; delete all that belongs to none of these."""
        self.keep_begun(files)
        digests = {file.digest for file in files}
        for content in contents:
            digest = hashlib.sha256(content).hexdigest()
            if digest not in digests:
                continue
            with named_errors(self._folder):
                part = self._folder / (digest + _PART)
                part.write_bytes(content)
                part.rename(self._folder / digest)

    def lacking(self, files: Iterable[CopiedFile]) -> list[CopiedFile]:
        """Return the files that are not here, or have another size."""
        return [file for file in files if _size(self._folder / file.digest) != file.bytes]

    def sync(self, digests: Iterable[str]) -> None:
        """Bring files and their names to the disk."""
        with named_errors(self._folder):
            for path in (*(self._folder / digest for digest in digests), self._folder):
                sync_path(path)

    def keep_only(self, digests: Container[str]) -> None:
        """Delete all other files."""
        with named_errors(self._folder):
            for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                if path.name not in digests:
                    path.unlink()

    def assemble(self, files: Iterable[CopiedFile], into: Path) -> None:
        """Give every file its path in the new folder ``into``, on the same disk."""
        with named_errors(into):
            shutil.rmtree(into, ignore_errors=True)
            for file in files:
                target = into / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._folder / file.digest, target)

    def delete(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _part(self, file: CopiedFile) -> Path:
        return self._folder / (file.digest + _PART)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
