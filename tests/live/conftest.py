"""A cluster of real daemons for live tests of a query's life, with network and input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import PORT
from tests.live.relay import Relay
from tests.live.world import EVENT_S, NODES, OWN, ROWS, SITES, World

PASSWORDS = "passwords"


@pytest.fixture(scope="package")
def readings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("readings")
    files = []
    for position, site in enumerate(SITES):
        files.append(folder / f"{site}.csv")
        duckdb.sql(
            f"""COPY (
                SELECT TIMESTAMP '2020-01-01' + to_milliseconds(i * {int(1000 * EVENT_S)} // {ROWS} * 1000) AS ts,
                       '{site}' AS site, i * 3 + {position} AS n, (i * 7919 % 1000) / 8.0 AS value,
                       CASE WHEN i % 11 = 0 THEN NULL ELSE 'nöte, "' || i || '"' END AS note
                FROM range({ROWS}) AS t(i) ORDER BY i
            ) TO '{files[-1]}' (HEADER, DELIMITER ',')"""
        )
    return files


@pytest.fixture(scope="package")
def relay() -> Relay:
    """All that the nodes of ``world`` send each other passes here."""
    return Relay(NODES, PORT)


@pytest.fixture(scope="package")
def open_umask() -> Iterator[None]:
    """Let files be open to others unless a node closes them."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="package")
def world(readings: list[Path], relay: Relay, open_umask: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster for all of the package: an engine costs more than most of the tests. Each test leaves all nodes running.

    Only ``dee`` has no sources. Queries are submitted at other nodes, so that ``dee`` has an engine only if it gets an operator.
    """
    folder = tmp_path_factory.mktemp("world")
    (folder / PASSWORDS).touch(mode=0o600)
    overrides = {
        **SHORT_LIVED,
        "membership.sync_interval_s": 2.0,  # how soon a healed partition is noticed
        "membership.suspicion_max_factor": 2.0,  # how soon a death is known that few confirm
        "engine.settle_s": 120.0,  # of a busy machine
        "connectors.passwords": str(folder / PASSWORDS),
        "connectors.retry_max_s": 1.0,
        "connectors.linger_s": 0.5,  # few frames a second, and so few batches
    }
    per_node = {name: {"node.advertise": host, **OWN.get(name, {})} for name, host in relay.announced.items()}
    cluster = LocalCluster(NODES, folder=folder / "cluster", overrides=overrides, per_node=per_node)
    with relay.running({node.name: node.host for node in cluster.nodes}), cluster:
        yield World(cluster, readings, folder / PASSWORDS)
