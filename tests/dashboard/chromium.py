"""A real Chromium for the tests of the dashboard, the system's own: Playwright only steers it."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]


def found() -> str:
    """Where the program is; empty where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


def chromium() -> tuple[str, str]:
    """Its path, installed from Debian's packages where that is missing and may be done; or empty, and why there is none."""
    if path := found():
        return path, ""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "", "there is no Chromium, and only root could install one: apt-get install chromium"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], capture_output=True, env=environment)
    installed = subprocess.run(INSTALL, capture_output=True, text=True, env=environment)
    return found(), f"Chromium could not be installed: {installed.stderr.strip()[-300:]}"
