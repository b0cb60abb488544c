"""Writes dashboards/sbon.json: python deploy/grafana/make.py. A test holds the file to this, and its metrics to the node's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "dashboards" / "sbon.json"
WIDTH, HEIGHT = 8, 7
COLUMNS = 24 // WIDTH

SOURCE = {"type": "prometheus", "uid": "prometheus"}
NODE = '{instance=~"$node"}'

Query = tuple[str, str]
"""An expression and the legend of its series."""

ROWS: tuple[tuple[str, tuple[tuple[str, str, tuple[Query, ...]], ...]], ...] = (
    (
        "Cluster",
        (
            ("Nodes that are ready", "short", ((f"sum(sbon_ready{NODE})", "ready"), (f"count(up{NODE})", "asked"))),
            ("Members as each node sees them", "short", ((f'sbon_members{NODE[:-1]}, state="alive"}}', "{{instance}}"),)),
            ("Reasons against readiness", "short", ((f"sum by (instance, code) (sbon_reason{NODE})", "{{instance}} {{code}}"),)),
        ),
    ),
    (
        "Queries and operators",
        (
            ("Queries", "short", ((f"sum by (state) (sbon_queries{NODE})", "{{state}}"),)),
            ("Operators", "short", ((f"sum by (instance, state) (sbon_operators{NODE})", "{{instance}} {{state}}"),)),
            ("Backups of operators", "short", ((f"sum by (instance, state) (sbon_backups{NODE})", "{{instance}} {{state}}"),)),
            ("Rows out of operators", "rowsps", ((f"rate(sbon_operator_rows_out_total{NODE}[1m])", "{{operator}}"),)),
            ("How long batches take", "s", ((f"sbon_operator_batch_seconds{NODE}", "{{operator}}"),)),
            ("Engine starts in ten minutes", "short", ((f"increase(sbon_engine_starts_total{NODE}[10m])", "{{instance}}"),)),
            ("Rows from sources", "rowsps", ((f"sum by (stream) (rate(sbon_source_rows_total{NODE}[1m]))", "{{stream}}"),)),
        ),
    ),
    (
        "Streams and links",
        (
            ("Bytes sent to subscribers", "Bps", ((f"rate(sbon_link_sent_bytes_total{NODE}[1m])", "{{instance}}"),)),
            ("Bytes that subscribers have yet to receive", "bytes", ((f"sbon_outbox_unreceived_bytes{NODE}", "{{instance}}"),)),
            (
                "Credit in use",
                "percentunit",
                ((f"sbon_link_buffered_bytes{NODE} / sbon_link_credit_bytes{NODE}", "{{instance}}"),),
            ),
            (
                "Rows lost, a second",
                "rowsps",
                (
                    (f"sum by (stream) (rate(sbon_source_late_rows_total{NODE}[5m]))", "{{stream}} late"),
                    (f"sum by (stream) (rate(sbon_source_bad_rows_total{NODE}[5m]))", "{{stream}} bad"),
                    (f"sum by (stream) (rate(sbon_source_lost_rows_total{NODE}[5m]))", "{{stream}} fallen behind"),
                ),
            ),
            ("Links", "short", ((f"sum by (instance, state) (sbon_links{NODE})", "{{instance}} {{state}}"),)),
            ("Outbox on disk", "bytes", ((f"sbon_outbox_bytes{NODE}", "{{instance}}"),)),
        ),
    ),
    (
        "Overlay",
        (
            ("Relative error of coordinates", "percentunit", ((f"sbon_coordinate_error{NODE}", "{{instance}}"),)),
            (
                "Datagrams sent",
                "pps",
                ((f'sum by (kind) (rate(sbon_datagrams_total{NODE[:-1]}, direction="sent"}}[1m]))', "{{kind}}"),),
            ),
            ("Refused, dropped or broken", "ops", ((f"sum by (kind) (rate(sbon_refused_total{NODE}[5m]))", "{{kind}}"),)),
        ),
    ),
    (
        "Processes",
        (
            ("Memory of the daemon", "bytes", ((f"process_resident_memory_bytes{NODE}", "{{instance}}"),)),
            ("CPU of the daemon, cores", "short", ((f"rate(process_cpu_seconds_total{NODE}[1m])", "{{instance}}"),)),
            ("Free on disk", "bytes", ((f"sbon_disk_free_bytes{NODE}", "{{instance}}"),)),
            (
                "Requests of the API",
                "reqps",
                ((f"sum by (route, status) (rate(sbon_api_requests_total{NODE}[1m]))", "{{route}} {{status}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, of_row in ROWS:
        panels.append({"type": "row", "title": title, "id": len(panels) + 1, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for number, (name, unit, queries) in enumerate(of_row):
            place = {"x": number % COLUMNS * WIDTH, "y": y + number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(len(panels) + 1, name, unit, queries, place))
        y += -(-len(of_row) // COLUMNS) * HEIGHT
    return {
        "uid": "sbon",
        "title": "sbon",
        "tags": ["sbon"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_node_variable()]},
        "panels": panels,
    }


def _panel(number: int, title: str, unit: str, queries: tuple[Query, ...], place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for index, (expression, legend) in enumerate(queries)
    ]
    defaults = {"unit": unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}}
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def _node_variable() -> dict[str, Any]:
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(sbon_build_info, instance)", "refId": "node"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
