"""What goes wrong in a run, as data: when, what, where, for how long. Made from a seed, or written down by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

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
_SHORT_S, _LONG_S = 1.0, 25.0
STEPS: tuple[Step, ...] = get_args(Step)


class AtStep(msgspec.Struct, frozen=True, tag="step"):
    """The ``count``-th time that ``node`` takes ``step``, over all its incarnations."""

    node: str
    step: Step
    count: int


class AtTime(msgspec.Struct, frozen=True, tag="time"):
    seconds: float


class Fault(msgspec.Struct, frozen=True):
    """``action`` strikes ``node`` (a cut: the path to ``other`` as well) and is mended ``down_s`` seconds later."""

    when: AtStep | AtTime
    action: Action
    node: str
    other: str = ""
    down_s: float = 1.0

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

    def steps_of(self, node: str) -> tuple[Step, ...]:
        steps: tuple[Step, ...] = ("store",)
        if node in self.sources:
            steps += ("outbox-write", "position-write", "publish", "send")
        if node in self.operators:
            steps += ("plan", "run", "outbox-write", "commit", "publish", "send", "receive", "acknowledge", "trim")
        if node in self.consumers:
            steps += ("receive", "acknowledge", "sink-write", "position-write")
        if node in self.holders:
            steps += ("ask", "answer")
        return tuple(dict.fromkeys(steps))

    def actions_of(self, node: str) -> tuple[Action, ...]:
        if node in self.operators:
            return tuple(action for action in ACTIONS if action not in ("slow", "give-up"))
        actions: tuple[Action, ...] = ("kill", "cut", "cut-one-way", "disk-full")
        actions += ("slow",) if node in self.consumers else ()
        return actions + (("give-up",) if node in self.holders else ())


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
    """At each kind of step of each node, of these: its death early, in the middle and late, the death of its neighbours in the
    middle, and at one of the three places everything else that can befall it."""
    kinds: dict[tuple[str, Step], list[AtStep]] = {}
    for when in steps:
        kinds.setdefault((when.node, when.step), []).append(when)
    faults = []
    for (node, _), found in kinds.items():
        places = [found[min(1, len(found) - 1)], found[len(found) // 2], found[max(0, len(found) - 2)]]
        here = stage.nodes.index(node)
        neighbours = [other for other in stage.nodes[max(0, here - 1) : here + 2] if other != node]
        faults += [Fault(when, "kill", node, down_s=_SHORT_S) for when in dict.fromkeys(places)]
        faults += [Fault(places[1], "kill", other, down_s=_SHORT_S) for other in neighbours]
        for index, action in enumerate(one for one in stage.actions_of(node) if one != "kill"):
            others = neighbours if action in ("cut", "cut-one-way") else [""]
            faults += [Fault(places[index % 3], action, node, other, down_s=_SHORT_S) for other in others]
    return faults


def random_plan(seed: int | str, stage: Stage, *, most: int = 5, within_s: float = 6.0) -> tuple[Fault, ...]:
    """One to ``most`` faults, two thirds of them at steps, anywhere on the stage."""
    rng = random.Random(f"faults/{seed}")
    return tuple(_random_fault(rng, stage, within_s) for _ in range(rng.randint(1, most)))


def _random_fault(rng: random.Random, stage: Stage, within_s: float) -> Fault:
    node = rng.choice(stage.nodes)
    action = rng.choice(stage.actions_of(node))
    when: AtStep | AtTime
    if rng.random() < 0.67:
        trigger = node if rng.random() < 0.7 else rng.choice(stage.nodes)
        when = AtStep(trigger, rng.choice(stage.steps_of(trigger)), rng.choice((1, 2, 3, 5, 8, 12)))
    else:
        when = AtTime(rng.uniform(0.0, within_s))
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
