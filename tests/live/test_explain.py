"""Measured rates of queries on real daemons and Spark: near the truth, and used instead of estimates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbon.model import ExplainedComponent, Explanation, QuerySpec, SinkSpec
from tests.cli.commands import run
from tests.live.world import SITES, World, submit, wait_for

pytestmark = pytest.mark.live

REPLAY = 200.0
"""Times event time, of which a row is born each second at each site."""
SHARE = 0.25
SQL = "SELECT site, n, ts FROM measured WHERE n % 4 = 0"


def of_kind(found: Explanation, kind: str) -> list[ExplainedComponent]:
    return [part for part in found.components if part.kind == kind]


def test_measured_rates_replace_estimates_and_are_near_the_truth(world: World, tmp_path: Path) -> None:
    """All operators run at the consumer, and their measurements go to the nodes of the sources."""
    world.declare("measured", replay=REPLAY)
    ada, bob = world.cluster["ada"], world.cluster["bob"]
    question = QuerySpec(sql=SQL, strategy="consumer")
    before = bob.client.explain(question)
    assert [part.measured.selectivity for part in of_kind(before, "operator")] == [None] * len(SITES)
    assert before.usage == pytest.approx(before.baseline_usage)
    assert before.usage is not None
    assert before.usage > 0
    assert not any(part.remembered for part in before.components)

    sink = SinkSpec(kind="file", options={"path": str(tmp_path / "rows.ndjson")})
    info = submit(bob, sql=SQL, sink=sink, strategy="consumer")

    def flows() -> bool:
        """Return whether later batches ran: the first takes the rows from before the engine's start, and has no rate."""
        stats = [operator.stats for operator in bob.client.query(info.id).operators]
        return all(one is not None and one.rows_in >= 1000 and one.batches >= 10 for one in stats)

    def measured() -> bool:
        flows = [part.measured.rows_s for part in ada.client.explain_query(info.id).components if part.kind != "sink"]
        return None not in flows

    wait_for(flows, "rows have passed")
    wait_for(measured, "the node that explains has heard of it")
    running = ada.client.explain_query(info.id)
    for source in of_kind(running, "source"):
        assert source.estimated.rows_s == 1000, "as declared"
        assert source.measured.rows_s == pytest.approx(REPLAY, rel=0.5)
    for operator in of_kind(running, "operator"):
        assert operator.estimated.selectivity == pytest.approx(SHARE, rel=0.3), "by a sample"
        assert operator.measured.selectivity == pytest.approx(SHARE, rel=0.02)
        assert operator.measured.rows_s == pytest.approx(REPLAY * SHARE, rel=0.5)
    assert running.measured_usage is not None
    assert running.measured_usage == pytest.approx(running.measured_baseline_usage)

    told = json.loads(run(ada.client.api, "explain", "--query", info.id, "--json").stdout)
    assert [part["kind"] for part in told["components"]] == [part.kind for part in running.components]
    bob.client.stop_query(info.id)

    def remembered() -> bool:
        return all(part.remembered for part in of_kind(bob.client.explain(question), "operator"))

    wait_for(remembered, "the nodes of the sources have the measurements")
    after = bob.client.explain(question)
    for old, new in zip(of_kind(before, "operator"), of_kind(after, "operator"), strict=True):
        assert new.measured.selectivity == pytest.approx(SHARE, rel=0.02)
        assert new.signature == old.signature
        assert new.estimated.selectivity == pytest.approx(old.estimated.selectivity, rel=0.3)
    planned = {link.stream: link.bytes_s for link in after.links}
    assert planned == {part.id: pytest.approx(part.measured.bytes_s, rel=0.5) for part in after.components if part.kind != "sink"}
    assert after.usage != pytest.approx(before.usage, rel=0.1)
