"""No logs of simulated nodes: the tests show the same."""

from tests.simulation.conftest import _quiet_logs as _quiet_logs
