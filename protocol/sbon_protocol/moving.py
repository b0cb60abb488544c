"""Requests by which an operator moves to another node with its state (see SPEC.md, moves)."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sbon_protocol.base import Call, Count, Line, Message, Name, Quantity

MoveStep = Literal["copying", "following", "settling", "switching", "moved", "given-up", "stopping", "starting"]
FollowStep = Literal["copying", "following", "starting"]
MoveHow = Literal["follow", "stop"]

MAX_JOINT_LINKS = 64
"""Most links of an operator that moves together with a neighbour."""

BatchEnd = Annotated[tuple[Count, ...], Meta(max_length=4096)]
"""The last frame of each input after a batch."""


class LocateComponent(Call, frozen=True):
    """Ask an acceptor of the query's record which node hosts an operator now; the reply is as a majority has it."""

    query: Line
    component: Line


class ComponentHost(Message, frozen=True):
    """The host of an operator by its register; ``move`` is the attempt under way to move it, empty for none."""

    node: Line
    instance: Line
    epoch: Count
    move: Line = ""


class MoveOperator(Call, frozen=True):
    """Ask an operator's host to move it to the node ``target``, or with ``start`` false how that goes on.

    The caller chooses ``attempt``; a repeated call with it starts no second move. The reply comes after ``wait_s`` seconds, or
    once the move is over. ``how``: ``follow`` lets the target follow the operator until it is level; ``stop`` stops the operator
    before its state is copied. ``why`` is kept with the move, for users; empty if a user wants it.
    """

    query: Line
    operator: Line
    target: Name
    attempt: Name
    start: bool = True
    wait_s: Quantity = 0.0
    how: MoveHow = "follow"
    why: Line = ""


class OperatorMove(Message, frozen=True):
    """State of the move that ``attempt`` names.

    ``pause_ms`` is the time for which the operator has read no input; ``code`` and ``reason`` tell why it was given up.
    """

    step: MoveStep
    attempt: Line
    progress: Any
    pause_ms: Count = 0
    code: Line = ""
    reason: Line = ""


class CancelMove(Call, frozen=True):
    """Ask an operator's host to give up the move that is under way, or with ``attempt`` how that goes on.

    The reply comes after ``wait_s`` seconds, or once the move is over.
    """

    query: Line
    operator: Line
    attempt: Line = ""
    wait_s: Quantity = 0.0


class PrepareOperator(Call, frozen=True):
    """Ask the target to reserve capacity, to fetch the copy of the checkpoint from the caller, and to follow the operator.

    ``tail`` is the state of the operator's stream after the copied batch, ``manifest`` the content of the copy, ``lineages``
    those of the streams that the operator reads. The reply comes once capacity is reserved; the rest goes on.
    """

    attempt: Name
    spec: Any
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=4096)]
    tail: Any
    batch: Count
    cut: Any
    lineages: Annotated[dict[Line, Count], Meta(max_length=4096)]


class FollowOperator(Call, frozen=True):
    """Tell the target the position up to which the operator has emitted, and ask how far it is. ``cut`` is nil before that.

    ``batches`` are those that the operator has planned after ``cut``, each by the last frame of each input; the batch of ``cut``
    itself began at ``before``. Once it ``halts``, it plans nothing more; the target runs the last of them as it is, and rests.
    """

    operator: Line
    attempt: Name
    cut: Any = None
    batches: Annotated[tuple[BatchEnd, ...], Meta(max_length=16)] = ()
    halts: bool = False
    before: BatchEnd = ()


class OperatorFollowed(Message, frozen=True):
    """Progress of a follower; ``level`` means that the host should stop now, since the target has little left to run."""

    step: FollowStep
    progress: Any
    level: bool = False


class SettleOperator(Call, frozen=True):
    """Ask the follower to come to rest where its frozen host has, and to store that it is ready.

    ``cut`` and ``stream`` are the host's position and stream. After the reply the follower waits for the register alone.
    """

    operator: Line
    attempt: Name
    cut: Any
    stream: Any


class ActivateOperator(Call, frozen=True):
    """Hand the stream over to the new host, which the register names in ``epoch``, with the next retained ``frames``.

    With the last ones, ``more`` is false, and the reply comes once the operator publishes there. A call whose first frame is the
    first retained one begins anew. Repeated after the reply, it changes nothing. ``measures`` are the sums that the old host has
    measured, with the last frames.
    """

    operator: Line
    attempt: Name
    epoch: Count
    stream: Any
    frames: Annotated[tuple[Any, ...], Meta(max_length=4096)] = ()
    more: bool = False
    measures: Any = None


class AbandonOperator(Call, frozen=True):
    """Tell the target that the move is given up: it forgets the follower."""

    operator: Line
    attempt: Name


class JointLink(Message, frozen=True):
    """A link of an operator: it ``reads`` ``vertex`` at ``node``, or sends to it, ``bytes_s`` in a second."""

    vertex: Line
    node: Name
    bytes_s: Quantity
    reads: bool


class WeighJointMove(Call, frozen=True):
    """Ask the host of ``operator`` whether it may move together with ``neighbour``, which the caller hosts; reserves nothing.

    The reply is all that the decision needs.
    """

    query: Line
    operator: Line
    neighbour: Line


class JointSide(Message, frozen=True):
    """An operator as its host knows it: links, needs, size of its state, newest moves, and ``refused`` nodes, no targets now."""

    links: Annotated[tuple[JointLink, ...], Meta(max_length=MAX_JOINT_LINKS)]
    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity
    state_bytes: Count
    past_moves: Annotated[tuple[Any, ...], Meta(max_length=16)] = ()
    refused: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()


class MoveJointly(Call, frozen=True):
    """Ask the host of ``operator`` to move it to ``target``, since the caller then moves ``neighbour`` to ``neighbour_target``.

    ``side`` is the neighbour as the caller knows it. The receiver measures both moves itself before it agrees. A MoveOperator
    with ``start`` false asks how the move ``attempt`` goes on.
    """

    query: Line
    operator: Line
    neighbour: Line
    target: Name
    neighbour_target: Name
    attempt: Name
    side: JointSide
