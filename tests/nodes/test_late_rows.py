"""Rows out of order: late rows are dropped and counted at their source, and shown at any node."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.catalogue import SourceDeclaration
from tests.nodes.clusters import NUMBERS, ask, in_cluster, state_of, submitted

SECONDS = {
    "a": (["00.000", "05.000", "04.000", "09.000", "08.000", "08.500"], 0),
    "b": (["00.000", "05.000", "03.999", "04.000", "09.000", "07.999", "01.000"], 3),
}
"""Seconds of the rows' times by node, and the number of late ones: by more than the delay of one second."""


def test_late_rows_are_counted_at_their_source_and_all_others_are_results(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        daemon = cluster.at("c").daemon
        await ask(cluster, "c", daemon.queries.declarations.create_stream(msgspec.structs.replace(NUMBERS, delay_ms=1000)))
        for node, (seconds, _) in SECONDS.items():
            path = tmp_path / f"{node}.csv"
            path.write_text("id,v,ts\n" + "".join(f"{i},1.0,2013-01-01 00:00:{at}\n" for i, at in enumerate(seconds)))
            options = {"path": str(path)}
            source = SourceDeclaration(stream="numbers", name=node, node=node, connector="file", options=options)
            await ask(cluster, "c", daemon.hosting.sources.attach(source))
        await submitted(cluster, "c", tmp_path / "kept.csv")
        while (await state_of(cluster, "c")).state == "running":
            await cluster.loop.clock().sleep(1.0)
        assert (await state_of(cluster, "c")).state == "finished"
        shown = {
            one.source.name: (one.rows, one.late)
            for one in (await ask(cluster, "c", daemon.hosting.sources.describe("numbers"))).sources
        }
        assert shown == {node: (len(seconds) - late, late) for node, (seconds, late) in SECONDS.items()}
        kept = [int(line.split(",")[0]) for line in (tmp_path / "kept.csv").read_text().splitlines()[1:]]
        assert sorted(kept) == sorted([*range(6), 0, 1, 3, 4])

    in_cluster(tmp_path, "abc", test)
