"""Flags of a query: the goal of its placement, adaptation, durability, partial aggregates, errors in rows, state, joins."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from sbon import SbonError
from sbon_cli.options.names import NODE
from sbon_cli.options.types import Choice, milliseconds_of
from sbon_protocol.api.adaptation import Adapt
from sbon_protocol.api.durability import Durability
from sbon_protocol.api.operators import OnError, StateChoice
from sbon_protocol.api.plan import Decompose
from sbon_protocol.api.queries import Begin
from sbon_protocol.api.strategies import AUTO, DEFAULT_STRATEGY, OBJECTIVES, STRATEGY_NAMES, objective_named

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_UNITS_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def bytes_s_of(rate: str, flag: str) -> float:
    """Convert ``10kB/s`` or ``1.5MB/s``; raise a usage error that names the flag."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(B|kB|MB|GB)/s\s*", rate, re.ASCII)
    bytes_s = float(match[1]) * _UNITS_BYTES[match[2]] if match else 0.0
    if bytes_s <= 0:
        raise click.UsageError(f"{flag}: {rate!r} is no rate: write 500B/s, 10kB/s or 1.5MB/s")
    return bytes_s


def _max_delay_ms(value: str, flag: str) -> float:
    delay_ms = milliseconds_of(value, flag)
    if delay_ms < 1:
        raise click.UsageError(f"{flag}: {value!r} is less than a millisecond")
    return float(delay_ms)


def _objective(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        objective_named(value)
    except SbonError as error:
        raise click.UsageError(f"--objective: {error.message}; {error.hint}") from error
    return value


def _choice(*names: str, of: Any, help_: str, **more: Any) -> Decorator:
    return click.option(*names, type=Choice(get_args(of)), help=help_, **more)


def _read(flag: str, name: str, read: Callable[[str, str], float], metavar: str, help_: str) -> Decorator:
    """Return an option whose value ``read`` converts; it also takes the flag, for its usage errors."""

    def callback(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        return None if value is None else read(value, flag)

    return click.option(flag, name, callback=callback, metavar=metavar, help=help_)


strategy_option = click.option(
    "--strategy",
    type=Choice([AUTO, *STRATEGY_NAMES]),
    default=DEFAULT_STRATEGY,
    show_default=True,
    metavar="NAME",
    help="hybrid, auto (the optimum), producer, consumer, or one of docs/placement.md.",
)
_GOAL = ("strategy", "objective", "max_delay_ms", "min_throughput_bytes_s")
_OPTIONS: dict[str, Decorator] = {
    "strategy": strategy_option,
    "objective": click.option(
        "--objective",
        callback=_objective,
        default="usage",
        show_default=True,
        metavar="GOAL",
        help=f"Minimise {', '.join(OBJECTIVES)}, or weights: usage=1,delay=50.",
    ),
    "max_delay_ms": _read(
        "--max-delay", "max_delay_ms", _max_delay_ms, "DURATION", "Refuse a placement where rows take longer: 80ms."
    ),
    "min_throughput_bytes_s": _read(
        "--min-throughput", "min_throughput_bytes_s", bytes_s_of, "RATE", "Refuse hosts that cannot send so much: 10kB/s."
    ),
    "adapt": _choice("--adapt", of=Adapt, metavar="HOW", help_="Moves of operators: off, local, ants, full."),
    "decompose": _choice(
        "--decompose", of=Decompose, default="auto", metavar="WHEN", help_="Partial aggregates: auto (default), always, never."
    ),
    "join_window_ms": _read(
        "--join-window", "join_window_ms", milliseconds_of, "DURATION", "Time bound for joins without one: 500ms, 10s."
    ),
    "on_error": _choice(
        "--on-error", of=OnError, default="fail", metavar="WHAT", help_="On an error in a row: fail, skip, null."
    ),
    "state_provider": _choice("--state-provider", of=StateChoice, metavar="WHERE", help_="State: auto (by size), hdfs, rocksdb."),
    "durability": _choice("--durability", of=Durability, metavar="WHERE", help_="Copies of state: local, replicated, hot."),
    "begin": _choice(
        "--from", "begin", of=Begin, default="earliest", metavar="WHEN", help_="Rows to begin with: earliest (default), now."
    ),
    "reuse": click.option("--no-reuse", "reuse", flag_value="never", default="auto", help="Share no operator of another query."),
    "allow_restart_from_sources": click.option(
        "--allow-restart-from-sources", is_flag=True, help="Begin anew if a part is lost: rows come again."
    ),
    "consumer": click.option("--consumer", default="", type=NODE, help="The consumer's node; by default the node asked."),
}
"""Options by the fields of a submission that they set."""


def query_options(*names: str) -> Decorator:
    """Add the flags of the goal, of these fields, and ``--consumer``; the command gets all of them as ``fields``."""
    chosen = (*_GOAL, *names, "consumer")

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            return command(*args, fields={name: kwargs.pop(name) for name in chosen}, **kwargs)

        with_flags: Callable[..., Any] = run
        for name in reversed(chosen):
            with_flags = _OPTIONS[name](with_flags)
        return with_flags

    return decorated
