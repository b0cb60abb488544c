"""Planning time of each query of the suite (``sbon bench planning``), with other planners on the same texts.

Ours, in steps: reading (parsing, checking, resolving), pushing down, cutting into stages; the whole plan without the
analyser; Spark's analyser on every fragment, as each submission requires. The others, in the same process and run: parsing
and sqlglot's own optimiser, and Spark's parsing, analysis and optimisation of the whole query over empty tables of the same
schemas. A planner that rejects a query has no figure for it. Every figure is the median of several turns after an uncounted
turn.
"""

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.errors import PySparkException
from sqlglot.errors import SqlglotError
from sqlglot.optimizer import optimize

from sbon_cli.commands.demo.nycflights import FLIGHTS, WEATHER
from sbon_lab.experiments.harness.experiment import Found, ignore
from sbon_lab.suite.cases import Case, cases, chosen
from sbon_lab.suite.hosts import DEPLOYS, METRICS
from sbon_lab.suite.nexmark import AUCTION, BID, PERSON
from sbon_lab.suite.streams import SITES
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.analysis.guard import fenced_session
from sbon_node.engine.spark.engine_process import analyse
from sbon_node.engine.spark.jvm.archive import make_archive
from sbon_node.engine.spark.jvm.session import Jvm, open_session
from sbon_node.engine.spark.operators.operator import ddl
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import cut
from sbon_node.planning.sql.syntax.dialect import parse
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema

STREAMS = (FLIGHTS, WEATHER, PERSON, AUCTION, BID, METRICS, DEPLOYS)


def run(names: Sequence[str] = (), *, turns: int = 3, found: Found = ignore) -> dict[str, Any]:
    """Return ``{"name": "planning", "rows": [...]}``, a row for each query or each of ``names``, and a row of medians.

    Raises :class:`SbonError` ``unknown-query``.
    """
    selected = chosen(names) or cases()
    configure(LogSettings(level="warning"))
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    settings = EngineSettings()
    make_archive(settings)
    jvm = Jvm(settings)
    session = open_session(settings)
    try:
        tables = _tables(session)
        rows = []
        for case in selected:
            rows.append(asyncio.run(_row(session, tables, case, turns)))
            found(rows[-1])
    finally:
        session.stop()
        jvm.close()
    return {"name": "planning", "rows": [*rows, medians(rows)]}


async def _row(session: Any, tables: Any, case: Case, turns: int) -> dict[str, Any]:
    catalog = {declaration.name: _entry(declaration) for declaration in STREAMS}
    schemas: dict[tuple[str, tuple[Schema, ...]], Schema] = {}

    async def by_spark(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        schema = schemas[fragment, inputs] = analyse(session, fragment, inputs)
        return schema

    async def remembered(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        return schemas[fragment, inputs]

    settings = QuerySettings()
    plan = await plan_query(case.sql, catalog, "q", by_spark, settings)
    relation = read_query(case.sql, catalog, settings)
    pushed = push_down(relation)

    def planned() -> None:
        """Plan; no step waits for anything."""
        try:
            plan_query(case.sql, catalog, "q", remembered, settings).send(None)
        except StopIteration:
            return
        raise AssertionError("planning waited")

    return {
        "query": case.name,
        "operators": len(plan.operators),
        "read_ms": median_ms(lambda: read_query(case.sql, catalog, settings), turns),
        "push_down_ms": median_ms(lambda: push_down(relation), turns),
        "cut_ms": median_ms(lambda: cut(pushed, case.sql), turns),
        "plan_ms": median_ms(planned, turns),
        "analyse_ms": median_ms(lambda: [analyse(session, *arguments) for arguments in schemas], turns),
        "sqlglot_ms": median_ms(lambda: _by_sqlglot(case.sql), turns, SqlglotError),
        "spark_ms": median_ms(lambda: tables.sql(case.sql)._jdf.queryExecution().optimizedPlan(), turns, PySparkException),
    }


def _tables(session: Any) -> Any:
    """Return a session in which every stream is an empty table."""
    own = fenced_session(session)
    for declaration in STREAMS:
        own.createDataFrame([], ddl(declaration.schema)).createOrReplaceTempView(declaration.name)
    return own


def _by_sqlglot(sql: str) -> None:
    schema: dict[str, object] = {
        declaration.name: {column.name: column.type for column in declaration.schema} for declaration in STREAMS
    }
    optimize(parse(sql)[0], schema=schema, dialect="spark")


def _entry(declaration: StreamDeclaration) -> CatalogEntry:
    sources = tuple(SourceDeclaration(stream=declaration.name, name=site, node=site, connector="file") for site in SITES)
    return CatalogEntry(declaration=declaration, sources=sources)


def median_ms(work: Callable[[], object], turns: int, *refusals: type[Exception]) -> float | None:
    """Return the median milliseconds of ``turns`` calls; None if ``work`` raises one of ``refusals``."""
    took = []
    for _ in range(turns + 1):
        began = time.perf_counter()
        try:
            work()
        except refusals:
            return None
        took.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(took[1:]), 3)


def medians(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over the queries that have the figure."""
    columns = [name for name in rows[0] if name != "query"]
    each = {name: [row[name] for row in rows if row[name] is not None] for name in columns}
    return {"query": "median"} | {name: round(statistics.median(values), 3) if values else None for name, values in each.items()}
