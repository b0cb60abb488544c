"""Which joins keep blocks of rows, and their fragments over pairs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sbon_node.engine.spark.operators.blocks import BlockedJoin
from sbon_node.engine.spark.operators.interval_joins import LEAST_SPAN_MS, blocked_join, over_pairs
from sbon_node.model.schema import parse_schema
from sbon_protocol.api.operators import InputSpec, OperatorSpec, TimeBuckets

SCHEMA = parse_schema("ts timestamp, k string, n bigint, f double, d decimal(9,2), later timestamp")
BUCKETS = TimeBuckets(view=0, time="ts", copied_view=1, copied_time="ts", from_ms=-1000, upto_ms=5000, width_ms=12_000)
NEAR = "in1.ts BETWEEN in0.ts - INTERVAL '5' SECOND AND in0.ts + INTERVAL '1' SECOND"
SELECT = "SELECT in0.ts, in0.n + in1.n AS n FROM in0"
JOIN = f"{SELECT} JOIN in1 ON in0.k = in1.k AND ({NEAR})"


def spec(fragment: str = JOIN, **changes: Any) -> OperatorSpec:
    inputs = tuple(InputSpec(stream=f"s{view}", node="n", schema=SCHEMA, view=view, event_time="ts") for view in (0, 0, 1))
    made = OperatorSpec(id="q.o1", query="q", fragment=fragment, inputs=inputs, schema=(), buckets=(BUCKETS,), blocks=True)
    return replace(made, reader="partitioned", **changes)


def test_the_interval_is_that_of_left_less_right() -> None:
    join = BlockedJoin(
        views=(0, 1),
        times=("ts", "ts"),
        keys=(("k", "k"),),
        least_us=-1_000_000,
        most_us=5_000_000,
        span_us=LEAST_SPAN_MS * 1000,
    )
    assert blocked_join(spec()) == join
    copied_left = TimeBuckets(view=1, time="ts", copied_view=0, copied_time="ts", from_ms=-5000, upto_ms=1000, width_ms=12_000)
    assert blocked_join(spec(buckets=(copied_left,))) == join
    swapped = JOIN.replace("FROM in0 JOIN in1", "FROM in1 AS in0 JOIN in0 AS in1")
    of_swapped = blocked_join(spec(swapped, buckets=(replace(BUCKETS, view=1, copied_view=0),)))
    assert of_swapped == replace(join, views=(1, 0))


def test_a_block_spans_an_interval_that_is_longer_than_a_minute() -> None:
    join = blocked_join(spec(buckets=(replace(BUCKETS, upto_ms=3_599_000, width_ms=7_200_000),)))
    assert join is not None
    assert join.span_us == 3_600_000_000


@pytest.mark.parametrize(
    "condition, keys",
    [
        ("in1.n = in0.n", (("n", "n"),)),
        ("in0.k = in1.k AND (in0.d = in1.d AND in0.n < in1.n)", (("k", "k"), ("d", "d"))),
        ("in0.k = in1.k AND in0.f = in1.f", (("k", "k"),)),
        ("in0.f = in1.f", None),
        ("in0.k = in1.n", None),
        ("in0.k = in0.k", None),
        ("in0.k <=> in1.k", None),
        ("upper(in0.k) = in1.k", None),
        ("in0.k = in1.k OR in0.n = in1.n", None),
    ],
)
def test_keys_are_plain_columns_of_both_sides_and_one_type(condition: str, keys: tuple[tuple[str, str], ...] | None) -> None:
    join = blocked_join(spec(f"{SELECT} JOIN in1 ON ({condition}) AND ({NEAR})"))
    assert (join.keys if join is not None else None) == keys


@pytest.mark.parametrize(
    "changes",
    [
        {"blocks": False},
        {"on_error": "skip"},
        {"buckets": ()},
        {"buckets": (replace(BUCKETS, time="later"),)},
        {"fragment": JOIN.replace("JOIN", "LEFT JOIN")},
        {"fragment": JOIN.replace("JOIN", "RIGHT JOIN")},
        {"fragment": JOIN.replace("JOIN", "LEFT SEMI JOIN")},
        {"fragment": f"SELECT count(*) AS n FROM ({JOIN}) AS joined GROUP BY ts"},
        {"fragment": JOIN.replace("JOIN in1", "JOIN (SELECT * FROM in1) AS in1")},
    ],
    ids=["small batches", "skip", "no buckets", "another time", "left", "right", "semi", "aggregate", "nested"],
)
def test_other_joins_keep_rows(changes: dict[str, Any]) -> None:
    assert blocked_join(spec()) is not None
    assert blocked_join(replace(spec(), **changes)) is None


def test_an_operator_of_before_blocks_continues_without_them() -> None:
    assert not OperatorSpec(id="q.o1", query="q", fragment=JOIN, inputs=(), schema=()).blocks


def test_the_condition_of_a_join_is_one_of_its_pairs() -> None:
    condition = f"in0.k = in1.k AND ({NEAR})"
    assert over_pairs(JOIN) == f"{SELECT.replace('in0.ts', 'in0.ts')[: -len('in0')]}pairs WHERE {condition}"
    text = over_pairs(f"{SELECT} JOIN in1 ON in0.k = in1.k OR in0.n = 1 WHERE in0.n = 2 OR in1.n = 3")
    assert text.endswith("FROM pairs WHERE (in0.k = in1.k OR in0.n = 1) AND (in0.n = 2 OR in1.n = 3)")
