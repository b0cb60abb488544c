"""An operator's dead letters: each skipped row once despite repeated batches, and a durable count."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.dead_letters import DeadLetters
from sbon_node.hosting.operators.ports import OperatorLetters, trim_letters
from sbon_node.streams.skipped import SkippedRow, SkippedRows
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import declare, in_cluster, source_at, submitted

LIMITS = ConnectorSettings(dead_letter_max_bytes=400, dead_letter_text_bytes=8)


def opened(folder: Path) -> OperatorLetters:
    return OperatorLetters(folder, "q.o1", LIMITS)


def batch(*rows: str, more: int = 0) -> SkippedRows:
    kept = tuple(SkippedRow(expression="1 / n", reason="[DIVIDE_BY_ZERO]", row=row) for row in rows)
    return SkippedRows(rows=len(rows) + more, kept=kept)


def letters(folder: Path) -> list[str]:
    return [json.loads(line)["row"] for line in (folder / "q.o1.ndjson").read_text().splitlines()]


def test_a_batch_that_is_run_again_replaces_itself(tmp_path: Path) -> None:
    opened(tmp_path).write(3, batch("a"))
    for _ in range(3):
        again = opened(tmp_path)  # as after a restart of the node
        again.write(5, batch("b", "c", more=7))
        again.write(5, batch("b", "c", more=7))
    assert letters(tmp_path) == ["a", "b", "c"]
    assert again.rows == opened(tmp_path).rows == 10
    again.write(5, batch("d"))
    again.write(6, batch("e"))
    again.write(5, batch("f"))
    assert letters(tmp_path) == ["a", "f"]
    assert again.rows == 2


def test_a_kill_between_its_files_neither_loses_nor_repeats_a_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(tmp_path)
    before.write(0, batch("a"))
    store = OperatorLetters._store
    for deaths in (1, 2):
        stored = 0

        def dying(self: OperatorLetters, at: object, deaths: int = deaths) -> None:
            nonlocal stored
            stored += 1
            if stored == deaths:
                raise KeyboardInterrupt
            store(self, at)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(OperatorLetters, "_store", dying)
            with pytest.raises(KeyboardInterrupt):
                opened(tmp_path).write(1, batch("b"))
        after = opened(tmp_path)
        assert after.rows == 1
        after.write(1, batch("b"))
        assert letters(tmp_path) == ["a", "b"]
        assert after.rows == 2
        after.write(1, batch("b"))


def test_the_file_is_bounded_and_the_count_is_not(tmp_path: Path) -> None:
    found = opened(tmp_path)
    for number in range(20):
        found.write(number, batch(f"{number:02}" + "x" * 100))
    assert found.rows == 20
    assert Path(found.path).stat().st_size <= LIMITS.dead_letter_max_bytes
    assert letters(tmp_path)[0] == "00xxxxxx"


def test_skipped_rows_of_ended_operators_stay_and_a_new_operator_begins_anew(tmp_path: Path) -> None:
    over = opened(tmp_path)
    over.write(0, batch("a"))
    over.close()
    assert letters(tmp_path) == ["a"]
    fresh = opened(tmp_path)
    assert (fresh.rows, fresh.path) == (0, "")
    fresh.write(0, batch("b"))
    assert letters(tmp_path) == ["b"]


def test_a_full_disk_is_reported_and_the_next_try_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(tmp_path)
    with monkeypatch.context() as patched:

        def full(self: DeadLetters, lines: object) -> None:
            raise SbonError("disk-full", "no space for more")

        patched.setattr(DeadLetters, "write_lines", full)
        with pytest.raises(SbonError):
            found.write(0, batch("a"))
    found.write(0, batch("a"))
    assert letters(tmp_path) == ["a"]
    assert found.rows == 1


def test_all_files_together_are_bounded_the_oldest_go_and_those_of_running_operators_stay(tmp_path: Path) -> None:
    limits = ConnectorSettings(dead_letter_max_bytes=400, dead_letters_max_bytes=1000)
    running = OperatorLetters(tmp_path, "run.o0", limits)
    running.write(0, batch("x" * 200))
    for number in range(12):
        over = OperatorLetters(tmp_path, f"q{number:02}.o0", limits)
        over.write(0, batch("x" * 200))
        os.utime(over.path, ns=(number * 10**9, number * 10**9))
        over.close()
    left = sorted(path.name for path in tmp_path.glob("*.ndjson"))
    assert left == ["q10.o0.ndjson", "q11.o0.ndjson", "run.o0.ndjson"]
    assert sum((tmp_path / name).stat().st_size for name in left) <= 1000
    trim_letters(tmp_path, ConnectorSettings(dead_letters_max_bytes=0))
    assert [path.name for path in tmp_path.glob("*.ndjson")] == ["run.o0.ndjson"]


@pytest.mark.parametrize("on_error", ["skip", "null"])
def test_the_simulated_engine_refuses_what_it_cannot_do(tmp_path: Path, on_error: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        with pytest.raises(SbonError) as caught:
            await submitted(cluster, "a", None, on_error=on_error)
        assert caught.value.code == "unsupported-on-error"

    in_cluster(tmp_path, "a", test)
