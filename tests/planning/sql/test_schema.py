"""Schemas as text, and what a declaration must hold."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from sbon_node.model.schema import TYPES, check_source, check_stream, parse_schema, to_arrow, type_of
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError

ALL = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(10,2), "
    "i string, j binary, k date, l timestamp"
)


@pytest.mark.parametrize(
    "text, columns",
    [
        ("ts TIMESTAMP", [("ts", "timestamp")]),
        (ALL, [tuple(field.split(" ", 1)) for field in re.split(r", (?=[a-z] )", ALL)]),
        ("a: integer, b :long", [("a", "int"), ("b", "bigint")]),
        ("a decimal( 10 , 2 ),b DECIMAL", [("a", "decimal(10,2)"), ("b", "decimal(10,0)")]),
        ("`a` bool,\n b string", [("a", "boolean"), ("b", "string")]),
        ("ä double, größe int, 温度 float", [("ä", "double"), ("größe", "int"), ("温度", "float")]),
        ("a\u0308 double", [("ä", "double")]),
    ],
)
def test_ways_to_write_it(text: str, columns: list[tuple[str, str]]) -> None:
    assert parse_schema(text) == tuple(Column(name, type_) for name, type_ in columns)


@pytest.mark.parametrize(
    "text, code, where",
    [
        ("", "bad-schema", "column 1"),
        ("a", "bad-schema", "column 1"),
        ("a int,,b int", "bad-schema", "column 2"),
        ("a int, b strin", "bad-type", "column 2, b"),
        ("ts timestamp, a array<int>", "bad-type", "column 2, a"),
        ("a int[], ts timestamp", "bad-type", "column 1, a"),
        ("ts timestamp, a struct<b: map<string, array<int>>, c: int>, d int", "bad-type", "column 2, a"),
        ("a int, b map<string,int", "bad-type", "column 2, b"),
        ("a timestamp with time zone", "bad-type", "column 1, a"),
        ("a big int", "bad-type", "column 1, a"),
        ("a int not null", "bad-type", "column 1, a"),
        ("a timestamp_ntz", "bad-type", "column 1, a"),
        ("a decimal(39,2)", "bad-type", "column 1, a"),
        ("a decimal(4,5)", "bad-type", "column 1, a"),
        ("a int, A string", "bad-schema", "column A"),
        ("1a int", "bad-schema", "column 1a"),
        ("`a b` int", "bad-schema", "column a b"),
        ("ä int, Ä string", "bad-schema", "column Ä"),
        ("i int, ı string", "bad-schema", "column ı"),
        ("ａ int", "bad-schema", "column ａ"),
        ("x² int", "bad-schema", "column x²"),
    ],
)
def test_refused_schemas(text: str, code: str, where: str) -> None:
    with pytest.raises(SbonError) as refused:
        parse_schema(text)
    assert (refused.value.code, refused.value.where) == (code, where)


def test_arrow() -> None:
    types = [field.type for field in to_arrow(parse_schema(ALL))]
    assert types == [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(10, 2),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
    ]


@pytest.mark.parametrize(
    "event_time, hint",
    [("when", "timestamps are ts, seen"), ("carrier", "timestamps are ts, seen")],
)
def test_the_event_time_is_a_timestamp(event_time: str, hint: str) -> None:
    schema = parse_schema("ts timestamp, carrier string, seen timestamp")
    check_stream(StreamDeclaration(name="flights", schema=schema, event_time="ts"))
    with pytest.raises(SbonError) as refused:
        check_stream(StreamDeclaration(name="flights", schema=schema, event_time=event_time))
    assert (refused.value.code, refused.value.hint) == ("bad-event-time", hint)


@pytest.mark.parametrize(
    "stream, name, where", [("weather", "ewr", "stream"), ("flights", "E W/R", "name"), ("flights", "", "name")]
)
def test_refused_sources(stream: str, name: str, where: str) -> None:
    declaration = StreamDeclaration(name="flights", schema=parse_schema("ts timestamp"), event_time="ts")
    check_source(SourceDeclaration(stream="flights", name="ewr", node="n", connector="file"), declaration)
    with pytest.raises(SbonError) as refused:
        check_source(SourceDeclaration(stream=stream, name=name, node="n", connector="file"), declaration)
    assert refused.value.where == where


@pytest.mark.parametrize("name", [*TYPES, "decimal(12,3)"])
def test_messages_name_types_as_schemas_do(name: str) -> None:
    assert type_of(to_arrow((Column("x", name),)).field("x").type) == name
