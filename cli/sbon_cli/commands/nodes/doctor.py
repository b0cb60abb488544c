"""``sbon doctor``: problems of all nodes, their machines and their connections, with remedies."""

import os
import sys
from collections import Counter
from pathlib import Path

import click
from msgspec.structs import replace

from sbon import SbonError, states
from sbon.http import is_unsent
from sbon.model import QueryInfo, SourceInfo
from sbon.states import LIVE, LOST, UNREACHABLE
from sbon_cli.client import Client
from sbon_cli.commands.nodes.config import flags_of, settings_options
from sbon_cli.commands.queries.durability import ended_by_one_failure, named_some, not_followed
from sbon_cli.terminal.output import EXIT_REFUSED, asks_node, err, print_table, tell
from sbon_node.config.config import load
from sbon_node.operations.examination import CheckResult, Examination, failed, ok, warning
from sbon_protocol.api.durability import LOCAL, SINK, SOURCE

MARKS = {"ok": "ok", "warning": "WARNING", "failed": "FAILED"}
REMEDIES = {
    UNREACHABLE: "start the nodes that are away",
    states.PAUSED: "remove the cause that paused sources report; they continue by themselves",
    states.FAILED: "stop the queries that read failed sources, detach these sources and attach them again",
    LOST: "stop the queries that read lost sources, detach these sources and attach them again",
}
"""For sources that do not run, by the first word of their state."""

NOT_OVER = frozenset({*LIVE, UNREACHABLE, LOST})
MAX_NAMED = 5
"""Most queries that a remedy names."""
MAX_QUERIES = 100
"""Most queries that are checked; each asks its nodes."""
LOST_REMEDY = (
    "lost components do not come back: stop the query (sbon query stop {}), attach its lost sources again, and submit it again"
)
LOCAL_REMEDY = "submit with --durability replicated"
SOURCE_REMEDY = "attach live sources with --durability replicated"
SINK_REMEDY = "submit with --sink-failover where the sink is a database or webhook"
FILES_REMEDY = "files stay at their nodes: mirror those disks; see: sbon query show QUERY"
FOLLOW_REMEDY = "they go on from their stored checkpoints, which takes longer; see: sbon query show QUERY"


@click.command()
@click.option("--all/--only", "everywhere", default=True, help="Examine all nodes (the default), or only the node asked.")
@settings_options
@asks_node
def doctor(
    api: str, /, everywhere: bool, config_file: Path | None, settings: tuple[str, ...], json_: bool, **named: str | None
) -> None:
    """Examines all nodes: Java, byte-code, disk, file descriptors, load, members, sources and queries that wait or have lost a
    component, ports in both directions, clocks, versions, addresses. Of each node but the one asked, the checks that are well are
    counted in one line.

    Peers connect back to it by UDP and TCP. If no node answers, sbon examines this machine for a node with the given settings, as
    sbon node would take them: then ports must be free, and nodes to join within reach.

    Exits with 1 if a check failed; warnings alone are no failure."""
    examination = _examined(api, everywhere, config_file, settings, named, json_)
    tell(examination, json_, _show)
    if examination.failed:
        sys.exit(EXIT_REFUSED)


def _show(examination: Examination) -> None:
    """Print the findings; those of other nodes that are well as one line for each node."""
    here = [finding for finding in examination.findings if finding.node in ("", examination.node)]
    rows = [(MARKS[finding.verdict], finding.check, finding.message, finding.remedy) for finding in here]
    print_table(("", "check", "finding", "remedy"), rows, title=examination.node or "no node runs")
    others = [finding for finding in examination.findings if finding not in here]
    if not others:
        return
    well = Counter(finding.node for finding in others if finding.verdict == "ok")
    wrong = [(MARKS[one.verdict], one.node, one.check, one.message, one.remedy) for one in others if one.verdict != "ok"]
    table = wrong + [(MARKS["ok"], node, "", f"{count} checks", "") for node, count in well.items()]
    nodes = dict.fromkeys(finding.node for finding in others)
    in_order = [row for node in nodes for row in table if row[1] == node]
    print_table(("", "node", "check", "finding", "remedy"), in_order, title="other nodes")


def _sources(client: Client) -> list[CheckResult]:
    """Check all streams for sources that do not run or do not answer; empty without streams."""
    try:
        each = [source for stream in client.streams() for source in stream.sources]
    except SbonError as error:
        return [warning("sources", f"not known: {error.message}", error.hint or "ask again: sbon doctor")]
    lost = [source for source in each if source.trouble or _kind(source) in (UNREACHABLE, states.FAILED, LOST)]
    if lost:
        kinds = {_kind(source) for source in lost}
        remedy = "; ".join(advice for kind, advice in REMEDIES.items() if kind in kinds)
        message = "; ".join(
            f"{source.source.stream}/{source.source.name} at {source.source.node}: {source.state}" for source in lost
        )
        return [warning("sources", message, f"{remedy}; see: sbon stream show, and their logs")]
    return [ok("sources", f"{len(each)}, all well")] if each else []


def _queries(client: Client) -> list[CheckResult]:
    """Check active queries for lost and waiting components, and for those that one failure would end; empty without queries."""
    try:
        listing = client.queries()
        live = [query for query in listing[:MAX_QUERIES] if query.state in NOT_OVER]
        each = [client.query(query.id) if query.state == states.RUNNING else query for query in live]
    except SbonError as error:
        return [warning("queries", f"not known: {error.message}", error.hint or "ask again: sbon doctor")]
    troubled = [query for query in each if query.reason and query.state in NOT_OVER]
    lost = [query for query in troubled if _is_lost(query)]
    results = [failed(f"query {query.id}", query.reason, LOST_REMEDY.format(query.id)) for query in lost]
    if silent := listing.unanswered:
        absent = named_some(one.node for one in silent if one.state not in ("alive", "suspect"))
        remedy = (
            f"start again: {absent}; one that is to go leaves once it runs: sbon leave" if absent else "ask again: sbon doctor"
        )
        results.append(warning("queries", f"those of {named_some(map(str, silent))} are not known: no answer from there", remedy))
    results += _waiting([query for query in troubled if query not in lost], each)
    results = results or ([ok("queries", f"{len(each)}, none has lost a component or waits")] if each else [])
    return [*results, *_durability(each)]


def _waiting(waiting: list[QueryInfo], queries: list[QueryInfo]) -> list[CheckResult]:
    """Return a line for each query that waits; those that wait for operators of the same nodes share one."""
    by_nodes: dict[tuple[str, ...], list[QueryInfo]] = {}
    for query in waiting:
        nodes = tuple(sorted({one.node for one in query.operators if one.state != states.RUNNING}))
        by_nodes.setdefault(nodes or (query.id,), []).append(query)
    results = []
    for nodes, group in by_nodes.items():
        if len(group) == 1:
            results.append(warning(f"query {group[0].id}", group[0].reason, f"see: sbon query show {group[0].id}"))
            continue
        there = [one.state for query in queries for one in query.operators if one.node in nodes]
        run = f"{there.count(states.RUNNING)} of {len(there)} run there"
        message = f"{len(group)} wait for operators at {', '.join(nodes)}: {run}; {group[0].id}: {group[0].reason}"
        some = " or ".join(query.id for query in group[:MAX_NAMED])
        results.append(warning("queries", message, f"see: sbon query show {some}"))
    return results


def _durability(queries: list[QueryInfo]) -> list[CheckResult]:
    """Check running queries for those that end with the disk of a single node, and hot ones for their followers.

    Empty where no query is known to run.
    """
    known = [query for query in queries if query.survival is not None]
    unfollowed = not_followed(known)
    results = [warning("hot", f"no follower follows: {unfollowed}", FOLLOW_REMEDY)] if unfollowed else []
    if ended := ended_by_one_failure(queries):
        message = f"the loss of one node with its disk would end: {ended}"
        return [warning("durability", message, _durability_remedy(queries)), *results]
    safe = [query for query in known if query.survival is not None and query.survival.any_node]
    return [*([ok("durability", f"{len(safe)}, each survives the loss of any one node")] if safe else []), *results]


def _durability_remedy(queries: list[QueryInfo]) -> str:
    """Return the remedies for the components that would be lost; durability helps only local queries."""
    losses = [(query, loss) for query in queries if query.survival for loss in query.survival.losses if not loss.lost]
    parts = {loss.part for _, loss in losses}
    remedies = [LOCAL_REMEDY] if any(query.durability == LOCAL for query, _ in losses) else []
    remedies += [SOURCE_REMEDY] if SOURCE in parts else []
    remedies += [SINK_REMEDY] if SINK in parts else []
    return "; ".join([*remedies, FILES_REMEDY])


def _is_lost(query: QueryInfo) -> bool:
    """Whether a node has lost its component of the query."""
    states_of_components = [*(operator.state for operator in query.operators), *(_kind(source) for source in query.sources)]
    return query.state == LOST or query.sink_lost or LOST in states_of_components


def _kind(source: SourceInfo) -> str:
    return source.state.partition(":")[0]


def _examined(
    api: str, everywhere: bool, config_file: Path | None, settings: tuple[str, ...], named: dict[str, str | None], json_: bool
) -> Examination:
    try:
        if not json_:
            err().print("[dim]examining; peers connect back …[/]")
        client = Client(api)
        examination = client.examine(everywhere=everywhere)
    except SbonError as error:
        if error.code != "node-unreachable" or not is_unsent(error):
            raise
    else:
        return replace(examination, findings=(*examination.findings, *_sources(client), *_queries(client)))
    from sbon_node.operations.machine_checks import examine_machine, not_running, preflight

    config, _ = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    return Examination(findings=(*not_running(api), *examine_machine(config), *preflight(config)))
