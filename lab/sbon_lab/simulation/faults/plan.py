"""The faults of a run, as data: when, which, where, for how long. Drawn from a seed, or written by hand."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from sbon_lab.simulation.faults.power_loss import Survives
from sbon_node.base.failpoints import Failpoint

Action = Literal[
    "kill",  # the daemon dies, its engine process soon after; restarted
    "kill-engine",  # the engine process dies with its JVM, the daemon lives
    "kill-worker",  # a Python worker dies: the batch fails
    "repeat",  # the engine process hands over a committed batch again
    "orphan",  # the daemon dies, its engine process stalls and lives on for a while
    "power",  # daemon and engine process die at once, and the disk loses unsynced data
    "lose-row",  # daemon and engine process die at once, and the outbox has lost its newest batch if no reader relied on it
    "cut",  # no byte passes between two nodes
    "cut-one-way",
    "slow",  # the consumer reads slowly
    "disk-full",
    "give-up",  # the user who submits a query at the node leaves before the answer
    "pause",  # the daemon runs nothing, as after SIGSTOP; its sockets stay open
    "partition",  # no byte passes between the node with its group and all others
    "skew",  # the node's wall clock is off
    "slow-disk",  # work on files takes up to a second
    "wipe",  # daemon and engine process die at once, and the data directory is lost
    "take-address",  # two nodes restart, the other one at once, each at the address of the other
]
ACTIONS: tuple[Action, ...] = get_args(Action)
HELD_BACK: tuple[Action, ...] = ("wipe", "take-address")
"""Faults that a plan draws only where its stage asks for them: a query that loses a disk may fail."""
AIMED: tuple[Action, ...] = ("cut", "cut-one-way", "take-address")
"""Faults between two nodes."""
MAX_TIME_S = 1e7
Seconds = Annotated[float, Meta(ge=0, le=MAX_TIME_S)]
_SHORT_S, _LONG_S = 1.0, 25.0
STEPS: tuple[Failpoint, ...] = get_args(Failpoint)
OF_MOVES_ALONE: tuple[Failpoint, ...] = ("copy", "freeze")
"""Steps that no run without moves takes."""
SURVIVES: tuple[Survives, ...] = get_args(Survives)


class AtFailpoint(msgspec.Struct, frozen=True, tag="step", forbid_unknown_fields=True):
    """The ``count``-th time that ``node`` takes ``step``, over all its incarnations."""

    node: str
    step: Failpoint
    count: Annotated[int, Meta(ge=1)]


class AtCall(msgspec.Struct, frozen=True, tag="call", forbid_unknown_fields=True):
    """Before the ``count``-th change of names or sync on the disk of ``node``, over all its incarnations."""

    node: str
    count: Annotated[int, Meta(ge=1)]


class AtTime(msgspec.Struct, frozen=True, tag="time", forbid_unknown_fields=True):
    seconds: Seconds


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``action`` strikes ``node`` and is repaired ``down_s`` seconds later.

    A cut strikes the path to ``other``, a partition separates the node and its ``group`` from the rest, and a skewed clock is
    ``offset_s`` ahead. For a power loss, ``survives`` is the least that the disk keeps.
    """

    when: AtFailpoint | AtCall | AtTime
    action: Action
    node: str
    other: str = ""
    down_s: Seconds = 1.0
    survives: Survives = "synced"
    group: tuple[str, ...] = ()
    offset_s: Annotated[float, Meta(ge=-1e6, le=1e6)] = 30.0

    def __str__(self) -> str:
        if isinstance(self.when, AtTime):
            at = f"{self.when.seconds:.3f} s"
        else:
            of = self.when.step if isinstance(self.when, AtFailpoint) else "disk call"
            at = f"{of} {self.when.count} of {self.when.node}"
        more = {"power": f", keeping {self.survives}", "skew": f", by {self.offset_s:.3f} s"}.get(self.action, "")
        nodes = " ".join((self.node, *self.group)) + (f" - {self.other}" if self.other else "")
        return f"at {at}: {self.action} {nodes} for {self.down_s:.3f} s{more}"


class Stage(msgspec.Struct, frozen=True):
    """The nodes by their roles, in the order of the rows' path, and the query's leader.

    With ``fsync`` the nodes sync before they promise, so that they may lose power. ``also`` are faults of ``HELD_BACK`` that may
    strike.
    """

    sources: tuple[str, ...]
    operators: tuple[str, ...]
    consumers: tuple[str, ...]
    leaders: tuple[str, ...] = ()
    fsync: bool = True
    also: tuple[Action, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.sources + self.operators + self.consumers + self.leaders))

    def actions_of(self, node: str) -> tuple[Action, ...]:
        """Return the faults that can strike a node; engine faults are for nodes that run operators."""
        befalls: set[Action] = {"kill", "cut", "cut-one-way", "disk-full", "pause", "partition", "skew", "slow-disk", *self.also}
        if node in self.operators:
            befalls |= {"kill-engine", "kill-worker", "repeat", "orphan", "lose-row"}
        if self.fsync:
            befalls.add("power")
        if node in self.consumers:
            befalls.add("slow")
        if node in self.leaders:
            befalls.add("give-up")
        return tuple(action for action in ACTIONS if action in befalls)


def occurrences(steps: Sequence[tuple[str, Failpoint]]) -> list[AtFailpoint]:
    """Return the steps of a run, in order, each as a condition for a fault."""
    counts: dict[tuple[str, Failpoint], int] = {}
    at_failpoints = []
    for node, step in steps:
        counts[node, step] = counts.get((node, step), 0) + 1
        at_failpoints.append(AtFailpoint(node, step, counts[node, step]))
    return at_failpoints


def at_each(stage: Stage, failpoint: Sequence[AtFailpoint]) -> list[Fault]:
    """Return faults at these steps: any node dies, and another fault strikes the node at the step.

    A node dies either too briefly to be noticed, or for so long that all others declare it dead. The other faults take turns.
    """
    faults = []
    for index, when in enumerate(failpoint):
        faults += [
            Fault(when, "kill", node, down_s=_SHORT_S if (index + i) % 2 else _LONG_S) for i, node in enumerate(stage.nodes)
        ]
        others = [node for node in stage.nodes if node != when.node]
        actions = [action for action in stage.actions_of(when.node) if action not in ("kill", "slow")]
        action = actions[index % len(actions)]
        other = others[index % len(others)] if action in AIMED else ""
        faults.append(Fault(when, action, when.node, other, _LONG_S, SURVIVES[index % len(SURVIVES)]))
    return faults


def held_back_at_each(stage: Stage, failpoint: Sequence[AtFailpoint]) -> list[Fault]:
    """Return faults of ``HELD_BACK`` at these steps: any node loses its disk; the node at the step and another swap addresses."""
    faults = []
    for index, when in enumerate(failpoint):
        down_s = (_SHORT_S, _LONG_S)
        faults += [Fault(when, "wipe", node, down_s=down_s[(index + i) % 2]) for i, node in enumerate(stage.nodes)]
        others = [node for node in stage.nodes if node != when.node]
        faults.append(Fault(when, "take-address", when.node, others[index % len(others)], down_s[index % 2]))
    return faults


def every_step(stage: Stage, failpoint: Sequence[AtFailpoint]) -> list[Fault]:
    """Return faults in which a node dies at each of these steps that it takes.

    At the middle occurrence of each kind of step of each node, its neighbours die too. Every other fault strikes the node
    early, in the middle and late, in turn.
    """
    faults = [Fault(when, "kill", when.node, down_s=_SHORT_S) for when in failpoint]
    kinds: dict[tuple[str, Failpoint], list[AtFailpoint]] = {}
    for when in failpoint:
        kinds.setdefault((when.node, when.step), []).append(when)
    for (node, _), occurrences_of_kind in kinds.items():
        chosen = [
            occurrences_of_kind[min(1, len(occurrences_of_kind) - 1)],
            occurrences_of_kind[len(occurrences_of_kind) // 2],
            occurrences_of_kind[max(0, len(occurrences_of_kind) - 2)],
        ]
        node_index = stage.nodes.index(node)
        neighbours = [other for other in stage.nodes[max(0, node_index - 1) : node_index + 2] if other != node]
        faults += [Fault(chosen[1], "kill", other, down_s=_SHORT_S) for other in neighbours]
        for index, action in enumerate(action_name for action_name in stage.actions_of(node) if action_name != "kill"):
            others = neighbours if action in AIMED else [""]
            faults += [Fault(chosen[index % 3], action, node, other, down_s=_SHORT_S) for other in others]
    return faults


def at_calls(calls: Mapping[str, int], *, every: int = 1) -> list[Fault]:
    """Return power losses before every ``every``-th of a node's calls; the values of ``survives`` take turns."""
    return [
        Fault(AtCall(node, number), "power", node, survives=SURVIVES[(number // every) % len(SURVIVES)])
        for node, count in calls.items()
        for number in range(1, count + 1, every)
    ]


def random_plan(
    seed: int | str,
    stage: Stage,
    failpoint: Sequence[AtFailpoint] = (),
    calls: Mapping[str, int] | None = None,
    *,
    most: int = 5,
    within_s: float = 6.0,
) -> tuple[Fault, ...]:
    """Draw one to ``most`` faults anywhere on the stage.

    Two thirds strike at one of ``failpoint``, if given, and half of those strike the node that takes it; the others strike at
    any time. Half of the power losses come before one of a node's ``calls``. One disk is lost at most: with two of its three
    acceptors a query's record is lost, and nobody can end it but a user.
    """
    rng = random.Random(f"faults/{seed}")
    faults = [_random_fault(rng, stage, failpoint, within_s) for _ in range(rng.randint(1, most))]
    wipes = [fault for fault in faults if fault.action == "wipe"]
    faults = [msgspec.structs.replace(fault, action="kill") if fault in wipes[1:] else fault for fault in faults]
    return tuple(_random_loss(rng, fault, calls or {}) if fault.action == "power" else fault for fault in faults)


def _random_loss(rng: random.Random, fault: Fault, calls: Mapping[str, int]) -> Fault:
    fault = msgspec.structs.replace(fault, survives=rng.choice(SURVIVES))
    if fault.node in calls and rng.random() < 0.5:
        return msgspec.structs.replace(fault, when=AtCall(fault.node, rng.randint(1, calls[fault.node])))
    return fault


def _random_fault(rng: random.Random, stage: Stage, failpoint: Sequence[AtFailpoint], within_s: float) -> Fault:
    when: AtFailpoint | AtTime = AtTime(rng.uniform(0.0, within_s))
    node = rng.choice(stage.nodes)
    if failpoint and rng.random() < 0.67:
        when = rng.choice(failpoint)
        node = when.node if rng.random() < 0.5 else node
    action = rng.choice(stage.actions_of(node))
    others = [other for other in stage.nodes if other != node]
    other = rng.choice(others) if action in AIMED else ""
    group = tuple(other for other in others[1:] if rng.random() < 0.4) if action == "partition" else ()
    down_s = rng.choice((0.05, 0.5, 2.0, 6.0, 25.0)) * rng.uniform(0.5, 1.5)
    offset_s = rng.choice((-1, 1)) * rng.choice((0.3, 5.0, 60.0)) * rng.uniform(0.5, 1.5) if action == "skew" else 30.0
    return Fault(when, action, node, other, down_s, group=group, offset_s=offset_s)


class FaultPlan:
    """The due faults, as steps are taken; each strikes once.

    ``history`` holds all steps so far, ``calls`` the number of each node's disk calls.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self.history: list[tuple[str, Failpoint]] = []
        self._counts: dict[tuple[str, Failpoint], int] = {}
        self.calls: Counter[str] = Counter()
        self._at_step: dict[tuple[str, Failpoint, int], list[Fault]] = {}
        self._at_call: dict[tuple[str, int], list[Fault]] = {}
        for fault in faults:
            if isinstance(fault.when, AtFailpoint):
                key = (fault.when.node, fault.when.step, fault.when.count)
                self._at_step.setdefault(key, []).append(fault)
            elif isinstance(fault.when, AtCall):
                self._at_call.setdefault((fault.when.node, fault.when.count), []).append(fault)

    def timed(self) -> list[tuple[float, Fault]]:
        return [(fault.when.seconds, fault) for fault in self.faults if isinstance(fault.when, AtTime)]

    def taken(self, node: str, step: Failpoint) -> tuple[int, list[Fault]]:
        """Return how often the node has taken the step, including now, and the faults that strike now."""
        self.history.append((node, step))
        count = self._counts[node, step] = self._counts.get((node, step), 0) + 1
        return count, self._at_step.pop((node, step, count), [])

    def called(self, node: str) -> list[Fault]:
        """Return the faults that strike before the node's next disk call."""
        self.calls[node] += 1
        return self._at_call.pop((node, self.calls[node]), [])

    def never_injected(self) -> list[Fault]:
        """Return faults whose step or disk call did not occur often enough."""
        return [fault for faults in (*self._at_step.values(), *self._at_call.values()) for fault in faults]
