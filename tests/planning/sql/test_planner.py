"""Planning from SQL to fragments: resolved names, a branch for each source, and marked estimates."""

from __future__ import annotations

import pytest

from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_node.model.schema import parse_schema
from sbon_node.placement.model.from_plan import CONSUMER, problem_of
from sbon_node.placement.model.problem import Edge
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import OnError
from sbon_protocol.api.plan import Plan
from sbon_protocol.errors import SbonError

SCHEMA = parse_schema("ts timestamp, carrier string, dep_delay double, origin string, distance int, limit int, größe int")
ALL = "ts, carrier, dep_delay, origin, distance, `limit`, `größe`"


def entry(*unpaced: str, **rates: float) -> CatalogEntry:
    return CatalogEntry(
        declaration=StreamDeclaration(name="flights", schema=SCHEMA, event_time="ts"),
        sources=tuple(
            SourceDeclaration(
                stream="flights",
                name=name,
                node=f"node-{name}",
                connector="file",
                rows_s=rate,
                row_bytes=60,
                unpaced=name in unpaced,
            )
            for name, rate in rates.items()
        ),
    )


class Analyser:
    """Answers with a schema and remembers what it was asked."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.asked = schema, [("", ())]
        self.asked.clear()

    async def __call__(self, fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        self.asked.append((fragment, inputs))
        return self.schema


async def plan(sql: str, schema: Schema = SCHEMA, settings: QuerySettings | None = None, **rates: float) -> Plan:
    analyser = Analyser(schema)
    planned = await plan_query(sql, {"flights": entry(**(rates or {"ewr": 100.0}))}, "q7", analyser, settings)
    assert analyser.asked == [(planned.operators[0].fragment, (SCHEMA,))]
    return planned


@pytest.mark.parametrize(
    "sql, fragment",
    [
        ("SELECT carrier FROM flights", "SELECT carrier FROM in0"),
        ("select * from flights;", f"SELECT {ALL} FROM in0"),
        ("SELECT f.* FROM flights AS f", f"SELECT {ALL} FROM in0"),
        ("SELECT *, dep_delay / 60 AS h FROM flights", f"SELECT {ALL}, dep_delay / 60 AS h FROM in0"),
        ("SELECT F.DEP_DELAY FROM FLIGHTS f", "SELECT dep_delay FROM in0"),
        ("SELECT `flights`.`carrier` FROM `flights`", "SELECT carrier FROM in0"),
        ("SELECT carrier AS c, `limit` l FROM flights", "SELECT carrier AS c, `limit` AS l FROM in0"),
        ("SELECT carrier AS `limit` FROM flights", "SELECT carrier AS `limit` FROM in0"),
        ("SELECT größe, GRÖSSE + 1 AS ä FROM flights".replace("SS", "ß"), "SELECT `größe`, `größe` + 1 AS `ä` FROM in0"),
        ("SELECT upper(carrier) FROM flights", "SELECT upper(carrier) AS upper_carrier FROM in0"),
        ("SELECT dep_delay > 60, 1 FROM flights", "SELECT dep_delay > 60 AS dep_delay_60, 1 AS c_1 FROM in0"),
        ("SELECT ts -- when\nFROM /* all */ flights -- here", "SELECT ts FROM in0"),
        (
            "SELECT ts FROM flights f WHERE f.dep_delay > 60 AND f.origin <> 'JFK'",
            "SELECT ts FROM in0 WHERE dep_delay > 60 AND origin <> 'JFK'",
        ),
        ('SELECT ts FROM flights WHERE origin = "O\'Hare"', "SELECT ts FROM in0 WHERE origin = 'O\\'Hare'"),
        ("SELECT ts FROM flights WHERE carrier = '-- /* ; SELECT'", "SELECT ts FROM in0 WHERE carrier = '-- /* ; SELECT'"),
        ("SELECT timestampdiff(MINUTE, ts, ts) AS m FROM flights", "SELECT timestampdiff(MINUTE, ts, ts) AS m FROM in0"),
        (
            "SELECT case when distance>100 then 'far' end AS d FROM flights",
            "SELECT CASE WHEN distance > 100 THEN 'far' END AS d FROM in0",
        ),
        (
            "SELECT ts FROM flights WHERE dep_delay>60 AND origin='JFK' OR ts IS NOT NULL",
            "SELECT ts FROM in0 WHERE dep_delay > 60 AND origin = 'JFK' OR NOT ts IS NULL",
        ),
        ("SELECT (dep_delay + 1) * 2 AS x FROM flights", "SELECT (dep_delay + 1) * 2 AS x FROM in0"),
    ],
)
async def test_the_fragment(sql: str, fragment: str) -> None:
    planned = await plan(sql)
    assert planned.operators[0].fragment == fragment
    check_fragment(fragment, 1)


async def test_a_branch_for_each_source() -> None:
    planned = await plan("SELECT ts FROM flights", (Column("ts", "timestamp"),), lga=1e5, ewr=100.0, jfk=200.0)
    assert [source.source.name for source in planned.sources] == ["ewr", "jfk", "lga"]
    assert [operator.id for operator in planned.operators] == ["q7.b0", "q7.b1", "q7.b2"]
    streams = [[one.stream for one in operator.inputs] for operator in planned.operators]
    assert streams == [[f"source/flights@1/{n}"] for n in ("ewr", "jfk", "lga")]
    assert planned.outputs == ("q7.b0", "q7.b1", "q7.b2")
    assert [operator.partitioned for operator in planned.operators] == [False, False, True]
    assert len({operator.signature for operator in planned.operators}) == 3
    assert planned.schema == (Column("ts", "timestamp"),)


async def test_the_threshold_of_the_partitioned_reader_is_a_setting() -> None:
    planned = await plan("SELECT * FROM flights", settings=QuerySettings(partitioned_rows_s=100.0), ewr=99.0, jfk=100.0)
    assert [operator.partitioned for operator in planned.operators] == [False, True]


@pytest.mark.parametrize(
    "sql, partitioned",
    [
        ("SELECT ts FROM flights", {"b0": False, "b1": True}),
        (
            "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier, window(ts, '1 day')",
            {"b0": False, "b1": True, "o2": False},
        ),
        (
            "SELECT a.ts FROM flights a JOIN flights b ON a.carrier = b.carrier AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR"
            " WHERE a.distance > b.distance",
            {"b0": False, "b1": True, "o2": True},
        ),
    ],
)
async def test_rows_without_pace_are_read_in_partitions_until_they_are_aggregated(sql: str, partitioned: dict[str, bool]) -> None:
    planned = await plan_query(sql, {"flights": entry("jfk", ewr=100.0, jfk=100.0)}, "q7", Analyser(SCHEMA))
    assert {operator.id.removeprefix("q7."): operator.partitioned for operator in planned.operators} == partitioned
    reads_jfk_alone = {name: name == "b1" for name in partitioned}
    assert {operator.id.removeprefix("q7."): operator.unpaced for operator in planned.operators} == reads_jfk_alone
    assert [operator.blocks for operator in planned.operators] == [
        " JOIN " in operator.fragment for operator in planned.operators
    ]


async def test_an_operator_all_of_whose_rows_have_no_pace_is_unpaced() -> None:
    sql = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier, window(ts, '1 day')"
    planned = await plan_query(sql, {"flights": entry("ewr", "jfk", ewr=100.0, jfk=100.0)}, "q7", Analyser(SCHEMA))
    assert [operator.unpaced for operator in planned.operators] == [True, True, True]


@pytest.mark.parametrize(
    "unpaced, on_error, groups_per_batch",
    [(("ewr", "jfk"), "fail", True), (("jfk",), "fail", False), ((), "fail", False), (("ewr", "jfk"), "null", False)],
)
async def test_partial_aggregates_keep_no_state_if_all_sources_have_no_pace(
    unpaced: tuple[str, ...], on_error: OnError, groups_per_batch: bool
) -> None:
    async def analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        return output_schema(fragment, inputs)

    sql = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier, window(ts, '1 day')"
    catalog = {"flights": entry(*unpaced, ewr=100.0, jfk=100.0)}
    planned = await plan_query(sql, catalog, "q7", analyse, decompose="always", on_error=on_error)
    *partial, final = planned.operators
    assert [operator.groups_per_batch for operator in partial] == [groups_per_batch, groups_per_batch]
    assert [operator.has_state for operator in partial] == [not groups_per_batch, not groups_per_batch]
    assert final.has_state
    assert [read.event_time for read in final.inputs] == ["window_end", "window_end"]
    assert not final.groups_per_batch


@pytest.mark.parametrize(
    "sql, kept",
    [
        ("SELECT * FROM flights", "ts"),
        ("SELECT carrier, ts AS departed FROM flights", "departed"),
        ("SELECT carrier FROM flights", ""),
        ("SELECT date_trunc('hour', ts) AS h FROM flights", "h"),
        ("SELECT date_trunc('hour', ts) AS h, ts FROM flights", "ts"),
        ("SELECT dayofweek(ts) AS ts FROM flights", ""),
    ],
)
async def test_the_event_time_is_known_where_it_is_kept(sql: str, kept: str) -> None:
    assert (await plan(sql)).event_time == kept


async def test_rates_are_estimates() -> None:
    planned = await plan(
        "SELECT distance FROM flights WHERE origin = 'JFK' AND dep_delay > 60", (Column("distance", "int"),), ewr=900.0
    )
    source, operator = planned.sources[0], planned.operators[0]
    assert (source.rate.rows_s, source.rate.bytes_s, source.rate.measured) == (900.0, 54_000.0, False)
    assert operator.rate.rows_s == pytest.approx(900 / 10 / 3)
    assert operator.rate.bytes_s == pytest.approx(900 / 10 / 3 * 4)
    assert not operator.rate.measured
    assert operator.needs.bandwidth_bytes_s == pytest.approx(operator.rate.bytes_s)


@pytest.mark.parametrize("type_", ["array<string>", "interval day", "void", "struct<a:int>"])
async def test_outputs_that_no_frame_carries_are_refused(type_: str) -> None:
    with pytest.raises(SbonError) as refused:
        await plan("SELECT split(carrier, ',') AS parts FROM flights", (Column("parts", type_),))
    assert refused.value.code == "unsupported-output"
    assert refused.value.where == "line 1, column 8"
    assert refused.value.message.endswith(": split(carrier, ',')")


async def test_the_engine_has_the_last_word() -> None:
    async def refuse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        raise SbonError("bad-sql", "cannot add a string to a date", where="line 1, column 8")

    with pytest.raises(SbonError, match="cannot add"):
        await plan_query("SELECT ts + carrier AS x FROM flights", {"flights": entry(ewr=1.0)}, "q7", refuse)


SUMS = "SELECT window.start AS s, sum(number) AS n, count(*) AS c FROM big GROUP BY window(ts, '1 hour')"


@pytest.mark.parametrize("on_error, operators", [("fail", 3), ("skip", 3), ("null", 3)])
async def test_operators_know_what_becomes_of_errors(on_error: OnError, operators: int) -> None:
    """A sum that may overflow is not decomposed if the query continues on errors: a NULL part would be missing in the whole."""
    schema = (Column("s", "timestamp"), Column("n", "bigint"), Column("c", "bigint"))
    declaration = StreamDeclaration(name="big", schema=parse_schema("ts timestamp, number bigint"), event_time="ts")
    sources = tuple(SourceDeclaration(stream="big", name=name, node=name, connector="file") for name in ("ada", "bob"))

    async def typed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        if "argument_0" in fragment:
            return (Column("argument_0", "bigint"),)
        return schema if "count" in fragment else inputs[0]

    entries = {"big": CatalogEntry(declaration=declaration, sources=sources)}
    planned = await plan_query(SUMS, entries, "q7", typed, on_error=on_error, decompose="always")
    strict = await plan_query(SUMS, entries, "q7", typed, decompose="never")
    partial = [one for one in planned.operators if "sum(" in one.fragment and one.id.startswith("q7.b")]
    assert (len(planned.operators), len(partial)) == (operators, 2 if on_error == "fail" else 0)
    assert {one.spec("q7", {one.stream: "n" for one in one.inputs}).on_error for one in planned.operators} == {on_error}
    same = {one.signature for one in planned.operators} & {one.signature for one in strict.operators}
    assert on_error == "fail" or not same


async def test_the_placement_problem_of_a_plan() -> None:
    planned = await plan("SELECT * FROM flights", ewr=100.0, jfk=200.0)
    problem = problem_of(planned, "home", {"q7.b1": frozenset({"full"})})
    assert problem.pinned == {"source/flights@1/ewr": "node-ewr", "source/flights@1/jfk": "node-jfk", CONSUMER: "home"}
    assert [(operator.id, operator.refused) for operator in problem.operators] == [("q7.b0", frozenset()), ("q7.b1", {"full"})]
    assert problem.edges[:2] == (
        Edge("source/flights@1/ewr", "q7.b0", rate_bytes_s=6000.0, rows_s=100.0),
        Edge("source/flights@1/jfk", "q7.b1", rate_bytes_s=12_000.0, rows_s=200.0),
    )
    assert [(edge.source, edge.target) for edge in problem.edges[2:]] == [("q7.b0", CONSUMER), ("q7.b1", CONSUMER)]
