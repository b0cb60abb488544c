"""This node as an acceptor of registers: each answer describes what is on disk."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.net.peers import Caller
from sbon_node.ownership.consensus.acceptor import (
    Accept,
    AcceptorRecord,
    Answer,
    Forgotten,
    MissingDocuments,
    Request,
    UnknownInstance,
    react,
)
from sbon_node.ownership.consensus.states import Accepted, Acceptor, Ballot, State
from sbon_node.ownership.store.query_keys import OPERATOR, key_of, query_of
from sbon_protocol.calls import AskRegister, RegisterAnswer
from sbon_protocol.codec import decode_record
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
        self._references = Counter(referenced)
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
            message, hint = (
                f"this node keeps {most_mb} MB of texts, plans and placements of queries",
                "raise control.documents_mb",
            )
            raise SbonError("documents-full", message, where=self._context.name, hint=f"{hint}, or submit elsewhere")
        for digest, content in new.items():
            self._context.store.put("document", digest, Document(content))
            self._sizes[digest] = len(content)

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count the references of a register that is stored now, and delete documents that no register refers to any more."""
        self._references.update(after)
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


MAX_VALUE_BYTES = 1024 * 1024
"""Most bytes of a register's value, which a message must hold."""

NONE: Final[Mapping[str, bytes]] = MappingProxyType({})
"""No documents."""

Listener = Callable[[str, State], None]
"""Called with key and state when this node has accepted a state, which need not be chosen; returns quickly."""


class Deleted(msgspec.Struct, frozen=True):
    """That a register is over and was deleted here, as the ``number``-th; ``end`` says in a word how it ended."""

    number: int
    end: str


class Replaced(msgspec.Struct, frozen=True):
    """That others keep a register instead of this node, which has deleted its copy, as the ``number``-th.

    ``era`` is that of the acceptors without this node. The node answers as an acceptor that is gone for good, until it is one
    again: an empty promise would let former acceptors that know of no others decide alone.
    """

    number: int
    era: int


class AcceptorStore:
    """The registers of which this node keeps a copy, bounded by ``control.max_registers``; the keys of those that are over and
    deleted, and of those that others keep instead, each bounded by ``control.max_forgotten``.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._records = context.store.all("register", AcceptorRecord)
        self.documents = DocumentStore(context, [digest for state in self.states.values() for digest in state.references])
        self._forgotten = dict(sorted(context.store.all("forgotten", Deleted).items(), key=lambda item: item[1].number))
        self._replaced = dict(sorted(context.store.all("replaced", Replaced).items(), key=lambda item: item[1].number))
        self._listeners: list[Listener] = []
        context.server.handle(AskRegister, self._handle)

    @property
    def me(self) -> Acceptor:
        own = self._context.membership.get(self._context.name)
        assert own is not None
        return Acceptor(own.name, own.instance)

    @property
    def states(self) -> Mapping[str, State]:
        """The accepted states by key."""
        return {key: record.accepted.state for key, record in self._records.items() if record.accepted is not None}

    def accepted(self) -> Iterator[tuple[str, Accepted]]:
        """Return what is accepted, with its ballot, by key."""
        return ((key, record.accepted) for key, record in self._records.items() if record.accepted is not None)

    def state(self, key: str) -> State | None:
        """Return the accepted state."""
        record = self._records.get(key)
        return None if record is None or record.accepted is None else record.accepted.state

    def promised(self, key: str) -> Ballot:
        """Return the ballot below which this acceptor refuses all."""
        return self._records.get(key, AcceptorRecord()).promised

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def serve(self, key: str, request: Request, documents: Mapping[str, bytes] = NONE) -> Answer:
        """Return the answer, after its cause is on disk. ``documents`` are some of those that a state to accept refers to.

        Raises ``too-many-registers``, ``documents-full``, ``too-large``, or the error of a disk that cannot be written: then
        nothing has changed.
        """
        if isinstance(request, Accept):
            _check_size(key, request.state)
        if self._is_over(key) and request.acceptor == self.me:
            return Forgotten()
        if self._is_replaced(key, request):
            return UnknownInstance(self.me)
        before = self._records.get(key, AcceptorRecord())
        record, answer = react(self.me, before, request)
        if record == before:
            return answer
        if key not in self._records and len(self._records) >= (most := self._context.settings.max_registers):
            message, hint = f"this node keeps {most} registers", "raise control.max_registers"
            raise SbonError("too-many-registers", message, where=key, hint=hint)
        if isinstance(request, Accept):
            missing = [one for one in self.documents.missing(request.state.references) if one not in documents]
            if missing:
                return MissingDocuments(request.ballot, tuple(missing))
            self.documents.keep(documents)
        self._context.store.put("register", key, record, sync=True)
        self._records[key] = record
        if key in self._replaced:
            del self._replaced[key]
            self._context.store.delete("replaced", key)
        if record.accepted is not None and record.accepted != before.accepted:
            self.documents.replace(_references(before), record.accepted.state.references)
            for listener in self._listeners:
                listener(key, record.accepted.state)
        return answer

    def end(self, key: str) -> str:
        """Return how a register ended that was deleted here with its end; empty for any other."""
        deleted = self._forgotten.get(key)
        return "" if deleted is None else deleted.end

    def operators(self) -> list[str]:
        """Return the keys of operators' registers of which this node keeps a copy."""
        return [key for key in self._records if key.startswith(OPERATOR)]

    def _is_over(self, key: str) -> bool:
        return key in self._forgotten or (key.startswith(OPERATOR) and key_of(query_of(key)) in self._forgotten)

    def _is_replaced(self, key: str, request: Request) -> bool:
        """Return whether the request is for the copy that this node has deleted, rather than for a new one."""
        replaced = self._replaced.get(key)
        if replaced is None:
            return False
        return not isinstance(request, Accept) or request.state.configuration.era <= replaced.era

    def retire(self, key: str, era: int) -> None:
        """Delete the copy of a register that other nodes keep instead, by its acceptors of that era, which are chosen."""
        number = 1 + (self._replaced[next(reversed(self._replaced))].number if self._replaced else 0)
        self._replaced.pop(key, None)
        self._replaced[key] = Replaced(number, era)
        self._context.store.put("replaced", key, self._replaced[key], sync=True)
        while len(self._replaced) > self._context.settings.max_forgotten:
            oldest = next(iter(self._replaced))
            self._context.store.delete("replaced", oldest)
            del self._replaced[oldest]
        self.forget(key)

    def forget(self, key: str, *, end: str = "") -> None:
        """Delete the copy of a register.

        With its ``end`` in a word it never comes back: a late message gets :class:`Forgotten` for an answer. That is only for
        keys that no proposer creates a second time.
        """
        if end and key not in self._forgotten:
            number = 1 + (self._forgotten[next(reversed(self._forgotten))].number if self._forgotten else 0)
            self._forgotten[key] = Deleted(number, end)
            self._context.store.put("forgotten", key, self._forgotten[key])
            while len(self._forgotten) > self._context.settings.max_forgotten:
                oldest = next(iter(self._forgotten))
                self._context.store.delete("forgotten", oldest)
                del self._forgotten[oldest]
        if key in self._records:
            self._context.store.delete("register", key)
            self.documents.replace(_references(self._records.pop(key)), ())

    async def _handle(self, call: AskRegister, caller: Caller) -> RegisterAnswer:
        request: Request = decode_record(call.request, Request)
        wanted = request.state.references if isinstance(request, Accept) else ()
        return RegisterAnswer(answer=self.serve(call.key, request, verified(call.documents, wanted, caller.node)))


def _references(record: AcceptorRecord) -> tuple[str, ...]:
    return () if record.accepted is None else record.accepted.state.references


def _check_size(key: str, state: State) -> None:
    if len(state.value) > MAX_VALUE_BYTES:
        raise SbonError("too-large", f"{len(state.value)} bytes in a register", where=key)
    if len(state.references) > MAX_REFERENCES:
        raise SbonError("too-large", f"{len(state.references)} documents of a register", where=key)
