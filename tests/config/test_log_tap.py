"""Log lines as events for listeners, beside the file or terminal of the log."""

from __future__ import annotations

import asyncio
import json
import logging
from io import StringIO

import structlog

from sbon_node.base.events import Bus, Listener, Listening, LogLine
from sbon_node.base.logging import output
from sbon_node.base.logging.levels import LogLevels, set_levels
from sbon_node.base.logging.output import MAX_TEXT, LogSettings


def lines_of(listener: Listener) -> list[LogLine]:
    lines = []
    while (event := listener.take()) is not None:
        if not isinstance(event, Listening):
            assert isinstance(event, LogLine)
            lines.append(event)
    return lines


async def test_listeners_hear_the_log_at_a_level_of_their_own() -> None:
    out = StringIO()
    tap = output.configure(LogSettings(level="info", format="json"), node="a", stream=out)
    bus = Bus("a", lambda: 7)
    tap.listen_to(bus)
    logger = structlog.get_logger()
    logger.debug("nobody-listens")
    fine = bus.listen(["logs"], level="debug", limit=99, wake=lambda: None)
    logger.debug("asked-for", peer="b", rtt_ms=1.5, path=("x", 1), long="y" * 10_000)
    logger.info("written")
    told, written = lines_of(fine)
    assert (told.level, told.message, told.node, told.at_ms) == ("debug", "asked-for", "a", 7)
    assert (told.fields["peer"], told.fields["rtt_ms"], told.fields["path"]) == ("b", 1.5, "('x', 1)")
    assert len(str(told.fields["long"])) == MAX_TEXT
    assert (written.message, written.fields) == ("written", {})
    bus.forget(fine)
    logger.debug("nobody-listens")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["written"]


async def test_the_level_changes_while_the_node_runs_and_listeners_hear_what_they_did() -> None:
    out = StringIO()
    tap = output.configure(LogSettings(level="warning", format="json"), stream=out)
    bus = Bus("a", lambda: 0)
    tap.listen_to(bus)
    listener = bus.listen(["logs"], level="info", limit=99, wake=lambda: None)
    logger = structlog.get_logger()
    logger.info("before")
    set_levels(LogLevels(level="debug"))
    logger.debug("after")
    set_levels(LogLevels(level="error"))
    logger.warning("later")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["after"]
    assert [line.message for line in lines_of(listener)] == ["before", "later"]


async def test_lines_of_threads_and_libraries_and_tracebacks_become_events() -> None:
    tap = output.configure(LogSettings(level="warning", format="json"), stream=StringIO())
    bus = Bus("a", lambda: 0)
    tap.listen_to(bus)
    woken = asyncio.Event()
    listener = bus.listen(["logs"], limit=99, wake=woken.set)
    listener.take()
    woken.clear()
    await asyncio.to_thread(structlog.get_logger().warning, "of-a-thread")
    await asyncio.wait_for(woken.wait(), 10)
    logging.getLogger("aiohttp").warning("of a library")
    try:
        raise ValueError("bad")
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
    of_thread, of_library, of_error = lines_of(listener)
    assert (of_thread.message, of_library.message, of_library.fields["logger"]) == ("of-a-thread", "of a library", "aiohttp")
    assert "ValueError: bad" in str(of_error.fields["exception"])
