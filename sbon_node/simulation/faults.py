"""What goes wrong in a run, as data: when, what, where, for how long. Made from a seed, or written down by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from sbon_node.steps import Step

Action = Literal[
    "kill",  # the daemon dies, its engine host soon after; restarted
    "kill-engine",  # the engine host dies with its JVM, the daemon lives
    "kill-worker",  # a Python worker dies: the batch fails
    "repeat",  # the engine host hands over a batch once more that it has committed
    "orphan",  # the daemon dies, its host stalls and lives on for a while
    "power",  # daemon and host die at once, and the newest file of a checkpoint is left empty unless it was relied on
    "lose-row",  # daemon and host die at once, and the outbox has lost what it stored last unless it was relied on
    "cut",  # no byte passes between two nodes
    "cut-one-way",
    "slow",  # the consumer takes its time
    "disk-full",
    "give-up",  # whoever submits a query at the node goes away before the answer
]
ACTIONS: tuple[Action, ...] = get_args(Action)
MAX_TIME_S = 1e7
Seconds = Annotated[float, Meta(ge=0, le=MAX_TIME_S)]
_SHORT_S, _LONG_S = 1.0, 25.0
STEPS: tuple[Step, ...] = get_args(Step)


class AtStep(msgspec.Struct, frozen=True, tag="step", forbid_unknown_fields=True):
    """The ``count``-th time that ``node`` takes ``step``, over all its incarnations."""

    node: str
    step: Step
    count: Annotated[int, Meta(ge=1)]


class AtTime(msgspec.Struct, frozen=True, tag="time", forbid_unknown_fields=True):
    seconds: Seconds


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``action`` strikes ``node`` (a cut: the path to ``other`` as well) and is mended ``down_s`` seconds later."""

    when: AtStep | AtTime
    action: Action
    node: str
    other: str = ""
    down_s: Seconds = 1.0

    def __str__(self) -> str:
        when = f"{self.when.seconds:.3f} s" if isinstance(self.when, AtTime) else f"{self.when.step} {self.when.count}"
        at = f"{when} of {self.when.node}" if isinstance(self.when, AtStep) else when
        return f"at {at}: {self.action} {self.node}{' - ' + self.other if self.other else ''} for {self.down_s:.3f} s"


class Stage(msgspec.Struct, frozen=True):
    """Who is on it: the nodes by what they do, in the order in which rows pass them; and who holds the query's record."""

    sources: tuple[str, ...]
    operators: tuple[str, ...]
    consumers: tuple[str, ...]
    holders: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.sources + self.operators + self.consumers + self.holders))

    def actions_of(self, node: str) -> tuple[Action, ...]:
        """What can befall a node; an engine's troubles are for those that run operators."""
        befalls: set[Action] = {"kill", "cut", "cut-one-way", "disk-full"}
        if node in self.operators:
            befalls |= {"kill-engine", "kill-worker", "repeat", "orphan", "power", "lose-row"}
        if node in self.consumers:
            befalls.add("slow")
        if node in self.holders:
            befalls.add("give-up")
        return tuple(action for action in ACTIONS if action in befalls)


def occurrences(taken: Sequence[tuple[str, Step]]) -> list[AtStep]:
    """The steps of a run, in order, each as what a fault can wait for."""
    counts: dict[tuple[str, Step], int] = {}
    found = []
    for node, step in taken:
        counts[node, step] = counts.get((node, step), 0) + 1
        found.append(AtStep(node, step, counts[node, step]))
    return found


def at_each(stage: Stage, steps: Sequence[AtStep]) -> list[Fault]:
    """At every one of these any node dies, for so short that nobody notices, or for so long that all give it up; and
    something else befalls whoever takes the step, each time another thing."""
    faults = []
    for index, when in enumerate(steps):
        faults += [
            Fault(when, "kill", node, down_s=_SHORT_S if (index + i) % 2 else _LONG_S) for i, node in enumerate(stage.nodes)
        ]
        others = [node for node in stage.nodes if node != when.node]
        actions = [action for action in stage.actions_of(when.node) if action not in ("kill", "slow")]
        action = actions[index % len(actions)]
        other = others[index % len(others)] if action in ("cut", "cut-one-way") else ""
        faults.append(Fault(when, action, when.node, other, down_s=_LONG_S))
    return faults


def every_step(stage: Stage, steps: Sequence[AtStep]) -> list[Fault]:
    """At every one of these whoever takes it dies. At each kind of step of each node, in the middle of them all, its neighbours
    die too; and early, there and late, in turn, everything else befalls it."""
    faults = [Fault(when, "kill", when.node, down_s=_SHORT_S) for when in steps]
    kinds: dict[tuple[str, Step], list[AtStep]] = {}
    for when in steps:
        kinds.setdefault((when.node, when.step), []).append(when)
    for (node, _), found in kinds.items():
        places = [found[min(1, len(found) - 1)], found[len(found) // 2], found[max(0, len(found) - 2)]]
        here = stage.nodes.index(node)
        neighbours = [other for other in stage.nodes[max(0, here - 1) : here + 2] if other != node]
        faults += [Fault(places[1], "kill", other, down_s=_SHORT_S) for other in neighbours]
        for index, action in enumerate(one for one in stage.actions_of(node) if one != "kill"):
            others = neighbours if action in ("cut", "cut-one-way") else [""]
            faults += [Fault(places[index % 3], action, node, other, down_s=_SHORT_S) for other in others]
    return faults


def random_plan(
    seed: int | str, stage: Stage, steps: Sequence[AtStep] = (), *, most: int = 5, within_s: float = 6.0
) -> tuple[Fault, ...]:
    """One to ``most`` faults anywhere on the stage: two thirds at one of ``steps``, where they are known, and half of those
    befall whoever takes it; the others at any time."""
    rng = random.Random(f"faults/{seed}")
    return tuple(_random_fault(rng, stage, steps, within_s) for _ in range(rng.randint(1, most)))


def _random_fault(rng: random.Random, stage: Stage, steps: Sequence[AtStep], within_s: float) -> Fault:
    when: AtStep | AtTime = AtTime(rng.uniform(0.0, within_s))
    node = rng.choice(stage.nodes)
    if steps and rng.random() < 0.67:
        when = rng.choice(steps)
        node = when.node if rng.random() < 0.5 else node
    action = rng.choice(stage.actions_of(node))
    other = ""
    if action in ("cut", "cut-one-way"):
        other = rng.choice([one for one in stage.nodes if one != node])
    down_s = rng.choice((0.05, 0.5, 2.0, 6.0, 25.0)) * rng.uniform(0.5, 1.5)
    return Fault(when, action, node, other, down_s)


class FaultPlan:
    """Which faults are due, as steps are taken; each strikes once. ``history`` is all steps so far."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self.history: list[tuple[str, Step]] = []
        self._counts: dict[tuple[str, Step], int] = {}
        self._at_step: dict[tuple[str, Step, int], list[Fault]] = {}
        for fault in faults:
            if isinstance(fault.when, AtStep):
                key = (fault.when.node, fault.when.step, fault.when.count)
                self._at_step.setdefault(key, []).append(fault)

    def timed(self) -> list[tuple[float, Fault]]:
        return [(fault.when.seconds, fault) for fault in self.faults if isinstance(fault.when, AtTime)]

    def taken(self, node: str, step: Step) -> tuple[int, list[Fault]]:
        """How often the node has taken the step, this time included, and what strikes now."""
        self.history.append((node, step))
        count = self._counts[node, step] = self._counts.get((node, step), 0) + 1
        return count, self._at_step.pop((node, step, count), [])

    def never_struck(self) -> list[Fault]:
        """Faults whose step was never taken so often."""
        return [fault for faults in self._at_step.values() for fault in faults]
