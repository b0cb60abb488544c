"""The overlay from Python: rows typed again, each once; wrong arguments named; other tasks go on meanwhile."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import sbon_cli
from sbon_cli import connect, connect_async
from sbon_cli.tables import Tables
from sbon_node.api.encoding import encode
from sbon_node.connectors.delivered import Rows
from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError
from sbon_node.query.plan import Plan
from tests.cli.commands import FINISHED, frame

SCHEMA = (Column("x", "bigint"), Column("name", "string"))
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float": [0.5, -math.inf, None],
    "double": [1e300, math.inf, None],
    "string": ["", 'nöte "\n', None],
    "binary": [b"", b"\x00\xff", None],
    "date": [date(1969, 12, 31), date(2024, 2, 29), None],
    "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2013, 6, 1, 12, 30, 0, 123456, tzinfo=UTC), None],
    "decimal(20,3)": [Decimal("12345678901234567.125"), Decimal("-0.001"), None],
}


@pytest.fixture
def planned(node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripted node, whose query has a plan with the frames' schema."""
    plan = Plan(text="select 1", sources=(), operators=(), outputs=(), schema=SCHEMA)
    told = node.query

    async def query(query_id: str) -> Any:
        return msgspec.structs.replace(await told(query_id), plan=plan)

    monkeypatch.setattr(node, "query", query)
    return node


@pytest.mark.parametrize("type_", VALUES)
def test_values_are_what_they_were_before_the_api_wrote_them_as_json(type_: str) -> None:
    values = VALUES[type_]
    frame = Rows(stream="o", number=1, columns=("v",), rows=tuple((v,) for v in values), watermark_ms=0, delay_ms=0)
    sent = msgspec.json.decode(encode(frame), type=Rows)
    assert Tables((Column("v", type_),)).of(sent).column("v").to_pylist() == values


def test_numbers_that_are_none_are_none() -> None:
    frame = Rows(stream="o", number=1, columns=("v",), rows=((math.nan,),), watermark_ms=0, delay_ms=0)
    sent = msgspec.json.decode(encode(frame), type=Rows)
    assert math.isnan(Tables((Column("v", "double"),)).of(sent).column("v").to_pylist()[0])


@pytest.mark.parametrize("rows, columns", [((("a",),), ("v",)), (((1,),), ("w",))])
def test_a_frame_that_is_not_of_the_schema_is_refused(rows: Any, columns: tuple[str, ...]) -> None:
    wrong = Rows(stream="o", number=7, columns=columns, rows=rows, watermark_ms=0, delay_ms=0)
    with pytest.raises(SbonError, match="frame 7 is not what was planned"):
        Tables((Column("v", "bigint"),)).of(wrong)


def test_rows_come_as_dicts_tables_and_frames(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1, 2), frame(2), frame(3, 3), FINISHED]] * 3
    with connect(api) as overlay:
        query = overlay.sql("select 1", strategy="relaxation", max_delay_ms=80.0)
        assert (planned.submitted[0].strategy, planned.submitted[0].max_delay_ms) == ("relaxation", 80.0)
        assert list(query) == [{"x": i, "name": f"r{i}"} for i in (1, 2, 3)]
        assert planned.acknowledged[-1] == {"o1": 3}
        table = overlay.query("q1").to_arrow()
        assert table.schema == pa.schema([("x", pa.int64()), ("name", pa.string())])
        assert table.column("x").to_pylist() == [1, 2, 3]
        assert query.to_pandas()["name"].tolist() == ["r1", "r2", "r3"]


def test_what_was_being_worked_on_is_not_acknowledged(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED]]
    tables = connect(api).query("q1").tables()
    assert [next(tables).num_rows, next(tables).num_rows] == [1, 1]
    tables.close()
    assert planned.acknowledged == [{"o1": 1}]


def test_a_query_that_fails_says_why(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), msgspec.structs.replace(FINISHED, state="failed", reason="no more memory")]]
    with pytest.raises(SbonError, match="no more memory") as failed:
        connect(api).query("q1").to_arrow()
    assert failed.value.code == "query-failed"


@pytest.mark.parametrize(
    "wishes, message",
    [
        ({"stratgy": "opb"}, "there is no 'stratgy'"),
        ({"max_delay_ms": "80ms"}, "max_delay_ms: must be a number or nothing, and is text"),
    ],
)
def test_wrong_arguments_are_named(api: str, node: Any, wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(SbonError, match=message):
        connect(api).sql("select 1", **wishes)
    assert node.submitted == []


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(SbonError) as refused:
        connect("http://127.0.0.1:1")
    assert refused.value.code == "node-unreachable"


async def test_other_tasks_go_on_while_rows_are_waited_for(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED]]
    overlay = await connect_async(api)
    query = await overlay.sql("select 1")
    assert [row["x"] async for row in query] == [1, 2]
    assert [member.name for member in await overlay.members()] == ["a", "b"]
    assert (await query.bill()).query == "q1"


async def test_leaving_off_in_the_middle_lets_the_next_one_follow(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED], [frame(2, 2), FINISHED]]
    query = await (await connect_async(api)).query("q1")
    async for table in query.tables():
        assert table.num_rows == 1
        break
    await asyncio.sleep(0.2)
    assert (await query.to_arrow()).num_rows == 1


def test_what_is_offered_is_there() -> None:
    assert all(hasattr(sbon_cli, name) for name in sbon_cli.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = sbon_cli.nothing
