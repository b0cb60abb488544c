"""Takes docs/dashboard.png of a cluster with queries that run: ``make screenshot``.

With ``--states FOLDER`` it takes more pictures, to be looked at after a change of the page: of each state a query can be in, wide
and narrow, light and dark.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import Column, SinkSpec, SourceDeclaration, StreamDeclaration, Submission
from sbon_cli.client import Client

OUT = Path(__file__).resolve().parents[3] / "docs" / "dashboard.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SOURCES = {"london": 200.0, "new-york": 300.0, "sao-paulo": 120.0}
"""Rows a second where rows are born."""
MEANS = """SELECT window(ts, '10 seconds') AS w, site, count(*) AS n, avg(value) AS mean
FROM readings
WHERE value > 0.2e0
GROUP BY window(ts, '10 seconds'), site"""
BACKFILL_ROWS = 120_000
"""Rows of a finite source, which the picture shows half read."""
WIDE, NARROW = 1440, 390
SETTLING_S = 100.0
"""Before a picture: the charts have a line by then."""


def declare(client: Client) -> None:
    """``readings`` without an end at three nodes, and ``archive`` with one."""
    schema = (Column("ts", "timestamp"), Column("site", "string"), Column("value", "double"))
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    client.create_stream(StreamDeclaration(name="readings", schema=schema, event_time="ts", delay_ms=500))
    client.create_stream(StreamDeclaration(name="archive", schema=schema, event_time="ts"))
    client.create_stream(StreamDeclaration(name="short", schema=schema, event_time="ts"))
    for node, rate in SOURCES.items():
        attach(client, "readings", node, {"rate": rate, "columns": columns(node, now, 700)})
    attach(client, "archive", "frankfurt", {"rate": 600.0, "rows": BACKFILL_ROWS, "columns": columns("frankfurt", now, 0)})
    attach(client, "short", "london", {"rate": 5000.0, "rows": 20_000, "columns": columns("london", now, 0)})


def columns(site: str, start: str, jitter_ms: int) -> dict[str, dict[str, Any]]:
    return {
        "ts": {"kind": "timestamp", "start": start, "jitter_ms": jitter_ms},
        "site": {"kind": "choice", "values": [site]},
        "value": {"kind": "uniform"},
    }


def attach(client: Client, stream: str, node: str, options: dict[str, Any]) -> None:
    client.attach_source(SourceDeclaration(stream=stream, name=node, node=node, connector="generator", options=options))


def submit(client: Client, folder: Path) -> None:
    """Two queries without an end, and one that reads the archive."""

    def to_file(name: str) -> SinkSpec:
        return SinkSpec(kind="file", options={"path": str(folder / f"{name}.csv")})

    client.submitted(Submission(sql=MEANS, name="means", consumer="singapore", sink=to_file("means")))
    peaks = "SELECT site, value, ts FROM readings WHERE value > 0.9e0"
    client.submitted(Submission(sql=peaks, name="peaks", strategy="producer", consumer="san-francisco", sink=to_file("peaks")))
    backfill = "SELECT window(ts, '5 seconds') AS w, site, max(value) AS most FROM archive GROUP BY window(ts, '5 seconds'), site"
    client.submitted(Submission(sql=backfill, name="backfill", consumer="new-york", sink=to_file("backfill")))


def submit_others(client: Client, folder: Path) -> None:
    """Submit a query that finishes, one that fails, and one that waits for a follower."""
    rows = SinkSpec(kind="file", options={"path": str(folder / "all.csv")})
    client.submitted(Submission(sql="SELECT * FROM short", name="done", strategy="producer", consumer="singapore", sink=rows))
    bad = "SELECT ts, 1 / CAST(floor(value * 50) AS int) AS share FROM readings"
    client.submitted(Submission(sql=bad, name="broken", consumer="singapore", sink=SinkSpec(kind="blackhole")))
    wide = "SELECT ts, site, value, repeat(site, 100) AS padding FROM readings"
    client.submitted(Submission(sql=wide, name="held", strategy="producer", consumer="frankfurt"))


@contextmanager
def opened(browser: Browser, api: str, query: str, width: int, height: int, scheme: Any) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", timezone_id="UTC"
    )
    page = context.new_page()
    page.goto(f"{api}/dashboard/{f'#query={query}' if query else ''}")
    page.locator("#connection", has_text="Live").wait_for()
    yield page
    context.close()


def states(browser: Browser, api: str, names: list[str], folder: Path, wait_ms: int = 9000) -> None:
    """Each query, wide and narrow, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for width in (WIDE, NARROW):
            for scheme in ("light", "dark"):
                with opened(browser, api, name, width, 900, scheme) as page:
                    page.wait_for_timeout(wait_ms)
                    page.screenshot(path=folder / f"{name or 'none'}-{width}-{scheme}.png", full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--states", type=Path, help="a folder for pictures of all states")
    arguments = parser.parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("there is no Chromium here: apt-get install chromium")
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory() as temporary,
        LocalCluster(6, latency="cities", overrides=SHORT_LIVED) as cluster,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        client = cluster["london"].client
        if arguments.states:
            states(browser, client.api, [""], arguments.states)
        declare(client)
        submit(client, Path(temporary))
        time.sleep(SETTLING_S)
        with opened(browser, client.api, "backfill", WIDE, 1240, "light") as page:
            page.wait_for_timeout(12_000)
            page.screenshot(path=arguments.out)
        if arguments.states:
            submit_others(client, Path(temporary))
            states(browser, client.api, ["backfill", "means", "done", "broken", "held"], arguments.states)
        browser.close()


if __name__ == "__main__":
    main()
