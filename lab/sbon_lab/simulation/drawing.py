"""Random castings: worlds of one query, of several queries at once, and of operators that move."""

import random
from collections.abc import Sequence

from sbon_lab.simulation.casting import NODES, Casting, Life, PlannedMove, PlannedQuery
from sbon_lab.simulation.faults.plan import AtFailpoint, occurrences
from sbon_lab.simulation.query_kinds import Kind
from sbon_node.base.failpoints import Failpoint

SEVERAL = 10
"""One world in so many runs several queries."""
AT_REST = 10
"""One world in so many has no moves, where moves are asked for."""
TWINS = 0.4
"""Probability that a query of several is submitted under the name of an earlier one, which may still run."""
STOPS = 0.2
"""Probability that an operator stops before its state is copied."""
FIFTH = "t"
"""A node beside the usual ones, to which operators can move."""
OF_MOVES: tuple[Failpoint, ...] = ("ask", "answer", "store", "copy", "freeze")
"""Steps that a move takes, beside those of batches and frames."""
AIMED = 40
"""Steps of each kind, at most, at which faults may strike a move."""
KINDS: tuple[Kind, ...] = ("filter", "window", "join", "chain")


def random_casting(world: int, *, moves: bool) -> Casting:
    """Draw the casting of a world; any node may hold the record or host the operator."""
    if moves and world % AT_REST:
        return _moving(random.Random(f"moves/{world}"))
    rng = random.Random(f"casting/{world}")
    return Casting(
        submitter=rng.choice(NODES),
        room=NODES,
        strategy=rng.choice(("relaxation", "producer", "consumer", "random")),
        sink=rng.choice(("file", "follow")),
        fsync=rng.random() < 0.7,
        queries=_several(rng) if world % SEVERAL == SEVERAL - 1 else (),
    )


def _several(rng: random.Random) -> tuple[PlannedQuery, ...]:
    """Draw two to four queries at once. Some are stopped, some names are used again, and some have two queries at once."""
    queries: list[PlannedQuery] = []
    for number in range(rng.randint(2, 4)):
        lives = []
        for _ in range(rng.randint(1, 2)):
            sources = tuple(rng.sample(NODES, rng.randint(1, 2)))
            stop_after_s = rng.uniform(0.0, 4.0) if rng.random() < 0.4 else None
            lives.append(
                Life(
                    sql=rng.choice(("filter", "window")),
                    sources=sources,
                    submitter=rng.choice(NODES),
                    consumer=rng.choice(NODES),
                    after_s=rng.uniform(0.0, 2.0),
                    stop_after_s=stop_after_s,
                    stop_at=rng.choice(NODES),
                )
            )
        name = rng.choice(queries).name if queries and rng.random() < TWINS else f"q{number}"
        queries.append(PlannedQuery(name=name, lives=tuple(lives)))
    return tuple(queries)


def _moving(rng: random.Random) -> Casting:
    """Draw one to three queries whose operators move; their rows last long enough for some moves."""
    nodes = (*NODES, FIFTH)[: rng.choice((4, 5, 5))]
    queries = []
    for number in range(rng.choice((1, 2, 2, 3))):
        life = Life(
            sql=rng.choice(KINDS),
            sources=tuple(rng.sample(NODES, rng.randint(1, 2))),
            submitter=rng.choice(NODES),
            consumer=rng.choice(NODES),
            after_s=rng.choice((0.0, rng.uniform(0.0, 2.0))),
            stop_after_s=rng.uniform(0.5, 5.0) if rng.random() < 0.15 else None,
            stop_at=rng.choice(NODES),
            moves=_moves(rng, nodes),
        )
        again = Life(sql=rng.choice(KINDS), submitter=rng.choice(NODES), after_s=rng.uniform(0.0, 1.0), moves=_moves(rng, nodes))
        queries.append(PlannedQuery(name=f"q{number}", lives=(life, again) if rng.random() < 0.2 else (life,)))
    return Casting(
        nodes=nodes,
        room=nodes,
        strategy=rng.choice(("relaxation", "producer", "consumer", "random")),
        rows=rng.choice((160, 240)),
        fsync=rng.random() < 0.7,
        queries=tuple(queries),
    )


def _moves(rng: random.Random, nodes: Sequence[str]) -> tuple[PlannedMove, ...]:
    """Draw a tour of one operator, which may return to where it was, or moves of several, some of them at once."""
    at_first = rng.uniform(0.1, 0.8)
    if rng.random() < 0.5:
        there, back = rng.sample(nodes, 2)
        tour = (there, back, there, *rng.sample(nodes, 2))[: rng.randint(2, 5)]
        operator = rng.choice((0, -1, -1))
        return tuple(
            PlannedMove(to=node, operator=operator, after_s=0.1 if index else at_first) for index, node in enumerate(tour)
        )
    return tuple(
        PlannedMove(
            to=rng.choice(nodes),
            operator=rng.randrange(6),
            how="stop" if rng.random() < STOPS else "follow",
            after_s=rng.uniform(0.0, 0.8) if index else at_first,
            waits=rng.random() < 0.8,
        )
        for index in range(rng.randint(2, 5))
    )


def aimed(
    seed: int, steps: Sequence[tuple[str, Failpoint]], moving: Sequence[tuple[int, int]], of_moves: Sequence[Failpoint] = OF_MOVES
) -> list[AtFailpoint]:
    """Return steps of an undisturbed run at which faults may strike: most of them in its moves, equally many of each kind."""
    rng, every = random.Random(f"aimed/{seed}"), occurrences(steps)
    during = dict.fromkeys(number for start, end in moving for number in range(start, end))
    chosen: list[AtFailpoint] = []
    for step in of_moves:
        of_kind = [every[number] for number in during if every[number].step == step]
        chosen += rng.sample(of_kind, min(AIMED, len(of_kind)))
    return chosen + rng.sample(every, min(AIMED, len(every)))
