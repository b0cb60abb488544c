"""Checks of a machine before a node starts: ports, the data directory's lock, nodes to join, byte-code."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.base.clock import Clock
from sbon_node.config.config import Config, NodeSettings
from sbon_node.daemon import lock_data_dir
from sbon_node.net.counters import Counters
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from sbon_node.operations import machine_checks
from sbon_node.operations.examination import CheckResult
from sbon_node.operations.machine_checks import examine_machine, holder_of, preflight
from sbon_protocol.datagram import pack, unpack
from sbon_protocol.messages import Nack, Packet, PingRequest
from tests.addresses import own_host


def config(data_dir: Path, **node: Any) -> Config:
    return Config(node=NodeSettings(name="a", data_dir=str(data_dir), bind=own_host(), api_bind=own_host(), **node))


def by_check(findings: list[CheckResult]) -> dict[str, CheckResult]:
    return {finding.check: finding for finding in findings}


def test_a_free_machine_is_fit(tmp_path: Path) -> None:
    found = by_check([*examine_machine(config(tmp_path / "new" / "data")), *preflight(config(tmp_path / "new" / "data"))])
    fit = ("java", "disk", "fsync", "descriptors", "data-dir", "port-udp", "port-tcp", "port-api")
    assert {check: found[check].verdict for check in fit} == dict.fromkeys(fit, "ok")
    assert all(finding.remedy for finding in found.values() if finding.verdict != "ok")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind, check", [(socket.SOCK_DGRAM, "port-udp"), (socket.SOCK_STREAM, "port-tcp")])
def test_a_port_that_is_taken_fails(tmp_path: Path, kind: socket.SocketKind, check: str) -> None:
    with closing(socket.socket(socket.AF_INET, kind)) as taken:
        taken.bind((own_host(), 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        found = by_check(preflight(config(tmp_path, port=taken.getsockname()[1])))
    assert found[check].verdict == "failed"
    assert "in use" in found[check].message
    assert {name for name, finding in found.items() if finding.verdict == "failed"} == {check}


def test_an_address_of_another_machine_fails(tmp_path: Path) -> None:
    elsewhere = Config(node=NodeSettings(name="a", data_dir=str(tmp_path), bind="192.0.2.1", api_bind=own_host()))
    found = by_check(preflight(elsewhere))
    assert (found["port-udp"].verdict, found["port-api"].verdict) == ("failed", "ok")
    assert "node.bind" in found["port-udp"].remedy


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
def test_a_data_directory_another_process_holds_fails_and_the_process_is_named(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from sbon_node.daemon import lock_data_dir; lock_data_dir(Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{script}; print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = by_check(preflight(config(tmp_path)))["data-dir"]
        assert holder_of(tmp_path / "lock") in (holder.pid, None)  # not every system tells
        holder.communicate(b"")
    assert found.verdict == "failed"
    assert str(tmp_path) in found.message
    assert by_check(preflight(config(tmp_path)))["data-dir"].verdict == "ok"
    os.close(lock_data_dir(tmp_path))  # the look itself has held nothing


def test_nodes_to_join_are_tried(tmp_path: Path) -> None:
    with closing(socket.create_server((own_host(2), 0))) as there:
        port = there.getsockname()[1]
        joins = (f"{own_host(2)}:{port}", f"{own_host(3)}:{port}")
        found = by_check(preflight(config(tmp_path, join=joins)))
    assert [found[f"join {address}"].verdict for address in joins] == ["ok", "warning"]
    assert found[f"join-udp {joins[0]}"].verdict == "warning", "nothing answers datagrams there"
    assert f"join-udp {joins[1]}" not in found


@pytest.mark.one_part_per_commit("nodes in operation", parts=6)
@pytest.mark.parametrize("cluster, verdict", [("sbon", "ok"), ("another", "warning")])
def test_a_node_to_join_is_asked_for_a_datagram(tmp_path: Path, cluster: str, verdict: str) -> None:
    """The first datagram is lost; a node of another cluster does not answer."""

    async def run() -> str:
        lost: list[bytes] = []
        clock = Clock.real()
        counters = Counters(clock.now)
        transport = SocketTransport(clock, NetSettings(), counters)

        def received(payload: bytes, sender: Address, stamp: float) -> None:
            packet = unpack(payload)
            if not lost:
                lost.append(payload)
            elif packet.cluster == "sbon" and isinstance(packet.message, PingRequest):
                there.send(pack(Packet("sbon", Nack(packet.message.sequence, "n" * 63))), sender)

        with closing(socket.create_server((own_host(2), 0))) as accepting:
            address = Address(own_host(2), accepting.getsockname()[1])
            there = await transport.open_datagrams(address, received)
            asked = config(tmp_path, join=(str(address),), cluster=cluster)
            found = by_check(await asyncio.to_thread(preflight, asked))
            there.close()
        return found[f"join-udp {address}"].verdict

    assert asyncio.run(run()) == verdict


def test_a_disk_too_small_fails_and_a_smaller_one_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.statvfs(tmp_path)
    free = here.f_bavail * here.f_frsize
    monkeypatch.setattr(machine_checks, "ENOUGH_BYTES", free * 2)
    assert by_check(examine_machine(config(tmp_path)))["disk"].verdict == "warning"
    monkeypatch.setattr(machine_checks, "MIN_FREE_BYTES", free * 2)
    assert by_check(examine_machine(config(tmp_path)))["disk"].verdict == "failed"


def test_missing_byte_code_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(machine_checks, "IMPORTED", ("bare",))
    bare = by_check(examine_machine(config(tmp_path)))["byte-code"]
    assert bare.verdict == "warning"
    assert subprocess.run(bare.remedy.split(), check=False).returncode == 0  # the remedy is a command that mends it
    assert by_check(examine_machine(config(tmp_path)))["byte-code"].verdict == "ok"


def test_too_few_descriptors_are_reported_with_the_number_required(tmp_path: Path) -> None:
    many = config(tmp_path)
    many = msgspec.structs.replace(many, net=msgspec.structs.replace(many.net, max_connections=65_536))
    found = by_check(examine_machine(many))["descriptors"]
    assert found.verdict == "warning"
    assert str(2 * 65_536 + many.api.max_connections + machine_checks.OTHER_FILES) in found.remedy
