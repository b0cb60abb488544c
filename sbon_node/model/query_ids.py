"""Identifiers of queries: the name that people type, and the uid that no other query ever has."""

from __future__ import annotations

import random

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


def sink_of(uid: str) -> str:
    """Return the id of the query's sink, as a component."""
    return f"{uid}.sink"


def is_sink(component: str) -> bool:
    """Return whether a component is the sink of its query."""
    return component == sink_of(component.rpartition(".")[0])


def _random(rng: random.Random) -> str:
    return "".join(rng.choices(_ALPHABET, k=_DIGITS))
