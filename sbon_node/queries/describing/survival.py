"""Losses of a running query with each of its nodes. Pure."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from sbon_protocol.api.delivery import FOLLOW
from sbon_protocol.api.durability import LOCAL, OPERATOR, RECORD, SINK, SOURCE, BackupInfo, Loss, Survival
from sbon_protocol.api.queries import OperatorInfo, QueryInfo
from sbon_protocol.api.states import backup_states, query_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.states.operator_states import RUNNING

Absence = Callable[[str], str]
"""Returns why membership misses a node, as in "is dead"; empty for one that is there."""
SAFE_COPIES = 3
"""Copies of a record of which one may be lost: a majority of them is left."""
DELIVERED = {
    FOLLOW: "its follower keeps the rows that it has taken",
    "file": "with the rows in it",
    "http": "delivered rows stay at their receiver",
    "postgres": "delivered rows stay at their receiver",
    "blackhole": "it keeps no rows",
}
"""Rows that were delivered before the loss of a sink's node, by the kind of the sink."""
MAX_NAMED = 6
"""Most losses that the sentence names."""


def with_survival(info: QueryInfo, absence: Absence = lambda node: "") -> QueryInfo:
    """Return the description of a query with what it survives; without it unless the query runs."""
    return msgspec.structs.replace(info, survival=survival_of(info, absence) if info.state == query_states.RUNNING else None)


def survival_of(info: QueryInfo, absence: Absence = lambda node: "") -> Survival:
    """Return what the query loses with the disk of each node that has a part in it.

    A backup at a node that is missed now counts for nothing: it may be lost already. Sinks, and sources without a backup, are
    bound to their nodes. A part that is done is a loss, too: where its stream begins anew, its readers cannot go on.
    """
    losses = (*_operators(info, absence), *_sources(info, absence), *_sink(info), *_record(info))
    return Survival(any_node=not losses, losses=losses, text=_sentence(losses))


def _operators(info: QueryInfo, absence: Absence) -> Iterator[Loss]:
    for operator in info.operators:
        if why := _not_recoverable(operator, absence):
            yield Loss(node=operator.node, part=OPERATOR, name=operator.id, why=why, lost=operator.state == LOST)


def _not_recoverable(operator: OperatorInfo, absence: Absence) -> str:
    """Return why no backup can go on with the operator; empty if one can."""
    if operator.durability == LOCAL:
        return LOCAL
    backup = operator.backup
    if backup is None:
        return "its backup is not known"
    if backup.state not in backup_states.CAN_TAKE_OVER:
        return f"its backup is {backup.state}"
    if why := absence(backup.node):
        return f"{backup.node}, its backup, {why}"
    if backup.batch is not None or operator.state == UNREACHABLE or _has_shown_nothing(operator):
        return ""
    return "its backup is not known to have its state"


def _has_shown_nothing(operator: OperatorInfo) -> bool:
    """Return whether no batch is committed yet: before, a backup begins as its host did. It counts the batches of all hosts."""
    return operator.state == RUNNING and operator.stats is not None and not operator.stats.batches


def _sources(info: QueryInfo, absence: Absence) -> Iterator[Loss]:
    for source in info.sources:
        declared, backup = source.source, source.backup
        if declared.durability != LOCAL and backup is not None and _can_take_over(backup) and not absence(backup.node):
            continue
        name = declared.stream + (f"/{declared.name}" if declared.name != declared.node else "")
        yield Loss(
            node=declared.node, part=SOURCE, name=name, why=declared.connector, lost=source.state.partition(":")[0] == LOST
        )


def _can_take_over(backup: BackupInfo) -> bool:
    """Return whether the source's backup has all that was confirmed: after a restart, its host has yet to give it that."""
    return backup.state in backup_states.CAN_TAKE_OVER and backup.batch is not None


def _sink(info: QueryInfo) -> Iterator[Loss]:
    """Yield the sink's node, which has the sink's order and claim: without them the query fails, whatever the kind.

    Rows that no sink has acknowledged are retained at their operators until then. ``why`` says what becomes of the others.
    """
    if info.sink.failover:
        return
    why = DELIVERED.get(info.sink.kind, "a sink stays at its node")
    yield Loss(node=info.consumer, part=SINK, name=info.sink.kind, why=why, lost=info.sink_lost)


def _record(info: QueryInfo) -> Iterator[Loss]:
    """Yield the nodes without which no majority of the record's copies is left."""
    copies = len(info.acceptors)
    if copies < SAFE_COPIES:
        yield from (Loss(node=node, part=RECORD, name="", why=f"one of {copies}") for node in info.acceptors)


def _sentence(losses: Iterable[Loss]) -> str:
    gone = [loss for loss in losses if loss.lost]
    open_ = [loss for loss in losses if not loss.lost]
    parts = [f"has lost: {_named(gone)}"] if gone else []
    if open_:
        parts.append(f"would lose: {_named(open_)}; it would only wait for a node whose disk comes back")
    return "; ".join(parts) or "would survive the loss of any one node"


def _named(losses: list[Loss]) -> str:
    more = len(losses) - MAX_NAMED
    return ", ".join([*map(_in_words, losses[:MAX_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def _in_words(loss: Loss) -> str:
    if loss.part == OPERATOR:
        return f"{loss.node} hosts {loss.name} ({loss.why})"
    if loss.part == SOURCE:
        return f"{loss.node} is its {loss.why} source {loss.name}"
    if loss.part == SINK:
        return f"{loss.node} writes its sink ({loss.name}: {loss.why})"
    return f"{loss.node} keeps its record ({loss.why})"
