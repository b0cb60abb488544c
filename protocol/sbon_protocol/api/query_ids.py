"""Identifiers of queries: the name that people type, and the uid that no other query ever has."""

import random

MAX_SINKS = 8
"""Most sinks of a query, its first one included."""
_SINK = "sink"
_FURTHER = frozenset(f"{_SINK}{number}" for number in range(2, MAX_SINKS + 1))
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_DIGITS = 6


def new_name(rng: random.Random) -> str:
    """Return a name for a query whose user chose none."""
    return f"q{_random(rng)}"


def new_uid(name: str, rng: random.Random) -> str:
    """Return the uid of a new query: its name and random digits. Operators, subscribers and folders go by it."""
    return f"{name}-{_random(rng)}"


def name_of(uid: str) -> str:
    """Return the name in a uid; records of before there were uids have their name alone."""
    name, _, digits = uid.rpartition("-")
    return name if name and len(digits) == _DIGITS and set(digits) <= set(_ALPHABET) else uid


def shown(component: str) -> str:
    """Return a component's id as people see it: with the name of its query in place of the uid."""
    uid, dot, part = component.rpartition(".")
    return f"{name_of(uid)}{dot}{part}"


def uid_of(component: str) -> str:
    """Return the uid of the query that an operator or a sink was made for."""
    return component.rpartition(".")[0]


def sink_of(uid: str) -> str:
    """Return the id of the query's first sink, as a component."""
    return f"{uid}.{_SINK}"


def further_sinks_of(uid: str) -> tuple[str, ...]:
    """Return the ids that further sinks of the query may have, in order; an id is used again once its sink is removed."""
    return tuple(f"{uid}.{part}" for part in sorted(_FURTHER))


def is_sink(component: str) -> bool:
    """Return whether a component is a sink of its query."""
    return part_of(component) == _SINK or is_further_sink(component)


def is_further_sink(component: str) -> bool:
    """Return whether a component is a sink that was added to its query while that ran."""
    return part_of(component) in _FURTHER


def part_of(component: str) -> str:
    """Return a component's id without the uid of its query."""
    return component.rpartition(".")[2]


def _random(rng: random.Random) -> str:
    return "".join(rng.choices(_ALPHABET, k=_DIGITS))
