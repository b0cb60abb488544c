"""Invariants of docs/design.md, section 8, checked at every step of a run.

The checker reads files and public interfaces only. It keeps its own record of every frame and of every reader's durable
position. So it reports most broken rules at once; the others show at the end, where each row must be there exactly once.
"""

import hashlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.model.frames import Frame
from sbon_node.model.records import MoveLease, OperatorRegister
from sbon_node.ownership.consensus.states import Accepted, Acceptor, Ballot, State
from sbon_node.ownership.names import NAME, NameRecord
from sbon_node.ownership.operators import FORM as OPERATOR_FORM
from sbon_node.ownership.queries import decoded
from sbon_node.ownership.store.query_keys import OPERATOR, QUERY, key_of, operator_key, query_of
from sbon_node.streams.links.credit import weight
from sbon_node.streams.links.link import Link
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.query_ids import is_sink
from sbon_protocol.api.states.query_states import LIFECYCLE, LIVE, RUNNING
from sbon_protocol.api.subscribers import is_follower

RECHECKED = 8
"""Number of frames before the new ones that are compared again, one where none is new: they must not have changed."""


class CheckFailedError(AssertionError):
    """An invariant does not hold."""


class StuckError(CheckFailedError):
    """A query does not end although all faults are over, or nodes do not clean up after it."""


class Checker:
    """The record of one run. ``readers`` are the known subscribers of each stream."""

    def __init__(self, settings: StreamSettings, readers: Mapping[str, tuple[str, ...]]) -> None:
        self._settings = settings
        self._readers = readers
        self._frames: dict[tuple[str, int, int], bytes] = {}
        self._weights: dict[tuple[str, int], list[int]] = {}
        """By stream and lineage: the bytes of its frames up to each number, so that no frame is read twice to be weighed."""
        self._received: dict[tuple[str, int], int] = {}
        """By stream and lineage: the newest frame that all its subscribers had received when there were any."""
        self._lineages: dict[str, int] = {}
        self._publishers: dict[tuple[str, int, int], str] = {}
        self._visible: dict[str, int] = {}
        self._done: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, int] = {}
        self._recovered: dict[tuple[str, str], int] = {}
        """Epochs of streams at hosts when these last started."""
        self._engine_processes: dict[str, list[str]] = {}
        self.registers = RegisterChecks(self._expect)
        self.checks = 0

    # -- at steps ------------------------------------------------------------------------------------------------------

    def published(self, outbox: Outbox, stream: str, checkpoint: Path | None, process: str = "", *, new: bool = True) -> None:
        """Check frames: they follow the previous ones, are committed and never change.

        If they are ``new``, ``process`` publishes them, and is the only one to do so in the stream's epoch. An operator's
        register names its node: a host that has frozen an operator shows nothing once another one is chosen.
        """
        lineage = self._follow_lineage(outbox, stream)
        if checkpoint is not None:
            self._committed(outbox.visible_batch(stream), stream, checkpoint)
        if self._has_moved(outbox, stream):
            return
        before, latest = self._visible.get(stream, 0), outbox.latest(stream)
        self._expect(latest >= before, f"{stream} has shown {before} frames and now only {latest}")
        if new and latest > before:
            publisher = self._publishers.setdefault((stream, lineage, outbox.epoch(stream)), process)
            self._expect(
                publisher == process, f"{process} publishes {stream} in epoch {outbox.epoch(stream)}, as {publisher} did"
            )
            self.registers.publishes(stream, process, outbox.epoch(stream))
        first = max(min(before, latest) - (RECHECKED if latest > before else 1), outbox.earliest(stream) - 1)
        while first < latest:
            for frame in outbox.read(stream, first, self._settings.read_bytes):
                self._expect(frame.number == first + 1, f"frame {frame.number} of {stream} follows {first}")
                self._same(frame, lineage)
                first = frame.number
        self._visible[stream] = latest

    def is_ahead(self, outbox: Outbox, stream: str) -> bool:
        """Return whether the stream has frames that no step has shown yet."""
        return outbox.latest(stream) > self._visible.get(stream, 0)

    def recovered(self, outbox: Outbox, stream: str, checkpoint: Path | None, host: str = "") -> None:
        """Check a restarted ``host``: it shows the frames seen before, and its epochs have not gone back."""
        self._follow_lineage(outbox, stream)
        epoch = outbox.epoch(stream)
        self._expect(epoch >= self._recovered.get((host, stream), 0), f"{stream} fell back to epoch {epoch}")
        self._recovered[host, stream] = epoch
        if self._has_moved(outbox, stream):
            return
        known = self._visible.get(stream, 0)
        self._expect(outbox.latest(stream) >= known, f"{stream} lost frames that were seen")
        self._visible[stream] = 0
        self.published(outbox, stream, checkpoint, new=False)

    def wrote(self, checkpoint: str, engine_process: str) -> None:
        """Check that an engine process that works on a checkpoint has no successor."""
        processes = self._engine_processes.setdefault(checkpoint, [])
        if engine_process not in processes:
            processes.append(engine_process)
        self._expect(
            processes[-1] == engine_process,
            f"{engine_process} works on the checkpoint of {checkpoint}, which {processes[-1]} took over",
        )

    def received(self, link: Link) -> None:
        """Check a frame that a subscriber received: it was visible, is unchanged, and is within the credit."""
        inbox = link.inbox
        newest = inbox.newest
        if newest is not None:
            self._expect(newest.number <= self._visible.get(link.stream, 0), f"{link.stream} sent what was never visible")
            self._same(newest, lineage_of(link))
        bound = max(inbox.capacity_bytes, weight(newest.payload) if newest else 0)
        self._expect(inbox.buffered_bytes <= bound, f"{inbox.buffered_bytes} bytes held of {link.stream}, {bound} are allowed")

    def done(self, stream: str, reader: str, number: int) -> None:
        """Record that the reader has durably finished with the stream up to ``number``."""
        self._done[stream, reader] = max(self._done.get((stream, reader), 0), number)

    def acknowledged(self, link: Link, reader: str) -> None:
        """Check that a reader has durably finished with what it acknowledged, of the stream's newest lineage.

        A link that has not heard yet that its stream began anew tells of frames of the one before, and is refused soon.
        """
        if lineage_of(link) not in (0, self._lineages.get(link.stream, 0)):
            return
        number, done = link.counts.acknowledged, self._done.get((link.stream, reader), 0)
        self._expect(number <= done, f"{reader} acknowledged frame {number} of {link.stream}, and has finished with {done}")

    def trimmed(self, outbox: Outbox, stream: str) -> None:
        """Check that only frames which every reader has finished with are deleted."""
        trimmed = outbox.earliest(stream) - 1
        for reader in self._readers.get(stream, ()):
            done = self._done.get((stream, reader), 0)
            self._expect(trimmed <= done, f"{stream} trimmed to frame {trimmed}, {reader} has finished with {done}")

    def bounded(self, outbox: Outbox, stream: str, batch_bytes: int) -> None:
        """Check that unreceived frames stay within the quota and one batch; a source waits for its fastest reader alone.

        A follower does not count: it begins with frames that its host has received, and is gone soon. Once all subscribers are
        gone, nothing waits that did not wait before.
        """
        waiting = outbox.link_counts(stream).links.items()
        received = [link.received for name, link in waiting if not link.failed and not is_follower(name)]
        slowest = self._received.get((stream, lineage_of(outbox, stream)), 0)
        if received:
            slowest = max(received) if is_source(stream) else min(received)
        self._received[stream, lineage_of(outbox, stream)] = slowest
        upto = self._weights.setdefault((stream, lineage_of(outbox, stream)), [0])
        if len(upto) < outbox.earliest(stream):
            upto.extend([upto[-1]] * (outbox.earliest(stream) - len(upto)))  # They are deleted, and wait no more.
        for frame in outbox.read(stream, len(upto) - 1, 2**40):
            upto.append(upto[-1] + weight(frame.payload))
        size = upto[outbox.latest(stream)] - upto[max(slowest, outbox.earliest(stream) - 1)]
        bound = self._settings.outbox_quota_bytes + batch_bytes
        self._expect(size <= bound, f"{size} bytes of {stream} wait to be received, {bound} are allowed")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def delivered(self, rows: Iterable[tuple[object, ...]], expected: Iterable[tuple[object, ...]]) -> None:
        """Check that every row of the oracle is there exactly once, and no other row."""
        delivered, due = Counter(rows), Counter(expected)
        missing, extra = due - delivered, delivered - due
        self._expect(
            not missing and not extra,
            f"{sum(missing.values())} rows missing {_some(missing)}, {sum(extra.values())} too many {_some(extra)}",
        )

    def quiet(self, unhandled: list[str]) -> None:
        self._expect(not unhandled, "; ".join(unhandled))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has_moved(self, outbox: Outbox, stream: str) -> bool:
        """Return whether another node has published the stream in a later epoch, so that this one only keeps what it had."""
        epoch = outbox.epoch(stream)
        newest = self._epochs[stream] = max(epoch, self._epochs.get(stream, 0))
        return epoch < newest

    def _committed(self, visible: int, stream: str, checkpoint: Path) -> None:
        commits = BatchLog(checkpoint).commits()
        newest = commits[-1] if commits else -1
        self._expect(visible <= newest, f"batch {visible} of {stream} is visible, batch {newest} is committed")

    def _follow_lineage(self, outbox: Outbox, stream: str) -> int:
        """Return the lineage of a stream; with another one, it begins anew."""
        lineage = lineage_of(outbox, stream)
        if self._lineages.setdefault(stream, lineage) != lineage:
            self._lineages[stream] = lineage
            self._visible[stream] = self._epochs[stream] = 0
            for key in [key for key in self._done if key[0] == stream]:
                del self._done[key]
            for host, _ in [key for key in self._recovered if key[1] == stream]:
                del self._recovered[host, stream]
        return lineage

    def _same(self, frame: Frame, lineage: int) -> None:
        content = hashlib.blake2b(frame.payload, digest_size=16)
        content.update(f"{frame.rows}/{frame.watermark_ms}/{frame.ended}".encode())
        known = self._frames.setdefault((frame.stream, lineage, frame.number), content.digest())
        self._expect(known == content.digest(), f"frame {frame.number} of {frame.stream} was seen with other content")

    def _expect(self, condition: bool, otherwise: str) -> None:
        self.checks += 1
        if not condition:
            raise CheckFailedError(otherwise)


def lineage_of(owner: Outbox | Link, *stream: str) -> int:
    """Return the lineage of a stream of an outbox, or that of a link; 0 where streams have none."""
    lineage: Any = getattr(owner, "lineage", 0)
    return int(lineage(*stream)) if callable(lineage) else int(lineage)


def _some(rows: Counter[tuple[object, ...]]) -> str:
    return "" if not rows else f"(for example {next(iter(rows))})"


# -- Invariants of registers: a ballot has one state, chosen states form one history, and a name points to one live query --

# The checks see what each acceptor has stored. A state is chosen once a majority has accepted the same ballot.

Expect = Callable[[bool, str], None]
"""Fails with a text unless the condition holds."""


class RegisterChecks:
    """The history of all registers of one run."""

    def __init__(self, expect: Expect) -> None:
        self._expect = expect
        self._proposed: dict[tuple[str, Ballot], State] = {}
        self._over: set[str] = set()
        self._agreed: dict[tuple[str, Ballot], dict[Acceptor, None]] = {}
        self._seen: dict[tuple[Acceptor, str], Ballot] = {}
        self._history: dict[str, list[Ballot]] = {}
        self._chosen: dict[tuple[str, Ballot], State] = {}
        self._running: dict[str, str] = {}
        self._leases: dict[str, list[MoveLease]] = {}
        """Moves that some acceptor has accepted, by operator."""
        self.moving: set[str] = set()
        """Attempts to move an operator that have been chosen."""
        self.moved: set[str] = set()
        """Those that have been committed."""

    def stored(self, acceptor: Acceptor, registers: Iterable[tuple[str, Accepted]]) -> None:
        """Note what an acceptor has accepted, by the keys of its registers."""
        for key, accepted in registers:
            if self._seen.get((acceptor, key)) != accepted.ballot:
                self._accepted(acceptor, key, accepted)

    def _accepted(self, acceptor: Acceptor, key: str, accepted: Accepted) -> None:
        if key.startswith(OPERATOR) and query_of(key) in self._over:
            return  # Nobody may claim it, and its acceptors delete their copies one after another.
        ballot, state = accepted.ballot, accepted.state
        before = self._seen.get((acceptor, key), ballot)
        self._expect(before <= ballot, f"{acceptor.node} accepted {ballot} of {key} after {before}")
        self._seen[acceptor, key] = ballot
        proposed = self._proposed.setdefault((key, ballot), state)
        self._expect(proposed == state, f"{ballot} of {key} has two states")
        if key.startswith(QUERY) and decoded(state).state in LIFECYCLE.terminal:
            self._over.add(decoded(state).id)
        lease = OPERATOR_FORM.value(state).move if key.startswith(OPERATOR) else None
        if lease is not None:
            self._leases.setdefault(OPERATOR_FORM.value(state).id, []).append(lease)
        agreed = self._agreed.setdefault((key, ballot), {})
        agreed[acceptor] = None
        if (key, ballot) not in self._chosen and state.configuration.has_quorum(agreed):
            self._chosen[key, ballot] = state
            self.moving |= set() if lease is None else {lease.attempt}
            self._follow(key, ballot, state)

    def publishes(self, operator: str, process: str, epoch: int) -> None:
        """Check that the register of an operator names the process's node for its epoch, as far as a later one is chosen."""
        history = self._history.get(operator_key(operator), [])
        register = OPERATOR_FORM.value(self._chosen[operator_key(operator), history[-1]]) if history else None
        if register is None or register.epoch < epoch:
            return
        named = (register.host, register.epoch) == (process.partition("#")[0], epoch)
        self._expect(named, f"{process} publishes {operator} in epoch {epoch}, which {register.host} has in {register.epoch}")

    def complete(self, acceptor: Acceptor, missing: Collection[str]) -> None:
        """Check that an acceptor has all documents of the states that it has accepted."""
        self._expect(not missing, f"{acceptor.node} has accepted states without their documents {', '.join(missing)}")

    def _follow(self, key: str, ballot: Ballot, state: State) -> None:
        """Check a chosen state against the states before and after it."""
        history = self._history.setdefault(key, [])
        place = bisect_left(history, ballot)
        if place:
            self._succeeds(key, self._chosen[key, history[place - 1]], state)
        if place < len(history):
            self._succeeds(key, state, self._chosen[key, history[place]])
        insort(history, ballot)
        if key.startswith(QUERY) and history[-1] == ballot:
            self._name(state)
        if key.startswith(NAME) and place:
            self._given(key, self._chosen[key, history[place - 1]], state)

    def _succeeds(self, key: str, before: State, after: State) -> None:
        change = f"{key} of version {before.version} became version {after.version}"
        self._expect(after.version >= before.version, change)
        same = after.version != before.version or after.value == before.value
        self._expect(same, f"{key} has two values of version {after.version}")
        if key.startswith(QUERY):
            was, now = decoded(before), decoded(after)
            self._expect(was.state not in LIFECYCLE.terminal or now.state == was.state, f"{change}: {was.state}, {now.state}")
        if key.startswith(OPERATOR):
            self._owner(change, OPERATOR_FORM.value(before), OPERATOR_FORM.value(after), after.version - before.version)

    def _owner(self, change: str, was: OperatorRegister, now: OperatorRegister, versions: int) -> None:
        """Check that an operator has one owner in each epoch; until it starts in its first one, it may be placed again.

        An acceptor may have lost its disk with a version between the two, which then nobody has seen chosen.
        """
        self._expect(was.epoch <= now.epoch <= was.epoch + versions, f"{change}: epoch {was.epoch}, {now.epoch}")
        same = (was.host, was.instance) == (now.host, now.instance)
        self._expect(same or was.epoch < now.epoch or now.epoch == 1, f"{change}: {was.host}, {now.host} in epoch {now.epoch}")
        taken_over = is_sink(now.id) or versions > 1 or (was.backup, was.backup_instance) == (now.host, now.instance)
        if was.epoch < now.epoch and was.host != now.host and now.epoch > 1 and not taken_over:
            leases = self._leases.get(now.id, [])
            attempts = [one.attempt for one in leases if (one.target, one.instance) == (now.host, now.instance)]
            self._expect(bool(attempts), f"{change}: {was.host} did not move it to {now.host}")
            self.moved.add(was.move.attempt if was.move is not None else attempts[-1])

    def _given(self, key: str, before: State, after: State) -> None:
        """Check that a name which now points to another query pointed to one that is over."""
        was, now = (msgspec.msgpack.decode(state.value, type=NameRecord).uid for state in (before, after))
        history = self._history.get(key_of(was))
        if was == now or was in self._over or not history:
            return
        state = decoded(self._chosen[key_of(was), history[-1]]).state
        self._expect(state not in LIVE, f"{key} is given to {now}, and {was} is {state}")

    def _name(self, state: State) -> None:
        record = decoded(state)
        if record.state == RUNNING:
            other = self._running.setdefault(record.called, record.id)
            self._expect(other == record.id, f"two queries {record.called} run, {other} and {record.id}")
        elif self._running.get(record.called) == record.id:
            del self._running[record.called]
