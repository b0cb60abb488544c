"""The owner of a backup: the host's side, which stores what an operator or source shows at another node first.

:mod:`sbon_protocol.api.states.backup_states` says what follows what. Adapters know what an operator
(:mod:`sbon_node.hosting.standby.operator`) or a source (:mod:`sbon_node.hosting.standby.source`) has to store.
"""

import asyncio
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

import structlog

from sbon_node.base.executors import Executor
from sbon_node.base.tasks import check_cancelled
from sbon_node.context import UNREACHABLE, Context
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import CopiedFile, Manifest
from sbon_node.hosting.moving.departures import PIECE_BYTES, PIECE_FRAMES
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.frames import Frame
from sbon_node.model.records import OperatorRegister, SourceRegister
from sbon_node.net.peers import Expected
from sbon_node.overlay.presence import AS_BACKUP
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.states.backup_states import BEHIND, CAN_TAKE_OVER, LIFECYCLE, BackupEvent, BackupInstruction, BackupState
from sbon_protocol.errors import BrokenInvariantError, SbonError

log = structlog.get_logger()

T = TypeVar("T")

FENCED = frozenset({"fenced", "not-owner", "record-unknown", "query-over"})
"""Refusals after which this node may not go on with an operator or a source before it has claimed it anew."""
TOO_LARGE = "backup-too-large"
"""The refusal of a backup with less room for frames than this node has frames; another may have more."""


class BackupChoice:
    """Nodes that may keep the backup of one operator or source; those that have refused are not asked again for a while.

    One that ``insists`` asks them again at the next choice where there are no others: senders of a source wait for an answer.
    """

    def __init__(self, context: Context, settings: BackupSettings, *, insists: bool = False) -> None:
        self._context, self._settings, self._insists = context, settings, insists
        self._refused_until_s: dict[str, float] = {}

    def refuse(self, node: str) -> None:
        """Do not ask this node for the next ``backups.refused_s`` seconds."""
        self._refused_until_s[node] = self._context.clock.now() + self._settings.refused_s

    async def choose(self, ask: Callable[[Expected], Awaitable[None]], where: str, hint: str) -> None:
        """Ask one node after another until one keeps the backup.

        Raises :class:`SbonError`: ``no-backup`` with the reasons of all that were asked, or a refusal that is ``FENCED``.
        """
        context, reasons = self._context, list[str]()
        for node in self._candidates():
            try:
                await ask(context.membership.expected(node))
                return
            except SbonError as error:
                check_cancelled()
                if error.code in FENCED:
                    raise
                reasons.append(f"{node}: {error}")
                self.refuse(node)
        if not reasons and self._insists:
            self._refused_until_s.clear()
        message = "; ".join(reasons) or "there is no other node that may keep one"
        raise SbonError("no-backup", message[:1000], where=where, hint=hint)

    def _candidates(self) -> list[str]:
        now_s = self._context.clock.now()
        self._refused_until_s = {node: until_s for node, until_s in self._refused_until_s.items() if until_s > now_s}
        nodes = [node for node in self._context.membership.alive() if node not in self._refused_until_s]
        return sorted(nodes, key=self._distance)[: self._settings.candidates]

    def _distance(self, node: str) -> tuple[bool, float, str]:
        """Nodes of another zone first, then the nearest."""
        context = self._context
        zones = [member.meta.tags.get("zone", "") for one in (context.name, node) if (member := context.membership.get(one))]
        same_zone = len(zones) == 2 and zones[0] == zones[1] != ""
        one_way_ms = context.directory.estimate_rtt_ms(context.name, node).one_way_ms
        return same_zone, math.inf if one_way_ms is None else one_way_ms, node


class BackupOwner(ABC, Generic[T]):
    """Stores what an operator or source shows, a ``T`` at a time, at a node that it chooses, and replaces when that is gone.

    :data:`~sbon_protocol.api.states.backup_states.LIFECYCLE` says what it does next.
    """

    noun: ClassVar[str]
    """Its key in logs."""
    prefix: ClassVar[str] = ""
    """That of the names of events in logs."""
    unit: ClassVar[str]
    """The noun for what is stored at a time."""
    hint: ClassVar[str]
    """Remedy for users if no node keeps a backup."""
    fencing: ClassVar[frozenset[str]] = FENCED
    """Codes of refusals after which this node may not show anything any more."""
    raised: ClassVar[frozenset[str]] = frozenset()
    """Codes of errors that no other backup cures."""

    def __init__(self, backed: str, context: Context, choice: BackupChoice) -> None:
        self.id, self._context, self._choice = backed, context, choice
        self._lock = asyncio.Lock()
        self._state: BackupState = LIFECYCLE.initial
        self._backup: Expected | None = None
        self._is_open = False
        """Whether the backup has answered since it was last out of reach."""
        self._last = -1
        """The last frame that it has; below 0 before it has answered."""
        self._shown = -1
        """The newest batch or frame that may be shown once it is stored."""
        self._stored_s: float | None = None
        self._missed = context.presence.watch(AS_BACKUP)
        self._given_up: Expected | None = None
        """The last backup that was given up; the register may name it still."""
        self._failure: SbonError | None = None
        self._reason = ""
        """Why it is behind, for users."""

    # -- what an adapter adds -----------------------------------------------------------------------------------------

    @abstractmethod
    async def _register(self) -> OperatorRegister | SourceRegister:
        """Return the register; raise :class:`SbonError` if it names another host."""

    @abstractmethod
    async def _ask(self, backup: Expected) -> None:
        """Ask a node to be the backup, and call :meth:`_answered`."""

    @abstractmethod
    async def _send(self, new: T) -> int:
        """Store what is new; return the number of the newest batch or frame that may be shown."""

    @abstractmethod
    async def _set_backup(self, backup: Expected) -> int:
        """Name the backup in the register; return the epoch in which this node hosts it."""

    @abstractmethod
    def _confirms(self, shown: int) -> bool:
        """Return whether its last answer says that the backup has all that was shown; if not, it needs that once more."""

    @abstractmethod
    async def _fence(self) -> str:
        """Show nothing more, since another node may host it; return the reason for users."""

    # -- storing ------------------------------------------------------------------------------------------------------

    async def _try(self, new: T) -> bool:
        """Store what is new; return False after a passing failure, which is kept for users."""
        outcome: BackupEvent | None = BackupEvent.DUE if self._is_open else BackupEvent.UNHEARD
        self._failure = None
        while outcome is not None:
            row = LIFECYCLE.on(self._state, outcome, self.id)
            self._state, outcome = row.after, None
            try:
                for instruction in row.instructions:
                    outcome = await self._carry_out(instruction, new)
            except SbonError as error:
                check_cancelled()
                if row.event == BackupEvent.FENCED or error.code in self.raised:
                    raise
                self._failure, outcome = error, self._failed(error, instruction)
        if self._failure is not None:
            return False
        self._stored_s, self._reason = self._context.clock.now(), ""
        self._missed.keep(())
        return True

    async def _carry_out(self, instruction: StrEnum, new: T) -> BackupEvent | None:
        match instruction:
            case BackupInstruction.READ_REGISTER:
                return await self._read_register()
            case BackupInstruction.CHOOSE:
                await self._choice.choose(self._ask, self.id, self.hint)
                return BackupEvent.CHOSEN
            case BackupInstruction.ASK:
                await self._ask(self._present())
                return BackupEvent.ANSWERED
            case BackupInstruction.SEND:
                self._shown = await self._send(new)
                return BackupEvent.STORED
            case BackupInstruction.NAME:
                await self._name(self._shown)
                return BackupEvent.CONFIRMED
            case BackupInstruction.FORGET:
                self._give_up()
            case BackupInstruction.FENCE:
                await self._show_nothing()
        return None

    def _failed(self, error: SbonError, instruction: StrEnum) -> BackupEvent:
        """Return what the error of an instruction means; keep the reason for users unless another node may be the host."""
        self._is_open = False
        if error.code in self.fencing:
            return BackupEvent.FENCED
        if (reason := str(error)) != self._reason:
            log.warning(f"{self.prefix}backup-waits", code=error.code, reason=reason, **{self.noun: self.id})
        self._reason = reason
        backup = self._backup
        if backup is None:
            return BackupEvent.FAILED
        is_away = error.code in FENCED or (self._state == BEHIND and error.code in UNREACHABLE)
        if error.code == TOO_LARGE or (instruction == BackupInstruction.ASK and not is_away):
            self._choice.refuse(backup.node)
            return BackupEvent.LOST
        return BackupEvent.LOST if self._missed.gone(*backup) else BackupEvent.FAILED

    def _give_up(self) -> None:
        log.warning(f"{self.prefix}backup-given-up", backup=self._backup, reason=self._reason, **{self.noun: self.id})
        self._given_up, self._backup, self._is_open = self._backup, None, False
        self._missed.keep(())

    async def _show_nothing(self) -> None:
        """Raise :class:`SbonError` ``fenced`` with the failure that says so."""
        message = "" if self._failure is None else self._failure.message
        raise SbonError("fenced", f"{await self._fence()}: {message}", where=self.id) from self._failure

    # -- finding a backup ---------------------------------------------------------------------------------------------

    async def _read_register(self) -> BackupEvent:
        register = await self._register()
        named = Expected(register.backup, register.backup_instance)
        if self._backup is None and register.backup and named != self._given_up:
            self._backup = named
        if self._backup is None:
            return BackupEvent.NO_NODE
        if self._context.presence.has_lost_disk(*self._backup):
            return BackupEvent.DISK_LOST
        return BackupEvent.NAMED if named == self._backup else BackupEvent.UNNAMED

    def _answered(self, backup: Expected, last: int) -> None:
        """Note that a node is the backup, and the last frame that it has."""
        self._backup, self._is_open, self._last = backup, True, last

    async def _name(self, shown: int) -> None:
        backup = self._present()
        epoch = await self._set_backup(backup)
        await self._ask(backup)
        if shown >= 0 and not self._confirms(shown):
            raise SbonError("backup-unknown", f"{backup.node} has forgotten {self.unit} {shown}", where=self.id)
        log.info(f"{self.prefix}backup-named", backup=backup.node, epoch=epoch, **{self.noun: self.id})

    def _present(self) -> Expected:
        """Return the node that an earlier instruction has found."""
        if self._backup is None:
            raise BrokenInvariantError(f"the backup of {self.id} is {self._state}, and no node")
        return self._backup

    @property
    def _is_named(self) -> bool:
        return self._state in CAN_TAKE_OVER

    # -- for users ----------------------------------------------------------------------------------------------------

    def _info(self, newest: int | None) -> BackupInfo:
        """Return how current the backup is; it has batches or frames up to ``newest``."""
        return BackupInfo(
            state=self._state,
            node="" if self._backup is None else self._backup.node,
            batch=newest,
            age_s=None if self._stored_s is None else max(0.0, self._context.clock.now() - self._stored_s),
            reason=self._reason[:MAX_REASON],
        )


# -- A batch on its way to the backup: files of the checkpoint that are new there, and the frames after those it has ---


class Piece(NamedTuple):
    """Frames after number ``after``; with the last ones there are no ``more``."""

    state: StreamState
    after: int
    frames: list[Frame]
    more: bool


class CheckpointCopy:
    """A second name for each file of an operator's checkpoint, in a ``folder`` of its own, as of one batch after another."""

    def __init__(self, operator: str, engine: MovingEngine, folder: Path, executor: Executor) -> None:
        self._operator, self._engine, self.folder, self._executor = operator, engine, folder, executor
        self._manifest: Manifest | None = None

    async def of(self, batch: int) -> Manifest:
        """Return the files of the checkpoint as of a committed batch; only new ones are read.

        Raises :class:`SbonError` as :meth:`MovingEngine.copy_checkpoint`.
        """
        if self._manifest is None:
            await self.clear()
        known, self._manifest = self._manifest, None
        self._manifest = await self._engine.copy_checkpoint(self._operator, batch, self.folder, known)
        return self._manifest

    def before(self, batch: int) -> tuple[int, ...]:
        """Return the last frame of each input before a copied batch; nothing before the first one. Blocks."""
        try:
            return tuple(offset.frame for offset in BatchLog(self.folder).read_offsets(batch - 1)) if batch > 0 else ()
        except (OSError, ValueError):
            return ()

    async def clear(self) -> None:
        self._manifest = None
        await self._executor(partial(shutil.rmtree, self.folder, ignore_errors=True))

    def read(self, file: CopiedFile) -> bytes:
        """Return the content of a small file. Blocks."""
        return (self.folder / file.path).read_bytes()


def pieces(outbox: Outbox, operator: str, batch: int, after: int) -> Iterator[Piece]:
    """Yield the frames of an operator's stream after number ``after`` that are retained, up to those of ``batch``."""
    more = True
    while more:
        state, _ = outbox.handover.unshown(operator, batch, after, 0)
        after = max(after, state.trimmed)
        state, frames = outbox.handover.unshown(operator, batch, after, PIECE_BYTES)
        frames = frames[:PIECE_FRAMES]
        last = frames[-1].number if frames else state.tail.last
        more = last < state.tail.last
        yield Piece(state, after, frames, more)
        after = last


def missing_from(manifest: Manifest, known: frozenset[str]) -> list[CopiedFile]:
    """Return the files whose content the backup does not have, each content once."""
    return list({file.digest: file for file in manifest.files if file.digest not in known}.values())


def superseded(error: SbonError) -> bool:
    """Return whether a newer batch must be stored instead."""
    return error.code in ("checkpoint-superseded", "batch-unknown")
