"""Sinks of a lost node go on at another, into a real PostgreSQL and a real webhook: each row once, and once under each key."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sbon.model import SinkSpec
from tests.addresses import own_host
from tests.connectors.servers import PASSWORD, Postgres
from tests.live.world import SQL, World, finished, submit, wait_for

pytestmark = pytest.mark.live

TEXT = "SELECT row_to_json(t) FROM (SELECT site, n, twice, note, (ts AT TIME ZONE 'UTC')::text AS ts FROM kept) t"
PORT = 18090


class Posts:
    """The rows of posts by their keys; a key that comes again has the same rows."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[dict[str, Any]]] = {}
        self.differing: list[str] = []

    @contextmanager
    def served(self, host: str) -> Iterator[str]:
        posts = self

        class Taking(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                rows = [json.loads(line) for line in body.splitlines()]
                key = self.headers["Idempotency-Key"]
                if posts.by_key.setdefault(key, rows) != rows:
                    posts.differing.append(key)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        with ThreadingHTTPServer((host, PORT), Taking) as server:
            serving = threading.Thread(target=server.serve_forever, daemon=True)
            serving.start()
            try:
                yield f"http://{host}:{PORT}/rows"
            finally:
                server.shutdown()
                serving.join()


@pytest.mark.parametrize(
    "lost", ["killed", pytest.param("paused", marks=pytest.mark.only_in_test_all("a sink's node that is paused, not killed"))]
)
def test_each_row_arrives_once_whatever_becomes_of_the_sinks_node(world: World, lost: str) -> None:
    ada, dee = world.cluster["ada"], world.cluster["dee"]
    posts = Posts()
    with Postgres(22) as database, posts.served(own_host(41)) as url:
        for node in world.cluster.nodes:
            secrets = node.data_dir / "secrets"
            secrets.mkdir(exist_ok=True)
            (secrets / "kept").write_text(f"{PASSWORD}\n")
        name = f"sunk_{lost}"
        world.declare(name, replay=1300.0)
        sql = SQL.replace("readings", name)
        options = {"url": database.url(), "password": "file:kept", "table": "kept"}
        table = submit(
            ada, sql=sql, consumer="dee", strategy="producer", sink=SinkSpec(kind="postgres", options=options, failover=True)
        )
        hook = submit(
            ada, sql=sql, consumer="dee", strategy="producer", sink=SinkSpec(kind="http", options={"url": url}, failover=True)
        )

        def count() -> int:
            return int(database.sql("SELECT count(*) FROM kept")[0][0])

        wait_for(lambda: count() > 0 and len(posts.by_key) > 0, "rows arrive")
        if lost == "killed":
            dee.kill(signal.SIGKILL)
        else:
            dee.pause()
        before = count(), len(posts.by_key)
        wait_for(
            lambda: all(ada.client.query(one.id).consumer != "dee" for one in (table, hook)),
            lambda: f"other nodes have the sinks: {[ada.client.query(one.id).reason for one in (table, hook)]}",
        )
        wait_for(lambda: count() > before[0] and len(posts.by_key) > before[1], "rows arrive again")
        if lost == "killed":
            dee.restart()
        else:
            dee.resume()
        wait_for(lambda: finished(ada, table.id) and finished(ada, hook.id), "both queries are finished")
        answer = sorted(((*row[:4], str(row[4])) for row in world.answer()), key=repr)
        rows: list[tuple[Any, ...]] = [tuple(json.loads("|".join(one)).values()) for one in database.sql(TEXT)]
        assert sorted(rows, key=repr) == answer
        posted = [row for rows_of in posts.by_key.values() for row in rows_of]
        assert (len(posted), posts.differing) == (len(answer), [])
        assert sorted((row["site"], row["n"]) for row in posted) == sorted(row[:2] for row in answer)
        assert ada.client.query(table.id).rows == len(rows)
        wait_for(lambda: database.sql("SELECT count(*) FROM sbon_positions") == [["0"]], "nothing of it is left")
