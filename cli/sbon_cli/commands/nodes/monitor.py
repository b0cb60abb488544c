"""``sbon monitor``: the events of a node, as they happen."""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import click
import msgspec
from rich.markup import escape

from sbon import SbonError
from sbon.follower import Reconnection, connection_ended
from sbon_cli.client import Client
from sbon_cli.terminal.output import asks_node, err, rows_output, say
from sbon_node.base.events import (
    Kind,
    Level,
    Listening,
    LogLine,
    Lost,
    MemberChanged,
    MoveDecided,
    NodeEvent,
    OperatorChanged,
    QueryChanged,
)
from sbon_protocol.api.adaptation import MOVES

KINDS: tuple[Kind, ...] = get_args(Kind)

_COLOURS = {"debug": "dim", "info": "green", "warning": "yellow", "error": "bold red", "critical": "bold red"}
_GRAVE = frozenset({"suspected", "died", "failed", "refused", "move-given-up"})


def _kinds(context: click.Context, parameter: click.Parameter, value: str) -> tuple[Kind, ...]:
    words = [word.strip() for word in value.split(",") if word.strip()]
    for word in words:
        if word not in KINDS:
            raise click.BadParameter(f"there are no events of kind {word!r}: name some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in words)


@click.command()
@click.option(
    "--events",
    "kinds",
    callback=_kinds,
    default=",".join(KINDS),
    show_default=True,
    metavar="KIND,KIND",
    help="Kinds of events to print.",
)
@click.option(
    "--log-level",
    "level",
    type=click.Choice(get_args(Level)),
    default="info",
    show_default=True,
    help="Least level of log lines, whatever level the node writes.",
)
@asks_node
def monitor(api: str, kinds: tuple[Kind, ...], level: Level, json_: bool) -> None:
    """Prints the events of the node asked, until Ctrl-C: lines on a terminal, JSON lines in a pipe.

    Members as this node sees them, the placements and states of queries whose records it holds, the states of operators it hosts,
    decisions about their places, and its log. It prints no earlier events. A slow reader gets the number of events it missed. If
    the node goes, the command tries again for ten minutes, and prints that it listens again.
    """
    for event in _heard(Client(api), kinds, level):
        if rows_output(json_) == "json":
            sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
            sys.stdout.flush()
        else:
            say(line_of(event))


def _heard(client: Client, kinds: tuple[Kind, ...], level: Level) -> Iterator[NodeEvent]:
    """Yield a node's events; connect again if the connection is lost, which begins with another ``listening``."""
    reconnection, has_listened = Reconnection(), False
    while True:
        try:
            for event in client.node_events(kinds, level):
                reconnection.heard()
                has_listened = True
                yield event
            error = connection_ended(client.api)
        except SbonError as refusal:
            error = refusal
        if not has_listened:
            raise error
        pause_s = reconnection.pause_s(error, time.monotonic())
        if reconnection.tries == 1:
            err().print(f"[dim]lost the node ({escape(error.message)}); trying again[/]")
        time.sleep(pause_s)


def line_of(event: NodeEvent) -> str:
    """Return an event as a line with markup."""
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    kind = event.__struct_config__.tag
    return f"[dim]{at}Z  {kind:<10}[/]  {_words(event)}"


def _words(event: NodeEvent) -> str:
    match event:
        case Listening():
            return f"[dim]listening at {escape(event.node)}: {', '.join(event.kinds)}[/]"
        case Lost():
            return f"[yellow]{event.count:,} events were lost: they came faster than they were read[/]"
        case MemberChanged():
            state = "" if event.change in (event.state, "left") else f" ({event.state})"
            return f"{escape(event.member)} {_graded(event.change)}{state}"
        case QueryChanged():
            return f"{escape(event.query)} {_graded(event.state)}{_because(event.reason)}"
        case OperatorChanged():
            origin = f" from {escape(event.was)}" if event.was else ""
            by = f" by {event.strategy}" if event.strategy else ""
            to = f" to {escape(event.target)}" if event.target != event.host and event.target else ""
            at = f"at {escape(event.host)}{origin}{to}{by}"
            return f"{escape(event.operator)} {_graded(event.change)} {at}{_because(event.reason)}"
        case MoveDecided():
            to = f"from {escape(event.node)} to {escape(event.target)}" if event.verdict == MOVES else f"at {escape(event.node)}"
            return f"{escape(event.operator)} {_graded(event.verdict)} {to}{_because(event.reason)}"
        case LogLine():
            colour = _COLOURS.get(event.level, "")
            fields = " ".join(f"{key}={_shown(value)}" for key, value in event.fields.items())
            level = f"[{colour}]{event.level}[/]" if colour else escape(event.level)
            return f"{level} {escape(event.message)} [dim]{escape(fields)}[/]"


def _graded(word: str) -> str:
    return f"[yellow]{escape(word)}[/]" if word in _GRAVE else f"[bold]{escape(word)}[/]"


def _because(reason: str) -> str:
    return f": {escape(reason)}" if reason else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
