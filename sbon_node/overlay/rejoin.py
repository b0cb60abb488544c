"""Join of a cluster: through the seeds at first, later through any known node.

The last addresses of other nodes stay on disk, even those of dead nodes: a node that was cut off considers all others dead, and
must find them again after its restart. Only nodes that have left for good are forgotten.

A node without reachable members tries all addresses. A node with members still asks remembered nodes that it does not see: when
many nodes start at once, each may meet only a few, and islands that have never heard of each other would remain.
"""

import asyncio
import random
from collections.abc import Sequence

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.store import RecordStore
from sbon_node.base.tasks import Tasks
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MAX_LOGGED = 256
"""Addresses whose last logged reason is remembered."""
CONTACTS = 3
"""Contacts of each node: a random graph of this degree is almost always connected."""


class StoredPeer(msgspec.Struct, frozen=True, kw_only=True):
    """The last known address of another node."""

    address: str


class Rejoin:
    """Joins at the start, and again when no member is left, for ever; looks for a missing node every ``rejoin_max_s``."""

    def __init__(
        self,
        others: Membership,
        *,
        store: RecordStore,
        clock: Clock,
        rng: random.Random,
        seeds: Sequence[Address],
        settings: MembershipSettings,
    ) -> None:
        self._others, self._store, self._clock, self._rng = others, store, clock, rng
        self._seeds, self._settings = tuple(seeds), settings
        self._stored = {name: peer.address for name, peer in store.all("peer", StoredPeer).items()}
        self._known = dict(self._stored)
        self._tasks = Tasks()
        self._logged: dict[str, str] = {}
        """Reason that was logged last for each address that could not be joined."""
        self._lost = asyncio.Event()
        """Set if no member is left."""

    async def start(self) -> None:
        """Join the cluster. A node that knows others waits at most ``join_timeout_s`` for them, and keeps trying meanwhile.

        Raises :class:`SbonError` if a node that has never been in a cluster finds none, or the cluster refuses it.
        """
        if self._known:
            try:
                async with self._clock.timeout(self._settings.join_timeout_s):
                    await self._try()
            except TimeoutError:
                log.info("rejoin-waits", known=len(self._known))
        elif self._seeds:
            await self._join_seeds()
        self._tasks.start("rejoin", self._keep_trying())

    async def close(self) -> None:
        await self._tasks.close()

    def member_changed(self, name: str, change: str) -> None:
        """Handle a change of the membership."""
        if change == "left":
            if self._known.pop(name, None) is not None:
                self._keep(name)
        elif change in ("joined", "returned", "updated") and self._others.is_alive(name):
            self._remember(name, str(self._others.address_of(name)))
        if not self._others.others_alive:
            self._lost.set()

    def _remember(self, name: str, address: str) -> None:
        if self._known.get(name) == address:
            return
        if name not in self._known and len(self._known) >= self._settings.remembered_peers:
            gone = next((peer for peer in self._known if not self._others.is_alive(peer)), None)
            if gone is None:
                return
            del self._known[gone]
            self._keep(gone)
        self._known[name] = address
        self._keep(name)

    def _keep(self, name: str) -> None:
        """Store the address of a peer; retry later if the disk refuses it now."""
        try:
            self._write(name)
        except SbonError as error:
            log.warning("peers-not-stored", code=error.code, reason=str(error))
            self._tasks.start("store", self._keep_all())

    async def _keep_all(self) -> None:
        """Store addresses until the disk matches the known addresses."""
        backoff = Backoff(self._settings.rejoin_s, self._settings.rejoin_max_s)
        while self._stored != self._known:
            await self._clock.sleep(backoff.next_s())
            try:
                for name in sorted({**self._stored, **self._known}):
                    self._write(name)
            except SbonError as error:
                log.info("peers-wait", code=error.code, reason=str(error))

    def _write(self, name: str) -> None:
        address = self._known.get(name)
        if address == self._stored.get(name):
            return
        if address is None:
            self._store.delete("peer", name)
            del self._stored[name]
        else:
            self._store.put("peer", name, StoredPeer(address=address))
            self._stored[name] = address

    async def _join_seeds(self) -> None:
        deadline = self._clock.now() + self._settings.join_timeout_s
        while True:
            try:
                await self._others.join(self._seeds)
            except SbonError as error:
                if error.code != "join-failed" or self._clock.now() >= deadline:
                    raise
                self._log_failure("join-waits", ", ".join(map(str, self._seeds)), error)
                await self._clock.sleep(self._settings.rejoin_s)
            else:
                return

    async def _try(self) -> None:
        """Try all addresses in turn, until several nodes have answered; one may now belong to another cluster.

        A single answer is not enough: if all start at once, pairs of nodes that met only each other would remain islands.
        """
        met = 0
        known = [Address.parse(address) for address in self._known.values()]
        for address in dict.fromkeys([*self._seeds, *self._rng.sample(known, len(known))]):
            met += await self._meet(address)
            if met == CONTACTS:
                return

    async def _meet(self, address: Address) -> bool:
        try:
            await self._others.join([address])
        except SbonError as error:
            if error.code == "name-taken":
                raise
            self._log_failure("rejoin-failed", str(address), error)
            return False
        self._logged.pop(str(address), None)
        return self._others.others_alive > 0

    def _log_failure(self, event: str, address: str, error: SbonError) -> None:
        """Log why an address cannot be joined, when the reason changes: the tries go on without a time limit."""
        reasons = "; ".join(error.details) or str(error)
        if self._logged.get(address) == reasons:
            log.debug(event, address=address, reason=reasons)
            return
        if len(self._logged) >= MAX_LOGGED:
            self._logged.clear()
        self._logged[address] = reasons
        log.info(event, address=address, reason=reasons)

    async def _look(self) -> None:
        """Look for a remembered node that is not a member now."""
        missing = [address for name, address in self._known.items() if not self._others.is_alive(name)]
        if missing:
            await self._meet(Address.parse(self._rng.choice(missing)))

    async def _keep_trying(self) -> None:
        longest_s = self._settings.rejoin_max_s
        backoff = Backoff(self._settings.rejoin_s, longest_s)
        next_look = self._clock.now() + longest_s * self._rng.random()
        while True:
            try:
                if self._others.others_alive:
                    backoff.reset()
                    if await self._lost_by(next_look):
                        continue
                    next_look = self._clock.now() + longest_s
                    await self._look()
                else:
                    await self._clock.sleep(backoff.next_s())
                    if not self._others.others_alive:
                        await self._try()
            except SbonError as error:
                log.warning("rejoin-refused", reason=str(error))

    async def _lost_by(self, when: float) -> bool:
        """Wait until ``when``, or until no member is left; return whether none is left."""
        self._lost.clear()
        try:
            async with self._clock.timeout(when - self._clock.now()):
                await self._lost.wait()
        except TimeoutError:
            return False
        return True
