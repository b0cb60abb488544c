"""Documents for this node's use: from its own disk, from memory, or from an acceptor that has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from sbon_node.errors import SbonError
from sbon_node.net.peers import Caller
from sbon_node.registers.states import Acceptor
from sbon_node.replication.document_store import DocumentStore, verified
from sbon_node.workflow.context import Context
from sbon_protocol.calls import FetchDocuments, FetchedDocuments

log = structlog.get_logger()

REMEMBERED_BYTES = 16 * 1024 * 1024
"""Bytes of documents that a node remembers without being an acceptor of their registers; the oldest go."""


class Documents:
    """Documents of the whole cluster's registers, found by digest."""

    def __init__(self, context: Context, store: DocumentStore) -> None:
        self._context, self._store = context, store
        self._remembered: dict[str, bytes] = {}
        context.server.handle(FetchDocuments, self._handle)

    def remember(self, documents: Mapping[str, bytes]) -> None:
        """Keep documents in memory, for acceptors that miss them and for the next reader."""
        for digest, content in documents.items():
            self._remembered.pop(digest, None)
            self._remembered[digest] = content
        size = sum(map(len, self._remembered.values()))
        while size > REMEMBERED_BYTES:
            size -= len(self._remembered.pop(next(iter(self._remembered))))

    async def get(self, digests: Iterable[str], acceptors: Iterable[Acceptor]) -> dict[str, bytes]:
        """Return documents by digest; raise ``document-unknown`` if no acceptor that answers has one of them."""
        documents, missing = {}, []
        for digest in digests:
            content = self._remembered.get(digest) or self._store.get(digest)
            if content is None:
                missing.append(digest)
            else:
                documents[digest] = content
        for node in [one.node for one in acceptors if one.node != self._context.name]:
            if not missing:
                break
            fetched = await self._fetch(node, tuple(missing))
            self.remember(fetched)
            documents.update(fetched)
            missing = [digest for digest in missing if digest not in fetched]
        if missing:
            raise SbonError("document-unknown", f"no acceptor that answers has the document {missing[0]}", where=missing[0])
        return documents

    async def _fetch(self, node: str, digests: tuple[str, ...]) -> dict[str, bytes]:
        """Return those of the documents that a node has; none if it does not answer, or sends others."""
        try:
            timeout_s = self._context.settings.component_timeout_s
            reply = await self._context.ask(node, FetchDocuments(digests=digests), FetchedDocuments, timeout_s=timeout_s)
            return verified(reply.documents, digests, node)
        except SbonError as error:
            if error.code in ("bad-digest", "too-large"):
                self._context.counters.refuse("document-refused", peer=node, field=error.where, reason=str(error))
            log.info("documents-not-fetched", node=node, code=error.code, reason=str(error))
            return {}

    async def _handle(self, call: FetchDocuments, caller: Caller) -> FetchedDocuments:
        found = map(self._store.get, call.digests)
        return FetchedDocuments(documents=tuple(content for content in found if content is not None))
