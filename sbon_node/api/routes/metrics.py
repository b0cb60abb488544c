"""``GET /metrics``: a node's metrics snapshot as Prometheus reads it.

Names, labels and meanings of metrics are in ``metrics.toml``, which docs/operations.md repeats. Labels take few values: states,
kinds and routes are fixed; ``engine.max_operators`` and ``backups.most`` bound operators, and sources beyond
:data:`MAX_SOURCES` are counted together, as are queries that are less behind than :data:`MAX_QUERIES` others.
"""

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sbon_node.api.server.serving import Answered
from sbon_node.connectors.sources.runner import SourceCounts
from sbon_node.hosting.sinks.open_sinks import OPENING
from sbon_node.operations.metrics_snapshot import NodeMetrics
from sbon_node.queries.describing.waits import KINDS
from sbon_protocol.api.delivery import FOLLOW
from sbon_protocol.api.durability import BY_FOLLOWER
from sbon_protocol.api.nodes import Readiness
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states import sink_states
from sbon_protocol.api.streams import SourceInfo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SOURCES, MAX_QUERIES = 100, 100
OTHER, OTHER_QUERIES = "other", "_other"  # no name of a query has an underscore
ENGINE_STATES = ("idle", "starting", "running", "failed")
SINK_STATES = (*sink_states.LIFECYCLE.states, FOLLOW, OPENING)

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]


class Labelled(msgspec.Struct, frozen=True):
    """A metric: counters begin at 0 when the node starts, but those of sources, which its data directory keeps."""

    kind: Literal["counter", "gauge"]
    help: str
    labels: Labels = ()


METRICS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=dict[str, Labelled])
"""Every metric by its name, in the order of the page."""


class Scrape(NamedTuple):
    """All that the metrics are made of."""

    snapshot: NodeMetrics
    readiness: Readiness
    requests: Mapping[tuple[str, str, int], Answered]
    under_way: int
    connections: int


def samples(scrape: Scrape) -> Iterator[Sample]:
    """Name, labels and value of every sample. Pure."""
    snapshot = scrape.snapshot
    yield "sbon_build_info", (snapshot.version, platform.python_version()), 1
    yield "sbon_ready", (), float(scrape.readiness.ready)
    for reason in scrape.readiness.reasons:
        yield "sbon_reason", (reason.code, reason.weight), 1
    yield from _by("sbon_members", snapshot.members)
    yield "sbon_membership_health", (), snapshot.health
    yield "sbon_coordinate_error", (), snapshot.coordinate.error
    yield "sbon_coordinate_height_seconds", (), snapshot.coordinate.height / 1000
    yield "sbon_coordinate_load_seconds", (), snapshot.coordinate.load / 1000
    yield "sbon_coordinate_neighbours", (), snapshot.neighbours
    for (carrier, direction, kind), flow in snapshot.traffic.items():
        yield f"sbon_{carrier}s_total", (direction, kind), flow.messages
        yield f"sbon_{carrier}_bytes_total", (direction, kind), flow.bytes
    yield from _by("sbon_refused_total", snapshot.refused)
    yield from _streams(snapshot)
    yield from _links(snapshot)
    yield from _by("sbon_sources", Counter(report.state.partition(":")[0] for report in snapshot.sources))
    for labels, counts, lost in _sources(snapshot.sources):
        for name, value in msgspec.structs.asdict(counts).items():
            yield f"sbon_source_{name}{'' if name in ('rows', 'bytes') else '_rows'}_total", labels, value
        yield "sbon_source_lost_rows_total", labels, lost
    yield from _by("sbon_operators", Counter(operator.state for _, operator in snapshot.operators))
    yield from _by("sbon_backups", Counter(one.backup.state for _, one in snapshot.operators if one.backup is not None))
    recovered = [one.backup.recovered for _, one in snapshot.operators if one.backup is not None and one.backup.recovered]
    by_follower = sum(how == BY_FOLLOWER for how in recovered)
    yield "sbon_recovered_operators", ("follower",), by_follower
    yield "sbon_recovered_operators", ("checkpoint",), len(recovered) - by_follower
    for query, operator in snapshot.operators:
        yield from _operator(query, operator)
    yield from _by("sbon_sinks", {**dict.fromkeys(SINK_STATES, 0), **snapshot.sinks})
    yield from _by("sbon_queries", snapshot.queries)
    yield "sbon_queries_failed_total", (), snapshot.queries_failed
    yield from _by("sbon_queries_without_record", snapshot.queries_without_record)
    yield from _by("sbon_query_reasons", {kind: snapshot.query_reasons.get(kind, 0) for kind in KINDS})
    yield from _behind(snapshot.behind_s)
    for state in ENGINE_STATES:
        yield "sbon_engine", (state,), float(snapshot.engine.partition(":")[0] == state)
    yield "sbon_engine_starts_total", (), snapshot.engine_starts
    yield "sbon_engine_replacements_total", (), snapshot.engine_replacements
    yield "sbon_engine_replacement_seconds", (), snapshot.engine_replacement_s
    yield "sbon_engine_recovery_seconds", (), snapshot.engine_recovery_s
    yield "sbon_pairs_measured_total", ("measured",), snapshot.pairs_measured
    yield "sbon_pairs_measured_total", ("failed",), snapshot.pairs_failed
    yield "sbon_pairs_under_way", (), snapshot.pairs_under_way
    yield "sbon_pairs_known", (), snapshot.pairs_known
    for (method, route, status), answered in scrape.requests.items():
        yield "sbon_api_requests_total", (method, route, str(status)), answered.requests
        yield "sbon_api_request_seconds_total", (method, route, str(status)), answered.seconds
    yield "sbon_api_under_way", (), scrape.under_way
    yield "sbon_api_connections", (), scrape.connections
    if snapshot.disk is not None:
        yield "sbon_outbox_bytes", (), snapshot.disk.outbox_bytes
        yield "sbon_dead_letter_bytes", (), snapshot.disk.dead_letter_bytes
        yield "sbon_disk_free_bytes", (), snapshot.disk.free_bytes
        yield "sbon_disk_free_inodes", (), snapshot.disk.free_inodes
    yield "sbon_tasks", (), snapshot.tasks


def _streams(snapshot: NodeMetrics) -> Iterator[Sample]:
    outbox = snapshot.outbox
    yield "sbon_streams", ("source",), outbox.sources
    yield "sbon_streams", ("operator",), outbox.operators
    yield "sbon_stream_frames_total", (), outbox.shown_frames
    yield "sbon_stream_rows_total", (), outbox.shown_rows
    yield "sbon_stream_bytes_total", (), outbox.shown_bytes
    yield "sbon_outbox_unreceived_bytes", (), outbox.unreceived_bytes
    yield "sbon_outbox_paused_streams", (), outbox.paused
    yield "sbon_subscriptions", ("active",), outbox.subscriptions - outbox.failed_subscriptions
    yield "sbon_subscriptions", ("failed",), outbox.failed_subscriptions
    yield "sbon_links_served", (), snapshot.served
    yield "sbon_link_sent_frames_total", (), outbox.sent_frames
    yield "sbon_link_sent_rows_total", (), outbox.sent_rows
    yield "sbon_link_sent_bytes_total", (), outbox.sent_bytes
    yield "sbon_link_sent_credit_bytes", (), snapshot.outstanding_bytes


def _links(snapshot: NodeMetrics) -> Iterator[Sample]:
    yield from _by("sbon_links", snapshot.links.states)
    yield "sbon_link_credit_bytes", (), snapshot.links.credit_bytes
    yield "sbon_link_buffered_bytes", (), snapshot.links.buffered_bytes
    yield "sbon_link_spilled_bytes", (), snapshot.links.spilled_bytes


def _sources(reports: list[SourceInfo]) -> Iterator[tuple[Labels, SourceCounts, int]]:
    """Each source's labels, counts and lost rows; those beyond the bound together."""
    for report in reports[:MAX_SOURCES]:
        yield (report.source.stream, report.source.name), _counts(report), report.dropped
    rest = reports[MAX_SOURCES:]
    if rest:
        counts = [msgspec.structs.asdict(_counts(report)) for report in rest]
        together = SourceCounts(**{name: sum(count[name] for count in counts) for name in counts[0]})
        yield (OTHER, OTHER), together, sum(report.dropped for report in rest)


def _counts(report: SourceInfo) -> SourceCounts:
    return SourceCounts(**{name: getattr(report, name) for name in SourceCounts.__struct_fields__})


def _operator(query: str, operator: OperatorInfo) -> Iterator[Sample]:
    labels, stats = (query, operator.id), operator.stats or OperatorStats()
    for name in ("rows_in", "rows_out", "bytes_in", "bytes_out", "batches"):
        yield f"sbon_operator_{name}_total", labels, getattr(stats, name)
    yield "sbon_operator_skipped_rows_total", labels, operator.skipped
    yield "sbon_operator_batch_seconds", labels, stats.batch_ms / 1000


def _behind(behind_s: Mapping[str, float]) -> Iterator[Sample]:
    """Each query's delay, the greatest first; those beyond the bound together."""
    most = sorted(behind_s.items(), key=lambda one: (-one[1], one[0]))
    for query, seconds in most[:MAX_QUERIES]:
        yield "sbon_query_behind_seconds", (query,), seconds
    for _, seconds in most[MAX_QUERIES : MAX_QUERIES + 1]:
        yield "sbon_query_behind_seconds", (OTHER_QUERIES,), seconds


def _by(name: str, counts: Mapping[str, int]) -> Iterator[Sample]:
    for label, count in counts.items():
        yield name, (label,), count


class _OneScrape(Collector):
    """Families of the samples of one moment."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterable[Metric]:
        kinds: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        families: dict[str, Any] = {name: kinds[one.kind](name, one.help, labels=one.labels) for name, one in METRICS.items()}
        for name, labels, value in samples(self._scrape):
            families[name].add_metric(labels, value)
        return families.values()


def page(scrape: Scrape) -> bytes:
    """Return the text that Prometheus reads, with metrics of the process; a registry of its own, as nodes may share a process."""
    registry = CollectorRegistry()
    registry.register(_OneScrape(scrape))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
