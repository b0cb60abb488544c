"""The keeper of backups: the side that stores what the hosts of operators or sources show, and goes on if a host is lost.

Adapters know what is stored of an operator (:mod:`sbon_node.hosting.standby.operator`) or of a source
(:mod:`sbon_node.hosting.standby.source`), and how it goes on here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import ClassVar, Generic, Literal, TypeVar

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.context import Context, until_passed
from sbon_node.hosting.standby.kept import Kept, S, SentFrames, check_end, check_frames, keep_frames, lacks_frames
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.records import OperatorRegister, SourceRegister
from sbon_node.net.peers import Caller, Expected
from sbon_node.overlay.presence import AS_HOST
from sbon_node.ownership.acceptors import OVER
from sbon_node.streams.outbox.copies import StreamState
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.calls import StoreBackup, StoreSource
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

HOT_LOOKS = 10  # A backup of hot operators looks so many times as often.

R = TypeVar("R", bound=OperatorRegister | SourceRegister)


class BackupKeeper(ABC, Generic[S, R]):
    """The backups of this node, by operator or source; ``known`` is filled with them."""

    noun: ClassVar[str]
    """The key of the operator or source in logs."""
    table: ClassVar[Literal["backup", "source-backup"]]
    """The table of backups in the store."""
    progress: ClassVar[tuple[str, ...]]
    """Fields of a stored backup that stay when its host asks for it again."""

    def __init__(self, context: Context, settings: BackupSettings, stored: type[S], known: dict[str, Kept[S]]) -> None:
        self._context, self._settings, self._tasks = context, settings, Tasks()
        now_s = context.clock.now()
        self._known = known
        self._known.update((one, Kept(record, now_s)) for one, record in context.store.all(self.table, stored).items())

    def start(self) -> None:
        """Delete what no backup needs, and look after the hosts."""
        backups = self._context.outbox.backups
        for stream in backups.names():
            if is_source(stream) == (self.noun == "source") and stream not in self._known:
                backups.discard(stream)
        self._tasks.start("watch", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    def stored(self, backed: str) -> S:
        """Return the backup of an operator or source, as it was stored last."""
        return self._known[backed].stored

    @property
    def me(self) -> Expected:
        return self._context.membership.expected(self._context.name)

    # -- what an adapter adds -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _read(self, kept: Kept[S]) -> R:
        """Return the register."""

    @abstractmethod
    async def _not_read(self, kept: Kept[S], error: SbonError) -> None:
        """Judge a backup whose register could not be read."""

    @abstractmethod
    async def _claim(self, kept: Kept[S], register: R) -> R:
        """Make this node the host, in the next epoch."""

    @abstractmethod
    async def _go_on(self, kept: Kept[S], register: R) -> None:
        """Host it from what is stored on, and delete the backup; repeated after a failure or a restart."""

    def _check_successor(self, kept: Kept[S], register: R) -> None:
        """Raise ``not-owner`` unless the register lets this node go on."""

    async def _release(self, kept: Kept[S]) -> None:
        """Release what the backup holds, before it is deleted."""

    # -- requests of hosts --------------------------------------------------------------------------------------------

    def _hosted_by(self, backed: str, caller: Caller) -> Kept[S]:
        """Return the backup of what the caller hosts; raise :class:`SbonError` ``backup-unknown`` or ``fenced``."""
        kept = self._known.get(backed)
        if kept is None:
            raise self._unknown(backed)
        if (caller.node, caller.instance) != kept.stored.expected:
            raise SbonError("fenced", f"{kept.stored.host} hosts it", where=backed)
        return kept

    def _check_open(self, kept: Kept[S], epoch: int) -> None:
        """Raise :class:`SbonError` ``backup-unknown`` for a deleted backup, and ``fenced`` for an epoch that is over."""
        if kept.is_ending or self._known.get(kept.id) is not kept:
            raise self._unknown(kept.id)
        if epoch < kept.stored.sealed:
            message = f"epoch {epoch} is over: {self._context.name} has heard of epoch {kept.stored.sealed}"
            raise SbonError("fenced", message, where=kept.id)

    def _unknown(self, backed: str) -> SbonError:
        return SbonError("backup-unknown", f"{self._context.name} keeps no backup of it", where=backed)

    async def _renew(self, kept: Kept[S], asked: S) -> S:
        """Store what the host says now, with what has come so far; return that."""
        async with kept.lock:
            self._check_open(kept, asked.sealed)
            stored, fields = kept.stored, {name: getattr(kept.stored, name) for name in self.progress}
            lacking = stored.lacks_frames or lacks_frames(self._context, kept.id, stored.settled)
            opened = msgspec.structs.replace(asked, sealed=max(stored.sealed, asked.sealed), lacks_frames=lacking, **fields)
            if opened != stored:
                self._put(kept, opened)
            kept.heard_s, kept.lost_since_s = self._context.clock.now(), None
            return kept.stored

    def _keep_frames(self, kept: Kept[S], call: StoreBackup | StoreSource, stream: StreamState, caller: Caller) -> None:
        """Store the frames of a call, which count once the record of their batch or transaction is stored."""
        sent = SentFrames(kept.id, stream, kept.stored.settled, call.after, call.frames)
        keep_frames(self._context, sent, caller.node, self._settings.stream_bytes)
        kept.is_yielded = False  # Its host runs it again.
        if not call.more:
            check_end(sent)

    def _put(self, kept: Kept[S], stored: S) -> None:
        self._context.store.put(self.table, kept.id, stored, sync=True)
        kept.stored = stored

    # -- hosts that are lost ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Look after the hosts, for ever."""
        clock, settings = self._context.clock, self._settings
        while True:
            for kept in list(self._known.values()):
                self._look(kept, clock.now())
            looks = HOT_LOOKS if any(kept.stored.is_hot for kept in self._known.values()) else 1
            await clock.sleep(settings.watch_s / looks * self._context.rng.uniform(0.5, 1.0))

    def _look(self, kept: Kept[S], now_s: float) -> None:
        if self._is_lost(kept):
            kept.lost_since_s = now_s if kept.lost_since_s is None else kept.lost_since_s
            if now_s - kept.lost_since_s >= self._settings.recover_after_s:
                kept.interrupt(f"{kept.stored.host} is lost")
                self._tasks.start(f"recover {kept.id}", self._recover(kept))
        else:
            kept.lost_since_s = None
            if now_s - kept.heard_s > self._settings.check_s:
                kept.heard_s = now_s
                self._tasks.start(f"check {kept.id}", self._check(kept))

    def _is_lost(self, kept: Kept[S]) -> bool:
        """Return whether the host is dead, or is back without its disk."""
        return self._context.presence.gone(AS_HOST, *kept.stored.expected) != ""

    async def _check(self, kept: Kept[S]) -> None:
        """Forget a backup that the register does not name, or look after the host that it names; go on if that is this node."""
        heard_s = kept.heard_s
        try:
            register = await self._read(kept)
        except SbonError as error:
            check_cancelled()
            await self._not_read(kept, error)
            return
        if (register.host, register.instance) == self.me:
            await self._recover(kept)
        elif (register.backup, register.backup_instance) != self.me:
            await self._forget(kept, heard_s)
        elif (register.host, register.instance) != kept.stored.expected:
            async with kept.lock:
                self._put(kept, msgspec.structs.replace(kept.stored, host=register.host, instance=register.instance))

    async def _recover(self, kept: Kept[S]) -> None:
        """Go on here, if the register lets this node."""
        named = {self.noun: kept.id}

        def waits(error: SbonError) -> None:
            log.warning("recovery-waits", code=error.code, reason=str(error), **named)

        try:
            await until_passed(self._context, partial(self._take_over, kept), waits)
        except SbonError as error:
            check_cancelled()
            log.warning("not-recovered", code=error.code, reason=str(error), **named)
            if error.code in OVER:
                await self._check(kept)

    async def _take_over(self, kept: Kept[S], *, is_yielded: bool = False) -> None:
        async with kept.lock:
            if kept.is_ending or self._known.get(kept.id) is not kept:
                return
            register = await self._read(kept)
            if (register.host, register.instance) != self.me:
                self._check_successor(kept, register)
                if not (is_yielded or self._is_lost(kept)):
                    return
                check_frames(self._context, kept.id, kept.stored.stream, lacking=kept.stored.lacks_frames)
                # First nobody else can show anything any more, then this node is the host.
                self._put(kept, msgspec.structs.replace(kept.stored, sealed=register.epoch + 1))
                register = await self._claim(kept, register)
            await self._go_on(kept, register)
        log.warning(f"{self.noun}-recovered", host=kept.stored.host, epoch=register.epoch, **{self.noun: kept.id})

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _forget(self, kept: Kept[S], heard_s: float = math.inf) -> None:
        """Delete a backup, and release what it holds, unless its host has asked for it after ``heard_s``."""
        if heard_s == math.inf:
            kept.interrupt("the backup is not needed any more")
        async with kept.lock:
            if self._known.get(kept.id) is kept and kept.heard_s <= heard_s:
                kept.is_ending = True
                await self._release(kept)
                await self._delete(kept)

    async def _delete(self, kept: Kept[S]) -> None:
        self._context.store.delete(self.table, kept.id)
        kept.is_ending = True
        self._known.pop(kept.id, None)
        self._context.outbox.backups.discard(kept.id)
