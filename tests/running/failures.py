"""Tells a failed test at once: a run of hours that is broken off has named what failed until then."""

from __future__ import annotations

import pytest

MOST_CHARACTERS = 300
"""Of the reason in the line of one failure; the whole report is at the end of the run."""


class Failures:
    """Writes a line for each failed test, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        lines = str(crash.message if crash else report.longrepr).splitlines() or [""]
        reporter = self._plugins.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n{report.nodeid} failed in its {report.when}: {lines[0][:MOST_CHARACTERS]}")
