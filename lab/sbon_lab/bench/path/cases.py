"""Queries of the benchmark of the whole path, each as its own SQL and as the best that we know for bare Spark."""

from typing import Literal, NamedTuple

from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import StreamDeclaration

Format = Literal["csv", "parquet"]
FORMATS: tuple[Format, ...] = ("csv", "parquet")

TRADES = StreamDeclaration(
    name="trades",
    schema=parse_schema("ts timestamp, symbol string, account bigint, price double, size bigint"),
    event_time="ts",
    comment="trades of 20 symbols by 10,000 accounts, a row every 10 ms at each node",
)
NEWS = StreamDeclaration(
    name="news",
    schema=parse_schema("ts timestamp, symbol string, headline bigint"),
    event_time="ts",
    comment="news of the same symbols, a row for every 200 trades",
)
STREAMS = {stream.name: stream for stream in (TRADES, NEWS)}


class Case(NamedTuple):
    """A query over ``streams``; in its texts ``{trades}`` and ``{news}`` are their names.

    ``bare_sql`` runs on bare Spark. It reads whole files in one batch, or ``sliced`` files in small ones, which keeps the
    state of a join small.
    """

    name: str
    streams: tuple[StreamDeclaration, ...]
    sql: str
    bare_sql: str
    sliced: bool = False


_FEW = "SELECT window.start AS minute, symbol, count(*) AS trades, sum(size) AS size, avg(price) AS price, max(price) AS highest"
_MANY = "SELECT window.start AS begins, account, count(*) AS trades, sum(price) AS volume"
_JOINED = "SELECT t.ts AS ts, t.symbol AS symbol, t.account AS account, n.headline AS headline"
_WITHIN = "n.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts"
_BUCKET = "unix_seconds(ts) DIV 10"

CASES = {
    case.name: case
    for case in (
        Case(
            "filter",
            (TRADES,),
            "SELECT ts, upper(symbol) AS symbol, price * size AS value FROM {trades} WHERE size > 50",
            "SELECT ts, upper(symbol) AS symbol, price * size AS value FROM {trades} WHERE size > 50",
        ),
        Case(
            "aggregate",
            (TRADES,),
            f"{_FEW} FROM {{trades}} GROUP BY window(ts, '1 minute'), symbol",
            f"{_FEW} FROM {{trades}} GROUP BY window(ts, '1 minute'), symbol",
        ),
        Case(
            "aggregate-many-keys",
            (TRADES,),
            f"{_MANY} FROM {{trades}} GROUP BY window(ts, '10 minutes'), account",
            f"{_MANY} FROM {{trades}} GROUP BY window(ts, '10 minutes'), account",
        ),
        Case(
            "join",
            (TRADES, NEWS),
            f"{_JOINED} FROM {{trades}} AS t JOIN {{news}} AS n ON t.symbol = n.symbol AND {_WITHIN}",
            f"{_JOINED} FROM (SELECT *, {_BUCKET} AS bucket FROM {{trades}}) AS t JOIN"
            f" (SELECT *, explode(array({_BUCKET}, {_BUCKET} + 1)) AS bucket FROM {{news}}) AS n"
            f" ON t.symbol = n.symbol AND t.bucket = n.bucket AND {_WITHIN}",
            sliced=True,
        ),
    )
}
