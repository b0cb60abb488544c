"""Memory and disk of a node by their use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbon_node.model.frames import FrameDraft
from sbon_node.operations.disk_usage import disk_usage, kind_of, process_memory
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.nodes import ProcessKind

KIB, MIB = 2**10, 2**20


def test_parts_of_the_data_directory_add_up_to_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db", StreamSettings())
    for name, frames in (("flights/jfk", 3), ("flights/sfo", 1), ("dropped", 4)):
        outbox.open_stream(name, "source", finite=True)
        outbox.write_source(name, [FrameDraft(payload=bytes(MIB), rows=1)] * frames, b"")
    outbox.drop_stream("dropped")
    for path, size in {
        "operators/q1.1/state/0/1.delta": 40 * KIB,
        "spill/q1.1/in0/1.frames": 80 * KIB,
        "dead-letters/flights.jfk.ndjson": 12 * KIB,
        "sinks/q1.json": KIB,
        "scratch/block/1": 20 * KIB,
        "node.db": 30 * KIB,
        "engine.log": 5 * KIB,
        "engine.log.1": 9 * KIB,
        "found": KIB,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * size)
    parts = disk_usage(tmp_path, outbox.stored())
    assert [part.bytes for part in parts] == sorted((part.bytes for part in parts), reverse=True)
    found = {(part.kind, part.name): part.bytes for part in parts}
    assert 3 * MIB <= found["stream", "flights/jfk"] < 3.01 * MIB
    assert MIB <= found["stream", "flights/sfo"] < 1.01 * MIB
    assert ("stream", "dropped") not in found
    for kind, name, least in (
        ("checkpoint", "q1.1", 40 * KIB),
        ("spill", "q1.1", 80 * KIB),
        ("dead-letters", "flights.jfk", 12 * KIB),
        ("delivery-positions", "", KIB),
        ("scratch", "", 20 * KIB),
        ("records", "", 30 * KIB),
        ("log", "engine.log", 5 * KIB),
        ("log", "engine.log.1", 9 * KIB),
        ("other", "found", KIB),
    ):
        assert least <= found[kind, name] <= least + 40 * KIB  # type: ignore[index]
    apart = sum(os.lstat(tmp_path / name).st_blocks * 512 for name in ("operators", "spill", "dead-letters", "sinks", "scratch"))
    everything = sum(path.lstat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert sum(found.values()) == everything - apart
    outbox.close()


def test_free_pages_of_the_outbox_are_apart_from_streams(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db", StreamSettings())
    outbox.open_stream("files/a", "source", finite=True)
    outbox.write_source("files/a", [FrameDraft(payload=bytes(MIB), rows=1)] * 8, b"")
    assert outbox.stored().free_bytes < MIB
    outbox.drop_stream("files/a")
    stored = outbox.stored()
    assert stored.streams == {}
    assert stored.free_bytes >= 8 * MIB
    outbox.close()


def test_process_memory_covers_descendants() -> None:
    work = "x = bytearray(b'x') * (100 * 2**20)\nprint('there', flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        processes = {process.pid: process for process in process_memory(os.getpid())}
        own, other = processes[os.getpid()], processes[child.pid]
        assert (own.kind, other.kind) == ("daemon", "python")
        for process in (own, other):
            assert process.threads >= 1
            assert process.proportional_bytes is not None
            assert 0 < process.proportional_bytes <= process.resident_bytes + 2 * MIB
        assert other.resident_bytes > 100 * MIB
    finally:
        child.communicate("")


ZYGOTE = ["python", "-m", "sbon_node.engine.spark.zygote", "zygote.sock"]


@pytest.mark.parametrize(
    "command, parent, kind",
    [
        (["/usr/bin/java", "-Xmx512m"], [], "jvm"),
        (["python", "-P", "-m", "sbon_node.planning.process.worker", "512"], [], "planner"),
        (["python", "-m", "sbon_node.engine.spark.engine_process", "/data/operators"], [], "engine"),
        (ZYGOTE, ["python", "-m", "sbon_node.engine.spark.engine_process"], "zygote"),
        (ZYGOTE, ZYGOTE, "python"),
        (["python", "launch.py"], ["/usr/bin/java"], "python"),
        ([], [], "python"),
    ],
)
def test_kinds_of_processes(command: list[str], parent: list[str], kind: ProcessKind) -> None:
    assert kind_of(command, parent) == kind
