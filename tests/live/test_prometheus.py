"""A real Prometheus reads the pages of real nodes, and each panel of the dashboard finds something to show."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from sbon.model import SinkSpec
from sbon_node.net.transport import Address
from tests.addresses import own_host
from tests.connectors.servers import Server, program
from tests.live.world import World, submit, wait_for

pytestmark = pytest.mark.live

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
SILENT = {"Reasons against readiness"}
"""Panels that show nothing while all is well."""


class Prometheus(Server):
    """A Prometheus with the shipped configuration, but with these targets and a shorter interval."""

    def __init__(self, targets: list[str]) -> None:
        prometheus = program("prometheus", ("/usr/bin",))
        folder = Path(tempfile.mkdtemp(prefix="sbon-prometheus-"))
        config = yaml.safe_load(CONFIG.read_text())
        config["global"]["scrape_interval"] = "1s"
        (job,) = config["scrape_configs"]
        job["static_configs"] = [{"targets": targets}]
        del job["dns_sd_configs"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._url = f"http://{own_host(60)}:19090"
        command = [
            prometheus,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}",
        ]
        super().__init__(command, folder, self._is_ready)

    def found(self, expression: str) -> list[dict[str, Any]]:
        """The series an expression yields now; raises ``HTTPError`` for one that Prometheus does not understand."""
        with urlopen(f"{self._url}/api/v1/query?{urlencode({'query': expression})}") as reply:
            result: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return result

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready"):
                return True
        except URLError:
            return False


@pytest.fixture
def prometheus(world: World) -> Iterator[Prometheus]:
    with Prometheus([node.client.api.removeprefix("http://") for node in world.cluster.nodes]) as server:
        yield server


def expressions() -> dict[str, list[str]]:
    """Return the queries of each panel of the dashboard, with all nodes chosen."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "sbon.json").read_text())
    return {
        panel["title"]: [target["expr"].replace("$node", ".*") for target in panel["targets"]]
        for panel in dashboard["panels"]
        if panel.get("targets")
    }


def test_its_own_checker_accepts_the_configuration() -> None:
    promtool = program("promtool", ("/usr/bin",))
    done = subprocess.run([promtool, "check", "config", str(CONFIG)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_of_the_dashboard_finds_something(world: World, prometheus: Prometheus, tmp_path: Path) -> None:
    world.declare("scraped", replay=50.0)
    bob = world.cluster["bob"]
    sink = SinkSpec(kind="file", options={"path": str(tmp_path / "rows.ndjson")})
    info = submit(bob, sql="SELECT site, n FROM scraped WHERE n % 2 = 0", sink=sink, strategy="consumer", durability="replicated")

    address = Address.parse(bob.client.status().address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"no message", tuple(address))  # so that something is refused

    def empty() -> set[str]:
        return {title for title, wanted in expressions().items() if not all(prometheus.found(one) for one in wanted)} - SILENT

    try:
        wait_for(lambda: not empty(), "all panels have something to show")
        wait_for(lambda: float(prometheus.found("sum(sbon_ready)")[0]["value"][1]) == len(world.cluster.nodes), "all are ready")
        rate = "sum(rate(sbon_operator_rows_out_total[30s]))"
        wait_for(lambda: float(prometheus.found(rate)[0]["value"][1]) > 0, "rows flow in its eyes too")
    except AssertionError as error:
        raise AssertionError(f"{error}; nothing to show in {sorted(empty())}") from error
    finally:
        bob.client.stop_query(info.id)
