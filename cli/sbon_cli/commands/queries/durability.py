"""Durability of a query, backups of its operators, and what it would lose with a node, in words."""

from collections.abc import Iterable

from rich.markup import escape

from sbon.model import BackupInfo, QueryInfo, SourceInfo, Survival
from sbon_cli.terminal.output import print_records, say
from sbon_protocol.api.durability import LOCAL, SINK
from sbon_protocol.api.states.operator_states import RUNNING

MAX_NAMED = 5
"""Most queries, or operators, that a finding names."""


def show_survival(info: QueryInfo) -> None:
    """Print whether the query begins anew, and what it would lose with each of its nodes."""
    if info.restart:
        say(escape(info.restart))
    if info.survival is not None:
        say(escape(f"{info.durability}: {info.survival.text}"))


def show_backups(info: QueryInfo) -> None:
    """Print durability, epoch and backup of each operator."""
    if info.operators:
        _print_backups("operator", "its batch", ((o.id, o.durability, o.epoch or "-", o.backup) for o in info.operators))


def show_source_backups(sources: Iterable[SourceInfo]) -> None:
    """Print durability, epoch and backup of each source, if one of them is replicated."""
    known = [(one.source.name, one.source.durability, one.source.epoch, one.backup) for one in sources]
    if any(durability != LOCAL for _, durability, _, _ in known):
        say()
        _print_backups("source", "its frame", known)


def _print_backups(kind: str, newest: str, known: Iterable[tuple[str, str, int | str, BackupInfo | None]]) -> None:
    print_records(
        {
            kind: name,
            "durability": durability,
            "epoch": epoch,
            "backup": "-" if backup is None else _backup(backup),
            newest: None if backup is None else backup.batch,
            "age": _age(backup),
        }
        for name, durability, epoch, backup in known
    )


def _backup(backup: BackupInfo) -> str:
    at = f" at {backup.node}" if backup.node else ""
    because, why_not = (f": {reason}" if reason else "" for reason in (backup.reason, backup.follows_not))
    followed = "" if backup.follows is None else ", followed" if backup.follows else f", not followed{why_not}"
    recovered = f"; taken over {backup.recovered}" if backup.recovered else ""
    return f"{backup.state}{at}{because}{followed}{recovered}"


def _age(backup: BackupInfo | None) -> str:
    """Return the age of the backup's newest batch or frame; none before its first."""
    if backup is None or backup.batch is None or (seconds := backup.age_s) is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def ended_by_one_failure(queries: Iterable[QueryInfo]) -> str:
    """Return the running queries that end with the disk of a single node, and these nodes; empty if there are none."""
    return named_some(
        f"{query.id} ({', '.join(nodes)})"
        for query in queries
        if query.survival is not None and (nodes := _nodes(query.survival))
    )


def not_followed(queries: Iterable[QueryInfo]) -> str:
    """Return the running hot operators that would start from their stored checkpoints; empty if there are none."""
    return named_some(
        f"{operator.id}{f' ({operator.backup.follows_not})' if operator.backup.follows_not else ''}"
        for query in queries
        for operator in query.operators
        if operator.state == RUNNING and operator.backup is not None and operator.backup.follows is False
    )


def _nodes(survival: Survival) -> list[str]:
    """Return the nodes of open losses; one that has only the sink is named so, since another remedy helps there."""
    parts: dict[str, set[str]] = {}
    for loss in survival.losses:
        if not loss.lost:
            parts.setdefault(loss.node, set()).add(loss.part)
    return [f"{node} with its sink" if found == {SINK} else node for node, found in parts.items()]


def named_some(found: Iterable[str]) -> str:
    """Return the first :data:`MAX_NAMED` names, and how many more there are."""
    named = list(found)
    more = [f"and {len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
    return ", ".join([*named[:MAX_NAMED], *more])
