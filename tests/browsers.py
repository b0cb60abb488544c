"""The system's own Chromium, which Playwright only steers; Debian's is installed where there is none and that may be done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.connectors.servers import program

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Skips the test where there can be none, and says why."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None) or program("chromium", "chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
