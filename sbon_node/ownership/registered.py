"""Values in replicated registers: read, and changed by compare-and-set (docs/design.md, section 10)."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.consensus.states import State
from sbon_node.ownership.store.registers import Attached, Registers
from sbon_protocol.errors import SbonError

T = TypeVar("T", bound=msgspec.Struct)

VERSIONS = "do all nodes run the same version?"

Step = Callable[[T], T | Awaitable[T | None] | None]
"""Returns the changed value, or None if nothing is to be changed; raises :class:`SbonError` if the change does not apply."""


class Held(NamedTuple, Generic[T]):
    """A value with its version. One that is not ``chosen`` was accepted by this node alone, with ``token`` as its newest."""

    value: T
    version: int
    chosen: bool = True
    token: str = ""
    references: tuple[str, ...] = ()


class Packed(NamedTuple, Generic[T]):
    """A value for its register, with its documents; ``value`` is as it will be read again."""

    content: bytes
    attached: Attached
    value: T


class Changed(NamedTuple, Generic[T]):
    """The value before and after a change; the same if nothing was to be changed."""

    before: T
    after: T


class Form(Protocol[T]):
    """How values of one type stand in their registers."""

    def packed(self, value: T, before: Held[T]) -> Packed[T]:
        """Return the content of a register with this value instead of the one ``before``."""

    async def unpacked(self, key: str, state: State, *alike: T) -> Held[T]:
        """Return the value of a state; values ``alike`` may have the same documents. Raises ``bad-record``."""

    def missing(self, key: str) -> SbonError:
        """Return the error for a register that no node that answers has."""

    def deleted(self, key: str) -> SbonError:
        """Return the error for a register that its acceptors have deleted."""


class MessagePacked(Generic[T]):
    """Values without documents of their own, as MessagePack: the common :class:`Form`."""

    def __init__(self, kind: type[T], missing: Callable[[str], SbonError], deleted: Callable[[str], SbonError]) -> None:
        self._kind, self.missing, self.deleted = kind, missing, deleted

    def packed(self, value: T, before: Held[T]) -> Packed[T]:
        return Packed(msgspec.msgpack.encode(value), Attached(before.references), value)

    async def unpacked(self, key: str, state: State, *alike: T) -> Held[T]:
        return Held(self.value(state), state.version, references=state.references)

    def value(self, state: State) -> T:
        """Return the value of a state; raise ``bad-record`` for anything else."""
        try:
            return msgspec.msgpack.decode(state.value, type=self._kind)
        except msgspec.MsgspecError as error:
            raise SbonError("bad-record", str(error), where=self._kind.__name__, hint=VERSIONS) from error


class Registered(Generic[T]):
    """Registers of one form. Calls raise ``no-majority`` as those of :class:`Registers` do."""

    def __init__(self, registers: Registers, form: Form[T]) -> None:
        self._registers, self._form = registers, form

    async def held(self, key: str) -> Held[T]:
        """Return the value at some moment of the call; raise the form's error for a missing one."""
        state = await self._registers.read(key)
        if state is None:
            raise self._form.missing(key)
        return await self._form.unpacked(key, state)

    async def change(self, key: str, step: Step[T], known: Held[T] | None = None) -> Changed[T]:
        """Change a value, and again while others change it at the same time.

        A ``known`` value saves the first read. If it is not chosen, an error of ``step`` for it, or no change of it, is decided
        again for the value that a majority has.
        """
        held = await self.held(key) if known is None else known
        while True:
            try:
                returned = step(held.value)
                changed = await returned if inspect.isawaitable(returned) else returned
            except SbonError:
                if held.chosen:
                    raise
                changed = None
            if changed is None and not held.chosen:
                held = await self.held(key)
                continue
            if changed is None:
                return Changed(held.value, held.value)
            content, attached, packed = self._form.packed(changed, held)
            outcome = await self._registers.compare_and_set(key, held.version, content, attached=attached, base=held.token)
            if outcome.state is None:
                raise self._form.deleted(key)
            after = await self._form.unpacked(key, outcome.state, packed, held.value)
            if outcome.verdict == Verdict.APPLIED:
                return Changed(held.value, after.value)
            if held.chosen and after.version == held.version:
                raise self._form.deleted(key)
            held = after
