"""Calls about measurements, round-trip times and reachability; they are among those of :mod:`sbon_protocol.calls`."""

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.base import Call, Count, Line, Message, Name, Names, Quantity
from sbon_protocol.messages import Endpoint

MAX_SAMPLED_SOURCES = 256
MAX_SAMPLE_ROWS = 1000
MAX_SAMPLE_COLUMNS = 1000
MAX_MEASUREMENTS = 4096
MAX_TARGETS = 256
MAX_FINDINGS = 256

# -- measurements -----------------------------------------------------------------------------------------------------


class OperatorMeasurement(Message, frozen=True):
    """Measurements of an operator, by the canonical ``signature`` of its sub-plan; ``bytes_out`` are payload bytes.

    ``estimated`` is the selectivity that its plan expected without measurements, nil if that is not known.
    """

    signature: Line
    rows_in: Count
    rows_out: Count
    bytes_out: Count
    age_s: Quantity
    estimated: Quantity | None = None


class SourceMeasurement(Message, frozen=True):
    """A source's rate, 0 if it has no rate of its own, and the payload bytes of a row."""

    source: Line
    rows_s: Quantity
    row_bytes: Quantity


class KeepMeasurements(Call, frozen=True):
    """Send measurements from the query's leader to a node of its sources, for later plans."""

    operators: Annotated[tuple[OperatorMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]


class RecallMeasurements(Call, frozen=True):
    """Request the receiver's measurements of ``signatures`` and of its own ``sources``."""

    sources: Names
    signatures: Names


class Measurements(Message, frozen=True):
    sources: Annotated[tuple[SourceMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]
    operators: Annotated[tuple[OperatorMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]


class SampleRequest(Message, frozen=True):
    """Columns of a source of which a plan needs sampled values; others are not sent."""

    source: Line
    columns: Annotated[tuple[Line, ...], Meta(max_length=MAX_SAMPLE_COLUMNS)]


class SampleSources(Call, frozen=True):
    """Request samples of the receiver's own sources, of at most ``rows`` rows each."""

    requests: Annotated[tuple[SampleRequest, ...], Meta(max_length=MAX_SAMPLED_SOURCES)]
    rows: Annotated[int, Meta(ge=1, le=MAX_SAMPLE_ROWS)]


class SourceSample(Message, frozen=True):
    """Rows taken evenly from the first ``seen`` rows of a source.

    ``rows`` is the expected number of all rows, nil if it has no end or that is unknown; ``read_rows_s`` is the speed at which
    its node reads a source without a pace, else 0.
    """

    source: Line
    seen: Count
    rows: Quantity | None
    read_rows_s: Quantity
    columns: Annotated[
        dict[Line, Annotated[tuple[Any, ...], Meta(max_length=MAX_SAMPLE_ROWS)]], Meta(max_length=MAX_SAMPLE_COLUMNS)
    ]


class SourceSamples(Message, frozen=True):
    samples: Annotated[tuple[SourceSample, ...], Meta(max_length=MAX_SAMPLED_SOURCES)]


# -- round-trip times -------------------------------------------------------------------------------------------------


class MeasureRtt(Call, frozen=True):
    """Ask the receiver for its round-trip times to members; it pings each anew unless its value is at most ``max_age_s``
    old.

    Rejected with ``too-many-measurements`` while the receiver has pinged enough for others.
    """

    targets: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_TARGETS)]
    max_age_s: Quantity


class MeasuredRtt(Message, frozen=True):
    """The least of several pings, and their age; ``code`` and ``reason`` explain a missing value."""

    target: Name
    rtt_ms: Quantity = 0.0
    age_s: Quantity = 0.0
    code: Line = ""
    reason: Line = ""


class MeasuredRtts(Message, frozen=True):
    measured: Annotated[tuple[MeasuredRtt, ...], Meta(max_length=MAX_TARGETS)]


# -- reachability -----------------------------------------------------------------------------------------------------


class ReachBack(Call, frozen=True):
    """Ask the receiver to ping the caller, and to connect to it, at the address that it knows.

    Rejected with ``too-many-measurements`` if the caller has asked often.
    """


class ReachedBack(Message, frozen=True):
    """Result of that check; ``udp`` and ``tcp`` are the reasons of failures, empty on success."""

    version: Line
    wall_ms: Count
    seen: Endpoint
    known: Endpoint
    udp_ms: Quantity = 0.0
    tcp_ms: Quantity = 0.0
    udp: Line = ""
    tcp: Line = ""


class ExamineNode(Call, frozen=True):
    """Ask the receiver to examine itself, which takes some seconds.

    Rejected with ``too-many-measurements`` if the caller has asked often, and as a ReachBack.
    """


class NodeExamined(Message, frozen=True):
    """Findings of an examination, as maps."""

    findings: Annotated[tuple[Any, ...], Meta(max_length=MAX_FINDINGS)]
