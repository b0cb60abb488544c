"""A pause of minutes, as by SIGSTOP or a sleeping machine, is no death of the executor within the driver's process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planning.sql.batch import Batch

pytestmark = pytest.mark.live

DAY_S = 86_400


@pytest.mark.parametrize("pause_s", [150, 300, DAY_S])
def test_an_executor_outlives_a_pause(spark: Batch, pause_s: int) -> None:
    """Spark's own watch over executors, by a clock that jumps over the pause."""
    context: Any = spark._session.sparkContext
    jvm = context._jvm
    clock = jvm.org.apache.spark.util.ManualClock(1_700_000_000_000)
    watch = jvm.org.apache.spark.HeartbeatReceiver(context._jsc.sc(), clock)
    alive = getattr(watch, "org$apache$spark$HeartbeatReceiver$$executorLastSeen")()
    alive.put("driver", clock.getTimeMillis())
    clock.advance(pause_s * 1000)
    getattr(watch, "org$apache$spark$HeartbeatReceiver$$expireDeadHosts")()
    assert alive.contains("driver")
