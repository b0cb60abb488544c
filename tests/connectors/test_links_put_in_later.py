"""A link that is put in after a path was looked at leads no sink and no source out of the folders they may use."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sbon_node.connectors.access.roots import open_within
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.registry import open_source
from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError
from tests.connectors.sink_world import Sinking

STREAM = StreamDeclaration(name="s", schema=parse_schema("ts timestamp, n int"), event_time="ts")
SECRET = "ts,n\n2026-01-01T00:00:00Z,42\n"


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """``data`` may be used; what lies in ``other`` is somebody else's."""
    for name in ("data/in", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("out.csv", "out.csv.position", "out.csv.position.new", "part-00001.parquet", "rows.csv"):
        (tmp_path / "other" / name).write_text(SECRET)
    return tmp_path


def seen(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def settings(roots: Path) -> ConnectorSettings:
    return ConnectorSettings(data_roots=(str(roots / "data"),), retry_s=0.05, retry_max_s=0.1)


def swap_folder(roots: Path) -> None:
    (roots / "data" / "in").rename(roots / "data" / "was")
    (roots / "data" / "in").symlink_to(roots / "other")


def swap(name: str) -> Callable[[Path], None]:
    def done(roots: Path) -> None:
        path = roots / "data" / "in" / name
        path.unlink(missing_ok=True)
        path.symlink_to(roots / "other" / Path(name).name)

    return done


def swap_parts(roots: Path) -> None:
    path = roots / "data" / "in" / "out.parquet"
    path.rename(path.with_name("was"))
    path.symlink_to(roots / "other")


SWAPS = [
    ("out.csv", swap_folder),
    ("out.csv", swap("out.csv")),
    ("out.csv", swap("out.csv.position")),
    ("out.csv", swap("out.csv.position.new")),
    ("out.parquet", swap_folder),
    ("out.parquet", swap_parts),
    ("out.parquet", swap("out.parquet/part-00001.parquet")),
]


@pytest.mark.parametrize("again", [False, True], ids=["while it is open", "before it is opened again"])
@pytest.mark.parametrize("number", range(len(SWAPS)))
async def test_a_sink_writes_nowhere_else(roots: Path, number: int, again: bool) -> None:
    name, swapped = SWAPS[number]
    before = seen(roots / "other")
    sinking = Sinking(roots / "node", "file", {"path": str(roots / "data" / "in" / name)}, settings=settings(roots))
    runner = await sinking.open()
    if again:
        await runner.close()
        swapped(roots)
        said = await ended(sinking.run())
    else:
        swapped(roots)
        said = await ended(runner.run())
        await runner.close()
    assert said.partition(" ")[0] in ("", "outside-roots", "sink-lost", "disk-error", "bad-option")
    assert "/proc/" not in said
    assert seen(roots / "other") == before
    assert (await ended(sinking.withdraw(delivered=True))).partition(" ")[0] in ("", "outside-roots", "disk-error")
    assert seen(roots / "other") == before


async def ended(work: Awaitable[object]) -> str:
    """How it ends: the code and the text of its error."""
    try:
        await work
    except SbonError as error:
        return f"{error.code} {error}"
    return ""


@pytest.mark.parametrize("connector", ["file", "tail"])
async def test_a_source_reads_nowhere_else(roots: Path, connector: str) -> None:
    path = roots / "data" / "in" / "rows.csv"
    path.write_text("ts,n\n2026-01-01T00:00:00Z,7\n")
    options = {"path": str(path)} | ({"from": "beginning"} if connector == "tail" else {})
    declared = SourceDeclaration(stream="s", name="a", node="n", connector=connector, options=options)
    source = open_source(declared, STREAM, settings(roots))
    swap_folder(roots)

    async def read() -> None:
        await source.open(None)
        await source.read()

    assert (await ended(read())).startswith("outside-roots ")


def test_a_link_put_in_between_the_look_and_the_opening_is_not_followed(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: when the path has been resolved."""
    resolve = Path.resolve
    path = roots / "data" / "in" / "rows.csv"
    path.write_text("mine")

    def swapping(self: Path, strict: bool = False) -> Path:
        found = resolve(self, strict)
        if self == path:
            swap_folder(roots)
        return found

    monkeypatch.setattr(Path, "resolve", swapping)
    with pytest.raises((SbonError, OSError)):
        os.close(open_within(path, (str(roots / "data"),), os.O_RDONLY))
