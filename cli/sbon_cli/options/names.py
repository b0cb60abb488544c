"""Names of nodes, streams and queries on the command line; shells complete them from a node's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from sbon import SbonError
from sbon.states import LIVE

if TYPE_CHECKING:
    from sbon_cli.client import Client

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


def _client(api: str) -> Client:
    from sbon_cli.client import Client  # slow to load, and help needs none

    return Client(api, patience_s=PATIENCE_S)


NODE = Name("NODE", lambda api: (member.name for member in _client(api).members()))
STREAM = Name("STREAM", lambda api: (info.entry.declaration.name for info in _client(api).streams()))
QUERY = Name("QUERY", lambda api: (info.id for info in _client(api).queries()))
LIVE_QUERY = Name("QUERY", lambda api: (info.id for info in _client(api).queries() if info.state in LIVE))
