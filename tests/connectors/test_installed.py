"""The example of docs/connectors.md, built as a package, does what it says; what is installed and cannot be used is told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sbon_node.connectors.formats import frames
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.connectors.sources.registry import open_source
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError
from tests.connectors.sent_streams import EXPECTED
from tests.connectors.sink_world import Sinking
from tests.connectors.source_worlds import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "connectors"
STREAM = StreamDeclaration(name="clicks", schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture
def installed(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the path, where its entry points are found as if pip had put it there."""
    monkeypatch.syspath_prepend(str(wheel))


def declared(**options: Any) -> SourceDeclaration:
    return SourceDeclaration(stream="clicks", name="one", node="here", connector="ticks", options=options)


def test_a_source_continues_to_count_after_a_restart(installed: None, tmp_path: Path) -> None:
    world = World(tmp_path, lambda: open_source(declared(interval_s=0.5), STREAM, ConnectorSettings()))
    for _ in range(3):
        found = world.run(until_s=5.2)
    numbers = [row["n"] for frame in found for row in frames.decode(frame.payload).to_pylist()]
    assert numbers == list(range(1, 31))
    with pytest.raises(SbonError) as caught:
        open_source(declared(interval_s=0), STREAM, ConnectorSettings())
    assert (caught.value.code, caught.value.where) == ("bad-option", "options.interval_s")


async def test_a_sink_counts_each_row_once_however_often_it_is_stopped(installed: None, tmp_path: Path) -> None:
    path, read = tmp_path / "beats.json", lambda: json.loads((tmp_path / "beats.json").read_text())
    sinking = Sinking(tmp_path, "tally", {"url": f"tally:{path}", "group": "n"}, pause_s=0.02)
    check_sink("tally", sinking.options, ConnectorSettings())
    await (await sinking.open()).close()
    for _ in range(3):
        task = asyncio.ensure_future(sinking.run())
        await asyncio.wait([task], timeout=0.1)
        task.cancel()
        await asyncio.wait([task])
    await sinking.run()
    stored = read()
    assert stored["counts"] == {str(n): count for n, count in Counter(n for _, n, _ in EXPECTED).items()}
    with pytest.raises(SbonError) as caught:
        check_sink("tally", sinking.options, ConnectorSettings())
    assert caught.value.code == "sink-exists"
    await sinking.withdraw(delivered=False)
    assert json.loads(path.read_text()) == stored
    await sinking.withdraw(delivered=True)
    assert not path.exists()


def test_an_unknown_name_is_refused_with_the_installed_names(installed: None) -> None:
    with pytest.raises(SbonError) as caught:
        open_source(SourceDeclaration(stream="clicks", name="one", node="here", connector="tick"), STREAM, ConnectorSettings())
    assert caught.value.code == "unknown-connector"
    assert caught.value.hint == "did you mean ticks?"
    with pytest.raises(SbonError) as caught:
        check_sink("tallies", {}, ConnectorSettings())
    assert caught.value.hint.startswith("did you mean tally")


@pytest.mark.parametrize(
    "target, reason",
    [("sbon_nowhere:X", "cannot be imported"), ("json:X", "cannot be imported"), ("json:dumps", "is no Connector")],
)
def test_an_unusable_connector_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, reason: str) -> None:
    folder = tmp_path / "broken-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(f"[sbon.sources]\nticks = {target}\nfile = {target}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SbonError) as caught:
        open_source(declared(), STREAM, ConnectorSettings())
    assert (caught.value.code, reason in caught.value.message) == ("bad-connector", True)
    own = SourceDeclaration(stream="clicks", name="one", node="here", connector="file", options={"path": "none.csv"})
    with pytest.raises(SbonError) as caught:
        open_source(own, STREAM, ConnectorSettings()).check()
    assert caught.value.code == "file-not-found", "a name of ours is ours"
