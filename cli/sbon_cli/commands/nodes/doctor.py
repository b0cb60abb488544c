"""``sbon doctor``: problems of a node, its machine and its connections, with remedies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from msgspec.structs import replace

from sbon import SbonError, states
from sbon.model import QueryInfo, SourceInfo
from sbon.states import LIVE, LOST, UNREACHABLE
from sbon_cli.client import Client
from sbon_cli.commands.nodes.settings_flags import flags_of, settings_options
from sbon_cli.terminal.output import EXIT_REFUSED, err, json_option, print_json, print_table, reports_errors
from sbon_node.config.config import load
from sbon_node.operations.examination import CheckResult, Examination, failed, ok, warning

MARKS = {"ok": "ok", "warning": "WARNING", "failed": "FAILED"}
REMEDIES = {
    UNREACHABLE: "start the nodes that are away",
    states.PAUSED: "remove the cause that paused sources report; they continue by themselves",
    states.FAILED: "stop the queries that read failed sources, detach these sources and attach them again",
    LOST: "stop the queries that read lost sources, detach these sources and attach them again",
}
"""For sources that do not run, by the first word of their state."""


NOT_OVER = frozenset({*LIVE, UNREACHABLE, LOST})
MAX_QUERIES = 100
"""Most queries that are checked; each asks its nodes."""
LOST_REMEDY = (
    "lost components do not come back: stop the query (sbon query stop {}), attach its lost sources again, and submit it again"
)


@click.command()
@settings_options
@json_option
@click.pass_obj
@reports_errors
def doctor(api: str, /, config_file: Path | None, settings: tuple[str, ...], json_: bool, **named: str | None) -> None:
    """Examines the node asked: Java, byte-code, disk, file descriptors, members, sources and queries that wait or have lost a
    component, its ports in both directions, clocks, versions, addresses.

    Peers connect back to it by UDP and TCP. If no node answers, sbon examines this machine for a node with the given settings, as
    sbon node would take them: then ports must be free, and nodes to join within reach.

    Exits with 1 if a check failed; warnings alone are no failure."""
    found = _examined(api, config_file, settings, named, json_)
    if json_:
        print_json(found)
    else:
        rows = [(MARKS[one.verdict], one.check, one.message, one.remedy) for one in found.findings]
        print_table(("", "check", "finding", "remedy"), rows, title=found.node or "no node runs")
    if found.failed:
        sys.exit(EXIT_REFUSED)


def _sources(client: Client) -> list[CheckResult]:
    """Check all streams for sources that do not run or do not answer; empty without streams."""
    try:
        each = [one for stream in client.streams() for one in stream.sources]
    except SbonError as error:
        return [warning("sources", f"not known: {error.message}", error.hint or "ask again: sbon doctor")]
    lost = [one for one in each if one.trouble or _kind(one) in (UNREACHABLE, states.FAILED, LOST)]
    if lost:
        kinds = {_kind(one) for one in lost}
        remedy = "; ".join(said for kind, said in REMEDIES.items() if kind in kinds)
        told = "; ".join(f"{one.source.stream}/{one.source.name} at {one.source.node}: {one.state}" for one in lost)
        return [warning("sources", told, f"{remedy}; see: sbon stream show, and their logs")]
    return [ok("sources", f"{len(each)}, all well")] if each else []


def _queries(client: Client) -> list[CheckResult]:
    """Check active queries for lost and waiting components; empty without queries."""
    try:
        listed = client.queries()
        live = [one for one in listed[:MAX_QUERIES] if one.state in NOT_OVER]
        each = [client.query(one.id) if one.state == states.RUNNING else one for one in live]
    except SbonError as error:
        return [warning("queries", f"not known: {error.message}", error.hint or "ask again: sbon doctor")]
    troubled = [one for one in each if one.reason and one.state in NOT_OVER]
    lost = [one for one in troubled if _is_lost(one)]
    found = [failed(f"query {one.id}", one.reason, LOST_REMEDY.format(one.id)) for one in lost]
    found += [warning(f"query {one.id}", one.reason, f"see: sbon query show {one.id}") for one in troubled if one not in lost]
    return found or ([ok("queries", f"{len(each)}, none has lost a component or waits")] if each else [])


def _is_lost(query: QueryInfo) -> bool:
    """Whether a node has lost its component of the query."""
    parts = [*(one.state for one in query.operators), *(_kind(one) for one in query.sources)]
    return query.state == LOST or query.sink_lost or LOST in parts


def _kind(one: SourceInfo) -> str:
    return one.state.partition(":")[0]


def _examined(
    api: str, config_file: Path | None, settings: tuple[str, ...], named: dict[str, str | None], json_: bool
) -> Examination:
    try:
        if not json_:
            err().print("[dim]examining; peers connect back …[/]")
        client = Client(api)
        found = client.examine()
    except SbonError as error:
        if error.code != "node-unreachable":
            raise
    else:
        return replace(found, findings=(*found.findings, *_sources(client), *_queries(client)))
    from sbon_node.operations.machine import examine_machine
    from sbon_node.operations.preflight import not_running, preflight

    config, _ = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    return Examination(findings=(*not_running(api), *examine_machine(config), *preflight(config)))
