"""Ants: messages in datagrams by which nodes find paths and hosts for a query (SPEC.md, section 13).

Each is a step from ``sender``, a member, to the receiver. ``round`` is a random number of the leader, and ``number`` counts the
ants of a round. A chain's tasks are named by their position.
"""

from typing import Annotated

from msgspec import Meta

from sbon_protocol.base import Count, Line, Message, Name, Quantity

MAX_TASKS = 10
MAX_HOPS = 32
MAX_REFUSED = 8
MAX_RUNNING = 8

Ratio = Annotated[float, Meta(ge=0, le=1e6)]
TaskTime = Annotated[float, Meta(ge=0, le=1e9)]
Path = Annotated[tuple[Name, ...], Meta(max_length=MAX_HOPS)]


class ServerState(Message, frozen=True):
    """A server in the queueing model: its speed, the sums over its flows, and its free capacity."""

    speed: Quantity
    flows: Quantity
    rate_s: Quantity
    load: Quantity
    service_ms: Quantity
    squares: Quantity
    rate_squares: Quantity
    burstiness: Quantity
    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity


class AntTask(Message, frozen=True):
    """A task of a chain: the time of a message, its spread, the messages out for one in, and the needs."""

    mean_ms: TaskTime
    scv: Ratio
    batch: Ratio
    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity


class AntRunning(Message, frozen=True):
    """A task of another query at ``node`` with the result of the chain's task number ``task``; rows reach it in ``fed_ms``."""

    task: Count
    node: Name
    fed_ms: Quantity


class AntChain(Message, frozen=True):
    """Tasks between two nodes; ``rate_s`` messages a second enter. None of them may go to the nodes ``refused``.

    ``query`` is the uid of a query that runs: the load of its own operators does not count. A placement may pass through one of
    ``running`` in place of the tasks up to its own.
    """

    source: Name
    destination: Name
    rate_s: Quantity
    arrival_scv: Quantity
    tasks: Annotated[tuple[AntTask, ...], Meta(min_length=1, max_length=MAX_TASKS)]
    refused: Annotated[tuple[Name, ...], Meta(max_length=MAX_REFUSED)] = ()
    query: Annotated[str, Meta(max_length=128)] = ""
    running: Annotated[tuple[AntRunning, ...], Meta(max_length=MAX_RUNNING)] = ()


class AntSite(Message, frozen=True):
    """Tasks first .. last - 1 at a node, with their latency there and the extra waiting of others; the node's state if known."""

    node: Name
    first: Count
    last: Count
    own_ms: Quantity
    others_ms: Quantity
    state: ServerState | None = None


Sites = Annotated[tuple[AntSite, ...], Meta(max_length=MAX_TASKS)]


class RouteAnt(Message, frozen=True, tag="route-ant"):
    """A routing ant on its way to ``destination``; it has passed ``path``, begun at ``source``, in ``age_ms`` and ``steps``."""

    round: Count
    number: Count
    sender: Name
    source: Name
    destination: Name
    path: Path
    age_ms: Quantity
    steps: Count


class RouteReturn(Message, frozen=True, tag="route-return"):
    """A routing ant on its way back: the trip from ``sender`` to the destination took ``trip_ms``."""

    round: Count
    number: Count
    sender: Name
    trip_ms: Quantity


class ScoutAnt(Message, frozen=True, tag="scout-ant"):
    """A scouting ant on its way; it has placed the tasks of ``sites``."""

    round: Count
    number: Count
    sender: Name
    chain: AntChain
    greed: Count
    most_load: Quantity
    threshold_ms: Quantity | None
    flat: Quantity
    beyond: Count
    path: Path
    sites: Sites


class ScoutReturn(Message, frozen=True, tag="scout-return"):
    """A scouting ant on its way back with a placement; without sites it discourages others from its path."""

    round: Count
    number: Count
    sender: Name
    chain: AntChain
    sites: Sites


class EnforceAnt(Message, frozen=True, tag="enforce-ant"):
    """An enforcement ant for the site number ``at``; task i is the operator ``operators[i]`` of ``query``."""

    round: Count
    sender: Name
    leader: Name
    chain: AntChain
    sites: Sites
    at: Count
    query: Line
    operators: Annotated[tuple[Line, ...], Meta(max_length=MAX_TASKS)]
    hold_s: Quantity


class EnforceReturn(Message, frozen=True, tag="enforce-return"):
    """End of an enforcement: all sites have reserved, or ``sender`` has not, for a ``reason``."""

    round: Count
    sender: Name
    accepted: bool
    reason: Line = ""


class WithdrawAnt(Message, frozen=True, tag="withdraw-ant"):
    """Undo the reservations of a round, at the receiver and then at ``nodes``, in their order."""

    round: Count
    sender: Name
    nodes: Annotated[tuple[Name, ...], Meta(max_length=MAX_TASKS)] = ()


class CellState(Message, frozen=True, tag="cell-state"):
    """The state of ``sender``, for its neighbours."""

    sender: Name
    state: ServerState


Ant = RouteAnt | RouteReturn | ScoutAnt | ScoutReturn | EnforceAnt | EnforceReturn | WithdrawAnt | CellState
