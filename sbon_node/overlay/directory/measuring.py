"""Round-trip times measured on request.

This node measures its own pairs, and the first node of a pair all others. The result is the least of three pings, sent a little
apart. Fresh pairs are not measured again, and a caller that asks for a measurement under way waits for it. Both ends have token
buckets, with one token for each pair: this node one bucket for all its own requests, and for those of others one each and one in
all. A caller over its limit learns when to ask again.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.base.tasks import Tasks
from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Caller, Peers, PeerServer
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.overlay.membership.detector.pings import Pinged
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.membership.table import Change
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import MeasuredRtt, MeasuredRtts, MeasureRtt

Pair = tuple[str, str]
"""Two nodes by name. A round trip is as long from either end, so the order only says which node measures it."""


class Measurement(msgspec.Struct, frozen=True):
    """A measurement: ``rtt_ms`` in milliseconds, the least of some pings by ``by``; ``at`` in seconds of this node's clock."""

    rtt_ms: float
    by: str
    at: float


class MeasuredPairs:
    """The newest measurement of each pair; beyond ``limit`` pairs the least recently used is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: OrderedDict[Pair, Measurement] = OrderedDict()

    def put(self, pair: Pair, measurement: Measurement) -> None:
        """Store the measurement, unless a later one is known."""
        key = unordered(pair)
        known = self._results.get(key)
        if known is None or known.at <= measurement.at:
            self._results[key] = measurement
        self._results.move_to_end(key)
        while len(self._results) > self._limit:
            self._results.popitem(last=False)

    def get(self, pair: Pair, max_age_s: float, now: float) -> Measurement | None:
        """Return a pair's measurement of at most that age, or None."""
        key = unordered(pair)
        result = self._results.get(key)
        if result is None or now - result.at > max_age_s:
            return None
        self._results.move_to_end(key)
        return result

    def fresh(self, max_age_s: float, now: float) -> list[tuple[Pair, Measurement]]:
        """Return all measurements of at most that age, without counting them as used."""
        return [(pair, result) for pair, result in self._results.items() if now - result.at <= max_age_s]

    def forget(self, node: str) -> None:
        """Forget all pairs of a node that died, left or moved: its paths may have changed."""
        for key in [key for key in self._results if node in key]:
            del self._results[key]


def unordered(pair: Pair) -> Pair:
    a, b = pair
    return (a, b) if a <= b else (b, a)


PINGS = 3
GAP_S = 0.05
"""Time between two pings of a pair: long enough that they do not share a queue."""
ANSWER_TIMEOUTS = 3
"""Time for an asked node to answer, in ping timeouts."""

Outcome = Measurement | SbonError
"""Result for one pair; an error where it could not be measured."""


class _Running(NamedTuple):
    """A measurement under way; ``max_age_s`` is the age of an answer that its initiator accepts."""

    pair: Pair
    outcome: asyncio.Future[Outcome]
    max_age_s: float


class Measurer:
    """This node's measurements of pairs, and its answers to other nodes' requests."""

    def __init__(
        self,
        membership: Membership,
        *,
        peers: Peers,
        server: PeerServer,
        clock: Clock,
        settings: DirectorySettings,
        max_rtt_ms: float,
        counters: Counters,
    ) -> None:
        self._membership, self._peers, self._clock, self._counters = membership, peers, clock, counters
        self._settings, self._max_rtt_ms = settings, max_rtt_ms
        self._pairs = MeasuredPairs(settings.max_measured)
        self._for_self = TokenBucket(settings.burst_pairs, settings.pairs_per_s)
        self._for_others = TokenBuckets(
            whole=TokenBucket(settings.burst_pairs, settings.pairs_for_others_per_s),
            each=lambda: TokenBucket(settings.burst_pairs_for_one, settings.pairs_for_one_per_s),
            most=settings.max_askers,
        )
        self._under_way: dict[Pair, _Running] = {}
        self._tasks, self._numbers = Tasks(), count()
        self._closed = False
        self.measured = self.failed = 0
        """Pairs measured since this node started, for itself or for others, and failed ones."""
        server.handle(MeasureRtt, self._asked)
        membership.listen(self._changed)

    async def close(self) -> None:
        """End all waiting calls with ``stopping``."""
        self._closed = True
        await self._tasks.close()
        for begun in list(self._under_way.values()):
            self._end(begun, _given_up())

    def known(self, pair: Pair) -> Measurement | None:
        """Return the measurement of a pair, while it is fresh."""
        return self._pairs.get(pair, self._settings.fresh_s, self._clock.now())

    def fresh(self) -> list[tuple[Pair, Measurement]]:
        """Return all fresh measurements."""
        return self._pairs.fresh(self._settings.fresh_s, self._clock.now())

    @property
    def under_way(self) -> int:
        """The number of pairs being measured."""
        return len(self._under_way)

    async def measure(
        self, pairs: Sequence[Pair], *, max_age_s: float | None = None, sparing: bool = False
    ) -> dict[Pair, Outcome]:
        """Return for each pair its measurement within ``max_age_s`` (by default, while it is fresh), else measure now.

        ``sparing`` leaves half of this node's burst limit to more important probes.

        Raises :class:`SbonError`, with nothing measured: ``bad-pair``, ``unknown-node``, ``node-away``, ``too-many-pairs``, or
        ``too-many-measurements``, which says when to come again.
        """
        reserve = self._settings.burst_pairs // 2 if sparing else 0
        self._check_count(pairs, min(self._settings.max_pairs, self._settings.burst_pairs - reserve))
        for pair in pairs:
            if (refusal := self._refusal(pair)) is not None:
                raise refusal
        limit_s = self._settings.fresh_s if max_age_s is None else max_age_s
        return await self._outcomes(pairs, partial(self._for_self.take, keep=reserve), limit_s, spared=reserve > 0)

    # -- others ask ---------------------------------------------------------------------------------------------------

    async def _asked(self, call: MeasureRtt, caller: Caller) -> MeasuredRtts:
        own = self._membership.own_name
        targets = list(dict.fromkeys(call.targets))
        settings = self._settings
        self._check_count(targets, min(settings.max_pairs, settings.burst_pairs, settings.burst_pairs_for_one))
        outcomes: dict[str, Outcome] = {t: refusal for t in targets if (refusal := self._refusal((own, t))) is not None}
        pairs = [(own, target) for target in targets if target not in outcomes]
        take = partial(self._for_others.take, caller.node)
        results = await self._outcomes(pairs, take, min(call.max_age_s, settings.fresh_s))
        outcomes |= {target: outcome for (_, target), outcome in results.items()}
        now = self._clock.now()
        return MeasuredRtts(tuple(_told(target, outcomes[target], now) for target in targets))

    # -- requests --------------------------------------------------------------------------------------------------------

    def _check_count(self, pairs: Sequence[object], most: int) -> None:
        if len(pairs) > most:
            message = f"{len(pairs)} pairs, at most {most} are measured at once"
            raise SbonError("too-many-pairs", message, where="pairs", hint="ask in parts, or raise directory.max_pairs")

    def _refusal(self, pair: Pair) -> SbonError | None:
        if pair[0] == pair[1]:
            message = f"the latency from {pair[0]} to itself is not measured"
            return SbonError("bad-pair", message, where="pairs", hint="name two nodes")
        try:
            for node in pair:
                if node != self._membership.own_name:
                    self._membership.address_of(node)
        except SbonError as error:
            return error
        return None

    async def _outcomes(
        self, pairs: Sequence[Pair], take: Callable[[int, float], float], max_age_s: float, *, spared: bool = False
    ) -> dict[Pair, Outcome]:
        if self._closed:
            raise _given_up()
        now = self._clock.now()
        outcomes: dict[Pair, Outcome] = {}
        new: dict[Pair, Pair] = {}
        for pair in pairs:
            if (known := self._pairs.get(pair, max_age_s, now)) is not None:
                outcomes[pair] = known
            elif (begun := self._under_way.get(unordered(pair))) is None or begun.max_age_s > max_age_s:
                new.setdefault(unordered(pair), pair)
        again_s = take(len(new), now)
        if again_s > 0:
            self._counters.count("measurement-refused")
            rest = "; the rest is reserved for placing queries" if spared else ""
            message = f"{self._membership.own_name} has measured, or had measured, as much as it may for now{rest}"
            hint = f"come again in {math.ceil(again_s * 10) / 10:.1f} s"
            raise SbonError("too-many-measurements", message, where="pairs", hint=hint)
        self._begin_measurements(new, max_age_s)
        waited = {pair: self._under_way[unordered(pair)].outcome for pair in pairs if pair not in outcomes}
        if waited:
            await asyncio.wait(waited.values())
        return {pair: outcomes[pair] if pair in outcomes else waited[pair].result() for pair in pairs}

    def _begin_measurements(self, new: Mapping[Pair, Pair], max_age_s: float) -> None:
        """Begin measurements: one call to each other node, and a separate ping for each pair of this node's own."""
        loop, own = asyncio.get_running_loop(), self._membership.own_name
        targets_of: dict[str, dict[str, _Running]] = {}
        for key, (a, b) in new.items():
            begun = self._under_way[key] = _Running(key, loop.create_future(), max_age_s)
            if own in key:
                self._start(own, {b if a == own else a: begun}, max_age_s)
            else:
                targets_of.setdefault(a, {})[b] = begun
        for node, targets in targets_of.items():
            self._start(node, targets, max_age_s)

    def _start(self, node: str, targets: Mapping[str, _Running], max_age_s: float) -> None:
        self._tasks.start(f"measurement {next(self._numbers)}", self._carry_out(node, targets, max_age_s))

    async def _carry_out(self, node: str, targets: Mapping[str, _Running], max_age_s: float) -> None:
        outcomes: Mapping[str, Outcome] = {}
        try:
            if node == self._membership.own_name:
                outcomes = {target: await self._ping(target) for target in targets}
            else:
                outcomes = await self._ask(node, tuple(targets), max_age_s)
        finally:
            for target, begun in targets.items():
                self._end(begun, outcomes.get(target, _given_up()))

    def _end(self, begun: _Running, outcome: Outcome) -> None:
        if self._under_way.get(begun.pair) is begun:
            del self._under_way[begun.pair]
        if isinstance(outcome, Measurement):
            self._pairs.put(begun.pair, outcome)
            self.measured += 1
        else:
            self.failed += 1
        if not begun.outcome.done():
            begun.outcome.set_result(outcome)

    def _changed(self, name: str, change: Change) -> None:
        """Forget the measurements of a node that was gone, or has moved: its paths are new."""
        if change not in ("suspected", "went-away"):
            self._pairs.forget(name)

    # -- measuring ----------------------------------------------------------------------------------------------------

    async def _ping(self, target: str) -> Outcome:
        own = self._membership.own_name
        answers = await asyncio.gather(*(self._one_of_some(number, target) for number in range(PINGS)))
        answered = [answer for answer in answers if answer is not None]
        if not answered:
            message = f"{target} did not answer {PINGS} pings of {own} within {self._settings.ping_timeout_s:g} s"
            return SbonError("no-answer", message, where=target)
        if self._believable(rtt_ms := min(answered).rtt_ms):
            return Measurement(rtt_ms, own, self._clock.now())
        self._counters.count("rtt-refused")
        return SbonError("no-answer", f"{rtt_ms:g} ms to {target} is no round-trip time", where=target)

    async def _one_of_some(self, number: int, target: str) -> Pinged | None:
        await self._clock.sleep(number * GAP_S)
        return await self._membership.ping(target, self._settings.ping_timeout_s)

    async def _ask(self, node: str, targets: tuple[str, ...], max_age_s: float) -> dict[str, Outcome]:
        """Measure all targets in one call; the node's answer is checked, for it may say anything."""
        oldest = self._clock.now() - max_age_s
        try:
            answer: MeasuredRtts = await self._peers.call(
                self._membership.address_of(node),
                MeasureRtt(targets, max_age_s),
                timeout_s=ANSWER_TIMEOUTS * self._settings.ping_timeout_s,
                expected=self._membership.expected(node),
            )
        except SbonError as error:
            refused = SbonError(error.code, error.message, where=node, hint=error.hint, details=error.details)
            return dict.fromkeys(targets, refused)
        measured_by_target = {measured.target: measured for measured in answer.measured}
        return {target: self._checked(node, target, measured_by_target.get(target), oldest) for target in targets}

    def _checked(self, node: str, target: str, measured: MeasuredRtt | None, oldest: float) -> Outcome:
        if measured is not None and measured.code:
            return SbonError(measured.code, measured.reason, where=node)
        if measured is not None and self._believable(measured.rtt_ms) and (at := self._clock.now() - measured.age_s) >= oldest:
            return Measurement(measured.rtt_ms, node, at)
        claimed = "nothing" if measured is None else f"{measured.rtt_ms:g} ms, {measured.age_s:g} s ago"
        self._counters.refuse("measurement-bad", peer=node, target=target, said=claimed)
        return SbonError("bad-answer", f"{node} says {claimed} of its way to {target}, which cannot be", where=node)

    def _believable(self, rtt_ms: float) -> bool:
        return math.isfinite(rtt_ms) and 0 < rtt_ms <= self._max_rtt_ms


def _told(target: str, outcome: Outcome, now: float) -> MeasuredRtt:
    if isinstance(outcome, Measurement):
        return MeasuredRtt(target, outcome.rtt_ms, max(0.0, now - outcome.at))
    return MeasuredRtt(target, code=outcome.code, reason=outcome.message[:MAX_REASON])


def _given_up() -> SbonError:
    return SbonError("stopping", "the measurement was given up: this node is stopping")
