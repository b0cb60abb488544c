"""Documents that registers refer to by their SHA-256: large, never changed, on disk beside this node's copies of registers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
import structlog

from sbon_node.context import Context
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Most bytes of a document. A message holds a register's value and all its documents."""
MAX_REFERENCES = 3
"""Most documents of one register."""


def digest_of(content: bytes) -> str:
    """Return the name of a document."""
    return hashlib.sha256(content).hexdigest()


class Document(msgspec.Struct, frozen=True):
    content: bytes


class DocumentStore:
    """The documents of this node's registers, each once. Bounded by ``control.documents_mb``.

    A document is stored before the register that refers to it and deleted after it. So a node that dies in between has one too
    many, which the next start deletes; ``referenced`` are the digests that its registers name then.
    """

    def __init__(self, context: Context, referenced: Iterable[str]) -> None:
        self._context = context
        self._sizes = context.store.sizes("document")
        self._references: dict[str, int] = {}
        for digest in referenced:
            self._references[digest] = self._references.get(digest, 0) + 1
        for digest in [digest for digest in self._sizes if digest not in self._references]:
            self._delete(digest)

    def digests(self) -> list[str]:
        """Return the digests of all documents here."""
        return list(self._sizes)

    def get(self, digest: str) -> bytes | None:
        document = self._context.store.get("document", digest, Document) if digest in self._sizes else None
        return None if document is None else document.content

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        return tuple(digest for digest in digests if digest not in self._sizes)

    def keep(self, documents: Mapping[str, bytes]) -> None:
        """Store documents by digest, to be on disk with the next synced record; raise ``documents-full``."""
        new = {digest: content for digest, content in documents.items() if digest not in self._sizes}
        most_mb = self._context.settings.documents_mb
        if new and sum(self._sizes.values()) + sum(map(len, new.values())) > most_mb * 1_000_000:
            raise SbonError(
                "documents-full",
                f"this node keeps {most_mb} MB of texts, plans and placements of queries",
                where=self._context.name,
                hint="raise control.documents_mb, or submit elsewhere",
            )
        for digest, content in new.items():
            self._context.store.put("document", digest, Document(content))
            self._sizes[digest] = len(content)

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count the references of a register that is stored now, and delete documents that no register refers to any more."""
        for digest in after:
            self._references[digest] = self._references.get(digest, 0) + 1
        for digest in before:
            self._references[digest] -= 1
            if not self._references[digest]:
                del self._references[digest]
                self._delete(digest)

    def _delete(self, digest: str) -> None:
        """Delete a document; where the disk refuses, the next start does."""
        try:
            self._context.store.delete("document", digest)
        except SbonError as error:
            log.info("document-not-deleted", digest=digest, reason=str(error))
        else:
            self._sizes.pop(digest, None)


def verified(documents: Iterable[bytes], wanted: Iterable[str], peer: str) -> dict[str, bytes]:
    """Return a peer's documents by digest; raise ``bad-digest`` for one that is not ``wanted``, ``too-large``."""
    by_digest = {}
    for position, content in enumerate(documents):
        if len(content) > MAX_DOCUMENT_BYTES:
            raise SbonError("too-large", f"{len(content)} bytes from {peer}", where=f"documents[{position}]")
        digest = digest_of(content)
        if digest not in wanted:
            message = f"{peer} sent a document of SHA-256 {digest}, which was not asked for"
            raise SbonError("bad-digest", message, where=f"documents[{position}]", hint="check that node's disk and network")
        by_digest[digest] = content
    return by_digest
