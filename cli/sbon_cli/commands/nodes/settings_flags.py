"""Flags for settings, with their origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import click

from sbon import SbonError
from sbon_cli.terminal.reading import ReadablePath
from sbon_node.config.config import Given

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
