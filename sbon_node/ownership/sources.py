"""Registers of replicated sources: who hosts each, in which epoch, and its backup.

A register is made once, by the node at which its source is attached, and deleted when the catalogue knows that it is gone.
A node that finds no register at a later start waits: it may be cut off from the nodes that keep it.
"""

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.model.records import SourceRegister
from sbon_node.net.peers import Expected
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.consensus.states import Acceptor, chosen
from sbon_node.ownership.registered import MessagePacked, Registered
from sbon_node.ownership.store.query_keys import SOURCE
from sbon_node.ownership.store.registers import Registers
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class UnmadeRegister(msgspec.Struct, frozen=True):
    """The acceptors of the register of a source that was attached here, until this node has seen the register.

    Repeated at the same acceptors, a creation makes no second register.
    """

    acceptors: tuple[Acceptor, ...]


class SourceRegisters:
    """Reads and changes them, at any node. Calls raise ``no-majority`` as those of :class:`Registers` do."""

    def __init__(self, context: Context, registers: Registers, catalogue: Catalogue) -> None:
        self._context, self._registers, self._catalogue = context, registers, catalogue
        self._registered = Registered(registers, FORM)

    @property
    def me(self) -> Expected:
        return self._context.membership.expected(self._context.name)

    def attach(self, source: str) -> None:
        """Choose the acceptors of the register of a source that is about to be attached here."""
        unmade = UnmadeRegister(chosen(source, self._registers.candidates(alive=True)))
        self._context.store.put("source-register", source, unmade, sync=True)

    async def begin(self, source: SourceDeclaration) -> SourceRegister:
        """Return the register of a source that is declared here, and make it if the source has just been attached.

        A node that has lost its disk begins anew with a source of which no backup has anything. Raises ``record-unknown`` if no
        node that answers has the register, and it may have been made before.
        """
        unmade = self._context.store.get("source-register", source.id, UnmadeRegister)
        try:
            register = await self.read(source.id)
        except SbonError as error:
            if error.code != "record-unknown" or unmade is None or source.epoch > 1:
                raise
            node, instance = self.me
            value = msgspec.msgpack.encode(SourceRegister(id=source.id, host=node, instance=instance))
            await self._registers.create(source.id, value, unmade.acceptors)
            register = await self.read(source.id)
        if unmade is not None:
            self._context.store.delete("source-register", source.id)
        if register.host != self.me.node or register.instance == self.me.instance or register.backup:
            return register

        def begun(register: SourceRegister) -> SourceRegister | None:
            if register.host != self.me.node or register.instance == self.me.instance or register.backup:
                return None
            return msgspec.structs.replace(register, instance=self.me.instance, epoch=register.epoch + 1)

        return (await self._registered.change(source.id, begun)).after

    async def read(self, source: str) -> SourceRegister:
        """Return the register at some moment of the call; raise ``record-unknown``."""
        return (await self._registered.held(source)).value

    async def set_backup(self, source: str, epoch: int, backup: Expected) -> None:
        """Name the node that has stored all that this node's source has shown. Raises ``not-owner``."""

        def named(register: SourceRegister) -> SourceRegister | None:
            if (register.host, register.instance, register.epoch) != (*self.me, epoch):
                raise _not_owner(register)
            if (register.backup, register.backup_instance) == backup:
                return None
            return msgspec.structs.replace(register, backup=backup.node, backup_instance=backup.instance)

        await self._registered.change(source, named)

    async def take_over(self, source: str, host: str, epoch: int) -> SourceRegister:
        """Make this node, the backup, the host in the epoch after ``epoch``; return the register as it is then.

        Repeated after a lost answer, it changes nothing. Raises ``not-owner`` unless ``host`` hosts the source in ``epoch`` and
        this node is its backup.
        """

        def taken(register: SourceRegister) -> SourceRegister | None:
            if (register.host, register.instance, register.epoch) == (*self.me, epoch + 1):
                return None
            is_backup = (register.backup, register.backup_instance) == self.me
            if not is_backup or (register.host, register.epoch) != (host, epoch):
                raise _not_owner(register)
            return SourceRegister(id=source, host=self.me.node, instance=self.me.instance, epoch=epoch + 1)

        return (await self._registered.change(source, taken)).after

    async def run(self) -> None:
        """Delete the registers of sources that are gone, for ever."""
        settings = self._context.settings
        while True:
            await self._context.clock.sleep(settings.orphan_check_s * self._context.rng.uniform(0.5, 1.0))
            for key in self._registers.kept(SOURCE):
                if self._catalogue.is_detached(key):
                    self._registers.forget(key)
            for key in self._context.store.sizes("source-register"):
                if self._catalogue.is_detached(key):
                    self._context.store.delete("source-register", key)


FORM = MessagePacked(
    SourceRegister,
    missing=lambda source: SbonError("record-unknown", "no node that answers has its register", where=source),
    deleted=lambda source: SbonError("record-unknown", "its register was deleted", where=source),
)


def _not_owner(register: SourceRegister) -> SbonError:
    message = f"it belongs to {register.host} in epoch {register.epoch}, with {register.backup or 'no'} backup"
    return SbonError("not-owner", message, where=register.id)
