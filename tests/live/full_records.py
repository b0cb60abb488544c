"""Two nodes, one on its own file system, which fills up; see ``test_full_records``.

Run by ``unshare --mount``, so that only this process has the mount. Prints, as JSON, the node's reports while its disk was full
and its knowledge after that.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon.model import Column, StreamDeclaration
from sbon_cli.client import Client
from sbon_protocol.errors import SbonError
from tests.engine.no_space import fill

OVERRIDES = {**SHORT_LIVED, "membership.rejoin_s": 0.5, "membership.rejoin_max_s": 2.0}
WAIT_S = 90.0


def stream(name: str) -> StreamDeclaration:
    return StreamDeclaration(name=name, schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts")


def codes(node: LocalNode) -> list[str]:
    return [reason.code for reason in node.client.readiness().reasons]


def create_many(node: LocalNode, first: str) -> tuple[list[str], str]:
    """Declares streams until one is refused: those acknowledged, and the refusal's code."""
    done: list[str] = []
    for number in range(200):
        name = f"{first}_{number}"
        try:
            node.client.create_stream(stream(name))
        except SbonError as error:
            return done, error.code
        done.append(name)
    return done, ""


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def main(folder: Path) -> None:
    told: dict[str, Any] = {}
    one_dir = folder / "cluster" / "one" / "data"
    one_dir.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", one_dir], check=True)
    cluster = LocalCluster(["one", "two"], folder=folder / "cluster", overrides=OVERRIDES, keep=True)
    one, two = cluster["one"], cluster["two"]
    try:
        one.start()
        one.wait_ready()
        one.client.create_stream(stream("before"))
        filler = one_dir / "filler"
        with filler.open("wb", buffering=0) as out:
            fill(out)
        acknowledged, told["refused"] = create_many(one, "full")
        told["while_full"] = codes(one)
        told["doctor"] = [f"{f.check}: {f.message}" for f in Client(one.api).examine().findings if f.verdict != "ok"]
        # A member joins, and the node cannot store it.
        two.start()
        two.wait_ready()
        cluster.wait_converged()
        two.client.create_stream(stream("elsewhere"))
        told["runs"] = one.running
        filler.unlink()
        until("ready", lambda: "not-stored" not in codes(one) and "low-disk" not in codes(one))
        until("elsewhere", lambda: "elsewhere" in {s.entry.declaration.name for s in one.client.streams()})
        time.sleep(5)
        one.kill(signal.SIGKILL)
        one.start()
        one.wait_ready()
        # The node has no seeds: only its stored members lead it back.
        cluster.wait_converged(WAIT_S)
        told["acknowledged"] = sorted({"before", "elsewhere", *acknowledged})
        until("known", lambda: set(told["acknowledged"]) <= {s.entry.declaration.name for s in one.client.streams()})
        told["known"] = sorted(s.entry.declaration.name for s in one.client.streams())
    finally:
        cluster.stop()
    print("told " + json.dumps(msgspec.to_builtins(told)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
