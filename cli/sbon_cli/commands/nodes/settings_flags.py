"""Flags for settings, with their origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar, get_args

import click

from sbon import SbonError
from sbon_cli.options.durations import milliseconds_of
from sbon_cli.terminal.reading import ReadablePath
from sbon_node.config.config import Given
from sbon_node.model.operators import OnError
from sbon_node.model.plan import Decompose
from sbon_node.model.strategies import AUTO, DEFAULT_STRATEGY, STRATEGY_NAMES

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
    "emulation": ("node.emulation", "FILE", "Emulated round-trip times between nodes."),
    "log_level": ("log.level", "LEVEL", "debug, info, warning or error."),
    "log_format": ("log.format", "FORMAT", "auto, console or json."),
}


strategy_option = click.option(
    "--strategy",
    type=click.Choice([AUTO, *STRATEGY_NAMES]),
    default=DEFAULT_STRATEGY,
    show_default=True,
    metavar="NAME",
    help="hybrid, auto (the optimum if it is cheap), producer (at the sources), consumer, or one of docs/placement.md.",
)
decompose_option = click.option(
    "--decompose",
    type=click.Choice(get_args(Decompose)),
    default="auto",
    show_default=True,
    metavar="WHEN",
    help="auto, always or never split aggregates into partial ones at the sources.",
)


on_error_option = click.option(
    "--on-error",
    type=click.Choice(get_args(OnError)),
    default="fail",
    metavar="WHAT",
    help="On an error in a row: fail (the default), skip, null.",
)


def _join_window(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else milliseconds_of(value, "--join-window")


join_window_option = click.option(
    "--join-window",
    "join_window_ms",
    callback=_join_window,
    metavar="DURATION",
    help="Time bound for joins that have none: 500ms, 10s, 1h.",
)


def settings_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``--config``, the named flags and ``--set``."""
    command = click.option(
        "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting; may be repeated."
    )(command)
    for parameter, (_, metavar, help_) in reversed(NAMED.items()):
        command = click.option(_flag(parameter), parameter, default=None, metavar=metavar, help=help_)(command)
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
