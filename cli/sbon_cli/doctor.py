"""``sbon doctor``: what is wrong with a node, its machine, or its place among its peers, and what to do about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from msgspec.structs import replace

from sbon_cli.client import Client
from sbon_cli.output import EXIT_REFUSED, as_json, err, json_option, print_json, print_table, reports_errors
from sbon_cli.settings_flags import flags_of, settings_options
from sbon_node.config import load
from sbon_node.control.report import SourceInfo
from sbon_node.errors import SbonError
from sbon_node.operations.finding import Examination, Finding, ok, warning

MARKS = {"ok": "ok", "warning": "WARNING", "failed": "FAILED"}
REMEDIES = {
    "unreachable": "start the nodes that are away",
    "paused": "mend what paused ones wait for, and they go on by themselves",
    "failed": "stop the queries that read those that failed, detach these and attach them anew",
}
"""For sources that do not run, by the first word of their state."""


@click.command()
@settings_options
@json_option
@click.pass_obj
@reports_errors
def doctor(api: str, /, config_file: Path | None, settings: tuple[str, ...], json_: bool, **named: str | None) -> None:
    """Examines the node asked: Java, byte-code, disk, file descriptors, members and sources that are lost, its ports both ways,
    clocks, versions, addresses.

    Peers are asked to reach back to it by UDP and TCP. Where no node answers, this machine is examined for one with the settings
    given, as sbon node would take them: then ports must be free, and nodes to join within reach.

    Exits 1 where something failed; warnings alone are no failure.
    """
    found = _examined(api, config_file, settings, named, json_)
    if as_json(json_):
        print_json(found)
    else:
        rows = [(MARKS[one.verdict], one.check, one.message, one.remedy) for one in found.findings]
        print_table(("", "looked at", "found", "what to do"), rows, title=found.node or "no node runs")
    if found.failed:
        sys.exit(EXIT_REFUSED)


def _sources(client: Client) -> list[Finding]:
    """Of all streams: which do not run, or cannot be asked. Nothing where there are none."""
    try:
        each = [one for stream in client.streams() for one in stream.sources]
    except SbonError as error:
        return [warning("sources", f"not known: {error.message}", error.hint or "ask again: sbon doctor")]
    lost = [one for one in each if one.trouble or _kind(one) in ("unreachable", "failed")]
    if lost:
        kinds = {_kind(one) for one in lost}
        remedy = "; ".join(said for kind, said in REMEDIES.items() if kind in kinds)
        told = "; ".join(f"{one.source.stream}/{one.source.name} at {one.source.node}: {one.state}" for one in lost)
        return [warning("sources", told, f"{remedy}; see: sbon stream show, and their logs")]
    return [ok("sources", f"{len(each)}, nothing is wrong with any")] if each else []


def _kind(one: SourceInfo) -> str:
    return one.state.partition(":")[0]


def _examined(
    api: str, config_file: Path | None, settings: tuple[str, ...], named: dict[str, str | None], json_: bool
) -> Examination:
    try:
        if not as_json(json_):
            err().print("[dim]examining; peers are asked to reach back …[/]")
        client = Client(api)
        found = client.examine()
    except SbonError as error:
        if error.code != "node-unreachable":
            raise
    else:
        return replace(found, findings=(*found.findings, *_sources(client)))
    from sbon_node.operations.machine import examine_machine
    from sbon_node.operations.unstarted import examine_unstarted, not_running

    config, _ = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    return Examination(findings=(*not_running(api), *examine_machine(config), *examine_unstarted(config)))
