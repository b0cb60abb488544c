"""The leader of a query's ants: it sends them, gathers what comes back in time, and has the best placement reserved.

Source: ANTS, sections 3.2, 3.7 and 3.8. Lost and late ants are ignored; their round is over.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.papers.ants.algorithm.chain import Chain, next_chain
from sbon_node.papers.ants.algorithm.colony import BEYOND, FLATTER, LEAST_ALPHA, Scouted, assigned
from sbon_node.papers.ants.algorithm.scouting import Site, latency_ms, stops_of
from sbon_node.papers.ants.network.service import AntService, Report
from sbon_node.papers.ants.network.wire import are_whole, on_wire, site_of, sites_on_wire
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.model.queueing import MAX_LOAD
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import finish
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.ants import (
    MAX_TASKS,
    EnforceAnt,
    EnforceReturn,
    RouteAnt,
    RouteReturn,
    ScoutAnt,
    ScoutReturn,
    WithdrawAnt,
)

log = structlog.get_logger()


Known = dict[tuple[str, ...], list[Scouted]]
"""Reports by the ends and operators of their chain, the best first."""
NONE_KNOWN: Known = {}


class Enforced(NamedTuple):
    """A reserved placement of a chain: its round, and the reports it was chosen among, the best first."""

    round: int
    reports: list[Scouted]


class Claim(NamedTuple):
    """A round in which work was booked at ``sites``."""

    round: int
    sites: tuple[Site, ...]


class AntLeader:
    """Places queries by ants between nodes. Its :meth:`place` is a strategy that also reserves what it has chosen."""

    def __init__(self, context: Context, ants: AntService) -> None:
        self._context, self._ants, self._settings = context, ants, ants.settings

    async def place(
        self, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, known: Known = NONE_KNOWN
    ) -> Placement:
        """Place chain after chain, and reserve each. Raises :class:`SbonError` ``no-capacity``; then nothing stays reserved.

        Reports that are ``known`` spare the scouts of their chains.
        """
        before, hosts, chains = view.probes, dict[str, str](), list[Enforced]()
        try:
            while (chain := next_chain(problem, hosts)) is not None:
                chain = msgspec.structs.replace(chain, tasks=chain.tasks[:MAX_TASKS])
                enforced = await self._enforced(chain, view, settings.ant_tries, known.get(key_of(chain), ()))
                if enforced is None:
                    operator = next(one for one in problem.operators if one.id == chain.tasks[0].operator)
                    raise await KnownCapacity(problem, view).refusal(operator, {})
                chains.append(enforced)
                hosts |= enforced.reports[0].hosts()
            found = "placements that ants found"
            by_operator = {one.operator: one for enforced in chains for one in assigned(enforced.reports, found)}
            return finish("ants", problem, [by_operator[operator.id] for operator in problem.operators], view, before)
        except BaseException:
            for enforced in chains:
                self._withdraw(enforced.round, enforced.reports[0].sites)
            raise

    def path_ms(self, source: str, other: str) -> float:
        """Return the one-way latency as far as known here."""
        return 0.0 if source == other else self._ants.path_ms(source, other)

    async def look(
        self, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, query: str
    ) -> list[Scouted] | None:
        """Return the best report for each chain of a running query, None where scouts find none; nothing is reserved."""
        best, hosts = list[Scouted](), dict[str, str]()
        while (chain := next_chain(problem, hosts)) is not None:
            chain = msgspec.structs.replace(chain, tasks=chain.tasks[:MAX_TASKS], query=query)
            reports = await self.found(chain, view, settings.ant_tries)
            if not reports:
                return None
            best.append(reports[0])
            hosts |= reports[0].hosts()
        return best

    async def claim(self, reports: Sequence[Scouted], present: Mapping[str, str]) -> list[Claim] | None:
        """Have the work of operators that will move counted at their new hosts; None if one has become too busy.

        Other queries' ants see it before the operators are there. Hosts check their capacity; each move reserves it by itself.
        """
        claims: list[Claim] = []
        for part in (part for report in reports for part in _moving(report, present)):
            round_ = await self.enforce(part, hold_s=0.0)
            if round_ is None:
                self.release(claims)
                return None
            claims.append(Claim(round_, part.sites))
        return claims

    def release(self, claims: Sequence[Claim]) -> None:
        """Undo claims: the operators do not move."""
        for claim in claims:
            self._withdraw(claim.round, claim.sites)

    async def found(self, chain: Chain, view: NetworkView, tries: int) -> list[Scouted]:
        """Return the reports of the first successful try, the best first; each further try sends scouts that stray farther."""
        for number in range(tries):
            if reports := await self._scouted(chain, view, number):
                return reports
        return []

    async def _scouted(self, chain: Chain, view: NetworkView, strays: int) -> list[Scouted]:
        await self.route(chain)
        return await self._measured(await self.scout(chain, strays=strays), view)

    async def _enforced(self, chain: Chain, view: NetworkView, tries: int, known: Sequence[Scouted]) -> Enforced | None:
        """Scout and reserve; each further try sends scouts that stray farther. Return None if all fail."""
        known = [report._replace(chain=chain) for report in known if self._may_host(chain, report.sites)]
        for number in range(tries):
            reports = known if number == 0 and known else await self._scouted(chain, view, number)
            for position, report in enumerate(reports[: self._settings.finalists]):
                round_ = await self.enforce(report)
                if round_ is not None:
                    return Enforced(round_, [report, *reports[:position], *reports[position + 1 :]])
        return None

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def route(self, chain: Chain) -> int:
        """Send routing ants; return how many came back in time."""
        if chain.source == chain.destination:
            return 0
        own, settings = self._context.name, self._settings

        def ant(round_: int, number: int) -> RouteAnt:
            return RouteAnt(round_, number, own, chain.source, chain.destination, (), 0.0, 0)

        back = await self._gather(chain.source, ant, settings.routing_ants, settings.route_wait_s)
        return sum(isinstance(report, RouteReturn) for report in back)

    async def scout(self, chain: Chain, *, strays: int = 0) -> list[Scouted]:
        """Send scouts, each with its own greed and alpha; return the distinct complete placements, best first."""
        own, settings, rng, wired = self._context.name, self._settings, self._ants.rng, on_wire(chain)

        def ant(round_: int, number: int) -> ScoutAnt:
            return ScoutAnt(
                round=round_,
                number=number,
                sender=own,
                chain=wired,
                greed=rng.randint(1, max(1, len(chain.tasks))),
                most_load=rng.uniform(LEAST_ALPHA, MAX_LOAD),
                threshold_ms=None,
                flat=min(1.0, strays * FLATTER),
                beyond=strays * BEYOND,
                path=(),
                sites=(),
            )

        back = await self._gather(chain.source, ant, settings.scouting_ants, settings.scout_wait_s)
        placements = {
            tuple((site.node, site.last) for site in report.sites): tuple(site_of(site) for site in report.sites)
            for report in back
            if isinstance(report, ScoutReturn) and are_whole(report.sites, len(chain.tasks), all_placed=True)
        }
        reports = [
            self._judged(chain, sites, self._ants.path_ms) for sites in placements.values() if self._may_host(chain, sites)
        ]
        return sorted(reports, key=lambda report: (report.cost_ms, report.sites[0].node, len(report.sites)))

    async def enforce(self, report: Scouted, *, hold_s: float | None = None) -> int | None:
        """Have a placement reserved; return its round, or None if a node refuses or no answer comes.

        Capacity is held for ``hold_s`` seconds, by default as for any submission; the work counts as traffic longer.
        """
        settings, sites = self._settings, report.sites
        hold_s = self._context.settings.reservation_s if hold_s is None else hold_s
        answered: asyncio.Future[EnforceReturn] = asyncio.get_running_loop().create_future()

        def on_report(answer: Report) -> None:
            if isinstance(answer, EnforceReturn) and not answered.done():
                answered.set_result(answer)

        round_ = self._ants.open_round([site.node for site in sites], on_report)
        try:
            ant = self._enforcement(round_, report, hold_s)
            for _ in range(settings.enforce_tries):
                self._ants.send(sites[0].node, ant)
                await asyncio.wait([answered], timeout=settings.enforce_wait_s)
                if answered.done():
                    break
        finally:
            self._ants.end_round(round_)
            if not (answered.done() and answered.result().accepted):
                self._withdraw(round_, sites)
        if not answered.done():
            self._context.counters.count("ant-enforcement-unanswered")
            return None
        answer = answered.result()
        log.debug("enforced", chain=report.chain.id, accepted=answer.accepted, reason=answer.reason)
        return round_ if answer.accepted else None

    async def _gather(
        self, source: str, ant: Callable[[int, int], RouteAnt | ScoutAnt], count: int, wait_s: float
    ) -> list[Report]:
        """Send ants one after another; return those that are back when enough are, or when the time is over."""
        settings, back, numbers = self._settings, list[Report](), set[int]()
        enough, needed = asyncio.Event(), max(1, round(count * settings.enough))

        def on_report(report: Report) -> None:
            if isinstance(report, RouteReturn | ScoutReturn) and report.number < count and report.number not in numbers:
                numbers.add(report.number)
                back.append(report)
                if len(back) >= needed:
                    enough.set()

        round_ = self._ants.open_round([source], on_report)
        try:
            for number in range(count):
                self._ants.send(source, ant(round_, number))
                await self._context.clock.sleep(settings.release_s)
            with suppress(TimeoutError):
                async with self._context.clock.timeout(wait_s):
                    await enough.wait()
        finally:
            self._ants.end_round(round_)
        return back

    # -- judging -------------------------------------------------------------------------------------------------------

    async def _measured(self, reports: Sequence[Scouted], view: NetworkView) -> list[Scouted]:
        """Measure the links of the best reports, and return these by what was measured, before the others."""
        best, rest = reports[: self._settings.finalists], reports[self._settings.finalists :]
        pairs = sorted(
            {pair for report in best for pair in itertools.pairwise(stops_of(report.chain, report.sites)) if pair[0] != pair[1]}
        )
        try:
            await view.measure(pairs)
        except SbonError as error:  # At the limit on measurements, known latencies decide.
            self._context.counters.count("ant-reports-unmeasured")
            log.debug("ants-unmeasured", reason=str(error))
        judged = [self._judged(report.chain, report.sites, view.latency_ms) for report in best]
        return [*sorted(judged, key=lambda report: report.cost_ms), *rest]

    def _judged(self, chain: Chain, sites: tuple[Site, ...], path_ms: Callable[[str, str], float]) -> Scouted:
        whole_ms = latency_ms(chain, sites, path_ms)
        return Scouted(chain, sites, whole_ms + sum(site.others_ms for site in sites), whole_ms)

    def _may_host(self, chain: Chain, sites: Sequence[Site]) -> bool:
        present = all(not self._context.presence.away(site.node) for site in sites)
        own = ((site, chain.own(site.node, site.first, site.last)) for site in sites)
        tasks = ((site.node, chain.tasks[number]) for site, first in own for number in range(first, site.last))
        return present and not any(node in task.refused for node, task in tasks)

    def _enforcement(self, round_: int, report: Scouted, hold_s: float) -> EnforceAnt:
        own, chain = self._context.name, report.chain
        return EnforceAnt(
            round=round_,
            sender=own,
            leader=own,
            chain=on_wire(chain),
            sites=sites_on_wire(report.sites, {}),
            at=0,
            query=uid_of(chain.tasks[0].operator),
            operators=tuple(task.operator.rpartition(".")[2] for task in chain.tasks),
            hold_s=hold_s,
        )

    def _withdraw(self, round_: int, sites: Sequence[Site]) -> None:
        """Ask each node by itself, since the ant that goes back may be lost; what no ant undoes ends by itself."""
        for site in sites:
            self._ants.send(site.node, WithdrawAnt(round_, self._context.name, ()))


def key_of(chain: Chain) -> tuple[str, ...]:
    """Return the key of a chain's reports among those that are known."""
    return (chain.source, chain.destination, *(task.operator for task in chain.tasks))


def _moving(report: Scouted, present: Mapping[str, str]) -> Iterator[Scouted]:
    """Yield, for each site to which operators move, the part of the chain from the first to the last of these."""
    chain = report.chain
    for site in report.sites:
        moving = [number for number in range(site.first, site.last) if present[chain.tasks[number].operator] != site.node]
        if moving:
            first, last = moving[0], moving[-1] + 1
            part = msgspec.structs.replace(chain, tasks=chain.tasks[first:last], rate_s=chain.flow(first, last).rate_s)
            yield report._replace(chain=part, sites=(msgspec.structs.replace(site, first=0, last=last - first),))
