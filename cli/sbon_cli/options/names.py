"""Names of nodes, streams and queries on the command line; shells complete them from a node's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from sbon import SbonError

PATIENCE_S = 1.0
"""Longest wait of a shell for the node, in seconds."""


class Name(click.ParamType[str]):
    """An unchanged name; ``ask`` requests the existing names from a node's API."""

    def __init__(self, name: str, ask: Callable[[str], Iterable[str]]) -> None:
        self.name = name
        self._ask = ask

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return completions; empty, without an error, if the node does not answer."""
        api = ctx.find_root().params.get("api")
        try:
            names = list(self._ask(str(api))) if api else []
        except SbonError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _nodes(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (member.name for member in Client(api, patience_s=PATIENCE_S).members())


def _streams(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (info.entry.declaration.name for info in Client(api, patience_s=PATIENCE_S).streams())


def _queries(api: str) -> Iterable[str]:
    from sbon_cli.client import Client

    return (info.id for info in Client(api, patience_s=PATIENCE_S).queries())


def _live_queries(api: str) -> Iterable[str]:
    from sbon.states import LIVE
    from sbon_cli.client import Client

    return (info.id for info in Client(api, patience_s=PATIENCE_S).queries() if info.state in LIVE)


NODE = Name("NODE", _nodes)
STREAM = Name("STREAM", _streams)
QUERY = Name("QUERY", _queries)
LIVE_QUERY = Name("QUERY", _live_queries)
