"""``GET /metrics``: a node's metrics snapshot as Prometheus reads it.

Names, labels and meanings of metrics are in :data:`METRICS`, which docs/operations.md repeats. Labels take few values: states,
kinds and routes are fixed; ``engine.max_operators`` and ``backups.most`` bound operators, and sources beyond
:data:`MAX_SOURCES` are counted together, as are queries that are less behind than :data:`MAX_QUERIES` others.
"""

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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


class Labelled(NamedTuple):
    """A metric: counters begin at 0 when the node starts, but those of sources, which its data directory keeps."""

    kind: Literal["counter", "gauge"]
    labels: Labels
    help: str


def counter(help_: str, *labels: str) -> Labelled:
    return Labelled("counter", labels, help_)


def gauge(help_: str, *labels: str) -> Labelled:
    return Labelled("gauge", labels, help_)


METRICS: Mapping[str, Labelled] = {
    "sbon_build_info": gauge("always 1; the labels give the versions", "version", "python"),
    "sbon_ready": gauge("1 if /readyz answers 200, else 0"),
    "sbon_reason": gauge("1 for each reason that /readyz gives", "code", "weight"),
    "sbon_members": gauge("members this node knows, itself included: alive, suspect, away, dead, left", "state"),
    "sbon_membership_health": gauge("health score of this node itself, 0 for healthy; the greater, the slower it probes"),
    "sbon_coordinate_error": gauge("estimated relative error of this node's coordinate; 1 if unknown"),
    "sbon_coordinate_height_seconds": gauge("height of this node's coordinate, which adds to every latency"),
    "sbon_coordinate_load_seconds": gauge("this node's coordinate in the load dimension"),
    "sbon_coordinate_neighbours": gauge("neighbours that this node measures for its coordinate"),
    "sbon_datagrams_total": counter("datagrams sent and received, by kind of message", "direction", "kind"),
    "sbon_datagram_bytes_total": counter("bytes of these datagrams, without the system's headers", "direction", "kind"),
    "sbon_frames_total": counter("frames on TCP connections with peers, by kind of message", "direction", "kind"),
    "sbon_frame_bytes_total": counter("bytes of these frames", "direction", "kind"),
    "sbon_refused_total": counter("refused, dropped or broken messages and connections: the counters of sbon status", "kind"),
    "sbon_streams": gauge("streams in the outbox: of sources, of operators", "kind"),
    "sbon_stream_frames_total": counter("frames this node's streams have made visible"),
    "sbon_stream_rows_total": counter("rows in them"),
    "sbon_stream_bytes_total": counter("bytes of payload in them"),
    "sbon_outbox_bytes": gauge("size of the outbox's files"),
    "sbon_outbox_unreceived_bytes": gauge("bytes that subscribers have yet to receive"),
    "sbon_outbox_paused_streams": gauge("streams whose producer waits for subscribers"),
    "sbon_subscriptions": gauge("subscriptions to streams of this node: active, or failed by falling behind", "state"),
    "sbon_links_served": gauge("connections on which subscribers are served now"),
    "sbon_link_sent_frames_total": counter("frames sent to subscribers, resent ones included"),
    "sbon_link_sent_rows_total": counter("rows in them"),
    "sbon_link_sent_bytes_total": counter("bytes of payload in them, from which network usage is computed"),
    "sbon_link_sent_credit_bytes": gauge("credit in use: what subscribers have been sent and still hold"),
    "sbon_links": gauge("links that bring streams to this node: connecting, connected, failed, closed", "state"),
    "sbon_link_credit_bytes": gauge("bytes these links may hold in memory"),
    "sbon_link_buffered_bytes": gauge("bytes that these links hold in memory"),
    "sbon_link_spilled_bytes": gauge("bytes held back on disk, since their inputs are ahead of others"),
    "sbon_sources": gauge("sources of this node: idle, running, paused, ended, failed", "state"),
    "sbon_source_rows_total": counter("rows a source has written", "stream", "source"),
    "sbon_source_bytes_total": counter("bytes of payload of these rows", "stream", "source"),
    "sbon_source_late_rows_total": counter("rows dropped: later than the stream allows", "stream", "source"),
    "sbon_source_bad_rows_total": counter("unreadable rows, put in the dead-letter file", "stream", "source"),
    "sbon_source_too_large_rows_total": counter("rows over the limit, put in the dead-letter file", "stream", "source"),
    "sbon_source_lost_rows_total": counter(
        "rows of a live source that subscribers fell too far behind to get", "stream", "source"
    ),
    "sbon_dead_letter_bytes": gauge("size of all dead-letter files"),
    "sbon_operators": gauge("operators of this node: starting, running, stopped, failed", "state"),
    "sbon_backups": gauge(
        "replicated operators of this node by the state of their backup: missing, copying, current, behind", "state"
    ),
    "sbon_recovered_operators": gauge(
        "operators that this node took over as their backup since it started: by follower, or by checkpoint", "by"
    ),
    "sbon_operator_rows_in_total": counter("rows an operator has read", "query", "operator"),
    "sbon_operator_rows_out_total": counter("rows it has written", "query", "operator"),
    "sbon_operator_bytes_in_total": counter("bytes of payload it has read", "query", "operator"),
    "sbon_operator_bytes_out_total": counter("bytes of payload it has written", "query", "operator"),
    "sbon_operator_skipped_rows_total": counter(
        "rows it has left out because an expression raised an error for them", "query", "operator"
    ),
    "sbon_operator_batches_total": counter("batches it has run", "query", "operator"),
    "sbon_operator_batch_seconds": gauge("mean duration of its batches, weighted towards newer ones", "query", "operator"),
    "sbon_sinks": gauge(
        "sinks of this node: running, paused, finished, opening, and those that a follower reads (follow)", "state"
    ),
    "sbon_queries": gauge("records of queries this node holds: placing, running, finished, failed, stopped", "state"),
    "sbon_queries_failed_total": counter("queries that this node has recorded as failed, without refused ones"),
    "sbon_queries_without_record": gauge(
        "queries with parts here whose record is lost, or unreachable: most of its keepers are away", "state"
    ),
    "sbon_query_reasons": gauge(
        "queries that this node leads and that may not progress, by the kind of reason; see below", "kind"
    ),
    "sbon_query_behind_seconds": gauge(
        "age of the oldest rows here that a query has yet to finish with; _other is the most of all others", "query"
    ),
    "sbon_engine": gauge("1 for the engine's state, 0 for the others: idle, starting, running, failed", "state"),
    "sbon_engine_starts_total": counter("starts of the engine's process; each but the first followed a death or a replacement"),
    "sbon_engine_replacements_total": counter("full engines that a new one has replaced"),
    "sbon_engine_replacement_seconds": gauge("time for which the last replacement has paused operators"),
    "sbon_engine_recovery_seconds": gauge("time until operators ran again after the engine's last death"),
    "sbon_pairs_measured_total": counter("pairs of nodes measured on request: measured, failed", "outcome"),
    "sbon_pairs_under_way": gauge("pairs that are being measured"),
    "sbon_pairs_known": gauge("pairs whose measurement is fresh"),
    "sbon_api_requests_total": counter("requests the HTTP API has answered", "method", "route", "status"),
    "sbon_api_request_seconds_total": counter("seconds they took; event streams until their end", "method", "route", "status"),
    "sbon_api_under_way": gauge("requests that are being answered, event streams included"),
    "sbon_api_connections": gauge("open connections of the HTTP API"),
    "sbon_disk_free_bytes": gauge("free space on the disk of the data directory"),
    "sbon_disk_free_inodes": gauge("files that still fit on it"),
    "sbon_tasks": gauge("tasks of the event loop"),
}


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
