"""The state that both kinds of query objects share: the last record and its age, its tables, its end."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pyarrow as pa

from sbon_protocol.errors import SbonError

from . import states
from .model import Finished, QueryInfo
from .schema import Tables

Row = dict[str, Any]
"""Values by column: ``timestamp`` is an aware ``datetime``, ``decimal`` a ``Decimal``, ``binary`` ``bytes``, NULL ``None``."""

_ADVICE = re.compile(r" \(sbon submit --on-error [^()]*\)\Z")
"""The node's advice for the command line, at the end of a reason."""
_BAD_ROWS = re.compile(r"SQLSTATE: 22")
"""Data exceptions (ISO 9075), in a reason that was cut off before the advice."""
_CONTINUE = 'submit it with on_error="skip", or "null", which continues after such rows'
_LOOK = "info() of the query has the state of each operator"

SQL_SHOWN = 60
"""Number of SQL characters in a representation."""


class KnownQuery:
    """A query as its node last described it, and the rows that an interrupted call has collected."""

    def __init__(self, info: QueryInfo) -> None:
        self._info = info
        self._known_s = time.monotonic()
        self._collected: list[pa.Table] = []

    def __repr__(self) -> str:
        return shown(type(self).__name__, self._info, time.monotonic() - self._known_s)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def state(self) -> str:
        """The last known state: ``running``, ``finished``, ``stopped``, ``failed``. :meth:`info` asks again."""
        return self._info.state

    def _heard(self, info: QueryInfo) -> QueryInfo:
        self._info, self._known_s = info, time.monotonic()
        return info

    def _over(self, end: Finished) -> None:
        """Record the end of the rows; raise ``query-failed`` if the query failed."""
        ended_well(self._heard(over(self._info, end)))

    def _all_collected(self, planned: QueryInfo) -> pa.Table:
        """Return the collected rows as one table, and forget them."""
        batches, self._collected = self._collected, []
        return pa.concat_tables(batches) if batches else tables_of(planned).empty()


def shown(kind: str, info: QueryInfo, age_s: float) -> str:
    """Return ``<Query errors running, 1,204 rows at paris, 3 s ago: SELECT host FROM access>``."""
    reason = f" ({info.reason})" if info.reason else ""
    rows = "" if info.rows is None else f", {info.rows:,} row{'' if info.rows == 1 else 's'}"
    at = f" at {info.consumer}" if info.consumer else ""
    sql = " ".join(info.sql.split())
    sql = sql if len(sql) <= SQL_SHOWN else sql[: SQL_SHOWN - 1] + "…"
    return f"<{kind} {info.id} {info.state}{reason}{rows}{at}, {age_s:.0f} s ago: {sql}>"


def tables_of(info: QueryInfo) -> Tables:
    """Return the converter of the query's frames; raise :class:`SbonError` ``no-plan``."""
    if info.plan is None:
        raise SbonError("no-plan", "the query has not been planned", where=info.id)
    return Tables(info.plan.schema)


def over(info: QueryInfo, end: Finished) -> QueryInfo:
    """Return the record after the end of the query's rows; their number has to be requested again."""
    return msgspec.structs.replace(info, state=end.state, reason=end.reason, rows=None)


def ended_well(info: QueryInfo) -> QueryInfo:
    """Return the record; raise ``query-failed`` if the query failed."""
    if info.state == states.FAILED:
        advice = _ADVICE.search(info.reason)
        bad_rows = advice is not None or _BAD_ROWS.search(info.reason) is not None
        message = info.reason[: advice.start()] if advice else info.reason
        raise SbonError("query-failed", message, where=info.id, hint=_CONTINUE if bad_rows else _LOOK)
    return info
