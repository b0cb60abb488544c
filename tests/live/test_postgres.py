"""Results in a real PostgreSQL: each row once, even if the server or the consumer's node is killed."""

from __future__ import annotations

import json
import signal
from collections import deque
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from sbon.model import SinkSpec
from tests.connectors.servers import PASSWORD, Postgres
from tests.live.world import SQL, World, finished, submit, wait_for

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("live sinks to PostgreSQL while processes die")]


def test_rows_equal_duckdbs_whichever_process_dies(world: World) -> None:
    ada, dee = world.cluster["ada"], world.cluster["dee"]
    with Postgres(21) as database:
        secrets = dee.data_dir / "secrets"
        secrets.mkdir(exist_ok=True)
        (secrets / "banked").write_text(f"{PASSWORD}\n")
        world.declare("banked", replay=500.0)  # there must be rows left when the server is killed, however slow engines start
        sink = SinkSpec(kind="postgres", options={"url": database.url(), "password": "file:banked", "table": "banked"})
        info = submit(ada, sql=SQL.replace("readings", "banked"), consumer="dee", sink=sink, strategy="producer")

        states: deque[str] = deque(maxlen=3)

        def count() -> int:
            return int(database.sql("SELECT count(*) FROM banked")[0][0])

        def delivery() -> str:
            shown = ada.client.query(info.id)
            states.append(f"{shown.state} {shown.reason} {shown.delivery}")
            return shown.delivery.state if shown.delivery is not None else ""

        wait_for(lambda: count() > 0, "rows arrive")
        database.kill()
        wait_for(lambda: delivery().startswith("paused: postgres://"), lambda: f"the query waits for its database: {[*states]}")
        told = msgspec.json.encode(ada.client.query(info.id)).decode()
        assert PASSWORD not in told
        assert quote(PASSWORD, safe="") not in told
        database.start()
        before = count()
        wait_for(lambda: count() > before, "rows arrive again")
        dee.kill(signal.SIGKILL)
        dee.restart()
        wait_for(lambda: finished(ada, info.id), "the query is finished")
        text = "SELECT row_to_json(t) FROM (SELECT site, n, twice, note, (ts AT TIME ZONE 'UTC')::text AS ts FROM banked) t"
        rows: list[tuple[Any, ...]] = [tuple(json.loads("|".join(one)).values()) for one in database.sql(text)]
        assert sorted(rows, key=repr) == sorted(((*row[:4], str(row[4])) for row in world.answer()), key=repr)
        assert ada.client.query(info.id).rows == len(rows)
        wait_for(lambda: database.sql("SELECT count(*) FROM sbon_positions") == [["0"]], "nothing of it is left")
