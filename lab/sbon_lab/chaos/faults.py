"""The faults of a run of ``sbon bench chaos``, drawn from a seed. Pure.

A schedule says when, which, and which nodes first. The run strikes the first of these nodes that the queries may lose in that way
at that moment.
"""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

Action = Literal[
    "kill",  # the daemon dies, its engine process soon after; restarted
    "kill-engine",  # the engine process dies with its JVM, the daemon lives
    "kill-jvm",  # the JVM dies
    "kill-worker",  # a Python worker dies: the batch fails
    "kill-all",  # all daemons die at once; restarted
    "pause",  # all processes of a node get SIGSTOP
    "wipe",  # all processes of a node die, and its data directory is deleted; restarted
    "cut",  # nothing passes between two nodes
    "cut-one-way",
    "slow-link",  # the round trip between two nodes takes several times as long
    "disk-full",  # the processes of a node can write nothing more to files
    "move",  # a user moves an operator
    "drain",  # a user drains a node, which leaves, and joins again with an empty disk
    "leave",  # a user moves operators away from a node, which then leaves, and joins again with an empty disk
]
ACTIONS: tuple[Action, ...] = get_args(Action)
LOSES_DISK: frozenset[Action] = frozenset({"wipe", "drain", "leave"})
"""Faults after which the node is a new one: never for nodes with sources or sinks."""
BETWEEN_TWO: frozenset[Action] = frozenset({"cut", "cut-one-way", "slow-link"})
EVERY_S = 12.0
"""Seconds between two faults on average: ten minutes have each kind at least three times."""
DOWN_S = (0.5, 3.0, 12.0)
"""Typical seconds until a repair: unnoticed, noticed, and longer than it takes to declare a node dead."""
FACTORS = (3.0, 10.0)
"""How many times as long a slow link takes, between these two."""


class Stage(NamedTuple):
    """Nodes by their role: sources and sinks are ``pinned`` to some, and the others are ``free``."""

    pinned: tuple[str, ...]
    free: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.pinned + self.free


class Fault(NamedTuple):
    """``action`` at ``at_s``, for ``down_s`` seconds, at the first of ``nodes`` at which it may strike.

    ``factor`` is that of a slow link; ``lot`` (0 to 1) chooses among queries.
    """

    at_s: float
    action: Action
    nodes: tuple[str, ...]
    down_s: float
    factor: float
    lot: float


def draw(seed: int, seconds: float, stage: Stage, actions: Sequence[Action] = ACTIONS, every_s: float = EVERY_S) -> list[Fault]:
    """Return faults in the order of their times; each action strikes once before any strikes again."""
    rng = random.Random(f"chaos/{seed}")
    faults, turn = list[Fault](), list[Action]()
    for number in range(int(seconds / every_s)):
        turn = turn or rng.sample(list(actions), len(actions))
        action = turn.pop()
        nodes = stage.free if action in LOSES_DISK else stage.nodes
        faults.append(
            Fault(
                at_s=(number + rng.uniform(0.05, 0.95)) * every_s,
                action=action,
                nodes=tuple(rng.sample(nodes, len(nodes))),
                down_s=rng.choice(DOWN_S) * rng.uniform(0.7, 1.3),
                factor=rng.uniform(*FACTORS),
                lot=rng.random(),
            )
        )
    return faults
