"""This node as an acceptor of registers: each answer describes what is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sbon_node.errors import SbonError
from sbon_node.net.peers import Caller
from sbon_node.registers.acceptor import Accept, AcceptorRecord, Answer, Request, react
from sbon_node.registers.states import Accepted, Acceptor, State
from sbon_node.workflow.context import Context
from sbon_protocol.calls import AskRegister, RegisterAnswer
from sbon_protocol.codec import decode_record

MAX_VALUE_BYTES = 1024 * 1024
"""Most bytes of a register's value, which a message must hold."""

Listener = Callable[[str, State], None]
"""Called with key and state when this node has accepted a state, which need not be chosen; returns quickly."""


class AcceptorStore:
    """The registers of which this node keeps a copy. Bounded by ``control.max_registers``."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._records = context.store.all("register", AcceptorRecord)
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

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def serve(self, key: str, request: Request) -> Answer:
        """Return the answer, after its cause is on disk.

        Raises ``too-many-registers``, ``too-large``, or the error of a disk that cannot be written: then nothing has changed.
        """
        if isinstance(request, Accept) and len(request.state.value) > MAX_VALUE_BYTES:
            raise SbonError("too-large", f"{len(request.state.value)} bytes in a register", where=key)
        before = self._records.get(key, AcceptorRecord())
        record, answer = react(self.me, before, request)
        if record == before:
            return answer
        if key not in self._records and len(self._records) >= (most := self._context.settings.max_registers):
            raise SbonError(
                "too-many-registers", f"this node keeps {most} registers", where=key, hint="raise control.max_registers"
            )
        self._context.store.put("register", key, record, sync=True)
        self._records[key] = record
        if record.accepted is not None and record.accepted != before.accepted:
            for listener in self._listeners:
                listener(key, record.accepted.state)
        return answer

    def forget(self, key: str) -> None:
        """Delete a register that will never be used again: only for keys that no proposer creates a second time."""
        if key in self._records:
            self._context.store.delete("register", key)
            del self._records[key]

    async def _handle(self, call: AskRegister, caller: Caller) -> RegisterAnswer:
        request: Request = decode_record(call.request, Request)
        return RegisterAnswer(answer=self.serve(call.key, request))
