"""The system's own Chromium, which Playwright only steers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.connectors.servers import program

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Skip the test where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None) or program("chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
