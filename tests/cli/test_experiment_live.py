"""``sbon experiment live``: which queries it runs, and that no strategy has what another measured."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from sbon_cli.client import Client
from sbon_lab.commands import live
from sbon_lab.commands.live import FRESH_S, SETTINGS, Turns
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.suite.cases import cases
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.queries import Submission
from tests.cli.commands import run
from tests.nodes.clusters import ask, in_cluster
from tests.nodes.test_live_placement import NODES, TREE, one_way_s


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command with the options; return its result and the names of the queries it would run."""
    np.savez(tmp_path / "area.npz", rtt_ms=np.full((12, 12), 50.0))
    names: list[str] = []

    def instead(experiment: Any, area: Any, of: Any, *rest: Any) -> list[Any]:
        names.extend(case.name for case in of)
        return []

    monkeypatch.setattr(live, "_run", instead)
    return lambda *options: (run("", "experiment", "live", "--data", str(tmp_path / "area.npz"), "--json", *options), names)


def test_all_among_other_names_is_all(chosen: Any) -> None:
    result, names = chosen("-q", "all", "-q", "filter_late")
    assert result.exit_code == 0, result.output
    assert names == [case.name for case in cases()]


def test_an_unknown_query_is_reported_with_its_option(chosen: Any) -> None:
    result, names = chosen("-q", "filter_early")
    assert (result.exit_code, names) == (2, [])
    assert "--query: the suite has no query 'filter_early'" in result.stderr


def test_placements_take_turns_with_a_pause_before_each() -> None:
    seen: list[object] = []

    class Node:
        def submitted(self, submission: Submission) -> Any:
            seen.append(f"{submission.sql} begins")
            time.sleep(0.02)
            seen.append(f"{submission.sql} ends")

    turns, node = Turns(seen.append), cast(Client, Node())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda sql: turns.submitted(node, Submission(sql=sql)), "abc"))
    taken = [str(one)[0] for one in seen[1::3]]
    assert sorted(taken) == ["a", "b", "c"]
    assert seen == [step for sql in taken for step in (FRESH_S, f"{sql} begins", f"{sql} ends")]


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_after_the_pause_a_strategy_asks_as_if_it_came_first(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, directory=DirectorySettings(fresh_s=SETTINGS["directory.fresh_s"]))

    async def test(cluster: SimulatedCluster) -> None:
        async def probes() -> int:
            view = LiveNetworkView(cluster.at("a").daemon.context)
            await ask(cluster, "a", hybrid(TREE, view, PlacementSettings()))
            return view.probes

        await cluster.sleep(20.0)
        first, at_once = await probes(), await probes()
        await cluster.sleep(FRESH_S)
        later = await probes()
        assert at_once < first / 2
        assert later == pytest.approx(first, rel=0.1)

    in_cluster(tmp_path, NODES, test, configs=dict.fromkeys(NODES, config), latency=one_way_s)
