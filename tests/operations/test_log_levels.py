"""Levels of the log at run time, by module and library; and the end of the log in memory."""

from __future__ import annotations

import io
import json
import logging
import os
import tracemalloc
from collections.abc import Iterator

import pytest

from sbon_node.base.logging.levels import LogLevels, level_of, levels, set_levels
from sbon_node.base.logging.output import MAX_CHARACTERS, MAX_LINES, LogSettings, TailedStream, configure, silence, tail
from sbon_node.net.counters import Counters
from sbon_node.streams.links import link
from sbon_protocol.errors import SbonError


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    written = io.StringIO()
    configure(LogSettings(format="json"), stream=written)
    yield written
    set_levels(LogLevels(level="info"))
    silence()


def said(out: io.StringIO) -> list[str]:
    events = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    out.seek(0)
    out.truncate()
    return events


def speak() -> None:
    """A warning of sbon_node.net.counters, an information of sbon_node.streams.links.link, and one of a library."""
    Counters(lambda: 0.0).refuse("a-warning")
    exec('log.info("a-link")', vars(link))  # as that module itself would
    logging.getLogger("some.library").info("a-library")


CASES = [
    ("info", {}, ["a-warning", "a-link"]),
    ("warning", {}, ["a-warning"]),
    ("error", {}, []),
    ("debug", {}, ["a-warning", "a-link", "a-library"]),
    ("error", {"sbon_node.net": "warning"}, ["a-warning"]),
    ("error", {"sbon_node.streams.links.link": "debug"}, ["a-link"]),
    ("info", {"sbon_node.net": "error"}, ["a-link"]),
    ("error", {"sbon_node": "info", "sbon_node.net.counters": "error"}, ["a-link"]),
    ("error", {"some.library": "info"}, ["a-library"]),
]


@pytest.mark.parametrize("level, loggers, expected", CASES)
def test_levels_hold_from_now_on_for_modules_and_libraries(
    out: io.StringIO, level: str, loggers: dict[str, str], expected: list[str]
) -> None:
    logging.getLogger("some.library")
    set_levels(LogLevels(level=level, loggers=loggers))  # type: ignore[arg-type]
    speak()
    assert said(out) == expected
    set_levels(LogLevels(level="info"))
    speak()
    assert said(out) == ["a-warning", "a-link"]


def test_an_unknown_logger_is_refused_and_changes_nothing(out: io.StringIO) -> None:
    set_levels(LogLevels(level="warning"))
    with pytest.raises(SbonError) as refused:
        set_levels(LogLevels(level="debug", loggers={"sbon_node.nett": "debug"}))
    assert refused.value.code == "unknown-logger"
    assert "sbon_node.net" in refused.value.hint
    assert levels() == LogLevels(level="warning")


def test_the_nearest_name_above_a_module_counts() -> None:
    chosen = {"sbon_node.net": "debug", "sbon_node.net.peers": "error"}
    asked = ("sbon_node.net.peers", "sbon_node.net.sockets", "sbon_node.network", "sbon_node")
    assert [level_of(name, "info", chosen) for name in asked] == ["error", "debug", "info", "info"]  # type: ignore[arg-type]


def test_the_last_lines_are_kept_and_long_ones_cut() -> None:
    kept = TailedStream(io.StringIO())
    kept.write("a\nb")
    kept.write("c\n")
    assert tail()[-2:] == ["a", "bc"]
    kept.write("x" * 10_000)
    kept.write("y\n")
    assert tail()[-1] == "x" * MAX_CHARACTERS
    for number in range(2 * MAX_LINES):
        kept.write(f"{number}\n")
    assert tail() == [str(number) for number in range(MAX_LINES, 2 * MAX_LINES)]


def test_a_line_without_an_end_takes_little_memory() -> None:
    with open(os.devnull, "w") as nowhere:
        kept = TailedStream(nowhere)
        tracemalloc.start()
        try:
            for _ in range(100):
                kept.write("x" * 10_000)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held_bytes < 100_000
