"""A query's record for people and programs: its representation, its tables, its end. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from sbon_protocol.errors import SbonError

from .model import Finished, QueryInfo
from .requests import unreachable
from .schema import Tables

Row = dict[str, Any]
"""Values by column: ``timestamp`` is an aware ``datetime``, ``decimal`` a ``Decimal``, ``binary`` ``bytes``, NULL ``None``."""

SQL_SHOWN = 60
"""Number of SQL characters in a representation."""


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
    if info.state == "failed":
        raise SbonError("query-failed", info.reason, where=info.id)
    return info


def not_accepted(api: str) -> SbonError:
    return unreachable(api, "the connection ended before the query was accepted")
