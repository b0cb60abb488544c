"""``sbon debug``: log levels at run time, memory and disk, and a dump of a node for diagnosis."""

import io
import os
import tarfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

from sbon import SbonError
from sbon_cli.client import Client
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import out_option
from sbon_cli.terminal.output import asks_node, err, print_table, reports_errors, tell, written
from sbon_node.base.logging.levels import LEVELS, Level, LogLevels
from sbon_node.base.redaction import redacted
from sbon_protocol.api.nodes import Resources


@click.group(cls=SuggestingGroup)
def debug() -> None:
    """Looks inside a running node."""


@debug.command("log-level")
@click.argument("level", required=False, type=click.Choice(list(LEVELS)))
@click.option("--logger", "loggers", multiple=True, metavar="NAME", help="Only of a module or library; may be repeated.")
@click.option("--reset", is_flag=True, help="Modules and libraries take the general level again.")
@asks_node
def log_level(api: str, level: Level | None, loggers: tuple[str, ...], reset: bool, json_: bool) -> None:
    """Shows, or sets, what the node logs from now on, until it is started again."""
    if loggers and level is None:
        raise click.UsageError("--logger needs a LEVEL")
    client = Client(api)
    levels = client.log_levels()
    if reset:
        levels = msgspec.structs.replace(levels, loggers={})
    if level is not None and loggers:
        levels = msgspec.structs.replace(levels, loggers=levels.loggers | dict.fromkeys(loggers, level))
    elif level is not None:
        levels = msgspec.structs.replace(levels, level=level)
    if reset or level is not None:
        levels = client.set_log_levels(levels)
    tell(levels, json_, _show_levels)


def _show_levels(levels: LogLevels) -> None:
    print_table(("logger", "level"), [("everything", levels.level), *sorted(levels.loggers.items())])


@debug.command("resources")
@asks_node
def resources(api: str, json_: bool) -> None:
    """Shows the memory of each process of the node, and what fills its disk.

    Proportional memory counts a page that n processes share as an n-th. Streams hold frames that subscribers have not
    acknowledged or that later queries may read; new frames reuse the outbox's free pages.
    """
    tell(Client(api).resources(), json_, _show_resources)


def _show_resources(taken: Resources) -> None:
    processes: list[tuple[Any, ...]] = [
        (p.kind, p.pid, _mb(p.proportional_bytes), _mb(p.resident_bytes), p.threads) for p in taken.processes
    ]
    known = [p.proportional_bytes for p in taken.processes if p.proportional_bytes is not None]
    all_threads = sum(p.threads for p in taken.processes)
    processes.append(("all", None, _mb(sum(known) if len(known) == len(taken.processes) else None), None, all_threads))
    print_table(("process", "pid", "proportional_mb", "resident_mb", "threads"), processes, title="memory")
    parts: list[tuple[Any, ...]] = [(part.kind, part.name, _mb(part.bytes)) for part in taken.disk]
    parts.append(("all", "", _mb(sum(part.bytes for part in taken.disk))))
    print_table(("kind", "name", "mb"), parts, title="disk")


def _mb(size: int | None) -> float | None:
    return None if size is None else round(size / 2**20, 2)


@debug.command()
@out_option("out", "A .tar.gz; by default sbon-NODE-TIME.tar.gz here.")
@click.pass_obj
@reports_errors
def dump(api: str, out: Path | None) -> None:
    """Writes a debug dump of the node to one .tar.gz file.

    Status, readiness, members, streams, queries, metrics, memory, disk, configuration, what every task waits for, the ends of
    its logs, and versions. Passwords and other secrets are redacted. Read the dump before you send it to others: it contains
    the texts of queries and the names of hosts. missing.txt lists what the node did not answer.
    """
    client = Client(api)
    files, missing = _collected(client)
    name = client.host if "status.json" not in files else str(msgspec.json.decode(files["status.json"])["name"])
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = out or Path(f"sbon-{name}-{stamp}.tar.gz")
    _write(path, f"sbon-{name}-{stamp}", files)
    click.echo(path)
    for line in missing:
        err().print(f"[dim]left out: {line}[/]")


def _collected(client: Client) -> tuple[dict[str, bytes], list[str]]:
    """Return contents by file name, and a line for each missing answer; raise if all are missing."""
    asks: dict[str, Callable[[], Any]] = {
        "status.json": client.status,
        "readiness.json": client.readiness,
        "members.json": client.members,
        "streams.json": client.streams,
        "queries.json": client.queries,
        "log-levels.json": client.log_levels,
        "metrics.txt": client.metrics,
        "resources.json": client.resources,
    }
    debug_dump = client.debug_dump()
    files = {
        "config.json": _json(debug_dump.config),
        "versions.json": _json({**debug_dump.versions, "sbon of this command": version("sbon")}),
        "tasks.txt": "\n".join(debug_dump.tasks).encode(),
        "threads.txt": "\n".join(debug_dump.threads).encode(),
        "log.txt": "\n".join(debug_dump.log).encode(),
        "engine.log": "\n".join(debug_dump.engine_log).encode(),
    }
    missing = []
    for name, ask in asks.items():
        try:
            text = ask()
        except SbonError as error:
            missing.append(f"{name}: {error}")
            continue
        files[name] = text if isinstance(text, bytes) else _json(text)
    if missing:
        files["missing.txt"] = "\n".join(missing).encode()
    return files, missing


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(redacted(msgspec.to_builtins(value))), indent=2)


def _write(path: Path, folder: str, files: dict[str, bytes]) -> None:
    """Write the file completely or not at all, readable only by its user."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(text), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(text))
    with written(path, "bad-output"), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content.getvalue())
