"""How a node finds its cluster: through its seeds at first, later through anyone it has met.

Where others were reached last is kept on disk, the dead ones too: a node that was cut off takes all others for dead, and must
find them again after its restart. Only who has left for good is forgotten.

A node that has lost everybody tries all of them. One that sees others still asks after those it remembers and does not see: where
many start anew at once, each may have met a few others and no more, and islands that have never heard of each other would stay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from sbon_node.clock import Clock
from sbon_node.control.store import Store
from sbon_node.errors import SbonError
from sbon_node.membership.settings import MembershipSettings
from sbon_node.net.transport import Address
from sbon_node.tasks import Tasks

log = structlog.get_logger()


CONTACTS = 3
"""A random graph in which each has as many neighbours is almost always in one piece."""


class StoredPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Where another node was reached last."""

    address: str


class Others(Protocol):
    """What is asked of :class:`~sbon_node.membership.service.Membership`."""

    @property
    def others_alive(self) -> int: ...

    def is_alive(self, name: str) -> bool: ...

    def address_of(self, name: str) -> Address: ...

    async def join(self, seeds: Sequence[Address]) -> int: ...


class Rejoin:
    """Joins at the start, and again whenever nobody is left, with growing pauses for as long as it takes; looks for one of those
    it misses every ``rejoin_max_s``."""

    def __init__(
        self,
        others: Others,
        *,
        store: Store,
        clock: Clock,
        rng: random.Random,
        seeds: Sequence[Address],
        settings: MembershipSettings,
    ) -> None:
        self._others, self._store, self._clock, self._rng = others, store, clock, rng
        self._seeds, self._settings = tuple(seeds), settings
        self._known = {name: peer.address for name, peer in store.all("peer", StoredPeer).items()}
        self._tasks = Tasks()
        self._lost = asyncio.Event()
        """Set where nobody is left."""

    async def start(self) -> None:
        """Joins. A node that knows others waits for them no longer than ``join_timeout_s``, and goes on trying meanwhile.

        Raises :class:`SbonError` where a node that has never been in a cluster finds none, or the cluster refuses it.
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
        """Listens to the membership."""
        if change == "left":
            if self._known.pop(name, None) is not None:
                self._store.delete("peer", name)
        elif change in ("joined", "returned", "updated") and self._others.is_alive(name):
            self._remember(name, str(self._others.address_of(name)))
        if not self._others.others_alive:
            self._lost.set()

    def _remember(self, name: str, address: str) -> None:
        if self._known.get(name) == address:
            return
        if name not in self._known and len(self._known) >= self._settings.remembered_peers:
            gone = next((one for one in self._known if not self._others.is_alive(one)), None)
            if gone is None:
                return
            self._store.delete("peer", gone)
            del self._known[gone]
        self._store.put("peer", name, StoredPeer(address=address))
        self._known[name] = address

    async def _join_seeds(self) -> None:
        deadline = self._clock.now() + self._settings.join_timeout_s
        while True:
            try:
                await self._others.join(self._seeds)
            except SbonError as error:
                if error.code != "join-failed" or self._clock.now() >= deadline:
                    raise
                log.info("join-waits", reason=str(error))
                await self._clock.sleep(self._settings.rejoin_s)
            else:
                return

    async def _try(self) -> None:
        """Everyone in turn, until some have answered. Whoever has a remembered address now may be of another cluster.

        One answer is not enough: where all start anew at once, nodes that each met one other would stay islands.
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
            log.info("rejoin-failed", address=str(address), reason=str(error))
            return False
        return self._others.others_alive > 0

    async def _look(self) -> None:
        """For one of those that are remembered and not seen."""
        missing = [address for name, address in self._known.items() if not self._others.is_alive(name)]
        if missing:
            await self._meet(Address.parse(self._rng.choice(missing)))

    async def _keep_trying(self) -> None:
        pause_s, longest_s = self._settings.rejoin_s, self._settings.rejoin_max_s
        next_look = self._clock.now() + longest_s * self._rng.random()
        while True:
            try:
                if self._others.others_alive:
                    pause_s = self._settings.rejoin_s
                    if await self._lost_by(next_look):
                        continue
                    next_look = self._clock.now() + longest_s
                    await self._look()
                else:
                    await self._clock.sleep(pause_s)
                    pause_s = min(2 * pause_s, longest_s)
                    if not self._others.others_alive:
                        await self._try()
            except SbonError as error:
                log.warning("rejoin-refused", reason=str(error))

    async def _lost_by(self, when: float) -> bool:
        """Waits until then, or until nobody is left; whether that is so."""
        self._lost.clear()
        try:
            async with self._clock.timeout(when - self._clock.now()):
                await self._lost.wait()
        except TimeoutError:
            return False
        return True
