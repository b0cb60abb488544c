"""What simulated nodes log says nothing here that the test does not."""

from tests.simulation.conftest import _quiet_logs as _quiet_logs
