"""Flags for the goal of a query's placement."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from sbon import SbonError
from sbon_cli.commands.queries.query_flags import strategy_option
from sbon_cli.options.durations import milliseconds_of
from sbon_protocol.api.goal import Goal
from sbon_protocol.api.strategies import OBJECTIVES, objective_named

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


_OPTIONS = (
    strategy_option,
    click.option(
        "--objective",
        callback=_objective,
        default="usage",
        show_default=True,
        metavar="GOAL",
        help=f"Minimise {', '.join(OBJECTIVES)}, or weights: usage=1,delay=50.",
    ),
    click.option(
        "--max-delay",
        "max_delay_ms",
        callback=_max_delay,
        metavar="DURATION",
        help="Refuse a placement where rows take longer: 80ms.",
    ),
    click.option(
        "--min-throughput",
        "min_throughput_bytes_s",
        callback=_min_throughput,
        metavar="RATE",
        help="Refuse hosts that cannot send so much: 10kB/s.",
    ),
)


def goal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--strategy``, ``--objective``, ``--max-delay`` and ``--min-throughput``; the command gets them as ``goal``."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        goal = Goal(**{name: kwargs.pop(name) for name in Goal.__struct_fields__})
        return command(*args, goal=goal, **kwargs)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
