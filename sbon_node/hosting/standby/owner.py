"""The backup of an operator of this node: nothing that the operator shows, or acknowledges, is at this node alone.

A committed batch becomes visible once the backup has stored its frames and its checkpoint. The register of the operator names the
backup, and changes only when the new one has stored all that was shown. So whatever happens, one of the two nodes that the
register names has everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.base.tasks import Tasks, check_cancelled
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.interface import MovingEngine
from sbon_node.hosting.standby.choice import FENCED, TOO_LARGE, UNREACHABLE, BackupChoice
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.hosting.standby.shipment import CheckpointCopy, missing_from, pieces, superseded
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Expected
from sbon_node.overlay.presence import AS_BACKUP
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.workflow.context import Context
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.durability import HOT, BackupInfo
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.states.backup_states import BEHIND, COPYING, CURRENT, MISSING, BackupState
from sbon_protocol.backup import BackupOpened, BackupStored, DropBackup, OpenBackup, StoreBackup, YieldOperator
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class BackupParts(NamedTuple):
    """Parts for each backup of this node's operators.

    ``sums`` returns an operator's measures. ``fence`` is called for an operator that may belong to another node, and ``pin`` to
    keep the input after its newest visible batch at its hosts, or to let it go.
    """

    context: Context
    engine: MovingEngine
    sender: CopySender
    owners: OperatorRegisters
    settings: BackupSettings
    lineages: Callable[[OperatorSpec], dict[str, int]]
    present: Callable[[OperatorSpec], OperatorSpec]
    sums: Callable[[str], MeasureSums | None]
    fence: Callable[[str], None]
    tasks: Tasks
    pin: Callable[[str, bool], None]


class OperatorBackup:
    """Stores what one operator shows at another node, which it chooses, and replaces when that is gone."""

    def __init__(self, spec: OperatorSpec, acceptors: tuple[Acceptor, ...], parts: BackupParts) -> None:
        self._spec, self._acceptors, self._parts, self._context = spec, acceptors, parts, parts.context
        folder = parts.context.data_dir / "copies" / f"backup of {spec.id}"
        self._copy = CheckpointCopy(spec.id, parts.engine, folder, parts.context.executor)
        self._lock = asyncio.Lock()
        self._backup: Expected | None = None
        self._is_open = self._is_named = False
        """Whether the backup has answered in this epoch, and whether the register names it."""
        self._known: frozenset[str] = frozenset()
        """Digests of the files that it has."""
        self._lineages: dict[str, int] = {}
        """Lineages of the inputs that it has; the operator learns them after its first start."""
        self._last = 0
        self._newest = self._stored = -1
        self._stored_s: float | None = None
        self._had: int | None = None
        """The newest batch that the backup has from before this session."""
        self._choice = BackupChoice(parts.context, parts.settings)
        self._missed = parts.context.presence.watch(AS_BACKUP)
        self._given_up: Expected | None = None
        """The last backup that was given up; the register may name it still."""
        self._reason = ""
        self._follower = BackupStored()
        """The newest reply of the backup: how a hot operator's follower is."""

    # -- what its operator asks ---------------------------------------------------------------------------------------

    async def store(self, batch: int) -> None:
        """Return once the backup has stored everything up to the committed ``batch``, however long that takes.

        Raises :class:`SbonError` ``fenced`` if this node may not show anything any more.
        """
        self._newest = max(self._newest, batch)
        await self._until(lambda: self._stored >= batch)

    async def prepare(self) -> None:
        """Find a backup before the first batch, and give it what was shown before."""
        outbox, operator = self._context.outbox, self._spec.id
        self._newest = max(self._newest, outbox.visible_batch(operator))
        try:
            await self._until(lambda: self._is_named and self._stored >= self._newest)
        except SbonError as error:
            log.info("backup-not-prepared", operator=operator, code=error.code, reason=str(error))

    async def _until(self, done: Callable[[], bool]) -> None:
        pause_s = self._context.settings.retry_s
        while not done():
            async with self._lock:
                if not done() and await self._try():
                    continue
            if not done():
                await self._context.clock.sleep(pause_s)

    async def _try(self) -> bool:
        """Store the newest batch; return False after a passing failure, which is kept for users."""
        batch = self._newest
        try:
            if not self._is_open or self._lineages != self._parts.lineages(self._spec):
                await self._open()
            if batch > self._stored:
                await self._send(batch)
            if not self._is_named:
                await self._name(batch)
        except SbonError as error:
            check_cancelled()
            if error.code in FENCED:
                self._is_open = False
                self._parts.fence(self._spec.id)
                raise SbonError("fenced", f"its backup says: {error.message}", where=self._spec.id) from error
            if superseded(error):  # The engine goes on while a batch waits for the backup, and deletes its files.
                self._newest = max(self._newest, self._parts.engine.committed(self._spec.id))
            else:
                self._fails(error)
            return False
        self._stored, self._stored_s, self._reason = batch, self._context.clock.now(), ""
        self._missed.keep(())
        return True

    def _fails(self, error: SbonError) -> None:
        """Keep the reason, and give up a backup that is gone."""
        reason = str(error)
        if reason != self._reason:
            log.warning("backup-waits", operator=self._spec.id, code=error.code, reason=reason)
        self._reason, self._is_open, self._known = reason, False, frozenset()
        if self._backup is not None and error.code == TOO_LARGE:
            self._choice.refuse(self._backup.node)
            self._give_up()
        elif self._backup is not None and self._missed.gone(*self._backup):
            self._give_up()

    def _give_up(self) -> None:
        """Look for another backup, which needs all of the state."""
        log.warning("backup-given-up", operator=self._spec.id, backup=self._backup, reason=self._reason)
        self._given_up, self._backup = self._backup, None
        self._is_open = self._is_named = False
        self._missed.keep(())
        self._known, self._last, self._stored, self._had = frozenset(), 0, -1, None
        self._hear(BackupStored())

    # -- finding one --------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Ask the backup that the register names, or else the nearest node that keeps one."""
        register = await self._present()
        named = Expected(register.backup, register.backup_instance)
        if self._backup is None and register.backup and named != self._given_up:
            self._backup = named
        if self._backup is not None and self._context.presence.has_lost_disk(*self._backup):
            self._give_up()
        if self._backup is not None:
            self._is_named = (register.backup, register.backup_instance) == self._backup
            try:
                await self._ask(self._backup)
            except SbonError as error:
                if error.code not in FENCED and (not self._is_named or error.code not in UNREACHABLE):
                    self._choice.refuse(self._backup.node)
                    self._give_up()
                raise
            return
        await self._choice.choose(self._ask, self._spec.id, "add a node, or submit with --durability local")

    async def check(self) -> bool:
        """Stop the operator if another node hosts it by now: its backup may have taken over while this node was cut off.

        Return whether the backup is away: it is to be asked again, or replaced, though the operator shows nothing new.
        """
        try:
            await self._present()
        except SbonError as error:
            check_cancelled()
            if error.code in FENCED:
                self._parts.fence(self._spec.id)
            return False
        if self._lock.locked() or self._backup is None or not self._context.presence.away(self._backup.node):
            return False
        self._had = self._stored if self._stored >= 0 else self._had
        self._stored, self._is_open = -1, False
        return True

    async def yield_operator(self) -> None:
        """Ask the backup to go on with the operator, which this node's engine does not run."""
        operator, context = self._spec.id, self._context
        try:
            register = await self._present()
            if register.backup:
                log.warning("operator-yielded", operator=operator, backup=register.backup)
                await context.call(register.backup, YieldOperator(operator, register.epoch))
        except SbonError as error:
            check_cancelled()
            log.warning("operator-not-yielded", operator=operator, code=error.code, reason=str(error))

    async def _present(self) -> OperatorRegister:
        """Return the register; raise ``not-owner`` if it names another host, or another epoch."""
        context, operator = self._context, self._spec.id
        register = await self._parts.owners.read(self._spec.query, operator)
        if (register.host, register.epoch) != (context.name, context.outbox.epoch(operator)):
            raise SbonError("not-owner", f"it belongs to {register.host} in epoch {register.epoch}", where=operator)
        return register

    async def _ask(self, backup: Expected) -> None:
        operator, outbox = self._spec.id, self._context.outbox
        spec = msgspec.structs.replace(self._parts.present(self._spec), epoch=outbox.epoch(operator))
        lineages = self._parts.lineages(spec)
        call = OpenBackup(spec, self._acceptors, lineages, outbox.lineage(operator))
        opened = await self._context.ask(backup.node, call, BackupOpened)
        if (backup.node, backup.instance) != self._backup:
            self._backup, self._is_named = backup, False
        self._is_open, self._lineages = True, lineages
        self._known, self._last, self._had = frozenset(), opened.last, opened.batch

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _send(self, batch: int) -> None:
        assert self._backup is not None
        context, operator, node = self._context, self._spec.id, self._backup.node
        manifest = await self._copy.of(batch)
        new = missing_from(manifest, self._known)
        inline = sum(file.bytes for file in new) <= self._parts.settings.inline_bytes
        contents = await context.executor(lambda: tuple(self._copy.read(file) for file in new)) if inline else ()
        attempt = "" if inline else f"backup {operator} {batch}"
        if attempt:
            self._parts.sender.offer(attempt, operator, self._backup, self._copy.folder, new)
        before = await context.executor(partial(self._copy.before, batch))
        call = partial(StoreBackup, operator, context.outbox.epoch(operator), batch, manifest.cut, before=before)
        complete = {"files": manifest.files, "contents": contents, "offered": attempt, "measures": self._parts.sums(operator)}
        stored = BackupStored()
        try:
            for piece in pieces(context.outbox, operator, batch, self._last):
                rest = {"more": True} if piece.more else complete
                sent = call(stream=piece.state, after=piece.after, frames=tuple(piece.frames), **rest)
                extra_s = self._parts.settings.store_timeout_s if attempt and not piece.more else 0.0
                stored = await context.ask(node, sent, BackupStored, timeout_s=context.settings.call_timeout_s + extra_s)
                last = piece.state.tail.last
        finally:
            if attempt:
                self._parts.sender.withdraw(attempt)
        self._known, self._last = frozenset(file.digest for file in manifest.files), last
        self._hear(stored)

    def _hear(self, stored: BackupStored) -> None:
        """Keep the input that the backup's follower needs, which begins after what is visible now."""
        if self._spec.durability == HOT:
            self._follower = stored
            self._parts.pin(self._spec.id, stored.needs)

    async def _name(self, batch: int) -> None:
        """Name the backup in the register: it has stored all that was shown.

        A backup that the register does not name may forget the operator, so it is asked once more.
        """
        assert self._backup is not None
        epoch, spec, known, shown = self._context.outbox.epoch(self._spec.id), self._spec, self._known, max(batch, self._stored)
        await self._parts.owners.set_backup(spec.query, spec.id, epoch, self._backup.node, self._backup.instance)
        await self._ask(self._backup)
        if shown >= 0 and (self._had is None or self._had < shown):
            self._stored = -1
            raise SbonError("backup-unknown", f"{self._backup.node} has forgotten batch {shown}", where=spec.id)
        self._known, self._is_named = known, True
        log.info("backup-named", operator=spec.id, backup=self._backup.node, epoch=epoch)

    # -- for users, and the end ---------------------------------------------------------------------------------------

    def info(self) -> BackupInfo:
        """Return how current the backup is."""
        age_s = None if self._stored_s is None else max(0.0, self._context.clock.now() - self._stored_s)
        is_current = self._stored >= self._newest and not self._reason
        named: BackupState = CURRENT if is_current else BEHIND
        state: BackupState = MISSING if self._backup is None else named if self._is_named else COPYING
        return BackupInfo(
            state=state,
            node="" if self._backup is None else self._backup.node,
            batch=self._stored if self._stored >= 0 else self._had,
            age_s=age_s,
            reason=self._reason[:MAX_REASON],
            follows=self._follower.follows if self._spec.durability == HOT else None,
            follows_not=self._follower.reason,
        )

    async def close(self) -> None:
        await self._copy.clear()

    def drop(self) -> None:
        """Tell the backup that the operator is over."""
        if self._backup is not None and not self._context.presence.away(self._backup.node):
            self._parts.tasks.start(f"drop {self._spec.id}", self._drop(self._backup.node))

    async def _drop(self, node: str) -> None:
        try:
            await self._context.call(node, DropBackup(self._spec.query, self._spec.id))
        except SbonError as error:  # It asks by itself, in time.
            log.info("backup-not-dropped", operator=self._spec.id, backup=node, code=error.code)
