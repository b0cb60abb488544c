"""Operators of this node that several queries read: offered to others, kept for each that refers to them, ended with the last.

Source: SBON (Pietzuch et al., ICDE 2006), section 3.2; docs/design.md, section 10.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec
import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.base.tasks import Tasks
from sbon_node.connectors.sources.runner import SourcePosition
from sbon_node.context import Context, backoff_of
from sbon_node.hosting.components import HostedOperator, Reference, acceptors_of
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.model.records import OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.ownership.operators import OperatorRegisters
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.operators import OperatorStats, computation_of
from sbon_protocol.api.plan import Rate
from sbon_protocol.api.query_ids import is_sink
from sbon_protocol.api.sharing import MAX_READERS, MAX_REFERENCES, OfferedOperator, StreamOffer, StreamReader, digest_of
from sbon_protocol.api.subscribers import is_follower, query_of
from sbon_protocol.calls import AskStreams, DestroyComponents, OperatorShared, ShareOperator, StreamOffers
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

RELEASE_TRIES = 5


class SharedOperators:
    """Answers for this node's operators, and decides which of them stay when a query ends.

    An operator's register names the queries that refer to it; its host keeps them beside the operator, and ends it when none is
    left. A reference that is not in the register counts for nothing.
    """

    def __init__(
        self, context: Context, operators: OperatorHost, registers: OperatorRegisters, moves: Callable[[str], object | None]
    ) -> None:
        """Create it; ``moves`` returns the move of an operator that is under way, or None."""
        self._context, self._operators, self._registers, self._moves = context, operators, registers, moves
        self._checks = CallerChecks(context.settings.checks, "control.checks")
        self._tasks = Tasks()
        self._ending: Counter[str] = Counter()
        context.server.handle(AskStreams, self._ask)
        context.server.handle(ShareOperator, self._share)

    async def close(self) -> None:
        await self._tasks.close()

    # -- offers ---------------------------------------------------------------------------------------------------------

    async def _ask(self, call: AskStreams, caller: Caller) -> StreamOffers:
        here = set(self._context.outbox.streams())
        return StreamOffers(offers=tuple(self._offer(stream) for stream in dict.fromkeys(call.streams) if stream in here))

    def _offer(self, stream: str) -> StreamOffer:
        outbox = self._context.outbox
        ended = outbox.ended(stream)
        readers = [one for one in self._context.publisher.readers(stream) if not is_sink(one[0])]
        return StreamOffer(
            stream=stream,
            earliest=outbox.earliest(stream),
            latest=outbox.latest(stream),
            watermark_ms=outbox.watermark_ms(stream) if outbox.latest(stream) and not ended else None,
            ended=ended,
            greatest_ms=self._greatest_ms(stream) if ended else None,
            readers=tuple(StreamReader(component=component, node=node) for component, node in readers[:MAX_READERS]),
            operator=self._offered(stream),
        )

    def _greatest_ms(self, stream: str) -> int | None:
        stored = self._context.outbox.position(stream) if is_source(stream) else None
        return None if stored is None else msgspec.msgpack.decode(stored, type=SourcePosition).greatest_ms

    def _offered(self, operator: str) -> OfferedOperator | None:
        hosted = self._operators.get(operator)
        if hosted is None or not hosted.spec.signature or not self._operators.is_running(operator):
            return None
        spec = hosted.spec
        stats = next((info.stats for info in self._operators.describe(spec.query) if info.id == operator), None)
        return OfferedOperator(
            computation=computation_of(spec),
            rate=_rate(stats),
            durability=spec.durability,
            queries=tuple(one.query for one in hosted.readers),
        )

    # -- references -----------------------------------------------------------------------------------------------------

    async def _share(self, call: ShareOperator, caller: Caller) -> OperatorShared:
        """Keep an operator for a query that its register names, and the frames that its readers begin with."""
        operator = call.operator
        acceptors = acceptors_of(call.acceptors, operator)
        if any(query_of(one) != call.query or is_follower(one) for one in call.readers):
            raise SbonError("bad-reader", f"not all readers are of {call.query}", where=operator)
        self._hosted(call)
        with self._checks.one(caller.node, operator):
            register = await self._registers.read(call.query, operator)
        hosted = self._hosted(call)
        me = self._context.membership.expected(self._context.name)
        if (register.host, register.epoch) != (me.node, hosted.spec.epoch):
            raise SbonError("moved", f"{register.host} hosts it in epoch {register.epoch}", where=operator)
        if self._moves(operator) is not None:
            raise SbonError("move-under-way", "it is on its way to another node", where=operator, hint="try again later")
        if call.query not in hosted.referring and len(hosted.references) + 1 >= MAX_REFERENCES:
            raise SbonError("too-many-readers", f"{len(hosted.references)} queries share it", where=operator)
        outbox = self._context.outbox
        new = [one for one in call.readers if one not in outbox.link_counts(operator).links]
        others = (one for one in hosted.references if one.query != call.query)
        reference = Reference(query=call.query, acceptors=acceptors)
        try:
            for reader in new:
                # Of a stream that has ended the last frame says so.
                outbox.subscribe(operator, reader, call.first or outbox.latest(operator) + (not outbox.ended(operator)))
            self._operators.keep(msgspec.structs.replace(hosted, references=(*others, reference)))
        except SbonError:
            for reader in new:
                outbox.unsubscribe(operator, reader)
            raise
        log.info("operator-shared", operator=operator, query=call.query, readers=call.readers)
        links = outbox.link_counts(operator).links
        first = max((links[reader].acknowledged + 1 for reader in call.readers), default=0)
        return OperatorShared(epoch=hosted.spec.epoch, first=first)

    def _hosted(self, call: ShareOperator) -> HostedOperator:
        hosted = self._operators.get(call.operator)
        runs = self._operators.is_running(call.operator) and not self._ending[call.operator]
        if hosted is None or not runs or digest_of(hosted.spec, hosted.spec.durability) != call.digest:
            raise SbonError("operator-unknown", f"{self._context.name} runs no such operator", where=call.operator)
        return hosted

    # -- the end of a query ---------------------------------------------------------------------------------------------

    @contextmanager
    def ending(self, operators: Iterable[str]) -> Iterator[None]:
        """Let nobody refer to the operators while they are destroyed, which takes several steps."""
        ending = Counter(operators)
        self._ending += ending
        try:
            yield
        finally:
            self._ending -= ending

    def keep(self, call: DestroyComponents) -> tuple[str, ...]:
        """Note the end of a query; return those of its own operators that others refer to, which stay."""
        kept = []
        for operator in call.components:
            hosted = self._operators.get(operator)
            if hosted is None or hosted.spec.query != call.query or not hosted.references:
                continue
            kept.append(operator)
            if not hosted.owner_over:
                spec = msgspec.structs.replace(hosted.spec, readers=())
                self._operators.keep(msgspec.structs.replace(hosted, spec=spec, owner_over=True))
        return tuple(kept)

    def give_back(self, call: DestroyComponents) -> list[DestroyComponents]:
        """Remove the references of a query that is over, and its subscriptions; return the ends of operators to which nobody
        refers any more.
        """
        ends: dict[str, list[str]] = {}
        for operator in call.components:
            hosted = self._operators.get(operator)
            if hosted is None or call.query not in hosted.referring:
                continue
            left = tuple(one for one in hosted.references if one.query != call.query)
            self._operators.keep(msgspec.structs.replace(hosted, references=left))
            self._unsubscribe(operator, call.query)
            log.info("operator-given-back", operator=operator, query=call.query, references=len(left))
            if hosted.owner_over and not left:
                ends.setdefault(hosted.spec.query, []).append(operator)
            else:
                self._tasks.start(f"release {operator} {call.query}", self._release(operator, call.query))
        return [DestroyComponents(query=query, components=tuple(names)) for query, names in ends.items()]

    def _unsubscribe(self, operator: str, query: str) -> None:
        outbox = self._context.outbox
        links = outbox.link_counts(operator).links if operator in outbox.streams() else ()
        for subscriber in [one for one in links if query_of(one) == query]:
            outbox.unsubscribe(operator, subscriber)

    async def _release(self, operator: str, query: str) -> None:
        """Take the query out of the register. A reference that stays there is given back when its query is found to be over."""
        backoff = backoff_of(self._context.settings)
        for _ in range(RELEASE_TRIES):
            try:
                await self._registers.release(operator, query)
                return
            except SbonError as error:
                log.info("reference-not-released", operator=operator, query=query, code=error.code, reason=str(error))
            await self._context.clock.sleep(backoff.next_s())


def _rate(stats: OperatorStats | None) -> Rate | None:
    if stats is None or not stats.rows_out_s or stats.bytes_out_s is None:
        return None
    return Rate(rows_s=stats.rows_out_s, bytes_s=stats.bytes_out_s, measured=True)


def is_shared(register: OperatorRegister, query: str) -> bool:
    """Return whether queries other than ``query`` refer to the operator."""
    return any(one != query for one in register.queries)
