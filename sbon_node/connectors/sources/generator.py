"""Generated rows: row n depends on (seed, n) alone, so resuming yields the same rows."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.interface import Chunk
from sbon_node.connectors.sources.context import SourceContext
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

MAX_CHUNK_ROWS = 4096


class Sequence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sequence", tag_field="kind"):
    """``start + step * row``, from row 0."""

    start: int = 0
    step: int = 1


class Uniform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="uniform", tag_field="kind"):
    """Uniform values between ``min`` and ``max``; whole numbers include both."""

    min: float = 0.0
    max: float = 1.0


class Normal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="normal", tag_field="kind"):
    mean: float = 0.0
    deviation: Annotated[float, Meta(ge=0)] = 1.0


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="choice", tag_field="kind"):
    """A value of ``values``, all equally likely; ``null`` among them makes NULLs."""

    values: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=10_000)]


class Timestamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="timestamp", tag_field="kind"):
    """Times from ``start`` (ISO 8601, UTC), ``step_ms`` apart (0: as ``rate`` says), less up to ``jitter_ms`` at random."""

    start: str = "2020-01-01T00:00:00Z"
    step_ms: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    jitter_ms: Annotated[int, Meta(ge=0, le=10**12)] = 0


ColumnRule = Sequence | Uniform | Normal | Choice | Timestamp


class GeneratorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``generator``."""

    columns: dict[str, ColumnRule] = {}
    """how columns are made, as {"x": {"kind": "uniform", "min": 0, "max": 9}}; others by their type"""
    rate: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    """rows a second, the source's rows_s by default; with rows, 0 for as fast as subscribers take them"""
    rows: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """rows after which the source ends; 0 for never"""
    seed: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    """other seeds make other rows"""


class GeneratorSource:
    """See :class:`sbon_node.connectors.interface.Source`. Its position is the number of the next row."""

    def __init__(self, context: SourceContext, options: GeneratorOptions) -> None:
        schema = context.schema
        self._options, self._schema = options, schema
        self._rate = context.declaration.expected_rows_s if options.rate is None else options.rate
        if not self._rate and not options.rows:
            hint = "set rate to rows a second, or rows to how many it shall make"
            message = "a generator without end needs a pace: rate and rows are both 0"
            raise SbonError("bad-option", message, where="options.rate", hint=hint)
        unknown = sorted(set(options.columns) - set(schema.names))
        if unknown:
            message, hint = f"the stream has no column {unknown[0]!r}", f"its columns: {', '.join(schema.names)}"
            raise SbonError("bad-option", message, where=f"options.columns.{unknown[0]}", hint=hint)
        self._rules = [options.columns.get(field.name) or _by_type(field, context.stream.event_time) for field in schema]
        self._step = max(1, min(MAX_CHUNK_ROWS, int(self._rate * context.settings.linger_s))) if self._rate else MAX_CHUNK_ROWS
        self._next = 0

    @property
    def finite(self) -> bool:
        return self._options.rows > 0

    @property
    def waits(self) -> bool:
        return self.finite

    @property
    def share(self) -> float | None:
        return min(1.0, self._next / self._options.rows) if self.finite else None

    def check(self) -> None:
        """Generate a row to check that every rule fits its column."""
        self._make(0, 1)

    async def open(self, position: bytes | None) -> None:
        self._next = int(position) if position else 0

    async def read(self) -> Chunk | None:
        first = self._next
        count = min(self._step, self._options.rows - first) if self.finite else self._step
        if count <= 0:
            return None
        self._next = first + count
        rows = self._make(first, count)
        due_s = self._next / self._rate if self._rate else None
        return Chunk(rows, b"%d" % self._next, lambda i: (first + i + 1, str(rows.slice(i, 1).to_pylist()[0])), due_s=due_s)

    async def close(self) -> None:
        pass

    def _make(self, first: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(first, first + count, dtype=np.int64)
        columns = [self._column(index, numbers) for index in range(len(self._rules))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, index: int, numbers: Numbers) -> pa.Array:
        field, rule = self._schema.field(index), self._rules[index]
        try:
            return self._values(index, rule, field.type, numbers)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            message = f"this rule makes no {type_of(field.type)}: {error}"
            raise SbonError("bad-option", message, where=f"options.columns.{field.name}") from error

    def _values(self, index: int, rule: ColumnRule, kind: pa.DataType, numbers: Numbers) -> pa.Array:
        seed = self._options.seed
        if isinstance(rule, Sequence):
            return _numbers(rule.start + rule.step * numbers, kind)
        if isinstance(rule, Choice):
            picks = _bits(seed, index, numbers) % np.uint64(len(rule.values))
            return pa.array(list(rule.values), kind).take(pa.array(picks))
        if isinstance(rule, Timestamp):
            return _times(rule, self._rate, _bits(seed, index, numbers), numbers).cast(kind)
        share = _share(_bits(seed, 2 * index + 1_000_000, numbers))
        if isinstance(rule, Uniform):
            if pa.types.is_integer(kind):
                return _numbers(np.floor(rule.min + share * (rule.max - rule.min + 1)), kind)
            return _numbers(rule.min + share * (rule.max - rule.min), kind)
        other = _share(_bits(seed, 2 * index + 1_000_001, numbers))
        normal = np.sqrt(-2.0 * np.log1p(-share)) * np.cos(2.0 * math.pi * other)  # Box and Muller, 1958
        return _numbers(rule.mean + rule.deviation * normal, kind)


def _bits(seed: int, stream: int, numbers: Numbers) -> Bits:
    """Return 64 random bits per number. SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) twice, over the stream and the number."""
    start = _mixed(np.array([seed & (2**64 - 1)], dtype=np.uint64) ^ _mixed(np.array([stream], dtype=np.uint64)))
    return _mixed(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start)


def _mixed(value: Bits) -> Bits:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _share(bits: Bits) -> npt.NDArray[np.float64]:
    """Map bits to floats in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind):
        values = np.rint(values).astype(np.int64)
    return pa.array(values).cast(kind)


def _times(rule: Timestamp, rate: float, bits: Bits, numbers: Numbers) -> pa.Array:
    start = datetime.fromisoformat(rule.start)
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    step_ms = rule.step_ms or (1000.0 / rate if rate else 1.0)
    micros = int(start.timestamp() * 1_000_000) + np.floor(numbers * (step_ms * 1000.0)).astype(np.int64)
    if rule.jitter_ms:
        micros = micros - 1000 * (bits % np.uint64(rule.jitter_ms + 1)).astype(np.int64)
    return pa.array(micros).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _by_type(field: pa.Field, event_time: str) -> ColumnRule:
    kind = field.type
    if pa.types.is_timestamp(kind) or field.name == event_time:
        return Timestamp()
    if pa.types.is_integer(kind):
        return Sequence()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Uniform()
    if pa.types.is_boolean(kind):
        return Choice(values=(True, False))
    if pa.types.is_string(kind):
        return Choice(values=("a", "b", "c", "d", "e"))
    message = f"a rule is needed for this column of type {type_of(kind)}"
    hint = 'for instance {"kind": "choice", "values": [...]}'
    raise SbonError("bad-option", message, where=f"options.columns.{field.name}", hint=hint)
