"""Spark's analyser and its rules for streams accept what the planner accepts: every query of the files beside this one. A
refusal by Spark alone has its position in the user's text."""

from __future__ import annotations

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Plan
from sbon_protocol.errors import SbonError
from tests.planning.sql import test_refusals, test_signature, test_stages
from tests.planning.sql.batch import Batch

pytestmark = pytest.mark.live
PARTS = 6


class Analyser:
    """Spark's in a session as operators have it, asked once for each fragment."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._known: dict[tuple[str, tuple[Schema, ...]], Schema] = {}

    async def __call__(self, fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        if (fragment, inputs) not in self._known:
            self._known[fragment, inputs] = await self._batch.analyse(fragment, inputs)
        return self._known[fragment, inputs]

    def check_streams(self, plan: Plan) -> None:
        """Let Spark plan the operators with state over streams."""
        for one in plan.operators:
            views = {each.view: (each.schema, each.event_time) for each in one.inputs}
            if any(event_time for _, event_time in views.values()):
                self._batch.check_stream(one.fragment, [views[number] for number in sorted(views)], one.buckets)


@pytest.fixture(scope="module")
def analyser(spark: Batch) -> Analyser:
    return Analyser(spark.fenced())


async def refused(queries: list[str], catalog: dict[str, CatalogEntry], analyser: Analyser) -> list[str]:
    found = []
    for sql in dict.fromkeys(queries):
        try:
            analyser.check_streams(await plan_query(sql, catalog, "q1", analyser))
        except SbonError as error:
            found.append(f"{error.code}: {error}: {sql}")
    return found


@pytest.mark.one_part_per_commit("queries in stages on Spark", parts=4 * PARTS)
@pytest.mark.parametrize("part", range(PARTS))
async def test_the_queries_that_are_cut_into_stages(analyser: Analyser, part: int) -> None:
    assert await refused([sql for sql, _ in test_stages.CASES][part::PARTS], test_stages.CATALOG, analyser) == []


@pytest.mark.only_in_test_all("queries with signatures on Spark")
async def test_the_queries_of_the_table_of_signatures(analyser: Analyser) -> None:
    written = [sql for _, _, queries in test_signature.BLOCKS for sql in queries]
    no_value = [sql for sql in written if sql.startswith("SELECT NULL")]
    found = await refused(written, test_signature.CATALOG, analyser)
    assert [line.split(":")[0] for line in found] == ["unsupported-output"] * len(no_value), found


TYPES = [
    ("SELECT upper(carrier, origin) AS u FROM flights", "wrong-num-args", "line 1, column 8"),
    ("SELECT ts + carrier AS x FROM flights", "datatype-mismatch", "line 1, column 8"),
    ("SELECT temp FROM flights f JOIN weather w ON f.ts = w.ts AND temp", "datatype-mismatch", "line 1, column 62"),
    ("SELECT split(carrier, ',') AS parts FROM flights", "unsupported-output", "line 1, column 8"),
    ("SELECT ts, distance AS x FROM flights UNION ALL SELECT ts, temp FROM weather", "bad-union", "line 1, column 12"),
]  # fmt: skip


@pytest.mark.parametrize("sql, code, where", TYPES)
async def test_refusals_by_spark_point_into_the_users_text(sql: str, code: str, where: str, analyser: Analyser) -> None:
    with pytest.raises(SbonError) as told:
        await plan_query(sql, test_refusals.CATALOG, "q1", analyser)
    assert (told.value.code, told.value.where) == (code, where)
    assert told.value.hint


async def test_columns_with_letters_of_any_script(analyser: Analyser) -> None:
    declaration = StreamDeclaration(name="größen", schema=parse_schema("ts timestamp, ä double, 温度 float"), event_time="ts")
    source = SourceDeclaration(stream=declaration.name, name="x", node="a", connector="file")
    catalog = {declaration.name: CatalogEntry(declaration=declaration, sources=(source,))}
    grouped = "SELECT max(ä) AS ö FROM größen GROUP BY window(ts, '1 minute')"
    for sql in ("SELECT ä, `温度` AS ß FROM größen WHERE Ä > 温度", grouped):
        planned = await plan_query(sql, catalog, "q1", analyser)
        assert planned.operators
