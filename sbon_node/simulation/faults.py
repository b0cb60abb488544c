"""What goes wrong in a run, as data: when, what, where, for how long. Made from a seed, or written down by hand."""

from __future__ import annotations

import random
import shlex
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
]
ACTIONS: tuple[Action, ...] = get_args(Action)
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
    """Who is on it: the nodes by what they do, and the steps each takes."""

    sources: tuple[str, ...]
    operators: tuple[str, ...]
    consumers: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.sources + self.operators + self.consumers))

    def steps_of(self, node: str) -> tuple[Step, ...]:
        steps: tuple[Step, ...] = ()
        if node in self.sources:
            steps += ("outbox-write", "position-write", "publish", "send")
        if node in self.operators:
            steps += ("plan", "run", "outbox-write", "commit", "publish", "send", "receive", "acknowledge", "trim")
        if node in self.consumers:
            steps += ("receive", "acknowledge", "sink-write", "position-write")
        return tuple(dict.fromkeys(steps))

    def actions_of(self, node: str) -> tuple[Action, ...]:
        if node in self.operators:
            return ACTIONS
        return ("kill", "cut", "cut-one-way", "disk-full") if node in self.sources else ("kill", "cut", "cut-one-way", "slow")


def every_step(stage: Stage, counts: Sequence[int] = (1, 3, 7)) -> list[tuple[Fault, ...]]:
    """One fault at each step of each node: at several occurrences whatever can befall the node itself, and at one of them its
    neighbours' death and the cut of their paths."""
    plans: list[tuple[Fault, ...]] = []
    for trigger in stage.nodes:
        for step in stage.steps_of(trigger):
            for count in counts:
                plans += [(fault,) for fault in _at(AtStep(trigger, step, count), stage, around=count == counts[1])]
    return plans


def _at(when: AtStep, stage: Stage, *, around: bool) -> list[Fault]:
    here = stage.nodes.index(when.node)
    neighbours = stage.nodes[max(0, here - 1) : here + 2] if around else (when.node,)
    faults = []
    for node in neighbours:
        actions = stage.actions_of(node) if node == when.node else ("kill", "cut")
        for action in actions:
            cuts = action in ("cut", "cut-one-way")
            others = [one for one in stage.nodes[max(0, here - 1) : here + 2] if one != node] if cuts else [""]
            faults += [Fault(when, action, node, other, down_s=1.0) for other in others]
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
    down_s = rng.choice((0.05, 0.5, 2.0, 6.0)) * rng.uniform(0.5, 1.5)
    return Fault(when, action, node, other, down_s)


def replay_command(seed: int | str, faults: Sequence[Fault], rows: int) -> str:
    """The one command that runs it again, and prints its trace."""
    written = msgspec.json.encode(list(faults)).decode()
    return f"python -m sbon_node.simulation --seed {seed} --rows {rows} --faults {shlex.quote(written)}"


class FaultPlan:
    """Which faults are due, as steps are taken; each strikes once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
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
        count = self._counts[node, step] = self._counts.get((node, step), 0) + 1
        return count, self._at_step.pop((node, step, count), [])

    def never_struck(self) -> list[Fault]:
        """Faults whose step was never taken so often."""
        return [fault for faults in self._at_step.values() for fault in faults]
