"""The backup of a source of this node: nothing that the source shows, or confirms to a sender, is at this node alone.

Each transaction goes to the backup first. The register of the source names the backup, and changes only once a new one has
stored all that was shown. So one of the two nodes that the register names has everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import structlog

from sbon_node.base.tasks import check_cancelled
from sbon_node.hosting.standby.choice import FENCED, TOO_LARGE, UNREACHABLE, BackupChoice
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.shipment import PIECE_BYTES, PIECE_FRAMES
from sbon_node.model.frames import Frame, FrameDraft
from sbon_node.model.records import SourceRegister
from sbon_node.net.peers import Expected
from sbon_node.overlay.presence import AS_BACKUP
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.streams.outbox.sources import Growth
from sbon_node.workflow.context import Context
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.states.backup_states import BEHIND, COPYING, CURRENT, MISSING, BackupState
from sbon_protocol.errors import SbonError
from sbon_protocol.source_backup import OpenSourceBackup, SourceBackupOpened, StoreSource, YieldSource

log = structlog.get_logger()

UNKNOWN = "record-unknown"
"""Refusal of a backup that reaches nobody who keeps the register: it says nothing of who hosts the source."""

Waits = Callable[[str], None]
"""Called with the reason why a transaction has to wait for the backup."""


class SourceBackupParts(NamedTuple):
    """Parts for each backup of this node's sources. ``moved`` is called for a source that another node hosts by now."""

    context: Context
    registers: SourceRegisters
    settings: BackupSettings
    moved: Callable[[SourceDeclaration, SourceRegister], None]


class SourceBackup:
    """Stores what one source shows at another node, which it chooses, and replaces when that is gone."""

    def __init__(self, source: SourceDeclaration, parts: SourceBackupParts) -> None:
        self._source, self._parts, self._context = source, parts, parts.context
        self._lock = asyncio.Lock()
        self._epoch = 0
        self._backup: Expected | None = None
        self._is_open = self._is_named = False
        """Whether the backup has answered since it was last out of reach, and whether the register names it."""
        self._last = -1
        """The last frame that it has stored; below 0 before it has stored a position."""
        self._sent = 0
        """The last frame sent since this node started: its backup has no later one, unless this node has lost it."""
        self._position: bytes | None = None
        self._stored_s: float | None = None
        self._is_behind = False
        self._choice = BackupChoice(parts.context, parts.settings, insists=True)
        self._missed = parts.context.presence.watch(AS_BACKUP)
        self._given_up: Expected | None = None
        self._reason = ""

    # -- for the source's runner --------------------------------------------------------------------------------------

    async def begin(self, waits: Waits) -> int:
        """Return the epoch in which this node hosts the source, once that is known.

        Raises :class:`SbonError` ``fenced`` if another node does.
        """
        while True:
            try:
                register = await self._parts.registers.begin(self._source)
                self._check_host(register)
                self._epoch = register.epoch
                return self._epoch
            except SbonError as error:
                check_cancelled()
                if error.code == "fenced":
                    raise
                waits(f"its register cannot be read: {error.message}")
            await self._context.clock.sleep(self._context.settings.retry_s)

    async def store(self, drafts: Sequence[FrameDraft], position: bytes, waits: Waits) -> None:
        """Return once the backup has stored the source's next frames with that position, however long that takes.

        Repeated after a failure of the local write, it is stored again. Raises ``fenced`` if this node may not show anything any
        more, and ``frame-too-large``.
        """
        self._is_behind = True
        while True:
            async with self._lock:
                if await self._try(drafts, position):
                    self._position, self._is_behind = position, False
                    return
            waits(f"its backup has to store its rows first: {self._reason}")
            await self._context.clock.sleep(self._context.settings.retry_s)

    async def _try(self, drafts: Sequence[FrameDraft], position: bytes) -> bool:
        """Store the transaction; return False after a passing failure, which is kept for users."""
        try:
            if not self._is_open:
                await self._open()
            await self._send(self._context.outbox.sources.growth(self._source.id, drafts), position)
            if not self._is_named:
                await self._name()
        except SbonError as error:
            check_cancelled()
            if error.code == "frame-too-large":
                raise
            if error.code in FENCED and error.code != UNKNOWN:
                self._is_open = False
                await self._find_successor()
                raise SbonError("fenced", f"another node goes on with it: {error.message}", where=self._source.id) from error
            self._fails(error)
            return False
        self._stored_s, self._reason = self._context.clock.now(), ""
        self._missed.keep(())
        return True

    async def check(self) -> None:
        """Look whether this node still hosts the source, and whether its backup is still there; choose another if need be."""
        if self._lock.locked():
            return
        async with self._lock:
            position = self._context.outbox.position(self._source.id)
            if position is None or position != self._position:
                return  # A transaction is on its way from the backup to the disk of this node.
            try:
                self._check_host(await self._parts.registers.read(self._source.id))
            except SbonError as error:
                check_cancelled()
                log.info("source-not-checked", source=self._source.id, code=error.code, reason=str(error))
                return
            if self._backup is None or not self._context.presence.has(*self._backup):
                self._is_open = False
                await self._try((), position)

    def _check_host(self, register: SourceRegister) -> None:
        """Raise ``fenced``, and give the source up, if another node hosts it, or this node did so with another disk."""
        me = self._parts.registers.me
        if (register.host, register.instance) == me:
            return
        if register.host != me.node:
            self._parts.moved(self._source, register)
        message = f"it belongs to {register.host} in epoch {register.epoch}"
        if register.host == me.node:
            message = f"{register.backup} is its backup, and goes on with what this node has lost"
        raise SbonError("fenced", message, where=self._source.id)

    async def _find_successor(self) -> None:
        try:
            self._check_host(await self._parts.registers.read(self._source.id))
        except SbonError as error:
            check_cancelled()
            log.info("source-given-up", source=self._source.id, code=error.code, reason=str(error))

    # -- finding a backup ---------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Ask the backup that the register names, or else the nearest node that keeps one."""
        register = await self._parts.registers.read(self._source.id)
        self._check_host(register)
        self._epoch = register.epoch
        named = Expected(register.backup, register.backup_instance)
        if self._backup is None and register.backup and named != self._given_up:
            self._backup = named
        if self._backup is not None and self._context.presence.has_lost_disk(*self._backup):
            self._give_up()
        if self._backup is None:
            await self._choice.choose(self._ask, self._source.id, "add a node")
            return
        self._is_named = named == self._backup
        try:
            await self._ask(self._backup)
        except SbonError as error:
            if error.code not in FENCED and (not self._is_named or error.code not in UNREACHABLE):
                self._choice.refuse(self._backup.node)
                self._give_up()
            raise

    async def _ask(self, backup: Expected) -> None:
        outbox, source = self._context.outbox, self._source.id
        call = OpenSourceBackup(source, self._epoch, outbox.lineage(source))
        opened = await self._context.ask(backup.node, call, SourceBackupOpened)
        if opened.last > max(outbox.latest(source), self._sent):
            await self._context.call(backup.node, YieldSource(source, self._epoch))
            raise SbonError("fenced", f"{backup.node} has frames up to {opened.last}, which this node has lost", where=source)
        if backup != self._backup:
            self._backup, self._is_named = backup, False
        self._is_open, self._last = True, opened.last

    def _fails(self, error: SbonError) -> None:
        """Keep the reason, and give up a backup that is gone."""
        reason = str(error)
        if reason != self._reason:
            log.warning("source-backup-waits", source=self._source.id, code=error.code, reason=reason)
        self._reason, self._is_open = reason, False
        if self._backup is not None and error.code == TOO_LARGE:
            self._choice.refuse(self._backup.node)
            self._give_up()
        elif self._backup is not None and self._missed.gone(*self._backup):
            self._give_up()

    def _give_up(self) -> None:
        """Look for another backup, which needs all that is retained."""
        log.warning("source-backup-given-up", source=self._source.id, backup=self._backup, reason=self._reason)
        self._given_up, self._backup = self._backup, None
        self._is_open = self._is_named = False
        self._missed.keep(())

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _send(self, growth: Growth, position: bytes) -> None:
        """Send what the backup lacks: shown frames, if it is new, and those of the transaction."""
        assert self._backup is not None
        last = growth.state.tail.last
        self._sent = max(self._sent, last)
        for after, frames in self._pieces(growth):
            more = after + len(frames) < last
            called = (self._source.id, self._epoch, growth.state, after, b"" if more else position)
            call = StoreSource(*called, frames=tuple(frames), more=more)
            await self._context.call(self._backup.node, call)
        self._last = last

    def _pieces(self, growth: Growth) -> Iterator[tuple[int, list[Frame]]]:
        """Yield numbers with the frames that follow them, up to the transaction's last one, which may have none."""
        sources, after, last = self._context.outbox.sources, self._last, growth.state.tail.last
        if after >= last:
            yield last, []
            return
        while after < last:
            after = max(after, sources.trimmed(self._source.id))
            if after < growth.after:
                frames = sources.retained(self._source.id, after, PIECE_BYTES)
            else:
                frames = _within(growth.frames[after - growth.after :])
            frames = frames[:PIECE_FRAMES]
            yield after, frames
            after += len(frames)

    async def _name(self) -> None:
        """Name the backup in the register: it has stored all that was shown.

        A backup that the register does not name may forget the source, so it is asked once more.
        """
        assert self._backup is not None
        last = self._last
        await self._parts.registers.set_backup(self._source.id, self._epoch, self._backup)
        await self._ask(self._backup)
        if self._last < last:
            raise SbonError("backup-unknown", f"{self._backup.node} has forgotten frame {last}", where=self._source.id)
        self._is_named = True
        log.info("source-backup-named", source=self._source.id, backup=self._backup.node, epoch=self._epoch)

    # -- for users ----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch in which this node hosts the source; 0 before it is known."""
        return self._epoch

    def info(self) -> BackupInfo:
        """Return how current the backup is."""
        named: BackupState = BEHIND if self._is_behind or self._reason else CURRENT
        state: BackupState = MISSING if self._backup is None else named if self._is_named else COPYING
        return BackupInfo(
            state=state,
            node="" if self._backup is None else self._backup.node,
            batch=self._last if self._last >= 0 else None,
            age_s=None if self._stored_s is None else max(0.0, self._context.clock.now() - self._stored_s),
            reason=self._reason[:MAX_REASON],
        )


def _within(frames: Sequence[Frame]) -> list[Frame]:
    """Return the first frames, of at most :data:`PIECE_BYTES` together, but at least one."""
    kept, size = list[Frame](), 0
    for frame in frames:
        size += len(frame.payload)
        if kept and size > PIECE_BYTES:
            break
        kept.append(frame)
    return kept
