"""Spellings of other dialects: rewritten for Spark where that is sound, else refused in place."""

from __future__ import annotations

import pytest

from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import cut
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.errors import SbonError
from tests.planning.sql.test_refusals import CATALOG

SAME = [
    ("SELECT substring(carrier FROM 1) AS x FROM flights", "SELECT substring(carrier, 1) AS x FROM flights"),
    ("SELECT substr(carrier FROM 1 FOR 2) AS x FROM flights", "SELECT substr(carrier, 1, 2) AS x FROM flights"),
    ("SELECT overlay(carrier PLACING 'x' FROM 1) AS x FROM flights", "SELECT overlay(carrier, 'x', 1) AS x FROM flights"),
    (
        "SELECT overlay(carrier PLACING 'x' FROM 1 FOR 2) AS x FROM flights",
        "SELECT overlay(carrier, 'x', 1, 2) AS x FROM flights",
    ),
    ("SELECT ARRAY[1, distance][1] AS x FROM flights", "SELECT array(1, distance)[1] AS x FROM flights"),
    ("SELECT struct(distance, carrier).carrier AS x FROM flights", "SELECT (carrier) AS x FROM flights"),
    ("SELECT (struct(distance AS d, carrier)).D AS x FROM flights", "SELECT (distance) AS x FROM flights"),
    ("SELECT struct(distance + 1).col1 AS x FROM flights", "SELECT (distance + 1) AS x FROM flights"),
    ("SELECT named_struct('a', distance).a AS x FROM flights", "SELECT (distance) AS x FROM flights"),
    (
        "SELECT struct(array(distance, 2)[0] AS y).y AS x FROM flights",
        "SELECT (array(distance, 2)[0]) AS x FROM flights",
    ),
    ("SELECT carrier FROM flights WHERE distance = ANY(ARRAY(1, 2))", "SELECT carrier FROM flights WHERE distance IN (1, 2)"),
    ("SELECT carrier FROM flights WHERE distance = SOME (ARRAY[1, 2])", "SELECT carrier FROM flights WHERE distance IN (1, 2)"),
]
TOLD = [
    ("SELECT carrier FORM flights", "FORM", "did you mean FROM?"),
    ("SELECT carrier FORM", "FORM", "did you mean FROM?"),
    ("SELCT carrier FROM flights", "SELCT", "did you mean SELECT?"),
    ("SELECT carrier FROM flights WERE distance > 1", "WERE", "did you mean WHERE?"),
    ("SELECT carrier FROM flights WHERE distance > 1 GRUOP BY carrier", "GRUOP", "did you mean GROUP?"),
    ("SELECT carrier FROM flights HAVIN distance > 1", "HAVIN", "did you mean HAVING?"),
    ("SELECT carrier FROM flights WHERE (distance > 1", "after: 1", ""),
    ("SELECT carrier FROM flights WHERE distance IN (1, 2", "after: 2", ""),
    ("SELECT CASE WHEN distance > 1 THEN 1 FROM flights", "END is missing", ""),
    ("SELECT carrier FROM flights WHERE distance > ANY(ARRAY(1, 2))", "ALL and ANY", "IN (1, 2)"),
    ("SELECT carrier FROM flights WHERE distance = ANY('{1,2}')", "ALL and ANY", "IN (1, 2)"),
    ("SELECT struct(distance).x FROM flights", "no such field", "it has distance"),
    ("SELECT upper(carrier).x FROM flights", "only struct(...) has fields", "name a column"),
    ("SELECT carrier ~ 'a.*' FROM flights", "~", "RLIKE"),
    ("SELECT carrier FROM flights WHERE carrier SIMILAR TO 'a'", "SIMILAR TO", "RLIKE"),
    ("SELECT distance ** 2 FROM flights", "not understood", "pow"),
    ("SELECT TOP 5 carrier FROM flights", "not understood", "no first rows"),
    ("SELECT ts AT TIME ZONE 'UTC' FROM flights", "AT TIME ZONE", "from_utc_timestamp"),
    ("SELECT carrier->>'a' FROM flights", "operator", "get_json_object"),
    ("SELECT [carrier] FROM flights", "square brackets", "`name`"),
    ("SELECT count(*) FROM flights GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)", "tumble", "window(event time"),
    ("SELECT count(*) FROM flights GROUP BY HOP(ts, INTERVAL '1' HOUR, INTERVAL '2' HOUR)", "hop", "10 minutes"),
    ("SELECT count(*) FROM flights GROUP BY SESSION(ts, INTERVAL '1' HOUR)", "not understood", "session_window"),
    ("SELECT time_bucket('1 hour', ts), count(*) FROM flights GROUP BY 1", "time_bucket", "window(event time"),
]


def fragments(sql: str) -> list[str]:
    return [fragment_of(one.relation) for one in cut(push_down(read_query(sql, CATALOG, QuerySettings())), sql)]


@pytest.mark.parametrize("sql, spark", SAME)
def test_it_means_what_spark_writes(sql: str, spark: str) -> None:
    assert fragments(sql) == fragments(spark)


@pytest.mark.parametrize("sql, says, hint", TOLD)
def test_a_refused_spelling_has_a_hint(sql: str, says: str, hint: str) -> None:
    with pytest.raises(SbonError) as refused:
        fragments(sql)
    error = refused.value
    assert error.where.startswith("line 1, column ")
    assert says in error.message
    assert hint in error.hint
