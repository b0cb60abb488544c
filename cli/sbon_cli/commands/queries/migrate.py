"""``sbon query migrate``: moves an operator to another node and shows how far the move is, or cancels the move."""

from __future__ import annotations

from contextlib import closing

import click
from rich.markup import escape
from rich.status import Status

from sbon.model import Moved, MoveInfo, Moving
from sbon_cli.client import Client
from sbon_cli.options.names import LIVE_QUERY, NODE
from sbon_cli.terminal.output import asks_node, bytes_text, counted, err, print_json, tell

HOW = ("follow", "stop")


@click.command()
@click.argument("query_id", type=LIVE_QUERY, metavar="QUERY")
@click.argument("operator")
@click.option("--to", type=NODE, metavar="NODE", help="Node on which the operator shall go on.")
@click.option(
    "--how",
    type=click.Choice(HOW),
    default="follow",
    show_default=True,
    help="Move it once the node is level with it, or stop it while its state is copied.",
)
@click.option("--cancel", is_flag=True, help="Give up the move that is under way: the operator goes on where it is.")
@asks_node
def migrate(api: str, query_id: str, operator: str, to: str | None, how: str, cancel: bool, json_: bool) -> None:
    """Moves an operator to another node with its state, while the query runs.

    OPERATOR is its id as `sbon query show` lists it, or the part after the query's. One operator of a query moves at a time,
    operators of several queries at once. If the move fails, the operator goes on where it was. The move goes on if the command
    is interrupted, until --cancel gives it up. With --json it prints each step.
    """
    if (to is not None) == cancel:
        raise click.UsageError("name the node with --to NODE, or cancel the move with --cancel")
    if to is None:
        cancelled = Client(api).cancel_move(query_id, operator)
        tell(cancelled, json_, f"cancelled: {cancelled.operator} goes on at {cancelled.node}")
        return
    try:
        _move(Client(api), query_id, operator, to, how, json_=json_)
    except KeyboardInterrupt:
        err().print(f"[dim]{escape(interrupted_text(query_id, operator))}[/]")
        raise


def _move(client: Client, query_id: str, operator: str, to: str, how: str, *, json_: bool) -> None:
    with closing(MoveSteps()) as steps:
        for event in client.move_operator(query_id, operator, to, how):
            if json_:
                print_json(event)
            elif isinstance(event, Moved):
                steps.close()
                click.echo(moved_text(event))
            else:
                steps.show(step_text(event))


def interrupted_text(query_id: str, operator: str) -> str:
    """Return that the move goes on, and the commands to watch and cancel it."""
    return (
        f"interrupted: the move goes on if it has begun; to watch it: sbon query show {query_id}; "
        f"to give it up: sbon query migrate {query_id} {operator} --cancel"
    )


def moved_text(event: Moved) -> str:
    """Return ``q-1.b0 runs at paris: 1.0 kB of state copied, 0.25 s without rows``."""
    text = f"{event.operator} runs at {event.node}: {bytes_text(event.copied_bytes)} of state copied"
    return text if event.pause_ms is None else f"{text}, {event.pause_ms / 1000:.2f} s without rows"


def step_text(event: Moving | MoveInfo) -> str:
    """Return ``copying: 512 B of 1.0 kB`` or ``following: 3 frames behind``."""
    progress = event.progress
    if event.step == "copying" and progress.total_bytes:
        return f"copying: {bytes_text(progress.copied_bytes)} of {bytes_text(progress.total_bytes)}"
    if event.step == "following":
        return f"following: {counted(progress.frames_behind, 'frame')} behind"
    return event.step


class MoveSteps:
    """The present step on stderr: a line that changes on a terminal, elsewhere a line for each step."""

    def __init__(self) -> None:
        self._console = err()
        self._status: Status | None = None
        self._step = ""

    def show(self, text: str) -> None:
        if not self._console.is_terminal:
            step, before = text.partition(":")[0], self._step
            self._step = step
            if step != before:
                self._console.print(f"[dim]{escape(text)}[/]")
        elif self._status is None:
            self._status = self._console.status(escape(text))
            self._status.start()
        else:
            self._status.update(escape(text))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
