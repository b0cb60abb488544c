"""Durability of a query, backups of its operators, and what it would lose with a node, in words."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape

from sbon.model import BackupInfo, QueryInfo, SourceInfo
from sbon_cli.terminal.output import print_table, say
from sbon_node.model.durability import LOCAL

MAX_NAMED = 5
"""Most queries that a finding names."""


def show_survival(info: QueryInfo) -> None:
    """Print whether the query begins anew, and what it would lose with each of its nodes."""
    if info.restart:
        say(escape(info.restart))
    if info.survival is not None:
        say(escape(f"{info.durability}: {info.survival.text}"))


def show_backups(info: QueryInfo) -> None:
    """Print durability, epoch and backup of each operator."""
    if info.operators:
        print_table(
            ("operator", "durability", "epoch", "backup", "its batch", "age"),
            [
                (
                    o.id,
                    o.durability,
                    o.epoch or "-",
                    "-" if o.backup is None else _backup(o.backup),
                    None if o.backup is None else o.backup.batch,
                    "-" if o.backup is None else _age(o.backup.age_s),
                )
                for o in info.operators
            ],
        )


def show_source_backups(sources: Iterable[SourceInfo]) -> None:
    """Print durability, epoch and backup of each source, if one of them is replicated."""
    known = list(sources)
    if any(one.source.durability != LOCAL for one in known):
        say()
        print_table(
            ("source", "durability", "epoch", "backup", "its frame", "age"),
            [
                (
                    one.source.name,
                    one.source.durability,
                    one.source.epoch,
                    "-" if one.backup is None else _backup(one.backup),
                    None if one.backup is None else one.backup.batch,
                    "-" if one.backup is None else _age(one.backup.age_s),
                )
                for one in known
            ],
        )


def _backup(backup: BackupInfo) -> str:
    at = f" at {backup.node}" if backup.node else ""
    because, why_not = (f": {reason}" if reason else "" for reason in (backup.reason, backup.follows_not))
    followed = "" if backup.follows is None else ", followed" if backup.follows else f", not followed{why_not}"
    recovered = f"; taken over {backup.recovered}" if backup.recovered else ""
    return f"{backup.state}{at}{because}{followed}{recovered}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def ended_by_one_failure(queries: Iterable[QueryInfo]) -> str:
    """Return the running queries that end with the disk of a single node, and these nodes; empty if there are none."""
    named = [
        f"{query.id} ({', '.join(dict.fromkeys(loss.node for loss in query.survival.losses if not loss.lost))})"
        for query in queries
        if query.survival is not None and not query.survival.any_node
    ]
    more = [f"and {len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
    return ", ".join([*named[:MAX_NAMED], *more])
