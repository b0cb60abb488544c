"""Names of nodes, streams and queries on the command line, which shells complete from what the node asked knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from sbon_node.errors import SbonError

PATIENCE_S = 1.0
"""How long a shell may wait for the node."""


class Name(click.ParamType[str]):
    """A name, as it is; ``ask`` finds those there are at a node's API."""

    def __init__(self, name: str, ask: Callable[[str], Iterable[str]]) -> None:
        self.name = name
        self._ask = ask

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Silently nothing where the node does not answer."""
        api = ctx.find_root().params.get("api")
        try:
            found = list(self._ask(str(api))) if api else []
        except SbonError:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _nodes(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (member.name for member in Client(api, patience_s=PATIENCE_S).members())


def _streams(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (info.entry.declaration.name for info in Client(api, patience_s=PATIENCE_S).streams())


def _queries(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (info.id for info in Client(api, patience_s=PATIENCE_S).queries())


NODE = Name("NODE", _nodes)
STREAM = Name("STREAM", _streams)
QUERY = Name("QUERY", _queries)
