"""The queries of a run of ``sbon bench chaos``, drawn from a seed. Pure but for the files of the suite."""

import random
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sbon_lab.suite.cases import Case, chosen
from sbon_protocol.api.durability import LOCAL, REPLICATED, Durability

NAMES = (
    "aggregate_twice", "filter_late", "filter_times", "join_full", "join_left", "join_null_keys", "join_weather", "nexmark_q1",
    "nexmark_q5", "nexmark_q7", "semi_join", "session_filtered", "session_hosts", "truncated_hour", "union_aggregated",
    "union_joined",
)  # fmt: skip
"""Queries of the suite of every shape, none with a WITH of its own."""
PACES_S = (15.0, 40.0)
"""A query's sources need a time between these for their rows."""
LOCAL_STRATEGIES = ("producer", "consumer")
"""Strategies that place operators at nodes with sources or sinks, so that no other disk has anything local."""


class Planned(NamedTuple):
    """One query: the suite's ``case``, read in ``seconds``."""

    number: int
    case: Case
    durability: Durability
    strategy: str
    seconds: float


def plan(seed: int) -> Iterator[Planned]:
    """Yield queries for ever; each case comes once before any comes again, and every other query is replicated."""
    rng = random.Random(f"chaos/queries/{seed}")
    turn, number = list[Case](), 0
    while True:
        turn = turn or rng.sample(chosen(NAMES), len(NAMES))
        durability: Durability = REPLICATED if number % 2 == 0 else LOCAL
        strategy = "random" if durability == REPLICATED else rng.choice(LOCAL_STRATEGIES)
        yield Planned(number, turn.pop(), durability, strategy, rng.uniform(*PACES_S))
        number += 1


def streams_of(case: Case, names: Iterable[str]) -> list[str]:
    """Return those of the streams that the text of a case may read."""
    return [name for name in names if re.search(rf"\b{name}\b", case.sql)]


def over(case: Case, streams: dict[str, str]) -> str:
    """Return the case's text over other streams, by their names in the text."""
    parts = ", ".join(f"{name} AS (SELECT * FROM {other})" for name, other in streams.items())
    return f"WITH {parts} {case.sql}"
