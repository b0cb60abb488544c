"""Connectors of other packages, looked up by their entry points.

An entry point is a name in the group ``sbon.sources`` or ``sbon.sinks`` that leads to a
:class:`sbon_node.connectors.sources.registry.Connector` or a :class:`sbon_node.connectors.sinks.registry.SinkConnector`.

The node imports a package at the first request for its connector, with all rights of the node: install only those you trust.
"""

from importlib.metadata import entry_points
from typing import TypeVar

from sbon_protocol.errors import SbonError

SOURCES = "sbon.sources"
SINKS = "sbon.sinks"

C = TypeVar("C")


def names(group: str) -> list[str]:
    """Return the names of the installed connectors without importing them."""
    return sorted({entry.name for entry in entry_points(group=group)})


def installed(group: str, name: str, kind: type[C]) -> C | None:
    """Return the connector of that name, None if there is none. Raises :class:`SbonError` ``bad-connector`` if it is unusable."""
    entries = [entry for entry in entry_points(group=group) if entry.name == name]
    if not entries:
        return None
    if len({entry.value for entry in entries}) > 1:
        packages = ", ".join(sorted(entry.dist.name if entry.dist else entry.value for entry in entries))
        raise _unusable(name, f"several packages have one: {packages}", "uninstall all but one")
    try:
        connector = entries[0].load()
    except (ImportError, AttributeError) as error:
        raise _unusable(name, f"{entries[0].value} cannot be imported: {error}", "see that its package is whole") from error
    if not isinstance(connector, kind):
        raise _unusable(name, f"{entries[0].value} is no {kind.__name__}", "see docs/connectors.md")
    return connector


def _unusable(name: str, why: str, hint: str) -> SbonError:
    return SbonError("bad-connector", f"the installed connector {name!r} cannot be used: {why}", where="connector", hint=hint)
