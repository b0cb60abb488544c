"""Flags of a query: the goal of its placement, adaptation, durability, partial aggregates, errors in rows, state, joins."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from sbon import SbonError
from sbon_cli.options.durations import milliseconds_of
from sbon_cli.options.names import NODE
from sbon_protocol.api.adaptation import Adapt
from sbon_protocol.api.durability import Durability
from sbon_protocol.api.operators import OnError, StateChoice
from sbon_protocol.api.plan import Decompose
from sbon_protocol.api.queries import Begin
from sbon_protocol.api.strategies import AUTO, DEFAULT_STRATEGY, OBJECTIVES, STRATEGY_NAMES, objective_named

_UNITS_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def bytes_s_of(rate: str, flag: str) -> float:
    """Convert ``10kB/s`` or ``1.5MB/s``; raise a usage error that names the flag."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(B|kB|MB|GB)/s\s*", rate, re.ASCII)
    bytes_s = float(match[1]) * _UNITS_BYTES[match[2]] if match else 0.0
    if bytes_s <= 0:
        raise click.UsageError(f"{flag}: {rate!r} is no rate: write 500B/s, 10kB/s or 1.5MB/s")
    return bytes_s


def _max_delay(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    delay_ms = milliseconds_of(value, "--max-delay")
    if delay_ms < 1:
        raise click.UsageError(f"--max-delay: {value!r} is less than a millisecond")
    return float(delay_ms)


def _min_throughput(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    return None if value is None else bytes_s_of(value, "--min-throughput")


def _objective(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        objective_named(value)
    except SbonError as error:
        raise click.UsageError(f"--objective: {error.message}; {error.hint}") from error
    return value


def _join_window(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else milliseconds_of(value, "--join-window")


strategy_option = click.option(
    "--strategy",
    type=click.Choice([AUTO, *STRATEGY_NAMES]),
    default=DEFAULT_STRATEGY,
    show_default=True,
    metavar="NAME",
    help="hybrid, auto (the optimum), producer, consumer, or one of docs/placement.md.",
)
_GOAL = ("strategy", "objective", "max_delay_ms", "min_throughput_bytes_s")
_OPTIONS = {
    "strategy": strategy_option,
    "objective": click.option(
        "--objective",
        callback=_objective,
        default="usage",
        show_default=True,
        metavar="GOAL",
        help=f"Minimise {', '.join(OBJECTIVES)}, or weights: usage=1,delay=50.",
    ),
    "max_delay_ms": click.option(
        "--max-delay",
        "max_delay_ms",
        callback=_max_delay,
        metavar="DURATION",
        help="Refuse a placement where rows take longer: 80ms.",
    ),
    "min_throughput_bytes_s": click.option(
        "--min-throughput",
        "min_throughput_bytes_s",
        callback=_min_throughput,
        metavar="RATE",
        help="Refuse hosts that cannot send so much: 10kB/s.",
    ),
    "adapt": click.option(
        "--adapt", type=click.Choice(get_args(Adapt)), metavar="HOW", help="Moves of operators: off, local, ants, full."
    ),
    "decompose": click.option(
        "--decompose",
        type=click.Choice(get_args(Decompose)),
        default="auto",
        metavar="WHEN",
        help="Partial aggregates: auto (default), always, never.",
    ),
    "join_window_ms": click.option(
        "--join-window",
        "join_window_ms",
        callback=_join_window,
        metavar="DURATION",
        help="Time bound for joins without one: 500ms, 10s.",
    ),
    "on_error": click.option(
        "--on-error",
        type=click.Choice(get_args(OnError)),
        default="fail",
        metavar="WHAT",
        help="On an error in a row: fail, skip, null.",
    ),
    "state_provider": click.option(
        "--state-provider",
        type=click.Choice(get_args(StateChoice)),
        metavar="WHERE",
        help="State: auto (by size), hdfs, rocksdb.",
    ),
    "durability": click.option(
        "--durability", type=click.Choice(get_args(Durability)), metavar="WHERE", help="Copies of state: local, replicated, hot."
    ),
    "begin": click.option(
        "--from",
        "begin",
        type=click.Choice(get_args(Begin)),
        metavar="WHEN",
        default="earliest",
        help="Rows to begin with: earliest (default), now.",
    ),
    "reuse": click.option("--no-reuse", "reuse", flag_value="never", default="auto", help="Share no operator of another query."),
    "allow_restart_from_sources": click.option(
        "--allow-restart-from-sources",
        "allow_restart_from_sources",
        is_flag=True,
        help="Begin anew if a part is lost: rows come again.",
    ),
    "consumer": click.option("--consumer", default="", type=NODE, help="The consumer's node; by default the node asked."),
}
"""Options by the fields of a submission that they set."""


def query_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the flags of the goal, of these fields, and ``--consumer``; the command gets all of them as ``fields``."""
    chosen = (*_GOAL, *names, "consumer")

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> Any:
            return command(*args, fields={name: kwargs.pop(name) for name in chosen}, **kwargs)

        for name in reversed(chosen):
            run = _OPTIONS[name](run)
        return run

    return decorated
