"""Flags for settings with their origin, and ``sbon config``, which shows and checks settings."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec
from click.core import ParameterSource
from rich.markup import escape

from sbon import SbonError
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.output import err, json_option, print_records, reports_errors, say, tell
from sbon_cli.terminal.reading import ReadablePath
from sbon_node.config.config import DEPENDING, Given, keys, load
from sbon_node.config.values import allowed

P = ParamSpec("P")
R = TypeVar("R")

NAMED = {
    "name": ("node.name", "NAME", "This node's name, unique in its cluster."),
    "cluster": ("node.cluster", "NAME", "Name of the cluster."),
    "data_dir": ("node.data_dir", "DIR", "Folder of identity, streams and checkpoints."),
    "bind": ("node.bind", "ADDRESS", "Address to listen at for other nodes."),
    "port": ("node.port", "PORT", "UDP and TCP port for other nodes."),
    "advertise": ("node.advertise", "ADDRESS", "Address that other nodes use, if it differs from --bind."),
    "api_bind": ("node.api_bind", "ADDRESS", "Address of the HTTP API, which has no passwords; loopback by default."),
    "api_advertise": ("node.api_advertise", "ADDRESS", "Address of the HTTP API that others use, if it differs from --api-bind."),
    "api_port": ("node.api_port", "PORT", "Port of the HTTP API."),
    "data_roots": ("connectors.data_roots", "DIR,DIR", "Folders that sources and sinks may use; / for all."),
    "join": ("node.join", "A:PORT,B:PORT", "Nodes to join; any live one will do."),
    "replace": ("membership.replace", "", "Take the name over from a lost node, whose data directory is lost, too."),
    "emulation": ("node.emulation", "FILE", "Emulated round-trip times between nodes."),
    "log_level": ("log.level", "LEVEL", "debug, info, warning or error."),
    "log_format": ("log.format", "FORMAT", "auto, console or json."),
}


def settings_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``--config``, the named flags and ``--set``."""
    command = click.option(
        "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting; may be repeated."
    )(command)
    for parameter, (_, metavar, help_) in reversed(NAMED.items()):
        form: dict[str, Any] = {"metavar": metavar} if metavar else {"is_flag": True, "flag_value": "true", "type": str}
        command = click.option(_flag(parameter), parameter, default=None, help=help_, **form)(command)
    return click.option(
        "--config",
        "config_file",
        envvar="SBON_CONFIG",
        type=ReadablePath(),
        metavar="FILE|-",
        help="TOML file, also from SBON_CONFIG.",
    )(command)


def flags_of(settings: tuple[str, ...], named: Mapping[str, str | None]) -> dict[str, Given]:
    """Return flags by ``section.key``; raise :class:`SbonError` ``bad-config`` for a ``--set`` without ``=``."""
    flags = {NAMED[p][0]: Given(value, _flag(p), text=True) for p, value in named.items() if value is not None}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise SbonError("bad-config", f"{setting!r} is not SECTION.KEY=VALUE", where="--set", hint="see: sbon config show")
        flags[name.strip()] = Given(value, f"--set {name.strip()}", text=True)
    return flags


def _flag(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


REFERENCE_HEAD = """# Configuration

A node takes each setting from its default, then from the TOML file named with `--config`, then from the environment, then from
flags; `sbon config show --origin` shows which it was, `sbon config check FILE` whether a file is right. `streams.reconnect_s` is

| where | how |
| --- | --- |
| file | `[streams]` and below it `reconnect_s = 1.0` |
| environment | `SBON_STREAMS_RECONNECT_S=1.0` |
| flag | `--set streams.reconnect_s=1.0` |

This page is what `sbon config reference` prints."""


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Shows and checks a node's configuration."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("--help-text/--no-help-text", "explain", default=True, help="Explain each setting.")
@json_option
@reports_errors
def show(
    config_file: Path | None, settings: tuple[str, ...], origin: bool, explain: bool, json_: bool, **named: str | None
) -> None:
    """Shows every setting of a node that would start here: defaults < file < SBON_* environment < flags.

    Those of a node that runs are in its debug dump: sbon debug dump.
    """
    root = click.get_current_context().find_root()
    if root.get_parameter_source("api") is not ParameterSource.DEFAULT:
        hypothetical = "settings of a node that would start here with this environment and these flags"
        err().print(f"[dim]{hypothetical}; those of the node at {escape(root.obj)} are in: sbon debug dump[/]")
    loaded = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    values = msgspec.to_builtins(loaded.config)
    rows = [
        {"setting": name, "value": values[key.section][key.name]}
        | ({"origin": loaded.origins[name]} if origin else {})
        | ({"meaning": key.description} if explain else {})
        for name, key in keys().items()
    ]
    tell(rows, json_, lambda rows: print_records({name: _shown(v) for name, v in row.items()} for row in rows))


@config.command()
def reference() -> None:
    """Prints all settings, as in docs/configuration.md: name, default, allowed values, meaning."""
    click.echo(reference_text(), nl=False)


@config.command()
@click.argument("file", type=ReadablePath(), metavar="FILE|-")
@reports_errors
def check(file: Path) -> None:
    """Checks FILE alone, without environment and flags; exits with 2 and lists the errors, one line each."""
    load(file)
    say(f"{file}: ok")


def reference_text() -> str:
    """Return Markdown with a table for each section."""
    lines = [REFERENCE_HEAD]
    section = ""
    for name, key in keys().items():
        if key.section != section:
            section = key.section
            lines += ["", f"## {section}", "", "| setting | default | allowed | meaning |", "| --- | --- | --- | --- |"]
        default = DEPENDING.get(name) or _shown(key.default) or "empty"
        lines.append(f"| `{name}` | {_cell(default)} | {_cell(allowed(key.type))} | {_cell(key.description)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
