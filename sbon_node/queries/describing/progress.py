"""Progress of a query, computed from reports of its sources, links and operators. Pure."""

from collections.abc import Collection, Iterable

from sbon_node.connectors.sources.result import query_of
from sbon_protocol.api.catalogue import called
from sbon_protocol.api.queries import LinkInfo, OperatorInfo, QueryProgress
from sbon_protocol.api.states import query_states, source_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.streams import SourceInfo

_OVER = frozenset({source_states.ENDED, source_states.FAILED})
"""States of a source of which no more rows come; one that is unreachable may go on."""
LEAST_SHARE = 0.001
"""Below this share of rows read, no time left is estimated."""
BEGINNING_MS = 1
"""Greatest watermark of an operator whose engine has none yet: Spark may begin at 1970, and an output promises 1 ms more."""


def progress_of(
    sources: Collection[SourceInfo],
    links: Iterable[LinkInfo],
    operators: Iterable[OperatorInfo],
    outputs: Collection[str],
    *,
    rows: int | None,
    state: str,
    elapsed_s: float,
) -> QueryProgress:
    """Return the progress of a query.

    ``outputs`` are the streams that the sink takes; ``rows`` is the count that it has delivered; ``elapsed_s`` counts from the
    submission.

    A source's rows count for the query as its links have carried them, because other queries may have read the same source
    before. Once all rows have been read, the remaining work of the operators is unknown, so there is no time left.
    """
    carried: dict[str, int] = {}  # Of several readers of a stream, the slowest counts.
    for link in links:
        carried[link.stream] = min(link.rows, carried.get(link.stream, link.rows))
    taken = {info.source.id: carried.get(info.source.id, 0) for info in sources}
    open_ended = [info.source for info in sources if not info.finite and info.state.partition(":")[0] not in _OVER]
    endless = tuple(called(source) for source in open_ended if not query_of(source))
    running = state == query_states.RUNNING
    share = 1.0 if state == query_states.FINISHED else _share(sources, taken)
    left_s = elapsed_s * (1 - share) / share if running and share is not None and LEAST_SHARE < share < 1 else None
    ends = [operator for operator in operators if operator.id in outputs]
    return QueryProgress(
        rows_in=sum(taken.values()),
        rows_out=rows,
        read_share=share,
        endless=endless,
        rows_in_s=_sum(source.rows_s for source in sources if source.state != source_states.ENDED) if running else None,
        rows_out_s=_sum(end.stats.rows_out_s if end.stats else None for end in ends) if running else None,
        lag_ms=_lag_ms(sources, ends) if running else None,
        left_s=left_s,
    )


def _share(sources: Collection[SourceInfo], taken: dict[str, int]) -> float | None:
    """Return the share of all sources' rows that the query has read; None if a source is endless or unreachable."""
    if not sources or any(info.read_share is None for info in sources):
        return None
    total = done = 0.0
    for info in sources:
        share = info.read_share or 0.0
        if share == 0.0:
            return 0.0
        total += info.rows / share
        done += min(taken[info.source.id], info.rows)
    return min(1.0, done / total) if total else 1.0


def _lag_ms(sources: Collection[SourceInfo], ends: Collection[OperatorInfo]) -> int | None:
    """Return the event time between the sources' watermarks and those of the last operators; None if unknown.

    It is unknown while one of them is unreachable: that may be the one that is behind.
    """
    if _hidden(sources, ends):
        return None
    newest = [source.watermark_ms for source in sources if source.watermark_ms is not None]
    left = [end.watermark_ms for end in ends if end.watermark_ms is not None]
    return _behind_ms(min(newest), min(left)) if newest and left else None


def slowest_lag_ms(sources: Collection[SourceInfo], operators: Collection[OperatorInfo]) -> int | None:
    """Return the event time by which the slowest operator is behind the newest source; None if unknown.

    An operator whose output has ended has no lag; one that is unreachable may have any.
    """
    if _hidden(sources, operators):
        return None
    newest = [source.watermark_ms for source in sources if source.watermark_ms is not None]
    known = [operator.watermark_ms for operator in operators if operator.watermark_ms is not None]
    if not newest or not known:
        return 0 if operators and all(operator.ended for operator in operators) else None
    return _behind_ms(max(newest), min(known))


def _hidden(sources: Collection[SourceInfo], operators: Collection[OperatorInfo]) -> bool:
    states = [*(source.state for source in sources), *(operator.state for operator in operators)]
    return not {UNREACHABLE, LOST}.isdisjoint(states)


def _behind_ms(source_ms: int, operator_ms: int) -> int | None:
    """Return the event time by which an operator's watermark is behind a source's; 0 if it is not.

    None while the operator is at its beginning or, with a delay, before it, and the source is not.
    """
    return max(0, source_ms - operator_ms) if operator_ms > BEGINNING_MS or source_ms <= BEGINNING_MS else None


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
