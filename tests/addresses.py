"""Loopback addresses of this test process alone, so that no other program can take a port between its choice and its use."""

from __future__ import annotations

import os


def own_host(number: int = 1) -> str:
    """The ``number``-th loopback address of this process, above those a local cluster may take."""
    assert 1 <= number <= 254
    return f"127.{128 + (os.getpid() >> 8) % 127}.{os.getpid() % 256}.{number}"
