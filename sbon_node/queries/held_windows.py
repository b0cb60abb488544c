"""Sources whose watermark holds back a query's windows and joins, as users read it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from sbon_node.model.catalogue import called
from sbon_node.model.plan import Plan, PlannedOperator
from sbon_node.model.states import source_states
from sbon_node.model.states.lifecycle import LOST, UNREACHABLE
from sbon_node.model.streams import SourceInfo
from sbon_node.model.times import utc_text

QUIET_MS = 10_000
"""A source holds others back if its watermark last rose this much earlier than theirs: longer than the pauses of most feeds."""


def sources_that_hold(plan: Plan, sources: Iterable[SourceInfo], now_ms: int) -> Iterator[str]:
    """Yield each source that holds back operators with state, with the time since when.

    An operator with several sources takes the least of their watermarks, so a silent source keeps the rows of all the others.
    A source that has ended holds back none. Times are those of the sources' nodes; ``now_ms`` is this node's.
    """
    infos = {info.source.id: info for info in sources}
    for name in dict.fromkeys(name for read in _read_together(plan) for name in _behind(infos, read, now_ms)):
        yield _said(infos[name])


def _read_together(plan: Plan) -> Iterator[list[str]]:
    """Yield the sources of each operator with state."""
    operators: dict[str, PlannedOperator] = {one.operator.id: one.operator for one in plan.shared}
    operators |= {one.id: one for one in plan.operators}
    known: dict[str, list[str]] = {planned.source.id: [planned.source.id] for planned in plan.sources}
    for one in operators.values():
        known[one.id] = list(dict.fromkeys(name for read in one.inputs for name in known.get(read.stream, ())))
        if any(read.event_time for read in one.inputs):
            yield known[one.id]


def _behind(infos: Mapping[str, SourceInfo], read: Collection[str], now_ms: int) -> Iterator[str]:
    """Yield the sources that are behind another one, and have been quiet while that one went on or ended."""
    all_ = [infos[name] for name in read if name in infos]
    for info in all_:
        if _goes_on(info) and any(_is_behind(info, other, now_ms) for other in all_):
            yield info.source.id


def _goes_on(info: SourceInfo) -> bool:
    """Return whether more rows may come; other reasons tell of a source that is away or has failed."""
    return _state(info) not in (source_states.ENDED, source_states.FAILED, UNREACHABLE, LOST) and not info.trouble


def _is_behind(info: SourceInfo, other: SourceInfo, now_ms: int) -> bool:
    if other.watermark_ms is None or (info.watermark_ms is not None and info.watermark_ms >= other.watermark_ms):
        return False
    upto_ms = now_ms if _state(other) == source_states.ENDED else other.advanced_ms
    return upto_ms is not None and (info.advanced_ms is None or info.advanced_ms + QUIET_MS <= upto_ms)


def _state(info: SourceInfo) -> str:
    return info.state.partition(":")[0]


def _said(info: SourceInfo) -> str:
    since = f" since {utc_text(info.advanced_ms)}" if info.advanced_ms is not None else ""
    quiet = "without a row" if info.watermark_ms is None else f"at watermark {utc_text(info.watermark_ms)}"
    return f"source {called(info.source)} holds windows back: {quiet}{since}"
