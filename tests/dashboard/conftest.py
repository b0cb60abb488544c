"""One small cluster with a query that runs, and a browser, for all tests of the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import Column, SinkSpec, SourceDeclaration, StreamDeclaration, Submission
from tests.browsers import opened_browser
from tests.dashboard.looking import looking

QUERY = "warm"
SUSPICION_MAX_FACTOR = 1.0
"""A death is known as soon as the least time for suspicion is over."""
LINGER_S = 0.5
"""Few frames a second, and so few batches: they cost more than the pages."""
MARKUP = "<img src=x onerror=alert(1)>"
"""A text that would be an element if it were read as markup."""
ARCHIVED = 24_000
"""Rows of the only stream that ends; it begins with the first query that reads it."""
SQL = f"SELECT site, value, ts FROM readings WHERE value > 0.9e0 AND site <> '{MARKUP}'"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="package")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """New York has the sources and the operators, and plans as well, so that only one engine starts; Singapore has the sink. Two
    generators are without an end and one with, and a file has a row that is bad."""
    folder = tmp_path_factory.mktemp("rows")
    overrides = {**SHORT_LIVED, "membership.suspicion_max_factor": SUSPICION_MAX_FACTOR, "connectors.linger_s": LINGER_S}
    with LocalCluster(4, latency="cities", folder=tmp_path_factory.mktemp("cluster"), overrides=overrides) as running:
        declare(running, folder)
        submission = Submission(
            sql=SQL,
            name=QUERY,
            strategy="producer",
            consumer="singapore",
            sink=SinkSpec(kind="file", options={"path": str(folder / "out.csv")}),
        )
        running["new-york"].client.submitted(submission)
        yield running


@pytest.fixture(scope="module")
def page(browser: Browser, cluster: LocalCluster) -> Iterator[Page]:
    """The query at London, for the tests of a file that leave the page as it was."""
    with looking(browser, cluster["london"].client.api, query=QUERY) as opened:
        yield opened


def declare(running: LocalCluster, folder: Path) -> None:
    client = running["new-york"].client
    schema = (Column("ts", "timestamp"), Column("site", "string"), Column("value", "double"))
    client.create_stream(StreamDeclaration(name="readings", schema=schema, event_time="ts", delay_ms=500))
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for name in ("harbour", "park"):
        columns = {
            "ts": {"kind": "timestamp", "start": now, "jitter_ms": 900},
            "site": {"kind": "choice", "values": [name]},
            "value": {"kind": "uniform"},
        }
        options = {"rate": 200.0, "columns": columns}
        client.attach_source(
            SourceDeclaration(stream="readings", name=name, node="new-york", connector="generator", options=options)
        )
    client.create_stream(StreamDeclaration(name="archive", schema=schema, event_time="ts"))
    columns = {
        "ts": {"kind": "timestamp", "start": now},
        "site": {"kind": "choice", "values": ["cellar"]},
        "value": {"kind": "uniform"},
    }
    options = {"rate": 1000.0, "rows": ARCHIVED, "columns": columns}
    client.attach_source(
        SourceDeclaration(stream="archive", name="cellar", node="new-york", connector="generator", options=options)
    )
    file = folder / "tower.csv"
    file.write_text(f"ts,site,value\n{now},tower,0.95\nnot a time,tower,0.5\n{now},tower,0.99\n", encoding="utf-8")
    client.attach_source(
        SourceDeclaration(stream="readings", name="tower", node="new-york", connector="file", options={"path": str(file)})
    )
