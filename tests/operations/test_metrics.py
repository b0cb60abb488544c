"""The metrics: the code and the documentation describe every one, and it has the node's figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.api.routes.metrics import MAX_QUERIES, MAX_SOURCES, METRICS, Scrape, page, samples
from sbon_node.api.server.serving import Answered
from sbon_node.operations import metrics_snapshot
from sbon_node.operations.metrics_snapshot import NodeMetrics, behind_s
from sbon_protocol.api.durability import BY_FOLLOWER
from sbon_protocol.api.nodes import Readiness
from sbon_protocol.errors import SbonError
from tests.api.scripted_operations import ALONE, figures, source_report
from tests.nodes.clusters import in_cluster

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(r"^\| `(sbon_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)


def scrape(of: NodeMetrics | None = None) -> Scrape:
    requests = {("GET", "/v1/status", 200): Answered(60, 61.0)}
    return Scrape(of or figures(), Readiness(ready=True, reasons=(ALONE,)), requests, 62, 63)


def test_every_metric_has_its_line_in_the_documentation_and_no_other_has() -> None:
    written = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in ROW.findall(DOCS.read_text())
    ]
    assert written == [(name, told.kind, told.labels, told.help) for name, told in METRICS.items()]


def test_every_described_metric_is_reported_with_its_labels() -> None:
    told = [(name, labels) for name, labels, _ in samples(scrape())]
    assert {name for name, _ in told} == set(METRICS)
    assert [(name, labels) for name, labels in told if len(labels) != len(METRICS[name].labels)] == []
    assert len(set(told)) == len(told)


def test_the_page_is_one_prometheus_reads_and_carries_the_figures() -> None:
    found = {}
    for family in text_string_to_metric_families(page(scrape()).decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = (sample.value, family.type)
    flow = (("direction", "sent"), ("kind", "ping"))
    source = (("source", "s0"), ("stream", "flights"))
    operator = (("operator", "q1.1"), ("query", "q1"))
    expected = {
        ("sbon_members", (("state", "away"),)): (1, "gauge"),
        ("sbon_coordinate_height_seconds", ()): (0.004, "gauge"),
        ("sbon_datagrams_total", flow): (8, "counter"),
        ("sbon_datagram_bytes_total", flow): (9, "counter"),
        ("sbon_frame_bytes_total", (("direction", "sent"), ("kind", "data"))): (13, "counter"),
        ("sbon_refused_total", (("kind", "datagram-malformed"),)): (14, "counter"),
        ("sbon_subscriptions", (("state", "active"),)): (25, "gauge"),
        ("sbon_link_sent_bytes_total", ()): (20, "counter"),
        ("sbon_source_late_rows_total", source): (35, "counter"),
        ("sbon_source_lost_rows_total", source): (38, "counter"),
        ("sbon_operator_rows_in_total", operator): (101, "counter"),
        ("sbon_operator_batch_seconds", operator): (1.06, "gauge"),
        ("sbon_operator_skipped_rows_total", operator): (107, "counter"),
        ("sbon_backups", (("state", "behind"),)): (1, "gauge"),
        ("sbon_engine", (("state", "failed"),)): (1, "gauge"),
        ("sbon_engine", (("state", "running"),)): (0, "gauge"),
        ("sbon_sinks", (("state", "paused"),)): (39, "gauge"),
        ("sbon_sinks", (("state", "running"),)): (0, "gauge"),
        ("sbon_queries_failed_total", ()): (51, "counter"),
        ("sbon_query_reasons", (("kind", "sink-paused"),)): (52, "gauge"),
        ("sbon_query_reasons", (("kind", "no-answer"),)): (0, "gauge"),
        ("sbon_queries_without_record", (("state", "lost"),)): (53, "gauge"),
        ("sbon_query_behind_seconds", (("query", "q1"),)): (54.5, "gauge"),
        ("sbon_reason", (("code", "alone"), ("weight", "impaired"))): (1, "gauge"),
        ("sbon_pairs_measured_total", (("outcome", "failed"),)): (43, "counter"),
        ("sbon_api_requests_total", (("method", "GET"), ("route", "/v1/status"), ("status", "200"))): (60, "counter"),
        ("sbon_api_connections", ()): (63, "gauge"),
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["process_resident_memory_bytes", ()][0] > 1e6


def test_however_many_sources_there_are_labels_stay_few_and_no_row_is_forgotten() -> None:
    many = figures()._replace(sources=[source_report(f"s{number}", rows=number) for number in range(MAX_SOURCES + 50)])
    rows = {labels: value for name, labels, value in samples(scrape(many)) if name == "sbon_source_rows_total"}
    assert len(rows) == MAX_SOURCES + 1
    assert rows["other", "other"] == sum(range(MAX_SOURCES, MAX_SOURCES + 50))
    assert sum(rows.values()) == sum(range(MAX_SOURCES + 50))


def test_the_queries_that_are_most_behind_have_their_own_labels_and_the_others_one() -> None:
    behind = {f"q{number}": float(number) for number in range(MAX_QUERIES + 50)}
    scraped = samples(scrape(figures()._replace(behind_s=behind)))
    found = [(labels, value) for name, labels, value in scraped if name == "sbon_query_behind_seconds"]
    assert len(found) == MAX_QUERIES + 1
    assert (found[0], found[-1]) == ((("q149",), 149.0), (("_other",), 49.0))


def test_rows_that_wait_count_for_the_query_that_has_to_read_them() -> None:
    oldest_ms = {"q-abcdef.o1#0": 7_000, "q-abcdef.sink": 2_000, "q-abcdef.o1#0~move": 1_000, "r-abcdef.sink3": 9_500}
    assert behind_s(oldest_ms, 10_000) == {"q": 8.0, "r": 0.5}


def test_recovered_operators_are_counted_by_what_has_gone_on() -> None:
    ((query, operator), *_) = figures().operators
    assert operator.backup is not None
    backups = [
        msgspec.structs.replace(operator.backup, recovered=how)
        for how in ("", BY_FOLLOWER, "from its stored checkpoint: the follower failed")
    ]
    several = [(query, msgspec.structs.replace(operator, backup=backup)) for backup in backups]
    found = [
        sample[1:] for sample in samples(scrape(figures()._replace(operators=several))) if sample[0] == "sbon_recovered_operators"
    ]
    assert found == [(("follower",), 1), (("checkpoint",), 1)]


def test_a_node_whose_disk_is_broken_has_all_metrics_but_those_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread() -> dict[str, int]:
        raise SbonError("disk-error", "disk I/O error", where="outbox.db")

    def gone(folder: Path) -> os.statvfs_result:
        raise FileNotFoundError(2, "No such file or directory", str(folder))

    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.at("a").daemon
        daemon.context.outbox.oldest_waiting_ms = unread
        monkeypatch.setattr(metrics_snapshot.os, "statvfs", gone)
        snapshot: NodeMetrics = daemon.operations.metrics_snapshot()
        told = {name: value for name, labels, value in samples(scrape(snapshot)) if not labels}
        assert [name for name in told if "disk" in name or "outbox_bytes" in name or "dead_letter" in name] == []
        assert (snapshot.behind_s, told["sbon_tasks"] > 1) == ({}, True)
        assert daemon.operations.readiness().reasons[0].code == "data-dir"
        monkeypatch.undo()

    in_cluster(tmp_path, "ab", test)
