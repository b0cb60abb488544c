"""Fields of a planned operator that its host gets."""

from __future__ import annotations

import msgspec

from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import Computation, Needs, OperatorSpec, PlannedInput, TimeBuckets
from sbon_protocol.api.plan import PlannedOperator, Rate

SCHEMA = (Column("ts", "timestamp"), Column("n", "bigint"))
INPUTS = (
    PlannedInput(stream="q.b0", schema=SCHEMA, view=1, event_time="ts", lag_ms=5, ahead_ms=7, shared=True),
    PlannedInput(stream="q.b1", schema=SCHEMA),
)
BUCKETS = TimeBuckets(view=0, time="ts", copied_view=1, copied_time="ts", from_ms=0, upto_ms=50, width_ms=100)
PLANNED = PlannedOperator(
    id="q.o2",
    fragment="SELECT n FROM in0",
    inputs=INPUTS,
    schema=SCHEMA[1:],
    needs=Needs(cores=0.5, memory_mb=200.0, bandwidth_bytes_s=9.0),
    on_error="null",
    buckets=(BUCKETS,),
    blocks=True,
    unpaced=True,
    groups_per_batch=True,
    state_provider="rocksdb",
    rate=Rate(rows_s=1.0, bytes_s=8.0),
    signature="s",
    partitioned=True,
    residual=True,
)


def test_a_host_gets_the_whole_computation_and_the_nodes_of_its_inputs() -> None:
    spec = PLANNED.spec("q", {"q.b0": "paris", "q.b1": "rome"}, 3, ("q.sink",))
    for name in set(Computation.__struct_fields__) - {"inputs"}:
        assert getattr(spec, name) == getattr(PLANNED, name)
        field = next(field for field in msgspec.structs.fields(Computation) if field.name == name)
        assert getattr(spec, name) != field.default, "the test must not compare defaults"
    assert [input_.node for input_ in spec.inputs] == ["paris", "rome"]
    assert tuple(msgspec.convert(msgspec.to_builtins(input_), PlannedInput) for input_ in spec.inputs) == INPUTS
    assert (spec.query, spec.epoch, spec.reader, spec.readers) == ("q", 3, "partitioned", ("q.sink",))
    assert spec.has_state
    assert PLANNED.has_state


def test_a_stored_record_in_the_order_of_fields_of_before_is_read() -> None:
    spec = PLANNED.spec("q", {"q.b0": "paris", "q.b1": "rome"})
    before = dict(sorted(msgspec.to_builtins(spec).items(), reverse=True))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=OperatorSpec) == spec
