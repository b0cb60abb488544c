"""Keys of the registers of queries, of their operators and sinks, and of sources."""

from typing import Final

from sbon_protocol.api.query_ids import uid_of

QUERY: Final = "query/"
OPERATOR: Final = "operator/"
SOURCE: Final = "source/"
"""The key of a replicated source is its id."""


def key_of(query: str) -> str:
    """Return the key of the record of a query, by its uid."""
    return f"{QUERY}{query}"


def operator_key(component: str) -> str:
    """Return the key of the register of an operator or sink."""
    return f"{OPERATOR}{component}"


def component_of(key: str) -> str:
    """Return the operator or sink whose register the key has."""
    return key.removeprefix(OPERATOR)


def query_of(key: str) -> str:
    """Return the uid of the query whose record the key has, or one of whose operators; nothing for another key."""
    if key.startswith(OPERATOR):
        return uid_of(key.removeprefix(OPERATOR))
    return key.removeprefix(QUERY) if key.startswith(QUERY) else ""


def ranked_as(key: str) -> str:
    """Return the key by which the register's acceptors are ranked: an operator's are those of its query."""
    return key_of(query) if (query := query_of(key)) else key
