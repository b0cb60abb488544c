"""Which processes a local cluster's nodes are, for commands that come after the one that started them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil

from sbon_cli.local_cluster import LocalNode
from sbon_node.errors import SbonError

STATE = "cluster.json"


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster; ``pid`` may have been given to another process since ``created_s``."""

    name: str
    address: str
    api: str
    pid: int
    created_s: float
    arguments: tuple[str, ...] = ()
    """What its command was given, but for the folder of its data."""

    @classmethod
    def of(cls, node: LocalNode) -> NodeState:
        created_s = psutil.Process(node.pid).create_time()
        return cls(
            name=node.name,
            address=node.address,
            api=node.client.api,
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
    """What ``up`` leaves in the folder for ``status``, ``start`` and ``down``."""

    mark: str
    nodes: tuple[NodeState, ...]

    def write(self, folder: Path) -> None:
        temporary = folder / (STATE + ".new")
        temporary.write_bytes(msgspec.json.encode(self))
        temporary.replace(folder / STATE)


def state_in(folder: Path) -> ClusterState | None:
    """None where no cluster was started; raises ``bad-cluster``."""
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("bad-cluster", f"the state cannot be read: {error}", where=str(folder / STATE)) from error


def required_state(folder: Path) -> ClusterState:
    """Raises ``unknown-cluster`` where none was started."""
    state = state_in(folder)
    if state is None:
        raise SbonError("unknown-cluster", "no cluster was started here", where=str(folder), hint="sbon cluster up --dir DIR")
    return state
