"""``sbon cluster``: a cluster on this machine that outlives the command, until ``down``."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
import psutil
from click.core import ParameterSource

from sbon import SbonError, endpoints
from sbon.client import Client
from sbon.local.cluster import AS_ROOT, EMULATION, STATE, LocalCluster
from sbon.local.node import LocalNode, write_private
from sbon.local.processes import end_all
from sbon_cli.commands.nodes.config import flags_of
from sbon_cli.commands.nodes.members import health
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.output import EXIT_REFUSED, counted, err, json_option, print_json, print_table, reports_errors
from sbon_cli.terminal.waiting import waiting
from sbon_node.config.config import load

FOLDER = Path(".sbon-cluster")
NODES_END_S = 15.0
"""Longest wait for nodes that are to stop."""
ANSWER_S = 5.0
"""Longest wait for a node's state; all nodes are asked at once."""
NO_ANSWER, NOT_READY = "no answer", "not ready"
ENGINES_END_S = 10.0
"""Longest wait for the engines of ended nodes, which end by themselves."""


class Seen(NamedTuple):
    node: str
    state: str
    health: str
    pid: int
    address: str
    api: str
    members: int | None = None
    engine: str = ""
    operators: int | None = None


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="The cluster's folder: state, logs, data.",
)


@click.group(cls=SuggestingGroup)
def cluster() -> None:
    """Runs a cluster of nodes on this machine, each a process on a loopback address of its own."""


@cluster.command()
@click.option("-n", "count", type=click.IntRange(1, 250), default=3, show_default=True, help="Number of nodes.")
@click.option("--latency", metavar="cities|FILE", help="Emulate a wide area: six cities, a JSON file or an .npz matrix.")
@click.option("--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="A setting for every node; may be repeated.")
@folder_option
@json_option
@reports_errors
def up(count: int, latency: str | None, settings: tuple[str, ...], folder: Path, json_: bool) -> None:
    """Starts the nodes and waits until all see each other. If the folder has a cluster, starts its nodes that are down."""
    old = state_in(folder)
    if old is not None:
        _start_dead(old, folder, json_)
        return
    _warn_as_root(settings, hint="; to name the folders that they may use: --set connectors.data_roots=DIR,DIR")
    overrides = {name: flag.value for name, flag in flags_of(settings, {}).items()}
    local = LocalCluster(count, latency, folder=folder, overrides=overrides, keep=True, detached=True)
    with waiting(f"the start of {counted(count, 'node')}"), local:
        nodes = tuple(NodeState.of(node) for node in local.nodes)
        state = ClusterState(mark=local.mark, nodes=nodes, latency=latency, settings=settings)
        state.write(local.folder)
    _show(state, json_)
    err().print(f"[dim]end all with: {_command_line('down', folder)}; to talk to the first node:[/]")
    err().print(f"export SBON_API={state.nodes[0].api}")


def _warn_as_root(settings: Iterable[str], hint: str = "") -> None:
    """Warn of nodes that run as root without a limit on their files; raise ``bad-config`` for wrong settings."""
    config, _ = load(None, environ={}, flags=flags_of(("connectors.data_roots=/", *settings), {}))
    if os.geteuid() == 0 and "/" in config.connectors.data_roots:
        err().print(f"[yellow]{AS_ROOT}[/]{hint}")


def _start_dead(old: ClusterState, folder: Path, json_: bool) -> None:
    """Start the dead nodes of a cluster; raise ``cluster-exists`` if all run, or another cluster is wanted."""
    context = click.get_current_context()
    left = _left(old)
    down = [node.name for node in old.nodes if node.process() is None and node.name not in left]
    end = f"end it, and delete its data: {_command_line('down', folder, '--purge')}"
    for option, present in (("latency", old.latency), ("settings", old.settings)):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE and context.params[option] != present:
            hint = f"start the stopped nodes again, with their settings: {_command_line('start', folder)}; or {end}"
            raise SbonError("cluster-exists", "a cluster with other settings is here already", where=str(folder), hint=hint)
    count = context.params["count"]
    if context.get_parameter_source("count") is ParameterSource.COMMANDLINE and count != len(old.nodes):
        raise SbonError("cluster-exists", f"a cluster of {len(old.nodes)} is here already", where=str(folder), hint=end)
    if not down:
        raise SbonError("cluster-exists", "a cluster runs here already", where=str(folder), hint=end)
    _start(old, down, folder)
    err().print(f"[dim]restarted: {', '.join(down)}[/]")
    _show(required_state(folder), json_)


@cluster.command()
@folder_option
@json_option
@reports_errors
def status(folder: Path, json_: bool) -> None:
    """Shows the nodes; exits 1 where one is down, is not ready, or does not answer within 5 seconds."""
    state = required_state(folder)
    if not _show(state, json_):
        if not all(node.process() for node in state.nodes):
            err().print(f"[dim]start the stopped nodes again: {_command_line('start', folder)}[/]")
        sys.exit(EXIT_REFUSED)


@cluster.command()
@click.argument("names", nargs=-1, metavar="[NODE]...")
@click.option("--replace", is_flag=True, help="Replace nodes whose data is lost: queries count the old ones as gone for good.")
@folder_option
@json_option
@reports_errors
def start(names: tuple[str, ...], replace: bool, folder: Path, json_: bool) -> None:
    """Starts again the nodes that are down but have not left, or those named, on what they have stored."""
    state = required_state(folder)
    down = {node.name: node for node in state.nodes if node.process() is None}
    for name in names:
        if name not in down:
            if any(node.name == name for node in state.nodes):
                raise SbonError("node-runs", f"{name!r} runs", where="node", hint=f"down: {', '.join(down) or 'none'}")
            from sbon_node.overlay.membership.views import unknown_node

            raise unknown_node(name, (node.name for node in state.nodes))
    left = set[str]() if names else _left(state)
    _start(state, dict.fromkeys(names) or [name for name in down if name not in left], folder, replace=replace)
    _show(required_state(folder), json_)


def _left(state: ClusterState) -> set[str]:
    """Return the nodes that have left for good, as the first node that answers knows them; none if no node does."""
    for node in state.nodes:
        if node.process() is not None:
            with suppress(SbonError):
                members = Client(node.api).ask(endpoints.members()._replace(within_s=ANSWER_S))
                return {member.name for member in members if member.state == "left"}
    return set()


def _start(state: ClusterState, names: Iterable[str], folder: Path, *, replace: bool = False) -> None:
    """Start nodes that are down on their data, in sequence."""
    if not all(node.arguments for node in state.nodes):
        hint = f"delete it, and start another: {_command_line('down', folder, '--purge')}"
        raise SbonError("bad-cluster", "an older sbon started it", where=str(folder), hint=hint)
    _warn_as_root(value for flag, value in pairwise(state.nodes[0].arguments) if flag == "--set")
    nodes = {node.name: node for node in state.nodes}
    for name in names:
        host = nodes[name].address.rpartition(":")[0]
        node = LocalNode(name, host, folder.absolute() / name, nodes[name].arguments, state.mark, tied=False)
        node.start(replace=replace)
        nodes[name] = NodeState.of(node)
        msgspec.structs.replace(state, nodes=tuple(nodes.values())).write(folder)
        with waiting(f"the start of {name}"):
            node.wait_ready()


@cluster.command()
@click.option("--purge", is_flag=True, help="Also delete the nodes' data and logs.")
@folder_option
@reports_errors
def down(purge: bool, folder: Path) -> None:
    """Stops every node and leaves no process behind."""
    state = required_state(folder)
    going = {process: node.name for node in state.nodes if (process := node.process())}
    for process in going:
        for signum in (signal.SIGCONT, signal.SIGTERM):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signum)
    with waiting(f"the end of {counted(len(going), 'node')}") as show:
        _, late = psutil.wait_procs(going, NODES_END_S, lambda process: show(f"[dim]{going[process]} has stopped[/]"))
    names = [name for process, name in going.items() if process in late]
    with waiting(f"the end of {' and '.join(('the engines', *names))}"):
        killed = end_all(state.mark, folder.absolute(), grace_s=ENGINES_END_S)
    if purge:
        _purge(folder, state)
    err().print(f"stopped {len(going)} of {len(state.nodes)} nodes")
    if killed:
        err().print(f"[yellow]{killed_text(killed, names)}[/]")


def killed_text(killed: int, late: Sequence[str]) -> str:
    """Return how many processes were killed and why; ``late`` are the nodes that did not stop in time."""
    nodes = f"{', '.join(late)} did not stop within {NODES_END_S:g} s" if late else "all nodes had stopped"
    processes = counted(killed, "process", "processes")
    return f"killed {processes} that had not ended {ENGINES_END_S:g} s later: {nodes}"


def _command_line(command: str, folder: Path, *flags: str) -> str:
    """Return the command to copy."""
    where = () if folder == FOLDER else ("--dir", shlex.quote(str(folder)))
    return " ".join(("sbon cluster", command, *flags, *where))


def _show(state: ClusterState, json_: bool) -> bool:
    """Print each node's state; return whether all run."""
    with ThreadPoolExecutor(len(state.nodes)) as pool:
        statuses = list(pool.map(_seen, state.nodes))
    if json_:
        print_json([s._asdict() for s in statuses])
    else:
        columns = ("node", "state", "address", "api", "members", "engine", "operators", "health")
        rows = [s._asdict() | {"api": s.api.removeprefix("http://")} for s in statuses]
        print_table(columns, [[row[column] for column in columns] for row in rows])
    return all(s.state == "running" for s in statuses)


def _seen(node: NodeState) -> Seen:
    place = (node.pid, node.address, node.api)
    if node.process() is None:
        return Seen(node.name, "down", "", *place)
    try:
        status = Client(node.api).ask(endpoints.status()._replace(within_s=ANSWER_S))
    except SbonError:  # stopped, hung or starting: its process runs
        return Seen(node.name, NO_ANSWER, "", *place)
    state = "running" if status.ready is not False else NOT_READY
    return Seen(node.name, state, health(status), *place, status.members, status.engine, len(status.operators))


def _purge(folder: Path, state: ClusterState) -> None:
    """Delete the cluster's files, and the folder if it is then empty."""
    (folder / STATE).unlink(missing_ok=True)
    for node in state.nodes:
        shutil.rmtree(folder / node.name, ignore_errors=True)
    (folder / EMULATION).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


# -- Processes of a local cluster's nodes, stored for later commands --------------------------------------------------


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster; ``pid`` may belong to another process since ``created_s``."""

    name: str
    address: str
    api: str
    pid: int
    created_s: float
    arguments: tuple[str, ...] = ()
    """Arguments of its command, except the data folder."""

    @classmethod
    def of(cls, node: LocalNode) -> NodeState:
        created_s = psutil.Process(node.pid).create_time()
        return cls(
            name=node.name, address=node.address, api=node.api, pid=node.pid, created_s=created_s, arguments=node.arguments
        )

    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            alive = process.create_time() == self.created_s and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if alive else None


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that ``up`` leaves in the folder for ``status``, ``start`` and ``down``."""

    mark: str
    nodes: tuple[NodeState, ...]
    latency: str | None = None
    """The options with which it was made: of its latencies, and the settings of every node."""
    settings: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        write_private(folder / STATE, msgspec.json.encode(self))


def state_in(folder: Path) -> ClusterState | None:
    """Return the state, or None if no cluster was started; raise ``bad-cluster``."""
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("bad-cluster", f"the state cannot be read: {error}", where=str(folder / STATE)) from error


def required_state(folder: Path) -> ClusterState:
    """Return the state; raise ``unknown-cluster`` if none was started."""
    state = state_in(folder)
    if state is None:
        raise SbonError("unknown-cluster", "no cluster was started here", where=str(folder), hint="sbon cluster up --dir DIR")
    return state
