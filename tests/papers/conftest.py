"""The plane of the tests of placement; no logs of simulated nodes: the tests show the same."""

from tests.placement.conftest import plane as plane
from tests.simulation.conftest import _quiet_logs as _quiet_logs
