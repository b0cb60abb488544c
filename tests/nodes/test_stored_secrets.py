"""Secrets that an earlier version has stored with a source: detached at the start, with a warning, and gone from the files."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.base.store import RecordStore
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at


def test_a_source_with_a_stored_secret_is_detached_and_the_secret_is_gone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"), source_at("b"))
        await cluster.clock.sleep(60)
        for name in "ab":
            node = cluster.nodes[name]
            cluster.crash(node)
            store = RecordStore(node.disk.folder / "node.db")
            entry = store.get("catalogue", "numbers", CatalogEntry)
            assert entry is not None
            assert len(entry.sources) == 2
            bad = SourceDeclaration(
                stream="numbers", name="old", node="b", connector="mqtt", options={"url": "mqtt://h", "password": "hunter2-x"}
            )
            store.put("catalogue", "numbers", msgspec.structs.replace(entry, sources=(*entry.sources, bad)))
            store.close()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        with capture_logs() as logs:
            for name in "ab":
                cluster.boot(cluster.nodes[name])
            await cluster.together()
        told = [line for line in logs if line["event"] == "source-detached"]
        assert {(line["stream"], line["source"], line["option"]) for line in told} == {("numbers", "old", "options.password")}
        assert len(told) == 2
        await cluster.clock.sleep(60)
        for name in "ab":
            entry = (await ask(cluster, name, cluster.at(name).daemon.hosting.sources.describe("numbers"))).entry
            assert sorted(one.name for one in entry.sources) == ["at-a", "at-b"]
            files = cluster.nodes[name].disk.folder.glob("node.db*")
            assert not any(b"hunter2-x" in path.read_bytes() for path in files)
        # Its name may be used again, with a reference.
        again = msgspec.structs.replace(source_at("a"), name="old")
        await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(again))
        entry = (await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.describe("numbers"))).entry
        assert next(one.turn for one in entry.sources if one.name == "old") == 2
        bad = msgspec.structs.replace(again, name="bad", options={**again.options, "password": "hunter2-x"})
        with pytest.raises(SbonError) as caught:
            await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(bad))
        assert caught.value.code == "literal-secret"

    in_cluster(tmp_path, "ab", test)
