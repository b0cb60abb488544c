"""The image and docker-compose.yml, for real: built, six nodes joined, a query whose rows are DuckDB's though a container is
killed, scaled by one line, and gone without a trace.

It takes minutes and the machine for itself, and runs in ``make test-all``. Where no Docker engine can be started it is skipped,
and says why.
``SBON_TEST_DOCKER`` names a folder that keeps the engine's images from run to run, and then there has to be an engine; ``-``
skips all of it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from sbon.model import SinkSpec, Submission
from sbon_cli.client import Client
from sbon_cli.commands.demo.nycflights import AIRPORTS, FLIGHTS, flight_rows, write_airports
from sbon_protocol.errors import SbonError
from tests.deploy.docker_engine import DOCKER, Engine, NoEngineError, engine, make_base

pytestmark = [pytest.mark.needs_idle_machine, pytest.mark.live, pytest.mark.only_in_test_all("tests of the image and of Compose")]

ROOT = Path(__file__).parents[2]
PROJECT = "sbon-test"
NODES = ("london", "paris", "new-york", "sao-paulo", "tokyo", "singapore")
BIRTHPLACES = dict(zip(AIRPORTS, ("tokyo", "new-york", "sao-paulo"), strict=True))
PORTS = {name: 7480 + number for number, name in enumerate(NODES)}
PATIENCE_S = 600.0

VICTIM = "paris"
INTO = " > rows.ndjson"
"""How a command of the documentation keeps what it prints."""
RESULT = "/var/lib/sbon/files/days.csv"
SQL = """SELECT window.start AS day, carrier, origin, count(*) AS flights, sum(dep_delay) AS late FROM flights
GROUP BY window(ts, '1 day'), carrier, origin"""
ORACLE = (
    "SELECT date_trunc('day', ts) AS day, carrier, origin, count(*) AS flights, sum(dep_delay) AS late FROM flights GROUP BY ALL"
)


class Compose:
    """``docker-compose`` on this project, and the host's side of its nodes."""

    def __init__(self, made: Engine) -> None:
        self.engine = made

    def __call__(self, *words: str, stdin: bytes | None = None, check: bool = True) -> str:
        return self.engine.run("docker-compose", "-p", PROJECT, *words, cwd=ROOT, stdin=stdin, check=check)

    def sbon(self, node: str, *words: str) -> Any:
        """The JSON a command within a node's container prints."""
        return json.loads(self("exec", "-T", "-e", "SBON_OUTPUT=json", node, "sbon", *words) or "null")

    def client(self, node: str) -> Client:
        """Through the port that is published on the host."""
        return Client(f"http://127.0.0.1:{PORTS[node]}")

    def inspect(self, node: str) -> dict[str, Any]:
        (container,) = self("ps", "-q", node).split()
        found: dict[str, Any] = json.loads(self.engine.run(DOCKER, "inspect", container))[0]
        return found

    def state(self, node: str) -> str:
        return str(self.inspect(node)["State"].get("Health", {}).get("Status"))


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.5)


def alive(compose: Compose, node: str = "london") -> set[str]:
    try:
        return {member.name for member in compose.client(node).members() if member.state == "alive"}
    except SbonError:
        return set()


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    given = os.environ.get("SBON_TEST_DOCKER")
    if given == "-":
        pytest.skip("NOTHING OF docker-compose.yml WAS TESTED: SBON_TEST_DOCKER is -")
    folder = Path(given) if given else tmp_path_factory.mktemp("docker")
    try:
        with engine(folder) as made:
            base = make_base(made, folder)
            build = (DOCKER, "build", "--network", "host", "-f", "deploy/Dockerfile", "-t", "sbon")
            made.run(*build, "--build-arg", f"BASE={base}", ".", cwd=ROOT)
            composed = Compose(made)
            try:
                composed("up", "-d")
                yield composed
            finally:
                composed("--profile", "more", "--profile", "monitoring", "down", "-v", check=False)
    except NoEngineError as error:
        if given:
            raise
        pytest.skip(f"NOTHING OF docker-compose.yml WAS TESTED: {error}")


@pytest.fixture(scope="module")
def joined(compose: Compose) -> Compose:
    for node in NODES:
        wait_for(lambda node=node: alive(compose, node) == set(NODES), f"{node} sees all")  # type: ignore[misc]
    for node in NODES:
        wait_for(lambda node=node: compose.state(node) == "healthy", f"{node} is healthy")  # type: ignore[misc]
    return compose


def test_nodes_run_with_little_and_find_each_other_by_name(joined: Compose) -> None:
    assert joined("exec", "-T", "paris", "id", "-u").strip() == "10001"
    assert "Read-only file system" in joined("exec", "-T", "paris", "sh", "-c", "touch /opt/x 2>&1 || true")
    networks = {
        node: {name.removeprefix(f"{PROJECT}_") for name in joined.inspect(node)["NetworkSettings"]["Networks"]} for node in NODES
    }
    assert all("backbone" in of for of in networks.values())
    assert sorted(next(iter(of - {"backbone"})) for of in networks.values()) == ["america"] * 2 + ["asia"] * 2 + ["europe"] * 2

    def examined() -> dict[str, str]:
        found = joined.sbon("london", "doctor", "--json")["findings"]
        return {one["check"]: f"{one['verdict']} {one['message']} {one['remedy']}" for one in found}

    wait_for(lambda: set(examined()) >= {f"ports {node}" for node in NODES if node != "london"}, "every peer has answered")
    # The machine may have other work.
    assert {check: said for check, said in examined().items() if check != "load" and not said.startswith("ok")} == {}
    # Announced by names, and measured all the same.
    wait_for(lambda: all(m.measured for m in joined.client("london").members() if m.name != "london"), "all ways are measured")


def test_rows_are_those_of_duckdb_though_a_container_is_killed(joined: Compose, tmp_path: Path) -> None:
    files = write_airports(tmp_path, FLIGHTS, flight_rows("2013-01-01", "2013-02-01"))
    columns = ", ".join(f"{column.name} {column.type}" for column in FLIGHTS.schema)
    joined.sbon("london", "stream", "create", "flights", "--schema", columns, "--event-time", "ts")
    for airport, node in BIRTHPLACES.items():
        joined("exec", "-T", node, "sh", "-c", "cat > files/flights.csv", stdin=files[airport].read_bytes())
        path = "/var/lib/sbon/files/flights.csv"
        # A month in some twenty seconds, so that there is something to kill.
        words = ("--node", node, "--file", path, "--name", airport.lower(), "--replay", "130000")
        joined.sbon("london", "stream", "attach", "flights", *words)
    client = joined.client("london")
    sink = SinkSpec(kind="file", options={"path": RESULT})
    # All operators and the sink at one node, which is killed: two engines are as many as a small machine starts in good time.
    assert client.submitted(Submission(sql=SQL, name="days", sink=sink, consumer=VICTIM, strategy="consumer")).state == "running"
    wait_for(lambda: sum(operator.stats.batches for operator in client.query("days").operators) > 3, "operators have run batches")
    assert {operator.node for operator in client.query("days").operators} == {VICTIM}
    before = joined.inspect(VICTIM)
    os.kill(before["State"]["Pid"], signal.SIGKILL)  # the container's first process: all of it dies at once
    wait_for(lambda: joined.inspect(VICTIM)["RestartCount"] > before["RestartCount"], f"{VICTIM} is started again")
    assert client.query("days").state == "running"
    wait_for(lambda: client.query("days").state != "running", "the query is over")
    over = client.query("days")
    assert (over.state, over.reason) == ("finished", "")
    stored = tmp_path / "days.csv"
    stored.write_bytes(_copied(joined, VICTIM, RESULT))
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    births = [str(file) for file in files.values()]
    database.execute(f"CREATE VIEW flights AS SELECT * FROM read_csv({births}, header = true)")
    expected = sorted(database.sql(ORACLE).fetchall(), key=repr)
    result = f"SELECT day::TIMESTAMP, carrier, origin, flights, late FROM read_csv('{stored}', header = true)"
    found = sorted(database.sql(result).fetchall(), key=repr)
    assert len(expected) > 500
    assert found == expected


def _copied(compose: Compose, node: str, path: str) -> bytes:
    """A file's bytes; through text, since what a command prints is read as that."""
    return base64.b64decode(compose("exec", "-T", node, "base64", path))


def test_the_commands_of_the_documentation_work_as_printed(joined: Compose) -> None:
    section = re.search(r"\n## Docker Compose\n(.*?)\n## ", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    assert section is not None
    commands = [line[2:] for line in section[1].splitlines() if line.startswith("$ docker-compose exec") and "trades" not in line]
    assert len(commands) == 6
    for command in commands:
        words = command.removesuffix(INTO).replace("docker-compose", f"docker-compose -p {PROJECT}")
        said = joined.engine.run("sh", "-c", words, cwd=ROOT)
        if command.endswith(INTO):
            rows = [json.loads(line) for line in said.splitlines()]
            assert set(rows[0]) == {"n", "value"}
            assert all(row["value"] > 0.5 for row in rows)
            assert 1500 < len(rows) < 2500


def test_one_line_scales_and_prometheus_would_find_them(joined: Compose) -> None:
    joined("--profile", "more", "up", "-d", "--scale", "more=2")
    wait_for(lambda: len(alive(joined)) == len(NODES) + 2, "two more have joined")
    found = joined("exec", "-T", "paris", "python", "-c", "import socket; print(len(socket.gethostbyname_ex('more')[2]))")
    assert found.strip() == "2"
    count = f'sbon_members{{state="alive"}} {len(NODES) + 2}'
    wait_for(lambda: count in joined.client("singapore").metrics().decode(), f"singapore's metrics have {count}")


def test_all_goes_and_leaves_nothing(joined: Compose) -> None:
    joined("--profile", "more", "--profile", "monitoring", "down", "-v")
    label = ("--filter", f"label=com.docker.compose.project={PROJECT}")
    for kind in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q")):
        assert joined.engine.run(DOCKER, *kind, *label).split() == [], kind


def test_both_files_of_images_are_of_versions_that_were_named() -> None:
    """No image of others floats."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    others = {service["image"] for service in services.values()} - {"sbon"}
    assert all(re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", image) for image in others)
