"""Wide areas to emulate, and where a local cluster gets its names from."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbon.local.cluster import LocalCluster
from sbon.local.wide_area import CITIES, WideArea, cities, great_circle_km, load_wide_area, of_mapping
from sbon_lab.experiments.coordinates.rtt_matrix import TRUTHS
from sbon_protocol.errors import SbonError
from tests.cli.commands import run
from tests.measured import measured


def test_distances_of_cities() -> None:
    """Against published great-circle distances, to one per cent."""
    for a, b, km in (("london", "new-york", 5570), ("frankfurt", "singapore", 10_260), ("sao-paulo", "san-francisco", 10_440)):
        assert great_circle_km(CITIES[a], CITIES[b]) == pytest.approx(km, rel=0.01)


def test_six_cities_lie_as_the_world_does() -> None:
    area = cities()
    rtt = dict(zip(area.names, area.rtt_ms, strict=True))
    by_name = {a: dict(zip(area.names, rtt[a], strict=True)) for a in area.names}
    assert len(area.names) == 6
    assert all(by_name[a][b] == by_name[b][a] for a in area.names for b in area.names)
    assert by_name["london"]["london"] == 0
    assert by_name["london"]["frankfurt"] < 20 < by_name["new-york"]["san-francisco"] < by_name["london"]["singapore"]


def test_a_matrix_is_read_from_numpy(tmp_path: Path) -> None:
    rounds = np.array([[[0, 10, 4], [12, 0, np.nan], [4, 7, 0]], [[0, 30, 4], [12, 0, np.nan], [4, 7, 0]]], dtype=np.float32)
    np.savez(tmp_path / "m.npz", rtt_ms=rounds, names=["São Paulo", "Oslo", "Oslo"])
    area = load_wide_area(tmp_path / "m.npz")
    assert area.names == ("s-o-paulo", "oslo", "oslo.2")
    assert area.rtt_ms == ((0.0, 20.0, 4.0), (12.0, 0.0, 7.0), (4.0, 7.0, 0.0))


def test_a_cluster_on_a_full_disk_is_refused_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_bytes(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    result = run("http://127.0.0.1:1", "cluster", "up", "-n", "2", "--latency", "cities", "--dir", str(tmp_path / "c"))
    assert result.exit_code == 2
    assert f"{tmp_path}/c/emulation.json: cannot be written: No space left on device" in result.stderr


def test_the_sites_chosen_of_a_large_matrix_are_as_far_apart_as_it_says(tmp_path: Path) -> None:
    truth = TRUTHS["detours"](60, np.random.default_rng(1))
    names = [f"site {number}" for number in range(60)]
    np.savez(tmp_path / "m.npz", rtt_ms=np.stack([truth * 0.9, truth, truth * 7]).astype(np.float32), names=names)
    area = load_wide_area(tmp_path / "m.npz").chosen(18)
    chosen = [int(name.removeprefix("site-")) for name in area.names]
    assert len(set(chosen)) == 18
    assert np.array(area.rtt_ms) == pytest.approx(truth[np.ix_(chosen, chosen)], abs=0.001)


@pytest.mark.parametrize("file", ["aws_regions2024.npz", "wondernetwork239.npz"])
def test_measured_matrices(file: str) -> None:
    area = load_wide_area(measured(file)).chosen(18)
    assert len(set(area.names)) == len(area.rtt_ms) == 18
    assert min(min(x for j, x in enumerate(row) if i != j) for i, row in enumerate(area.rtt_ms)) > 0


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[]",
        '{"names": 2, "rtt_ms": [[0, 1], [1, 0]]}',
        '{"rtt_ms": [[0, 1]]}',
        '{"rtt_ms": [[0, null], [null, 0]]}',
        '{"rtt_ms": [[0, -1], [1, 0]]}',
        '{"rtt_ms": [[0, 1e300], [1e300, 0]]}',
    ],
)
def test_bad_matrices_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(SbonError) as refused:
        load_wide_area(tmp_path / "m.json")
    assert refused.value.code == "bad-latency"


def test_a_timeout_in_a_matrix_is_a_missing_pair_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = [[0.0 if i == j else 10.0 * abs(i - j) for j in range(6)] for i in range(6)]
    times[0][5] = times[5][0] = 75_000.0
    (tmp_path / "m.json").write_text(json.dumps({"rtt_ms": times}))
    assert load_wide_area(tmp_path / "m.json").rtt_ms[0] == (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    assert capsys.readouterr().err == f"{tmp_path}/m.json: 2 times above 60 s counted as missing\n"


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(SbonError) as refused:
        load_wide_area(tmp_path / "m.npz")
    assert (refused.value.code, refused.value.where) == ("bad-latency", str(tmp_path / "m.npz"))


def test_a_matrix_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SbonError) as refused:
        load_wide_area(tmp_path / "m.json")
    assert (refused.value.where, refused.value.message) == (f"{tmp_path}/m.json", "cannot be read: No such file or directory")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SbonError, match="cannot be made: Not a directory") as refused:
        LocalCluster(1, folder=tmp_path / "file" / "cluster")
    assert refused.value.code == "data-dir"


@pytest.mark.parametrize("nodes", ["london", 2.5, None])
def test_nodes_are_a_number_or_a_list_of_names(nodes: Any) -> None:
    with pytest.raises(SbonError, match=f"nodes: a number or a list of names is needed, not {type(nodes).__name__}") as refused:
        LocalCluster(nodes)
    assert (refused.value.code, refused.value.where) == ("bad-cluster", "nodes")


def test_every_pair_needs_a_time() -> None:
    assert of_mapping({("a", "b"): 5.0}, ["a", "b"]).rtt_ms == ((0.0, 5.0), (5.0, 0.0))
    with pytest.raises(SbonError, match="between a and c"):
        of_mapping({("a", "b"): 5.0}, ["a", "b", "c"])


def test_two_clusters_live_apart_and_the_emulation_names_every_site(tmp_path: Path) -> None:
    one = LocalCluster(2, "cities", folder=tmp_path / "one")
    two = LocalCluster(["frankfurt", "london"], "cities", folder=tmp_path / "two")
    assert {n.host for n in one.nodes}.isdisjoint({n.host for n in two.nodes})
    assert [n.name for n in one.nodes] == ["new-york", "london"]
    table = json.loads((tmp_path / "two" / "emulation.json").read_text())
    assert table["sites"] == {n.host: n.name for n in two.nodes}
    assert table["rtt_ms"][0][1] == cities().rtt_ms[2][1]
    one.stop()
    two.stop()


def test_latencies_change_for_the_same_sites_only(tmp_path: Path) -> None:
    cluster = LocalCluster(["london", "frankfurt"], "cities", folder=tmp_path / "one")
    cluster.change_latency({("frankfurt", "london"): 300.0})
    table = json.loads((tmp_path / "one" / "emulation.json").read_text())
    assert table["rtt_ms"] == [[0.0, 300.0], [300.0, 0.0]]
    assert table["sites"] == {node.host: node.name for node in cluster.nodes}
    still = LocalCluster(2, folder=tmp_path / "two")
    for other, latency in ((still, "cities"), (cluster, None), (cluster, WideArea(("a", "b"), ((0.0, 1.0), (1.0, 0.0))))):
        with pytest.raises(SbonError) as refused:
            other.change_latency(latency)
        assert refused.value.code == "bad-latency"
    cluster.stop()
    still.stop()


def test_loads_replace_each_other_and_name_nodes_of_the_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(["london", "frankfurt"], "cities", folder=tmp_path / "one")

    def loads() -> dict[str, float]:
        return dict(json.loads((tmp_path / "one" / "emulation.json").read_text())["load_per_core"])

    assert loads() == {}
    cluster.change_load({"london": 4.0, "frankfurt": 0.5})
    cluster.change_latency({("frankfurt", "london"): 300.0})
    assert loads() == {"london": 4.0, "frankfurt": 0.5}
    cluster.change_load({"london": 1.0})
    assert loads() == {"london": 1.0}
    still = LocalCluster(2, folder=tmp_path / "two")
    for other, wrong, code in ((cluster, {"paris": 1.0}, "bad-latency"), (still, {"node-1": 1.0}, "bad-latency")):
        with pytest.raises(SbonError) as refused:
            other.change_load(wrong)
        assert refused.value.code == code
    for number in (-1.0, 1001.0, float("nan")):
        with pytest.raises(SbonError) as refused:
            cluster.change_load({"london": number})
        assert (refused.value.code, refused.value.where) == ("bad-load", "london")
    assert loads() == {"london": 1.0}
    cluster.stop()
    still.stop()


def test_cuts_replace_each_other_and_name_nodes_of_the_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(["london", "frankfurt"], "cities", folder=tmp_path / "one")

    def cuts() -> list[list[str]]:
        return list(json.loads((tmp_path / "one" / "emulation.json").read_text())["cuts"])

    cluster.change_cuts([("london", "frankfurt")])
    cluster.change_latency({("frankfurt", "london"): 300.0})
    assert cuts() == [["london", "frankfurt"]]
    cluster.change_cuts([("frankfurt", "london")])
    assert cuts() == [["frankfurt", "london"]]
    cluster.change_cuts([])
    assert cuts() == []
    still = LocalCluster(2, folder=tmp_path / "two")
    for other, pair in ((cluster, ("london", "paris")), (still, ("node-1", "node-2"))):
        with pytest.raises(SbonError) as refused:
            other.change_cuts([pair])
        assert refused.value.code == "bad-latency"
    cluster.stop()
    still.stop()


def test_an_unmeasured_pair_goes_over_a_third_site(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"rtt_ms": [[0, null, 3, 9], [null, 0, 4, 1], [3, 4, 0, 2], [9, 1, 2, 0]]}')
    assert load_wide_area(tmp_path / "m.json").rtt_ms[0] == (0.0, 7.0, 3.0, 9.0)
