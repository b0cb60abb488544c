"""Processes of a local cluster's nodes, stored for later commands."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil

from sbon import SbonError
from sbon.local.cluster import STATE as STATE
from sbon.local.node import LocalNode


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster; ``pid`` may belong to another process since ``created_s``."""

    name: str
    address: str
    api: str
    pid: int
    created_s: float
    arguments: tuple[str, ...] = ()
    """Arguments of its command, except the data folder."""

    @classmethod
    def of(cls, node: LocalNode) -> NodeState:
        created_s = psutil.Process(node.pid).create_time()
        return cls(
            name=node.name,
            address=node.address,
            api=node.api,
            pid=node.pid,
            created_s=created_s,
            arguments=node.arguments,
        )

    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            alive = process.create_time() == self.created_s and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if alive else None


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that ``up`` leaves in the folder for ``status``, ``start`` and ``down``."""

    mark: str
    nodes: tuple[NodeState, ...]
    latency: str | None = None
    """The options with which it was made: of its latencies, and the settings of every node."""
    settings: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        temporary = folder / (STATE + ".new")
        temporary.write_bytes(msgspec.json.encode(self))
        temporary.chmod(0o600)
        temporary.replace(folder / STATE)


def state_in(folder: Path) -> ClusterState | None:
    """Return the state, or None if no cluster was started; raise ``bad-cluster``."""
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("bad-cluster", f"the state cannot be read: {error}", where=str(folder / STATE)) from error


def required_state(folder: Path) -> ClusterState:
    """Return the state; raise ``unknown-cluster`` if none was started."""
    state = state_in(folder)
    if state is None:
        raise SbonError("unknown-cluster", "no cluster was started here", where=str(folder), hint="sbon cluster up --dir DIR")
    return state
