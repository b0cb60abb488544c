"""``sbon bench readers``: what several readers of a stream at one node cost the network."""

from __future__ import annotations

import pytest

from sbon_lab.bench.readers import run


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_stream_costs_as_much_for_eight_readers_at_a_node_as_for_one() -> None:
    rows = run(400)["rows"]  # More bytes than a window holds.
    assert [row["readers"] for row in rows] == [1, 2, 4, 8]
    for row in rows:
        assert row["wrong_frames"] == 0
        assert row["alone_bytes"] == pytest.approx(row["readers"] * row["payload_bytes"], rel=0.01)
        assert row["shared_bytes"] == pytest.approx(row["payload_bytes"], rel=0.02)
        assert row["beside_a_stopped_reader_bytes"] == pytest.approx(row["payload_bytes"], rel=0.02)
