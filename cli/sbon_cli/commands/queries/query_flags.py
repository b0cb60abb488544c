"""Flags of a query: strategy, adaptation, durability, partial aggregation, errors in rows, state, and the bound of joins."""

from __future__ import annotations

from typing import get_args

import click

from sbon_cli.options.durations import milliseconds_of
from sbon_protocol.api.adaptation import Adapt
from sbon_protocol.api.durability import Durability
from sbon_protocol.api.operators import OnError, StateChoice
from sbon_protocol.api.plan import Decompose
from sbon_protocol.api.queries import Begin
from sbon_protocol.api.strategies import AUTO, DEFAULT_STRATEGY, STRATEGY_NAMES

strategy_option = click.option(
    "--strategy",
    type=click.Choice([AUTO, *STRATEGY_NAMES]),
    default=DEFAULT_STRATEGY,
    show_default=True,
    metavar="NAME",
    help="hybrid, auto (the optimum), producer, consumer, or one of docs/placement.md.",
)
decompose_option = click.option(
    "--decompose",
    type=click.Choice(get_args(Decompose)),
    default="auto",
    metavar="WHEN",
    help="Partial aggregates: auto (default), always, never.",
)
on_error_option = click.option(
    "--on-error",
    type=click.Choice(get_args(OnError)),
    default="fail",
    metavar="WHAT",
    help="On an error in a row: fail, skip, null.",
)

adapt_option = click.option(
    "--adapt",
    type=click.Choice(get_args(Adapt)),
    metavar="HOW",
    help="Moves of operators: off, local, ants, full.",
)
durability_option = click.option(
    "--durability",
    type=click.Choice(get_args(Durability)),
    metavar="WHERE",
    help="Copies of state: local, replicated, hot.",
)
begin_option = click.option(
    "--from",
    "begin",
    type=click.Choice(get_args(Begin)),
    metavar="WHEN",
    default="earliest",
    help="Rows to begin with: earliest (default), now.",
)
reuse_option = click.option(
    "--no-reuse",
    "reuse",
    flag_value="never",
    default="auto",
    help="Share no operator of another query.",
)
restart_option = click.option(
    "--allow-restart-from-sources",
    "restarts",
    is_flag=True,
    help="Begin anew if a part is lost: rows come again.",
)
state_provider_option = click.option(
    "--state-provider",
    type=click.Choice(get_args(StateChoice)),
    metavar="WHERE",
    help="State: auto (by size), hdfs, rocksdb.",
)


def _join_window(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else milliseconds_of(value, "--join-window")


join_window_option = click.option(
    "--join-window",
    "join_window_ms",
    callback=_join_window,
    metavar="DURATION",
    help="Time bound for joins without one: 500ms, 10s.",
)
