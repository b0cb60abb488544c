"""A host that is about to break a query's bound on throughput looks for another one with the capacity."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.adaptation.rules import Offer, carries, lacks
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from tests.adaptation.test_optimizer import adapting
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, check_filtered, finished

BOUND_BYTES_S = 100_000.0


def measured(sent_bytes_s: float | None, waiting_bytes: int, read_bytes_s: float = 1000.0) -> OperatorMeasures:
    one = InputMeasures(stream="s", bytes_s=read_bytes_s, waiting_bytes=waiting_bytes)
    return OperatorMeasures(seconds=60.0, bytes_out_s=sent_bytes_s, inputs=(one, one))


@pytest.mark.parametrize(
    "bound, sent_bytes_s, waiting_bytes, free_bytes_s, breaks",
    [
        (None, 1.0, 10_000, -1.0, False),
        (1000.0, 900.0, 5000, 0.0, True),
        (1000.0, 900.0, 4999, 0.0, False),  # it reads 2000 bytes a second
        (1000.0, 1111.0, 5000, 0.0, True),  # the bound is 90 % of 1111
        (1000.0, 1112.0, 5000, 0.0, False),
        (1000.0, 1112.0, 0, -1.0, True),  # the node has less than it had
        (1000.0, None, 5000, 0.0, False),
    ],
)
def test_a_bound_is_about_to_be_broken(
    bound: float | None, sent_bytes_s: float | None, waiting_bytes: int, free_bytes_s: float, breaks: bool
) -> None:
    why = lacks(bound, measured(sent_bytes_s, waiting_bytes), free_bytes_s, AdaptationSettings())
    assert (why is not None) == breaks
    assert why is None or why.code == "lacks-throughput"


def test_an_operator_without_rows_keeps_its_bound() -> None:
    assert lacks(1000.0, measured(0.0, 0, 0.0), 0.0, AdaptationSettings()) is None
    assert lacks(1000.0, None, 0.0, AdaptationSettings()) is None


@pytest.mark.parametrize(
    "way_ms, bounded, code", [(12.1, True, "too-slow"), (12.0, True, "keeps-throughput"), (99.0, False, "keeps-throughput")]
)
def test_usage_does_not_count_but_a_bound_on_delay_does(way_ms: float, bounded: bool, code: str) -> None:
    assert carries(12.0, Offer("rome", 1e9, way_ms, 1.0), bounded=bounded).code == code


@pytest.mark.one_part_per_commit("causes of a low throughput", parts=2)
@pytest.mark.parametrize("cause", ["less bandwidth", "slow engine", "slow engine and a low bound"])
def test_an_operator_leaves_a_node_that_breaks_its_bound(tmp_path: Path, cause: str) -> None:
    """Its input comes from b, so it stays there for the sake of usage."""
    configs = adapting("abc")

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1600, rate=40.0))
        await submitted(
            cluster,
            "a",
            tmp_path / "out.csv",
            sql=FILTER,
            strategy="producer",
            adapt="local",
            min_throughput_bytes_s=1.0 if cause == "slow engine and a low bound" else BOUND_BYTES_S,
        )
        await cluster.clock.sleep(5)
        node = cluster.at("b")
        if cause == "less bandwidth":
            cluster.crash(node)
            less = msgspec.structs.replace(configs["b"].control, bandwidth_bytes_s=BOUND_BYTES_S / 2)
            configs["b"] = msgspec.structs.replace(configs["b"], control=less)
            cluster.boot(node)
        else:
            assert node.engine is not None
            node.engine.times = msgspec.structs.replace(node.engine.times, between_steps=(2.0, 3.0))
        await cluster.clock.sleep(35)
        (operator,) = (await state_of(cluster, "a")).operators
        if cause == "slow engine and a low bound":  # its bound is kept, however much waits
            assert operator.past_moves == ()
            return
        assert operator.node in ("a", "c")
        assert ("reserve" if cause == "less bandwidth" else "of input wait") in operator.past_moves[0].reason
        assert [past.node for past in operator.past_moves] == ["b"]
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", 1600)

    in_cluster(tmp_path, "abc", test, configs=configs)
